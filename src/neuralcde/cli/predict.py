"""`neuralcde predict`: predictions of a saved model for a table, keyed by id."""

from __future__ import annotations

import sys
from pathlib import Path

from .errors import ends_well
from .tables import WrongUseError, read_table, write_table


@ends_well
def predict(folder: Path, table: Path, *, out: Path | None = None, debug: bool = False) -> None:
    """Predict with a model that `neuralcde fit` wrote.

    Parameters
    ----------
    folder
        The model's folder.
    table
        A table like the one it was trained on.
    out
        CSV, Parquet or Arrow file for the predictions; by default CSV on standard output.
    debug
        Show where an error happened.
    """
    from ..estimators import load  # here, so that --help does not wait for torch
    from .options import read_config
    from .predictions import prediction_table

    try:
        estimator = load(folder)
    except (FileNotFoundError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason
    config = read_config(folder / "config.toml")
    try:
        series = estimator.read_long(read_table(table), duplicates=config.get("duplicates", "error"))
    except (TypeError, ValueError) as reason:
        raise WrongUseError(f"{table}: {reason}") from reason
    found = prediction_table(estimator, series, config["id"], config["label"])
    if out is None:
        sys.stdout.write(found.write_csv())
    else:
        write_table(found, out)
        print(f"{found.height} predictions: {out}")
