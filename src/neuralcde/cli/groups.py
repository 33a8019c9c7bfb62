"""The group of each series, such as the patient of a stay, from a column of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars

from ..series import IrregularSeries
from .errors import WrongUseError
from .tables import need_columns, read_columns


def read_groups(known: dict[str, Any], series: IrregularSeries) -> np.ndarray[Any, Any] | None:
    """One group per series, as text, in the order of the series; None without --group."""
    group = known.get("group")
    if group is None:
        return None
    file, id_column = Path(known["table"]), known["id"]
    if group in (id_column, known["time"], known["label"]):
        raise WrongUseError(f"--group {group}: the column is the id, the time or the label; name another one.")
    frame = read_columns(file, text=[id_column, group]).frame
    need_columns(frame, file, group=group)
    pairs = frame.select(polars.col(id_column).cast(polars.String), polars.col(group).cast(polars.String))
    pairs = pairs.drop_nulls().unique(maintain_order=True)
    twice = pairs.filter(pairs[id_column].is_duplicated())
    if twice.height:
        raise WrongUseError(
            f"{file}: the column {group} has more than one value for {id_column} {twice[id_column][0]!r}."
        )
    of_series = dict(pairs.iter_rows())
    ids = [str(name) for name in series.ids.tolist()]
    missing = [name for name in ids if name not in of_series]
    if missing:
        raise WrongUseError(f"{file}: {len(missing)} of {len(ids)} series have no {group}, e.g. {missing[0]!r}.")
    return np.asarray([of_series[name] for name in ids])
