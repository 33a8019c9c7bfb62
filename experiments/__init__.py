"""The paper's experiments: `python -m experiments NAME` runs one, `python -m experiments tables` prints the results."""
