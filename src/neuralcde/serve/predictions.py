"""Predictions as the service writes them, and those for the whole series in a request."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..estimators.path_estimator import PathEstimator
from ..estimators.stream_rows import RowReader
from ..series import IrregularSeries, ragged
from ..solve import SolveError
from .limits import Limits
from .requests import RefusedError, fields, object_of, stream_id, time_of


class Predictions:
    """Predictions of one estimator.

    Parameters
    ----------
    estimator
        The fitted estimator.
    limits
        Limits on what is accepted.

    Attributes
    ----------
    far_values : Counter
        Number of values far outside the training range in whole series, per channel.
    """

    def __init__(self, estimator: PathEstimator, limits: Limits):
        self.estimator, self.limits = estimator, limits
        self.form = estimator.preparation_.format
        self.reader = RowReader(estimator.preparation_)
        self.far_values: Counter[str] = Counter()  # changed by the thread of `predict` alone

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """Predictions for the series in a body, as the estimator gives them."""
        fields(body, "the body", ("rows",), ("static", "at"))
        series = self.series_of(body)
        asked = body.get("at")
        self.far_values.update(self.estimator.preparation_.scaler.far_values(series).counts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of far values, which are counted
            try:
                if asked is None:
                    outputs = self.estimator.outputs(series)
                    if self.estimator.per_row:
                        outputs = outputs[series.offsets[1:] - 1]
                    answers = [self.answer(outputs[k : k + 1], whole=True) for k in range(len(series))]
                    return {"predictions": [{"id": id, **one} for id, one in zip(series.ids, answers, strict=True)]}
                if not isinstance(asked, list) or not 1 <= len(asked) <= 1000:
                    raise RefusedError(422, "at must be a list of 1 to 1000 times.")
                times = [time_of(t, self.form, "at") for t in asked]
                if len(times) * len(series) > self.limits.rows:
                    raise RefusedError(413, f"{len(times)} times for {len(series)} series are too many predictions.")
                over_time = self.estimator.outputs_at(series, times)
            except (TypeError, ValueError, SolveError) as reason:
                raise RefusedError(422, str(reason)) from reason
        found = []
        for k, id in enumerate(series.ids.tolist()):
            for j, t in enumerate(times):
                known = not bool(over_time[k, j].isnan().any())  # else the series had not begun
                found.append({"id": id, "t": t, **(self.answer(over_time[k, j : j + 1], whole=False) if known else {})})
        return {"predictions": found}

    def series_of(self, body: dict[str, Any]) -> IrregularSeries:
        """The series in a body."""
        rows, features = body["rows"], object_of(body, "static", "the body")
        if not isinstance(rows, list) or not rows:
            raise RefusedError(422, "rows must be a list of at least one {id, t, values}.")
        if len(rows) > self.limits.rows:
            raise RefusedError(413, f"{len(rows)} rows; at most {self.limits.rows} are accepted.")
        series: dict[str, dict[float, np.ndarray[Any, Any]]] = {}
        try:
            for place, row in enumerate(rows):
                where = f"rows[{place}]"
                if not isinstance(row, dict):
                    raise RefusedError(422, f"{where} is not an object.")
                fields(row, where, ("id", "t"), ("values",))
                id, t = stream_id(row["id"], where), time_of(row["t"], self.form, where)
                known = series.setdefault(id, {})
                if t in known:
                    raise RefusedError(422, f"{where}: series {id!r} has two rows at {self.form.show(t)}.")
                known[t] = self.reader.values(id, object_of(row, "values", where))
            unknown = [name[:80] for name in features if name not in series]
            if unknown:
                raise RefusedError(422, f"static has features of {unknown[0]!r}, which has no rows.")
            static = [self.reader.static_features(id, object_of(features, id, "static")) for id in series]
        except (TypeError, ValueError) as reason:
            raise RefusedError(422, str(reason)) from reason
        ordered = [sorted(known.items()) for known in series.values()]
        preparation = self.estimator.preparation_
        dtype = getattr(torch, preparation.dtype)
        return dataclasses.replace(
            preparation.template(),
            times=torch.tensor([t for known in ordered for t, _ in known], dtype=torch.float64),
            values=torch.from_numpy(np.stack([values for known in ordered for _, values in known])).to(dtype),
            offsets=ragged.offsets_of(torch.tensor([len(known) for known in ordered])),
            static=torch.from_numpy(np.stack(static)).to(dtype),
            ids=np.array(list(series), dtype=object),
        )

    def answer(self, outputs: Tensor, *, whole: bool) -> dict[str, Any]:
        """The prediction of one case, as in the tables of `neuralcde predict`.

        A calibration that was learnt from whole series holds for these alone.
        """
        if whole or self.estimator.per_row:
            outputs = self.estimator.calibrated(outputs)
        columns = self.estimator.task_.prediction_columns(outputs, "prediction")
        return {name: _plain(values[0]) for name, values in columns.items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
