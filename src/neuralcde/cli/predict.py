"""`neuralcde predict`: predictions of a saved model for a table, keyed by id."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from .errors import WrongUseError, in_options, report_errors
from .tables import nulls_for_missing, read_columns, write_table


@report_errors
def predict(
    folder: Path,
    table: Path,
    *,
    at: str | None = None,
    out: Path | None = None,
    explain: Path | None = None,
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
        Table with the same columns as the training table; the label is not needed. The values of a measured column
        that it lacks are not observed.
    at
        Times at which to predict, separated by commas: 6,12,24, or 2026-01-31T12:00 if the table has datetimes (seconds
        if it has durations). At each time only what was known then is used. A series that had not begun gets empty
        predictions.
    out
        CSV, Parquet or Arrow file for the predictions; by default CSV on standard output.
    explain
        CSV, Parquet or Arrow file for explanations of the predictions, with one row per term: what each observation,
        each static column and the time that passed changed in the log odds of a class (or in the predicted number). The
        terms of a prediction add up to it, before calibration. The model needs a causal path, as it has by default.
    duplicates
        What to do with several rows of a series at the same time; by default as in training.
    spreadsheet_safe
        Write an apostrophe before text that a spreadsheet would run as a formula: text that starts with =, +, - or @.
        By default ids and classes are written unchanged, so that they can be joined with the table.
    debug
        Show the traceback of an error.
    """
    if explain is not None and out is not None and explain.resolve() == out.resolve():
        raise WrongUseError(f"--explain and --out are the same file, {out}; name two.")
    from ..estimators import load  # here, so that --help does not wait for torch
    from ..solve import SolveError
    from .labelled import refuse_unreadable
    from .options import read_config
    from .predictions import explanation_table, prediction_table, table_over_time, times_of, without_formulas

    try:
        estimator = load(folder)
    except (FileNotFoundError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason
    config = read_config(folder / "config.toml") if (folder / "config.toml").exists() else {}
    form = estimator.preparation_.format
    measured = form.channel_columns(estimator.preparation_.scaler.channel_names_in_)
    words = [column.name for column in (*measured, *form.static) if column.categories is not None]
    found = read_columns(table, text=[form.id, *words])
    found = found._replace(frame=nulls_for_missing(found.frame, words))
    numbers = (form.time, *(column.name for column in (*measured, *form.static)))
    used = [name for name in numbers if name in found.frame.columns and name not in words]
    refuse_unreadable(found, table, used, may_exclude=False)
    label, terms = str(config.get("label", "prediction")), None
    try:
        series = estimator.read_long(found.frame, duplicates=duplicates or config.get("duplicates", "error"))
        asked = None if at is None else times_of(at, form)
        if asked is None:
            outputs = estimator.calibrated(estimator.outputs(series))
        else:
            outputs = estimator.calibrated(estimator.outputs_at(series, asked), over_time=True)
        if explain is not None:
            terms = explanation_table(estimator, series, label, asked)
    except (SolveError, TypeError, ValueError) as reason:
        raise WrongUseError(f"{table}: {in_options(reason)}") from reason
    if asked is None:
        predictions = prediction_table(estimator, series, outputs, form.id, label)
    else:
        predictions = table_over_time(estimator, series, outputs, asked, label)
    if spreadsheet_safe:
        predictions = without_formulas(predictions)
        terms = None if terms is None else without_formulas(terms)
    if terms is not None and explain is not None:
        write_table(terms, explain)
        print(f"{terms.height} terms: {explain}", file=sys.stderr)
    if out is None:
        sys.stdout.write(predictions.write_csv())
    else:
        write_table(predictions, out)
        print(f"{predictions.height} predictions: {out}")
