"""Convert the X and y of an estimator to series, and to an array of targets in the same order."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from ..contracts import Argument, ArgumentError
from ..series import IrregularSeries, ragged
from ..tasks import missing_targets

EACH_ROW = Argument("per_row", True)
OF_ARRAYS = ("n_features_in_", "feature_names_in_")  # scikit-learn's attributes of an array or data frame
DATES = 'Count from a first date: (y - y.min()) / np.timedelta64(1, "D"); or make dates labels: y.astype(str).'
NOT_NUMBERS = (nw.String, nw.Categorical, nw.Enum, nw.Datetime, nw.Date, nw.Time, nw.Duration)


def as_series(estimator: Any, X: Any) -> IrregularSeries:
    """X as series: an `IrregularSeries`, or an array (series, steps, channels) or (series, steps), NaN for missing.

    Arrays are validated by scikit-learn, also against the array that the estimator was fitted on.
    """
    return _read(estimator, X, reset=False)


def as_training_series(estimator: Any, X: Any) -> tuple[IrregularSeries, dict[str, Any]]:
    """X as training series, and scikit-learn's attributes of an array: `n_features_in_`, `feature_names_in_`.

    scikit-learn sets these attributes on the estimator that it validates for. Here that is a copy, so that a fit that
    fails leaves the estimator unchanged.
    """
    notes = copy.copy(estimator)
    for name in OF_ARRAYS:
        vars(notes).pop(name, None)
    series = _read(notes, X, reset=True)
    return series, {name: value for name, value in vars(notes).items() if name in OF_ARRAYS}


def _read(estimator: Any, X: Any, *, reset: bool) -> IrregularSeries:
    if isinstance(X, IrregularSeries):
        if len(X) == 0:
            raise ArgumentError("X has no series; expected at least one.", argument="X")
        return X
    try:
        values = validate_data(
            estimator, X, reset=reset, allow_nd=True, ensure_all_finite="allow-nan", dtype=[np.float64, np.float32]
        )
    except (TypeError, ValueError) as reason:
        table = nw.from_native(X, eager_only=True, pass_through=True)
        if isinstance(table, nw.DataFrame) and any(isinstance(kind, NOT_NUMBERS) for kind in table.schema.values()):
            raise ArgumentError(
                f"X is a data frame with columns that are not numeric ({reason}); each row of a data frame is a "
                "series, and its columns are the steps. Read a long table first: "
                "IrregularSeries.from_long(frame, id=..., time=...); for a fitted estimator, "
                "estimator.read_long(frame).",
                argument="X",
            ) from reason
        raise
    if np.isinf(values).any():
        raise ArgumentError("X contains infinity; use NaN for missing values.", argument="X")
    if values.ndim > 3:
        raise ArgumentError(
            f"X must have shape (series, steps) or (series, steps, channels), got {values.shape}.", argument="X"
        )
    if values.ndim == 3 and values.shape[2] > values.shape[1] > 1:
        raise ArgumentError(
            f"X of shape {values.shape} would be {values.shape[1]} steps of {values.shape[2]} channels; the array "
            "looks like (series, channels, steps). Pass X.swapaxes(1, 2), or confirm the layout: "
            "IrregularSeries.from_padded(X, channels=[names]).",
            argument="X",
        )
    block = torch.from_numpy(np.ascontiguousarray(values))
    block = block[:, :, None] if block.ndim == 2 else block
    lengths = torch.full((len(block),), block.shape[1])
    return IrregularSeries.from_padded(block, lengths=lengths, dtype=block.dtype)


def as_targets(
    y: Any, series: IrregularSeries, *, by_id: bool = True, per_row: bool = False, allow_missing: bool = False
) -> NDArray[Any]:
    """Targets in the order of the series.

    Parameters
    ----------
    y
        By position, or by id: a mapping, or a pandas object whose index holds the ids.
    series
        The series that the targets belong to.
    by_id
        Whether the index of a pandas object may hold ids; False if X was an array.
    per_row
        Whether there is one target per row of the series: one array of all, or one array per series.
    allow_missing
        Whether a series may have no target.
    """
    if y is None:
        raise ArgumentError("requires y to be passed, but the target y is None.", argument="y")
    ids = series.ids.tolist()
    if isinstance(y, Mapping):
        missing = [name for name in ids if name not in y]
        if missing:
            raise ArgumentError(
                f"y has no target for {len(missing)} of {len(series)} series, e.g. {missing[0]!r}.", argument="y"
            )
        y = [y[name] for name in ids]
    elif by_id and hasattr(y, "loc") and not per_row:
        y = _looked_up(y, ids, from_table=series.format.backend is not None)
    if per_row:
        return _targets_of_rows(y, series)
    targets = _as_array(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = column_or_1d(targets, warn=True)
    if targets.ndim == 0 or len(targets) != len(series):
        raise ArgumentError(
            f"Found input variables with inconsistent numbers of samples: {len(series)} series, "
            f"{len(targets) if targets.ndim else 'no'} targets. Give y one target per series, or a mapping from id to "
            "target.",
            argument="y",
        )
    unknown = np.asarray(missing_targets(targets).reshape(len(targets), -1).any(1))
    if not allow_missing and unknown.any():
        raise ArgumentError(
            f"Input y contains NaN or None: series {ragged.series_name(series.ids, int(unknown.argmax()))} has no "
            f"target ({int(unknown.sum())} of {len(series)} series); leave such series out.",
            argument="y",
        )
    return targets


def per_series(name: str, given: Any, series: IrregularSeries, *, by_id: bool) -> NDArray[Any] | None:
    """The argument `sample_weight` or `groups` as an array in the order of the series; None if it is not given."""
    if given is None:
        return None
    try:
        found = as_targets(given, series, by_id=by_id)
    except ArgumentError as reason:
        raise ArgumentError(f"{name}, which is given per series like y: {reason}", argument=name) from reason
    if found.ndim != 1:
        raise ArgumentError(f"{name} must be one per series, got shape {found.shape}.", argument=name)
    if name == "groups":
        return found
    if found.dtype.kind not in "biuf" or not np.isfinite(found).all() or (found < 0).any() or not found.any():
        raise ArgumentError(f"{name} must be numbers of at least zero, and not all of them zero.", argument=name)
    return found.astype(np.float64)


def as_validation(
    estimator: Any, noted: Mapping[str, Any], given: Any, *, per_row: bool
) -> tuple[IrregularSeries, NDArray[Any]] | None:
    """The argument `validation` as series and targets; `noted` is what scikit-learn noted of the training array."""
    if given is None:
        return None
    if not isinstance(given, tuple) or len(given) != 2:
        raise ArgumentError(
            f"validation must be a pair (X, y), got {reprlib.repr(given)}.",
            argument="validation",
        )
    notes = copy.copy(estimator)
    vars(notes).update(noted)
    try:
        series = as_series(notes, given[0])
        return series, as_targets(given[1], series, by_id=series is given[0], per_row=per_row)
    except ValueError as reason:
        raise ArgumentError(f"validation: {reason}", argument="validation") from reason


def _looked_up(y: Any, ids: list[Any], *, from_table: bool) -> Any:
    """A pandas object in the order of the ids if they are its index; unchanged if its index is 0, 1, ..."""
    index = y.index.tolist()
    counted = index == list(range(len(index)))
    if counted and from_table and y.index.name is None and len(index) != len(ids) and 0 not in ids:
        raise ArgumentError(
            f"y has {len(index)} targets for {len(ids)} series, and its index only counts them; make the ids its index "
            'and name it: y.set_axis(ids).rename_axis("id"), or pass a mapping from id to target.',
            argument="y",
        )
    if (
        counted and len(index) == len(ids) and len(set(ids)) < len(ids)
    ):  # series of several tables, each numbered from 0
        return y
    if y.index.is_unique and set(ids) <= set(index):
        return y.loc[ids]
    if counted:
        return y
    missing = [name for name in ids if name not in set(index)]
    if not missing:
        raise ArgumentError(
            "the index of y has some ids twice; it must hold each id once.",
            argument="y",
        )
    raise ArgumentError(
        f"the index of y lacks {len(missing)} of {len(ids)} ids, e.g. {missing[0]!r}; y must have a target for every "
        "series under its id. Functions that split series and y by position, as scikit-learn does, "
        "need y in the order of the series: y.loc[series.ids].",
        argument="y",
    )


def _as_array(y: Any) -> NDArray[Any]:
    """Targets as an array of numbers, text or booleans. With missing text targets, an object array with None."""
    try:
        targets = np.asarray(y)
    except (TypeError, ValueError) as reason:
        raise ArgumentError(
            f"y cannot be read as an array of targets, it is a {type(y).__name__}: {reason}", argument="y"
        ) from reason
    if targets.dtype.kind in "US":  # numpy converts NaN and None among text to text
        items = np.asarray(y, dtype=object)
        targets = items if missing_targets(items).any() else targets
    if targets.dtype != object:
        _check_kind(targets.dtype)
        return targets
    missing = missing_targets(targets)
    known = targets[~missing].tolist()
    kinds = {_kind(item) for item in known}
    if len(kinds) > 1:
        examples = " and ".join(repr(next(item for item in known if _kind(item) == kind)) for kind in sorted(kinds))
        raise ArgumentError(
            f"y mixes kinds of targets, e.g. {examples}; make them one, e.g. y.astype(str).", argument="y"
        )
    if known:
        _check_kind(np.asarray(known).dtype)
    if not missing.any():
        return np.asarray(targets.tolist())
    targets = targets.copy()
    targets[missing] = None
    return targets


def _kind(item: Any) -> str:
    """Whether an item is text or a number; other items are refused."""
    if isinstance(item, str):
        return "text"
    if isinstance(item, bool | int | float | complex | np.bool_ | np.number):
        return "number"
    raise ArgumentError(
        f"y holds {reprlib.repr(item)}, a {type(item).__name__}; expected numbers, text, or True and False."
        f"{_advice(item)}",
        argument="y",
    )


def _advice(item: Any) -> str:
    return f" {DATES}" if hasattr(item, "year") or hasattr(item, "total_seconds") else ""


def _check_kind(dtype: np.dtype[Any]) -> None:
    if dtype.kind in "biufUO":
        return
    fixes = {"c": "Give their real part, y.real, or their size, abs(y).", "M": DATES, "m": DATES}
    raise ArgumentError(
        f"y is of type {dtype}; expected numbers, text, or True and False. "
        f"{fixes.get(dtype.kind, 'Convert it: y.astype(str).')}",
        argument="y",
    )


def _targets_of_rows(y: Any, series: IrregularSeries) -> NDArray[Any]:
    rows = len(series.times)
    if not hasattr(y, "__len__") or isinstance(y, str):
        raise ArgumentError(
            f"y is a {type(y).__name__}; ",
            EACH_ROW,
            f" needs one target for each of the {rows} rows, or one array per series.",
            argument="y",
        )
    if len(y) == rows and (len(y) != len(series) or np.ndim(next(iter(y))) == 0):
        if hasattr(y, "to_numpy") and not series.format.in_order:
            raise ArgumentError(
                "y is a column with one target per row, but the rows of the series are not in the order of the table: "
                "it was not in the order of series and time, or series were concatenated or reordered since. Sort the "
                "table first; or pass a mapping from id to the targets in the order of time. If y is in the order of "
                "the series' rows, pass y.to_numpy().",
                argument="y",
            )
        return _as_array(y)
    if len(y) != len(series):
        raise ArgumentError(
            f"y has {len(y)} targets, but ",
            EACH_ROW,
            f" needs one for each of the {rows} rows, or one array for each of the {len(series)} series.",
            argument="y",
        )
    for position, (part, length) in enumerate(zip(y, series.lengths.tolist(), strict=True)):
        if np.ndim(part) == 0 or len(part) != length:
            raise ArgumentError(
                f"series {ragged.series_name(series.ids, position)} has {length} rows, but y has "
                f"{'one target' if np.ndim(part) == 0 else f'{len(part)} targets'} for it; ",
                EACH_ROW,
                " needs a target for every row.",
                argument="y",
            )
    parts = [_as_array(part) for part in y]
    return np.concatenate([part.astype(object) for part in parts] if any(p.dtype == object for p in parts) else parts)


def where_known(targets: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether all of a row's targets are known."""
    return np.asarray(~missing_targets(targets).reshape(len(targets), -1).any(1))


def known_targets(targets: NDArray[Any]) -> NDArray[Any]:
    """The known targets of rows; it is an error if there are none."""
    known = targets[where_known(targets)]
    if not len(known):
        raise ArgumentError(
            f"y has no known target: all of its {len(targets)} rows are NaN or None; give at least one row its target.",
            argument="y",
        )
    return np.asarray(known.tolist())  # through a list, so that an object array of integers becomes an integer array
