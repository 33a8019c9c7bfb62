"""Validate the recorded files of a run before a report uses them.

The files are not trusted. Their contents must agree with each other and with the estimator.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from ..estimators.json_shapes import (
    COUNT,
    DIGEST,
    MODERATE,
    NOT_NEGATIVE,
    SHARE,
    TEXT,
    TRUTH,
    WHOLE,
    Each,
    Leaf,
    OrNull,
    check_shape,
    one_of,
)
from ..estimators.path_estimator import PathEstimator
from ..series import IrregularSeries
from ..series.arrays import Rows, check_finite, check_increasing, check_static
from ..tasks import QUANTILES, is_finite
from .record import LISTED

DISTRIBUTION = {"quantiles": [MODERATE], "edges": [MODERATE], "counts": [WHOLE], "logarithmic": TRUTH}
COLUMNS = [{"name": TEXT, "missing": SHARE}]
ROLE = one_of("surest", "typical", "worst")
ID = Leaf("text or a number", lambda value: TEXT.fits(value) or is_finite(value))
PAIR = [MODERATE]
METRIC = {"value": OrNull(MODERATE), "low": OrNull(MODERATE), "high": OrNull(MODERATE), "series": COUNT}
FAR = {
    "counts": [{"name": TEXT, "count": COUNT}],
    "listed": [
        {"series": ID, "time": OrNull(MODERATE), "channel": TEXT, "value": MODERATE, "usual": PAIR, "limits": PAIR}
    ],
}
DATA = {
    "written": TEXT,
    "series": {
        "rows": COUNT,
        "values": WHOLE,
        "lengths": DISTRIBUTION,
        "gaps": OrNull(DISTRIBUTION),
        "channels": COLUMNS,
        "static": COLUMNS,
        "training": WHOLE,
        "test": WHOLE,
    },
    "cases": {"training": WHOLE, "test": WHOLE},
    "targets": {"training": [], "test": []},
    "baseline": [MODERATE],
    "far": {"training": FAR, "test": FAR},
    "spread": OrNull(NOT_NEGATIVE),
    "findings": [{"kind": TEXT, "columns": [TEXT], "text": TEXT}],
    "by_time": OrNull({"from_start": TRUTH, "points": [METRIC | {"time": MODERATE, "value": MODERATE}]}),
    "by_group": [METRIC | {"feature": TEXT, "group": TEXT}],
    "importances": OrNull(
        {
            "series": COUNT,
            "unit": TEXT,
            "columns": [{"column": TEXT, "kind": TEXT, "net": NOT_NEGATIVE, "moved": NOT_NEGATIVE}],
        }
    ),
    "test_ids": DIGEST,
    "examples": [[ID]],
    "machine": {"engine": TEXT, "threads": WHOLE, "machine": TEXT, "versions": Each(TEXT)},
    "ids": [ID],
    "files": Each(DIGEST),
}
COST = {"seconds": NOT_NEGATIVE, "peak_memory_mb": NOT_NEGATIVE, "parameters": WHOLE}


def check_data(data: dict[str, Any], estimator: PathEstimator) -> None:
    """Refuse a data.json that `record_run` cannot have written for this estimator."""
    check_shape(data, DATA)
    check_shape(data["machine"]["versions"], {"neuralcde": TEXT}, "machine.versions")
    series = data["series"]
    for name in ("lengths", "gaps"):
        if series[name] is not None:
            _check_distribution(series[name], f"series.{name}")
    names = [column["name"] for column in series["channels"]]
    if names != list(estimator.preparation_.scaler.channel_names_in_):
        raise ValueError("series.channels are not the channels of the model.")
    for part, found in data["targets"].items():
        _check_targets(found, f"targets.{part}", estimator)
    for part, found in data["far"].items():
        _check_far(found, f"far.{part}", estimator)
    if len(data["baseline"]) != estimator.task_.outputs:
        raise ValueError(f"baseline has {len(data['baseline'])} numbers for {estimator.task_.outputs} outputs.")
    if (data["spread"] is None) != (not estimator.ensemble_):
        raise ValueError(f"spread is {data['spread']}, but the model averages {estimator.ensemble_ or 'nothing'}.")
    if data["by_time"] is not None:
        _check_points(data["by_time"]["points"])
    if data["importances"] is not None and estimator.preparation_.scheme.causality == "none":
        raise ValueError("importances are of a model whose path is not causal.")
    for item in data["by_group"]:
        _check_metric(item, "by_group")
    if len(data["ids"]) != len(data["examples"]):
        raise ValueError(f"there are {len(data['examples'])} examples, but {len(data['ids'])} ids.")
    for number, example in enumerate(data["examples"]):
        if len(example) != 2:
            raise ValueError(f"examples[{number}] has {len(example)} entries, expected a position and a role.")
        check_shape(example[0], WHOLE, f"examples[{number}][0]")
        check_shape(example[1], ROLE, f"examples[{number}][1]")


def _check_distribution(found: dict[str, Any], where: str) -> None:
    edges, quantiles = found["edges"], found["quantiles"]
    if len(quantiles) != len(QUANTILES) or quantiles != sorted(quantiles):
        raise ValueError(f"{where}.quantiles are not {len(QUANTILES)} ascending numbers.")
    if not found["counts"] or len(edges) != len(found["counts"]) + 1 or edges != sorted(set(edges)):
        raise ValueError(f"{where}: edges are not the bounds of {len(found['counts'])} counts.")
    if found["logarithmic"] and edges[0] < 1e-100:
        raise ValueError(f"{where} is logarithmic, but its edges start at {edges[0]}.")


def _check_points(points: list[dict[str, Any]]) -> None:
    """Refuse fewer than two points, and times that do not increase."""
    times = [point["time"] for point in points]
    if len(times) < 2 or times != sorted(set(times)) or times[-1] <= 0:
        raise ValueError("by_time.points are not at increasing times, at least two.")
    for point in points:
        _check_metric(point, "by_time")


def _check_metric(found: dict[str, Any], where: str) -> None:
    """Refuse a value without its interval, and an interval without its value."""
    if len({found[name] is None for name in ("value", "low", "high")}) > 1:
        raise ValueError(f"{where} has a metric without an interval.")


def _check_far(found: dict[str, Any], where: str, estimator: PathEstimator) -> None:
    """Check that far values are counted for known channels and that the listed ones are among them."""
    scaler, form = estimator.preparation_.scaler, estimator.preparation_.format
    counts = {entry["name"]: entry["count"] for entry in found["counts"]}
    if len(counts) != len(found["counts"]) or not set(counts) <= {*scaler.channel_names_in_, *scaler.static_names_in_}:
        raise ValueError(f"{where}.counts are not of different channels or static features of the model.")
    if len(found["listed"]) != min(LISTED, sum(counts.values())):
        raise ValueError(f"{where}.listed has {len(found['listed'])} of {sum(counts.values())} values.")
    furthest = math.inf if form.kind == "number" else 2.0**62 / form.microseconds
    for entry in found["listed"]:
        if entry["channel"] not in counts or len(entry["usual"]) != 2 or len(entry["limits"]) != 2:
            raise ValueError(f"{where}.listed has values of other channels, or ranges that are not pairs.")
        if entry["time"] is not None and abs(entry["time"]) >= furthest:
            raise ValueError(f"{where}.listed has times out of the range of dates.")


def _check_targets(found: list[Any], where: str, estimator: PathEstimator) -> None:
    """Check for one count per class or label, or one list of quantiles per target (empty if all are unknown)."""
    task = estimator.task_
    counts = task.summarised_by == "counts"
    check_shape(found, [WHOLE] if counts else [[MODERATE]], where)
    wanted = len(task.target_names("y"))
    if len(found) != wanted:
        raise ValueError(f"{where} has {len(found)} entries for {wanted} classes, labels or targets.")
    if not counts and any(len(part) not in (0, len(QUANTILES)) for part in found):
        raise ValueError(f"{where} are not {len(QUANTILES)} quantiles for each target.")


def check_outputs(tensors: dict[str, Tensor], data: dict[str, Any], estimator: PathEstimator) -> None:
    """Refuse test outputs and targets whose shapes or values do not fit the estimator."""
    task = estimator.task_
    outputs, targets, counts = (_tensor(tensors, name) for name in ("outputs", "targets", "counts"))
    if counts.dtype != torch.int64 or counts.ndim != 1 or bool((counts < 1).any()) or not len(counts):
        raise ValueError("counts are not positive integers, one per test series.")
    if len(counts) != data["series"]["test"] or (not estimator.per_row and bool((counts != 1).any())):
        raise ValueError(f"counts do not fit the {data['series']['test']} test series.")
    total = sum(counts.tolist())
    if outputs.shape != (total, task.outputs) or not outputs.is_floating_point() or not outputs.isfinite().all():
        raise ValueError(f"outputs are not finite numbers of shape ({total}, {task.outputs}).")
    task.check_encoded(targets, total)
    beside = tensors.get("beside")
    if beside is not None and (
        beside.shape != outputs.shape or beside.dtype != torch.float32 or not beside.isfinite().all()
    ):
        raise ValueError(f"beside are not finite numbers of shape {tuple(outputs.shape)}.")
    for number, (position, _) in enumerate(data["examples"]):
        if position >= len(counts):
            raise ValueError(f"examples[{number}] is test series {position} of {len(counts)}.")


def check_examples(
    examples: IrregularSeries, tensors: dict[str, Tensor], data: dict[str, Any], estimator: PathEstimator
) -> None:
    """Refuse example series that do not have the format of the training series, or are invalid."""
    template, rows = estimator.preparation_.template(), len(examples.times)
    wanted = {
        "times": ((rows,), torch.float64),
        "values": ((rows, template.channels), template.dtype),
        "offsets": ((len(data["ids"]) + 1,), torch.int64),
        "static": ((len(data["ids"]), template.static.shape[1]), template.static.dtype),
    }
    for name, (shape, dtype) in wanted.items():
        found = getattr(examples, name)
        if found.shape != shape or found.dtype != dtype:
            raise ValueError(
                f"{name} has the shape {tuple(found.shape)} and the type {found.dtype}, expected {shape} and {dtype}."
            )
    bounds = examples.offsets.tolist()
    if bounds[0] != 0 or bounds[-1] != rows or any(b <= a for a, b in itertools.pairwise(bounds)):
        raise ValueError("offsets do not split the rows into series.")
    form, ids = examples.format, examples.ids
    furthest = math.inf if form.kind == "number" else 2.0**62 / form.microseconds
    if bool((examples.times.abs() >= furthest).any()):
        raise ValueError("times are out of the range of dates.")

    def when(time: float) -> str:
        return f"{form.time}={time!r}"

    table = Rows(examples.times, examples.values, examples.offsets)
    check_finite(table, ids, examples.channel_names, when)
    check_increasing(table, ids, when)
    check_static(examples.static, ids, examples.static_names)
    if estimator.per_row:
        counts = [int(tensors["counts"][position]) for position, _ in data["examples"]]
        if counts != examples.lengths.tolist():
            raise ValueError("examples do not have as many rows as their test series.")


def _tensor(tensors: dict[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise ValueError(f"it has no tensor {name!r}.")
    return tensors[name]
