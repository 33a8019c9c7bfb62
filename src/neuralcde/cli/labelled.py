"""Read series and their labels from tables, with one label per series or one per row."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars
import torch

from ..series import IrregularSeries
from ..series.columns import MOST_CATEGORIES
from .column_names import named_columns, split_names
from .errors import WrongUseError, in_options
from .precision import values_dtype
from .tables import MOST_CLASSES, Table, need_columns, nulls_for_missing, read_columns
from .written_numbers import NONE, numeric_cells


class Labelled(NamedTuple):
    """Series and their targets, in the same order.

    Parameters
    ----------
    series
        The series.
    targets
        One target per series, or one array per series with --per-row.
    text
        Columns of text that are neither channels nor static: for each one its values, one per series, None where
        unknown. Those that vary within a series are left out.
    """

    series: IrregularSeries
    targets: np.ndarray[Any, Any]
    text: dict[str, np.ndarray[Any, Any]]


def read_series(known: dict[str, Any]) -> tuple[IrregularSeries, np.ndarray[Any, Any]]:
    """The series and the targets of `read_labelled`."""
    found = read_labelled(known)
    return found.series, found.targets


def read_labelled(known: dict[str, Any]) -> Labelled:
    """Read the series of the table and their labels, in the same order. The label is never a channel."""
    file, id_column, time, label = Path(known["table"]), known["id"], known["time"], known["label"]
    if label in (id_column, time):
        raise WrongUseError(f"--label {label} is the id or the time; name the column to predict.")
    asked = known.get("static") or []
    categories = [*asked, *(part for text in asked for part in split_names(text))]
    table = read_columns(file, text=[id_column], codes=[label], categories=categories)
    need_columns(table.frame, file, id=id_column, time=time)
    _check_ids(table.frame[id_column], file)
    if known.get("per_row"):
        need_columns(table.frame, file, label=label)
        if known.get("labels"):
            raise WrongUseError("--labels has one label per series; with --per-row the label is a column of TABLE.")
        _check_label(table, file, known)
        found, source = {}, file
    else:
        source = Path(known["labels"]) if known.get("labels") else file
        other = read_columns(source, text=[id_column], codes=[label]) if known.get("labels") else table
        found = _labels_of_series(other, source, known)
    group = known.get("group")
    roles = {id_column, time, label, group}
    explicit = _literal(known.get("exclude") or (), table.frame.columns)  # patterns do not match these
    static = _named("static", known, table, file, roles | explicit)
    chosen = _named("channels", known, table, file, roles | explicit | set(static))
    if known.get("channels") is not None and not chosen:
        raise WrongUseError("--channels: no channels are given; name one, or leave it out to use all columns.")
    excluded = _named("exclude", known, table, file, roles | set(static) | set(chosen))
    for name in excluded:
        if name in (id_column, time, label, *static, *chosen):
            raise WrongUseError(
                f"--exclude {name}: the column is named in --id, --time, --label, --static or --channels; name it once."
            )
    if group is not None and group not in (*static, *chosen):
        excluded = [*excluded, group]
    frame = table.frame.drop(excluded, strict=False)
    spoken_for = {id_column, time, label, *static}
    measured = [name for name in chosen or frame.columns if name not in spoken_for]
    _check_numbers(table, file, time, measured, static)
    names: dict[str, Any] = {"id": id_column, "time": time, "duplicates": known.get("duplicates", "error")}
    dtype = values_dtype(known.get("dtype", "auto"), frame.select({*measured, *static} - {label}))
    try:
        series = IrregularSeries.from_long(
            frame.drop(label, strict=False),
            static=[name for name in static if name != label],
            channels=[name for name in chosen if name != label] or None,
            dtype=dtype,
            **names,
        )
        text = _text_of_series(frame.drop(label, strict=False), id_column, time, series)
        if known.get("per_row"):
            return Labelled(series, _labels_of_rows(frame, label, names), text)
    except (TypeError, ValueError) as reason:
        raise WrongUseError(f"{file}: {in_options(reason)}") from reason
    ids = series.ids.tolist()
    strangers = set(found) - set(map(str, ids))
    if strangers:
        raise WrongUseError(
            f"{source}: there are labels for {len(strangers)} ids that the table does not have, "
            f"e.g. {sorted(map(str, strangers))[0]}."
        )
    unlabelled = [name for name in ids if str(name) not in found]
    if unlabelled:
        raise WrongUseError(
            f"{source}: {len(unlabelled)} of {len(ids)} series have no label in the column {label}, "
            f"e.g. {unlabelled[0]!r}; give them one, or leave them out of {file}."
        )
    return Labelled(series, np.asarray([found[str(name)] for name in ids]), text)


def _text_of_series(
    frame: polars.DataFrame, id_column: str, time: str, series: IrregularSeries
) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of text that did not become channels or static features, where they have one value per series."""
    used = {column.name for column in series.format.channel_columns(series.channel_names)}
    used |= {id_column, time, *(column.name for column in series.format.static)}
    found = {}
    for name in (name for name, kind in frame.schema.items() if kind == polars.String and name not in used):
        pairs = frame.select(polars.col(id_column).cast(polars.String).alias("id"), polars.col(name).alias("value"))
        pairs = nulls_for_missing(pairs, ["value"]).drop_nulls().unique(maintain_order=True)
        if not pairs["id"].is_duplicated().any():
            of_series = dict(pairs.iter_rows())
            found[name] = np.array([of_series.get(str(key)) for key in series.ids.tolist()], dtype=object)
    return found


def _named(option: str, known: dict[str, Any], table: Table, file: Path, taken: set[str]) -> list[str]:
    """The columns that an option names; refused if the table lacks one."""
    found = named_columns(option, known.get(option) or (), table.frame.columns, taken=taken)
    for name in found:
        need_columns(table.frame, file, **{option: name})
    return found


def _literal(given: Iterable[str], columns: Collection[str]) -> set[str]:
    """The columns that an option names without a pattern."""
    return {part for text in given for part in [text, *split_names(text)] if part in columns}


def _check_ids(column: polars.Series, file: Path) -> None:
    kind = column.dtype
    if kind.is_nested() or kind in (polars.Binary, polars.Duration, polars.Object):
        raise WrongUseError(f"{file}: the id {column.name} holds {kind}; expected text or numbers. Convert the column.")


def _check_numbers(table: Table, file: Path, time: str, measured: list[str], static: list[str]) -> None:
    """Refuse times, channels and static features whose numbers cannot be parsed.

    A static feature with some text among its numbers only gives a warning, because it can be categorical.
    """
    if time in table.unreadable:
        raise WrongUseError(f"{file}: {table.unreadable[time]}. Write all times in the same format.")
    refuse_unreadable(table, file, measured)
    for name in measured:
        if table.frame[name].dtype == polars.String:
            cells, numbers = numeric_cells(table.frame[name])
            if numbers.any() and cells.n_unique() <= MOST_CATEGORIES:
                warnings.warn(
                    f"{file}: the column {name} holds text and numbers, e.g. {cells.filter(~numbers)[0]!r} and "
                    f"{cells.filter(numbers)[0]!r}: each of its values becomes a category, with its own channel.",
                    stacklevel=2,
                )
    for name in static:
        if name in table.unreadable:
            raise WrongUseError(
                f"{file}: {table.unreadable[name]}. Write them in the same format, or leave it out of --static."
            )
        trouble = text_among_numbers(table.frame[name], least=MOST_CLASSES)
        if trouble:
            warnings.warn(f"{file}: {trouble}: it is read as categorical, with one feature per value.", stacklevel=2)


def refuse_unreadable(table: Table, file: Path, channels: Iterable[str], *, may_exclude: bool = True) -> None:
    """Refuse channels with text among their numbers, or with numbers that cannot be parsed.

    Columns of text alone pass: `IrregularSeries.from_long` makes indicators of them, or leaves them out with a warning.
    """
    for name in channels:
        trouble = text_among_numbers(table.frame[name])
        fix = "Correct them, or leave those cells empty"
        if name in table.unreadable:
            trouble, fix = table.unreadable[name], "Write them in the same format, without thousands separators"
        if trouble:
            leave = f"; or leave the column out: --exclude {shlex.quote(name)}" if may_exclude else ""
            raise WrongUseError(f"{file}: {trouble}. {fix}{leave}.")


def text_among_numbers(column: polars.Series, *, least: int = 0) -> str | None:
    """Describe the problem of a numeric column in which a minority of the values, or one repeated value, is text.

    The result is None if there is no such problem. Columns with at most `least` distinct numbers pass: they are
    categorical, and some of their categories look like numbers.
    """
    if column.dtype != polars.String:
        return None
    cells, numbers = numeric_cells(column)
    text, different = cells.filter(~numbers), cells.filter(numbers).n_unique()
    minority = 0 < len(text) < len(cells) / 2
    repeated = text.n_unique() == 1 and different > 10
    if not (minority or repeated) or different <= least:
        return None
    examples = ", ".join(map(repr, text.unique(maintain_order=True)[:3]))
    return (
        f"the column {column.name} holds numbers, but {len(text)} of its {len(cells)} values are text, e.g. {examples}"
    )


def _check_label(table: Table, file: Path, known: dict[str, Any]) -> None:
    """Refuse labels that are neither numbers nor text, and text that may be a number or a missing label."""
    column, classes = table.frame[known["label"]], known.get("task") == "classification"
    kind = column.dtype
    if kind.is_float() and column.is_infinite().any():
        raise WrongUseError(f"{file}: the label {column.name} holds infinity; correct it, or leave those cells empty.")
    if kind == polars.Null or kind.is_numeric() or kind in (polars.Boolean, polars.Categorical, polars.Enum):
        return
    if kind != polars.String:
        example = next(iter(column.drop_nulls().head(1).to_list()), None)
        raise WrongUseError(
            f"{file}: the label {column.name} holds {kind}, e.g. {example}; expected numbers or text. Convert the "
            "target to a number, for a date e.g. the days since a fixed date, or to text."
        )
    trouble = text_among_numbers(column, least=MOST_CLASSES)
    if trouble and not classes:
        raise WrongUseError(f"{file}: {trouble}. Leave those cells empty, or pass --task classification.")
    if column.name in table.unreadable and not classes:
        raise WrongUseError(
            f"{file}: {table.unreadable[column.name]}. Write them in the same format, or pass --task classification "
            "if they are names of classes."
        )
    none = column.str.strip_chars().is_in(NONE)
    if none.any() and not classes:
        raise WrongUseError(
            f"{file}: the label {column.name} is {column.filter(none)[0]!r} in {none.sum()} rows. Leave those cells "
            "empty if the label is missing, or pass --task classification if it is a class."
        )


def _labels_of_rows(frame: polars.DataFrame, label: str, names: dict[str, Any]) -> np.ndarray[Any, Any]:
    """One array of labels per series, in the order of its rows; None or NaN for a missing label."""
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


def _labels_of_series(table: Table, file: Path, known: dict[str, Any]) -> dict[str, Any]:
    """The label of each series, keyed by its id as text."""
    frame, id, label = table.frame, known["id"], known["label"]
    need_columns(frame, file, id=id, label=label)
    _check_ids(frame[id], file)
    _check_label(table, file, known)
    pairs = frame.select(id, label).drop_nulls().drop_nans().unique(maintain_order=True)
    twice = pairs.filter(pairs[id].is_duplicated())
    if twice.height:
        raise WrongUseError(
            f"{file}: the column {label} has more than one value for {id} {twice[id][0]!r}; expected one label per "
            "series."
        )
    names = pairs[id] if pairs[id].dtype.is_numeric() else pairs[id].cast(polars.String)
    return dict(zip(map(str, names.to_list()), pairs[label].to_list(), strict=True))


def all_targets(targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All targets as one array; targets per row are concatenated."""
    return np.concatenate(targets) if targets.dtype == object and isinstance(targets[0], np.ndarray) else targets
