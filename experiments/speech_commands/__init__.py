"""Table 3 of the paper: Speech Commands."""
