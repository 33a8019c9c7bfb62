"""`neuralcde predict`: predictions of a saved model for a table, keyed by id."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from .errors import WrongUseError, ends_well, in_options
from .tables import read_table, write_table


@ends_well
def predict(
    folder: Path,
    table: Path,
    *,
    out: Path | None = None,
    duplicates: Literal["error", "mean", "last"] | None = None,
    debug: bool = False,
) -> None:
    """Predict with a model that `neuralcde fit`, or `save` in Python, wrote.

    Parameters
    ----------
    folder
        The model's folder.
    table
        A table like the one it was trained on.
    out
        CSV, Parquet or Arrow file for the predictions; by default CSV on standard output.
    duplicates
        What to do with rows of one series at one time; by default as in the training.
    debug
        Show where an error happened.
    """
    from ..estimators import load  # here, so that --help does not wait for torch
    from ..solve import SolveError
    from .labelled import refuse_text_among_numbers
    from .options import read_config
    from .predictions import prediction_table

    try:
        estimator = load(folder)
    except (FileNotFoundError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason
    config = read_config(folder / "config.toml") if (folder / "config.toml").exists() else {}
    form = estimator.preparation_.format
    text = [form.id, *(column.name for column in form.static if column.categories is not None)]
    frame = read_table(table, text=text)
    channels = [name for name in estimator.preparation_.scaler.channel_names_in_ if name in frame.columns]
    refuse_text_among_numbers(frame, table, channels)
    try:
        series = estimator.read_long(frame, duplicates=duplicates or config.get("duplicates", "error"))
        outputs = estimator._outputs(series)
    except (SolveError, TypeError, ValueError) as reason:
        raise WrongUseError(f"{table}: {in_options(reason)}") from reason
    label = config.get("label", "prediction")
    found = prediction_table(estimator, series, outputs, form.id, label)
    if out is None:
        sys.stdout.write(found.write_csv())
    else:
        write_table(found, out)
        print(f"{found.height} predictions: {out}")
