"""Write the files that the report of a run is made from: data summary, test outputs and example series."""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as as_safetensors
from torch import Tensor

from .. import __version__
from ..estimators.data_checks import Finding, check_data, check_groups
from ..estimators.inputs import as_targets, per_series
from ..estimators.path_estimator import PathEstimator
from ..series import FarValueWarning, IrregularSeries, ragged
from ..system import write_atomically
from ..tasks import Task
from .boosting_beside import boosting_beside
from .explained import importances_of
from .parts_of_test import metric_by_group, metric_by_time
from .summary import summary_of_series

PARTS = ("times", "values", "offsets", "static")  # tensors in examples.safetensors
# data.json holds the digests of these files, so that files of different runs are not mixed
RECORDED = ("model.safetensors", "test_outputs.safetensors", "examples.safetensors")
LISTED = 20  # most far values listed per part
LONGEST = 5000  # examples have at most this many rows, unless all test series are longer


def record_run(
    folder: str | Path,
    estimator: PathEstimator,
    series: IrregularSeries,
    targets: Any,
    *,
    test: NDArray[Any],
    outputs: Tensor | None = None,
    encoded: Tensor | None = None,
    groups: Any = None,
    findings: list[Finding] | None = None,
    compare_boosting: bool = True,
) -> None:
    """Write `data.json`, `test_outputs.safetensors` and `examples.safetensors` into the folder of a saved estimator.

    `write_report` reads these files, and needs neither the table nor the training data. They are small: the only rows
    of data in them are those of up to three example series.

    Parameters
    ----------
    folder
        Folder in which the estimator was saved.
    estimator
        The fitted estimator.
    series, targets
        All series, and their targets in the form that `fit` takes.
    test
        Positions of the test series. All other series were used for training.
    outputs, encoded
        Outputs for the test series, calibrated if the estimator is, and their targets as encoded by the task. Computed
        if None.
    groups
        One group per series, such as the patient of a stay, to tell if a group has series in both training and test.
    findings
        What `check_data` found in the training series; computed if None.
    compare_boosting
        Whether to fit gradient boosting on the same training series, to compare the model with.
    """
    folder, training = Path(folder), np.ones(len(series), dtype=bool)
    training[test] = False
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"there is no saved model in {folder}; save the estimator there first: estimator.save(folder)."
        )
    all_targets = as_targets(targets, series, per_row=estimator.per_row, allow_missing=True)
    parts = [np.flatnonzero(training), np.arange(len(series))[test]]
    if estimator.per_row:
        parts = [np.asarray(ragged.select(series.offsets, torch.from_numpy(part))[0]) for part in parts]
    task, held = estimator.task_, series[test]
    training_targets = task.encode(all_targets[parts[0]])
    test_targets = task.encode(all_targets[parts[1]]) if encoded is None else encoded
    outputs = estimator.calibrated(estimator.outputs(held)) if outputs is None else outputs
    if findings is None:
        y = all_targets[parts[0]]
        findings = check_data(series[training], y, per_row=bool(estimator.per_row), task=task)
    group = per_series("groups", groups, series, by_id=True)
    if group is not None:  # the groups are known, so that no column must be suspected
        findings = [item for item in findings if item.kind != "group"]
        findings = [*findings, *check_groups(group, np.flatnonzero(training), np.arange(len(series))[test])]
    with warnings.catch_warnings():  # fit has warned already, and the page lists these values
        warnings.simplefilter("ignore", FarValueWarning)
        beside = boosting_beside(estimator, series[training], training_targets, held) if compare_boosting else None
        by_time = metric_by_time(estimator, held, outputs, test_targets)
        importances = importances_of(estimator, held)
        by_group = metric_by_group(estimator, held, outputs, test_targets)
    counts = held.lengths if estimator.per_row else torch.ones(len(held), dtype=torch.int64)
    examples = choose_examples(task, outputs, test_targets, counts=counts.numpy(), lengths=held.lengths.numpy())
    data = {
        "written": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "series": summary_of_series(series) | {"training": int(training.sum()), "test": len(held)},
        "cases": {"training": len(training_targets), "test": len(test_targets)},
        "targets": {"training": task.summary(training_targets), "test": task.summary(test_targets)},
        "baseline": task.baseline(training_targets).double().tolist(),
        "far": {"training": _far(estimator, series[training]), "test": _far(estimator, held)},
        "spread": float(estimator.spread(held).double().mean()) if estimator.ensemble_ else None,
        "findings": [{"kind": item.kind, "columns": list(item.columns), "text": item.text} for item in findings],
        "by_time": by_time,
        "by_group": by_group,
        "importances": importances,
        "test_ids": digest(json.dumps(held.ids.tolist(), default=str).encode()),
        "examples": examples,
        "machine": _machine(estimator, held),
    }
    tensors = {
        "outputs": outputs.detach().cpu().contiguous(),
        "targets": test_targets.cpu().contiguous(),
        "counts": counts,
    }
    if beside is not None:
        tensors["beside"] = beside.detach().cpu().to(torch.float32).contiguous()
    shown = held[[position for position, _ in examples]]
    data["ids"] = shown.ids.tolist()
    rows = {name: getattr(shown, name).detach().cpu().contiguous() for name in PARTS}
    write_atomically(folder / "test_outputs.safetensors", as_safetensors(tensors))
    write_atomically(folder / "examples.safetensors", as_safetensors(rows))
    data["files"] = {name: digest((folder / name).read_bytes()) for name in RECORDED}
    write_atomically(folder / "data.json", (json.dumps(data, indent=1) + "\n").encode())


def _far(estimator: PathEstimator, series: IrregularSeries) -> dict[str, Any]:
    """Values far outside the range of the training series: a count per channel, and the most extreme ones."""
    far = estimator.preparation_.scaler.far_values(series)
    return {
        "counts": [{"name": name, "count": count} for name, count in far.counts.items()],
        "listed": [value._asdict() for value in far.listed(LISTED)],
    }


def digest(content: bytes) -> str:
    """SHA-256 digest of a file, to recognise files of different runs."""
    return hashlib.sha256(content).hexdigest()


def choose_examples(
    task: Task, outputs: Tensor, targets: Tensor, *, counts: NDArray[Any], lengths: NDArray[Any]
) -> list[tuple[int, str]]:
    """Choose up to three test series as examples.

    Series are ranked by their loss. In a binary classification, the examples are the series with the lowest loss of
    each class and the one with the highest loss. Otherwise they are the series with the lowest, the median and the
    highest loss.

    Parameters
    ----------
    task
        The task that defines the loss.
    outputs, targets
        Raw outputs and encoded targets of the test series.
    counts
        Number of targets per series.
    lengths
        Number of rows per series. Series longer than `LONGEST` are chosen only if all series are.

    Returns
    -------
    list of (position, role)
        The role is "surest" (lowest loss), "typical" (median loss) or "worst" (highest loss).
    """
    loss = _mean_of_each(task.losses(outputs.detach(), targets).cpu().numpy(), counts)
    short = lengths <= LONGEST
    candidates = np.flatnonzero(np.isfinite(loss) & (short if short.any() else True))
    order = candidates[np.argsort(loss[candidates], kind="stable")]
    if not len(order):
        return []
    groups = task.contrasted(targets) if len(targets) == len(lengths) else []
    wanted = [(order[group[order]][0], "surest") for group in groups if group[order].any()]
    if not groups:
        wanted = [(order[0], "surest"), (order[len(order) // 2], "typical")]
    found: dict[int, str] = {}
    for position, role in [(order[-1], "worst"), *wanted]:
        found.setdefault(int(position), role)
    return sorted(found.items(), key=lambda item: item[1] == "worst")


def _mean_of_each(values: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """Mean of each group of consecutive values, with group sizes `counts`; NaN values are ignored."""
    group, known = np.repeat(np.arange(len(counts)), counts), ~np.isnan(values)
    there = np.bincount(group, known, len(counts))
    total = np.bincount(group, np.where(known, values, 0.0), len(counts))
    return np.where(there > 0, total / np.maximum(there, 1), np.nan)


def _machine(estimator: PathEstimator, held: IrregularSeries) -> dict[str, Any]:
    with torch.no_grad():
        prepared = estimator.preparation_.series(held[:1])
        path = estimator.preparation_.path(prepared).to(estimator.device)
        engine = estimator.module_.engine(path)
    return {
        "engine": engine,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {"neuralcde": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
