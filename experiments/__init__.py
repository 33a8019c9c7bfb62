"""The paper's experiments: `python -m experiments NAME` runs one, `python -m experiments tables` prints what came out."""
