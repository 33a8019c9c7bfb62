"""`neuralcde predict`: predictions of a saved model for a table, keyed by id."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from .errors import WrongUseError, in_options, report_errors
from .tables import read_columns, write_table


@report_errors
def predict(
    folder: Path,
    table: Path,
    *,
    out: Path | None = None,
    duplicates: Literal["error", "mean", "last"] | None = None,
    spreadsheet_safe: bool = False,
    debug: bool = False,
) -> None:
    """Predict with a saved model, written by `neuralcde fit` or by `save` in Python.

    Parameters
    ----------
    folder
        Folder of the model.
    table
        Table with the same columns as the training table; the label is not needed.
    out
        CSV, Parquet or Arrow file for the predictions; by default CSV on standard output.
    duplicates
        What to do with several rows of a series at the same time; by default as in training.
    spreadsheet_safe
        Write an apostrophe before text that a spreadsheet would run as a formula: text that starts with =, +, - or @.
        By default ids and classes are written unchanged, so that they can be joined with the table.
    debug
        Show the traceback of an error.
    """
    from ..estimators import load  # here, so that --help does not wait for torch
    from ..solve import SolveError
    from .labelled import refuse_unreadable
    from .options import read_config
    from .predictions import prediction_table, without_formulas

    try:
        estimator = load(folder)
    except (FileNotFoundError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason
    config = read_config(folder / "config.toml") if (folder / "config.toml").exists() else {}
    form = estimator.preparation_.format
    text = [form.id, *(column.name for column in form.static if column.categories is not None)]
    found = read_columns(table, text=text)
    numbers = (form.time, *estimator.preparation_.scaler.channel_names_in_, *(column.name for column in form.static))
    used = [name for name in numbers if name in found.frame.columns and name not in text]
    refuse_unreadable(found, table, used, may_exclude=False)
    try:
        series = estimator.read_long(found.frame, duplicates=duplicates or config.get("duplicates", "error"))
        outputs = estimator.outputs(series)
    except (SolveError, TypeError, ValueError) as reason:
        raise WrongUseError(f"{table}: {in_options(reason)}") from reason
    predictions = prediction_table(estimator, series, outputs, form.id, str(config.get("label", "prediction")))
    if spreadsheet_safe:
        predictions = without_formulas(predictions)
    if out is None:
        sys.stdout.write(predictions.write_csv())
    else:
        write_table(predictions, out)
        print(f"{predictions.height} predictions: {out}")
