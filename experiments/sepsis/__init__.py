"""Table 2 of the paper: the PhysioNet 2019 challenge."""
