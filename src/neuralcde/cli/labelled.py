"""Series and their labels out of tables: one label a series, or one a row."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import torch

from ..series import IrregularSeries
from .errors import WrongUseError, in_options
from .tables import MOST_CLASSES, need_columns, read_table


def read_series(known: dict[str, Any]) -> tuple[IrregularSeries, np.ndarray[Any, Any]]:
    """The series of the table, and their labels in the same order; the label is never among the channels."""
    file, id_column, label = Path(known["table"]), known["id"], known["label"]
    if label in (id_column, known["time"]):
        raise WrongUseError(f"--label {label} is the id or the time; name the column that is to be predicted.")
    frame = read_table(file, text=[id_column], codes=[label])
    need_columns(frame, file, id=id_column, time=known["time"])
    if known.get("per_row"):
        need_columns(frame, file, label=label)
        if known.get("labels"):
            raise WrongUseError("--labels has one label a series; with --per-row the label is a column of TABLE.")
        _check_label(frame, file, known)
        found = {}
    elif known.get("labels"):
        other = Path(known["labels"])
        found = _labels_of_series(read_table(other, text=[id_column], codes=[label]), other, known)
    else:
        found = _labels_of_series(frame, file, known)
    for option in ("static", "channels"):
        for name in known.get(option) or ():
            need_columns(frame, file, **{option: name})
    spoken_for = {id_column, known["time"], label, *known.get("static", ())}
    measured = [name for name in known.get("channels") or frame.columns if name not in spoken_for]
    refuse_text_among_numbers(frame, file, measured)
    for name in known.get("static", ()):
        trouble = text_among_numbers(frame[name], least=MOST_CLASSES)
        if trouble:
            warnings.warn(f"{file}: {trouble}: it becomes one feature a value.", stacklevel=2)
    names: dict[str, Any] = {"id": id_column, "time": known["time"], "duplicates": known.get("duplicates", "error")}
    try:
        series = IrregularSeries.from_long(
            frame.drop(label, strict=False),
            static=[name for name in known.get("static", ()) if name != label],
            channels=[name for name in known["channels"] if name != label] if known.get("channels") else None,
            **names,
        )
        if known.get("per_row"):
            return series, _labels_of_rows(frame, label, names)
    except (TypeError, ValueError) as reason:
        raise WrongUseError(f"{file}: {in_options(reason)}") from reason
    ids = series.ids.tolist()
    strangers = set(found) - set(map(str, ids))
    if strangers:
        raise WrongUseError(
            f"there are labels for {len(strangers)} ids that the table does not have, e.g. {sorted(map(str, strangers))[0]}."
        )
    nameless = [name for name in ids if str(name) not in found]
    if nameless:
        raise WrongUseError(
            f"{len(nameless)} of {len(ids)} series have no label, e.g. {nameless[0]!r}; give them one, or leave them out of the table."
        )
    return series, np.asarray([found[str(name)] for name in ids])


def refuse_text_among_numbers(frame: polars.DataFrame, file: Path, names: Iterable[str]) -> None:
    """Of channels: a column of text is left out, with a word, but some text among numbers is more likely a mistake."""
    for trouble in filter(None, (text_among_numbers(frame[name]) for name in names)):
        raise WrongUseError(
            f"{file}: {trouble}. Correct them, leave those cells empty, or choose other columns with --channels."
        )


def text_among_numbers(column: polars.Series, *, least: int = 0) -> str | None:
    """What is wrong with a column of numbers, where some values are text, or many are one and the same text.

    Columns with up to `least` different numbers are categories, of which some look like numbers.
    """
    if column.dtype != polars.String:
        return None
    column = column.drop_nulls()
    numbers = column.str.replace(r"^(\s*[+-]?\d*),(\d+\s*)$", "$1.$2").cast(polars.Float64, strict=False)
    text, different = column.filter(numbers.is_null()), numbers.drop_nulls().n_unique()
    few = 0 < len(text) < len(column) / 2
    one = text.n_unique() == 1 and different > 10
    if not (few or one) or different <= least:
        return None
    return f"the column {column.name} holds numbers, but {len(text)} of its {len(column)} values are text, e.g. {text[0]!r}"


def _check_label(frame: polars.DataFrame, file: Path, known: dict[str, Any]) -> None:
    trouble = text_among_numbers(frame[known["label"]], least=MOST_CLASSES)
    if trouble and known.get("task") != "classification":
        raise WrongUseError(f"{file}: {trouble}. Leave those cells empty, or say --task classification.")


def _labels_of_rows(frame: polars.DataFrame, label: str, names: dict[str, Any]) -> np.ndarray[Any, Any]:
    """An array of labels for every series, in the order of its rows; None or NaN where there is none."""
    column = frame[label]
    classes: polars.Series | None = column.drop_nulls().unique().sort()
    if column.dtype.is_float() or (column.dtype.is_integer() and column.n_unique() > MOST_CLASSES):
        classes = None
    if classes is not None:
        if names["duplicates"] == "mean":
            raise WrongUseError("--duplicates mean: labels have no mean; use last.")
        codes = dict(zip(classes.to_list(), range(len(classes)), strict=True))
        column = column.replace_strict(codes, default=None, return_dtype=polars.Float64)
    sorted_rows = IrregularSeries.from_long(
        frame.select(names["id"], names["time"]).with_columns(column.alias(label)),
        channels=[label],
        dtype=torch.float64,
        **names,
    )
    values = sorted_rows.values[:, 0].numpy()
    if classes is not None:
        known = ~np.isnan(values)
        found = np.full(len(values), None, dtype=object)
        found[known] = np.asarray(classes.to_list(), dtype=object)[values[known].astype(int)]
        values = found
    parts = np.empty(len(sorted_rows), dtype=object)
    parts[:] = np.split(values, sorted_rows.offsets[1:-1].numpy())
    return parts


def _labels_of_series(frame: polars.DataFrame, file: Path, known: dict[str, Any]) -> dict[str, Any]:
    """The label of every id, as text: one each."""
    id, label = known["id"], known["label"]
    need_columns(frame, file, id=id, label=label)
    _check_label(frame, file, known)
    pairs = frame.select(id, label).drop_nulls().drop_nans().unique(maintain_order=True)
    twice = pairs.filter(pairs[id].is_duplicated())
    if twice.height:
        raise WrongUseError(
            f"{file}: the column {label} has more than one value for {id} {twice[id][0]!r}; a label must be one a series."
        )
    return dict(zip(pairs[id].cast(polars.String).to_list(), pairs[label].to_list(), strict=True))


def all_targets(targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One array, where targets are an array a series."""
    return np.concatenate(targets) if targets.dtype == object and isinstance(targets[0], np.ndarray) else targets
