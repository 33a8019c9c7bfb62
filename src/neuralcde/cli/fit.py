"""`neuralcde fit`: train a model on a long table with labels, test it and save it."""

from __future__ import annotations

import contextlib
import json
import math
import resource
import shlex
import time as clock
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
from cyclopts import Parameter

from ..estimators import NeuralCDEClassifier, NeuralCDERegressor, stratified_split
from ..estimators.data_checks import DataWarning, Finding, check_data, group_finding
from ..estimators.group_columns import is_group_column
from ..estimators.path_estimator import PathEstimator
from ..estimators.saving import write_files
from ..report import record_run
from ..system import Interrupts, Processes, staged, write_durably
from ..tasks import Task
from ..tasks.metrics import OF_ONE_CLASS
from .errors import WrongUseError, in_file, in_options, report_errors
from .groups import read_groups
from .labelled import all_targets, read_labelled
from .options import DEFAULTS, EstimatorOptions, check_config, check_parameters, given, read_config, write_config
from .predictions import check_names, prediction_table
from .run_folder import run_folder
from .tables import MOST_CLASSES, write_table

OWN = (
    *("table", "id", "time", "label", "labels", "static", "channels", "exclude", "dtype"),
    *("group", "task", "test_fraction", "seed", "duplicates", "compare_boosting"),
)


@report_errors
def fit(
    table: Path | None = None,
    *,
    id: str | None = None,
    time: str | None = None,
    label: str | None = None,
    labels: Path | None = None,
    static: list[str] | None = None,
    channels: list[str] | None = None,
    exclude: list[str] | None = None,
    group: str | None = None,
    dtype: Literal["auto", "float32", "float64"] | None = None,
    task: str | None = None,
    out: Path,
    config: Path | None = None,
    test_fraction: float | None = None,
    seed: int | None = None,
    duplicates: Literal["error", "mean", "last"] | None = None,
    compare_boosting: bool | None = None,
    resume: bool = False,
    force: bool = False,
    debug: bool = False,
    options: Annotated[EstimatorOptions | None, Parameter(name="*")] = None,
) -> None:
    """Train a model on a long table of measurements, with one row per series and time.

    Parameters
    ----------
    table
        CSV, Parquet or Arrow file. Empty cells are missing values. Rows may be in any order.
    id
        Column with the id of the series.
    time
        Column with the time of the observation.
    label
        Column with the target, one value per series (with --per-row, one per row). It is read from --labels if given,
        otherwise from the table.
    labels
        Second table, with the columns of the id and the label.
    static
        Columns with one value per series: --static age,sex or --static age --static sex. Patterns such as "dx_*" name
        all columns that match.
    channels
        Measured columns, named like --static; by default all other columns of numbers, and of text with at most 20
        different values, which becomes one indicator per value. Numbers may have surrounding blanks, thousands
        separators, a decimal comma or a percent sign (3% is read as 3), if the whole column is written the same way.
    exclude
        Columns to ignore, named like --static. A column that is named here is left out of the patterns of --static and
        --channels.
    group
        Column that tells which series belong together, such as the patient of a stay. Series of one group are all in
        the training set or all in the test set, and it is no channel.
    dtype
        Type of the values before scaling: float32, float64 or auto (default). auto chooses float64 if float32 would
        round away the variation of a channel.
    task
        classification, regression, or the name of a task. The default is regression if the label has more than 20
        distinct numbers or numbers that are not integers, and classification otherwise.
    out
        Folder for the model, its configuration and its test results.
    config
        TOML file of options, such as the config.toml of an earlier run. The command line overrides it.
    test_fraction
        Fraction of the series that is held out as test set; default 0.2.
    seed
        Seed of the split, the initial weights and the order of the batches; default 0.
    duplicates
        What to do with several rows of a series at the same time; default error.
    compare_boosting
        Fit gradient boosting on the same training series, to compare the model with in the report. Default: true.
    resume
        Resume training from the checkpoint in --out.
    force
        Replace an earlier run in --out.
    debug
        Show the traceback of an error.
    options
        Parameters of the estimator.
    """
    begun = clock.perf_counter()
    known = read_config(config) if config else {}
    check_config(known, {name: kind for name, kind in get_type_hints(fit).items() if name in OWN}, config)
    here = {
        "table": table,
        "id": id,
        "time": time,
        "label": label,
        "labels": labels,
        "static": static,
        "channels": channels,
        "exclude": exclude,
        "group": group,
        "dtype": dtype,
        "task": task,
        "test_fraction": test_fraction,
        "seed": seed,
        "duplicates": duplicates,
        "compare_boosting": compare_boosting,
    }
    typed = {
        name: str(value) if isinstance(value, Path) else value for name, value in here.items() if value is not None
    } | given(options)
    of_file = known.keys() - typed.keys()
    known |= typed
    for name in ("table", "id", "time", "label"):
        if name not in known:
            raise WrongUseError(
                f"{'TABLE' if name == 'table' else '--' + name} is missing; give it, or a --config that has it."
            )
    if known.get("channels") == []:
        raise WrongUseError("--channels: no channels are given; name one, or leave it out to use all columns.")
    parameters = {name: value for name, value in known.items() if name not in OWN}
    try:
        check_parameters(parameters, known.get("seed", 0), known.get("task"))
    except (ValueError, TypeError) as reason:
        raise WrongUseError(in_file(reason, config, of_file)) from reason
    first = Processes.current().first  # under torchrun, only rank 0 prints and writes
    with run_folder(out, resume=resume, force=force) if first else contextlib.nullcontext():
        _fit(known, parameters, out=out, resume=resume, begun=begun)


def _fit(known: dict[str, Any], parameters: dict[str, Any], *, out: Path, resume: bool, begun: float) -> None:
    """Train, test and save, with checked options."""
    series, targets, text = read_labelled(known)
    groups = read_groups(known, series)
    chosen = known.get("task") or ("regression" if _is_quantity(targets) else "classification")
    goal = chosen if chosen == "classification" else Task.registry[chosen].goal
    values = set(all_targets(targets).tolist()) - {None}
    if goal == "classification" and len(values) < 2:
        raise WrongUseError(f"--label {known['label']} has one class only, {values}; at least two are needed.")
    for name in ("class_weight", "calibrate") if goal == "regression" else ():
        if parameters.pop(name, None) is not None:
            raise WrongUseError(f"--{name.replace('_', '-')} is for classification, but this task is regression.")
    unless_given = {"test_fraction": 0.2, "seed": 0, "dtype": "auto", "compare_boosting": True}
    settled: dict[str, Any] = unless_given | known | {"task": chosen}
    training, test = _split(
        targets,
        float(settled["test_fraction"]),
        int(settled["seed"]),
        classes=goal == "classification",
        groups=groups,
    )
    estimator_class = NeuralCDEClassifier if goal == "classification" else NeuralCDERegressor
    if chosen not in ("classification", "regression"):
        parameters = parameters | {"task": chosen}
    estimator = estimator_class(**DEFAULTS | parameters | {"random_state": int(settled["seed"])})
    try:
        task = estimator.make_task(all_targets(targets))
        check_names(task, known["id"], known["time"], known["label"])
    except (ValueError, TypeError) as reason:
        raise WrongUseError(in_options(reason)) from reason
    first = Processes.current().first
    if first:
        print(f"{series}\n{chosen}: {len(training)} training series, {len(test)} test series", flush=True)
        findings = check_data(series[training], targets[training], per_row=bool(estimator.per_row), task=task)
        findings += [
            group_finding(name, values[training])
            for name, values in text.items()
            if is_group_column(name, values[training])
        ]
        if groups is not None:  # the split keeps groups together
            findings = [item for item in findings if item.kind != "group"]
        _print_findings(findings)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # printed above
            own = None if groups is None else groups[training]
            estimator.fit(series[training], targets[training], groups=own, folder=out / "training", resume=resume)
    except (ValueError, TypeError) as reason:
        raise WrongUseError(in_options(reason)) from reason
    if not first:
        return
    held, truth = series[test], all_targets(targets[test])
    outputs = estimator.calibrated(estimator.outputs(held))
    encoded = estimator.task_.encode(truth)
    metrics = estimator.task_.test_metrics(outputs, encoded)
    cost = {
        "seconds": clock.perf_counter() - begun,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "parameters": sum(p.numel() for member in estimator.members_ for p in member.module.parameters()),
        "epochs": sum(len(member.history) for member in estimator.members_),
        "best_epoch": estimator.best_epoch_,
    }
    found = {
        "test": {name: value if math.isfinite(value) else None for name, value in metrics.items()},
        "series": len(test),
        "cost": cost,
    }
    with Interrupts() as interrupts, interrupts.held_back():  # from here on Ctrl-C is ignored
        with staged(out, obsolete=["report.html"]) as part:  # all files are replaced together
            write_files(estimator, part)
            record_run(
                part,
                estimator,
                series,
                targets,
                test=test,
                outputs=outputs,
                encoded=encoded,
                groups=groups,
                findings=findings,
                compare_boosting=bool(settled["compare_boosting"]),
            )
            write_config(part / "config.toml", _plain(estimator) | settled)
            write_durably(part / "metrics.json", (json.dumps(found, indent=1) + "\n").encode())
            predictions = prediction_table(estimator, held, outputs, known["id"], known["label"], truth=truth)
            write_table(predictions, part / "test_predictions.csv")
        if estimator.interrupted_:
            print("Interrupted: the best model so far is kept. The same command with --resume continues.")
        subject = estimator.task_.subject(estimator.task_.target_names(settled["label"]))
        for name, value in metrics.items():
            about = f"  (of {subject})" if name in OF_ONE_CLASS and subject else ""
            print(f"test {name:20}{value:.4f}{about}")
        print(f"model: {out}", flush=True)


def _plain(estimator: PathEstimator) -> dict[str, Any]:
    """Parameters of the estimator for config.toml, without verbosity, and without seed and task, which are added."""
    own = ("random_state", "verbose", "task")
    return {name: value for name, value in estimator.get_params(deep=False).items() if name not in own}


def _is_quantity(targets: np.ndarray[Any, Any]) -> bool:
    """Whether the labels are many distinct numbers, or numbers that are not integers: then the task is regression."""
    values = all_targets(targets)
    if values.dtype.kind not in "iuf":
        return False
    known = values[values == values]
    return len(set(known.tolist())) > MOST_CLASSES or bool((known != np.round(known)).any())


def _print_findings(findings: list[Finding]) -> None:
    """Print what was found in the table, each with the option that helps."""
    for item in findings:
        option = {"constant": "static", "group": "group"}.get(item.kind, "exclude")
        fix = shlex.join([f"--{option}", ",".join(item.columns)])
        print(f"check: {item.text.removesuffix('.')}: {fix}", flush=True)


def _split(
    targets: np.ndarray[Any, Any], share: float, seed: int, *, classes: bool, groups: np.ndarray[Any, Any] | None
) -> tuple[Any, Any]:
    """Split into training and test series, as sorted positions. Every class of the test set is also in training."""
    if not 0 < share < 1:
        raise WrongUseError(f"--test-fraction must lie between 0 and 1, got {share}.")
    labels = targets if classes and not isinstance(targets[0], np.ndarray) else None
    try:
        training, test = stratified_split(len(targets), share, seed, labels=labels, groups=groups)
    except ValueError as reason:
        raise WrongUseError(f"{len(targets)} series cannot be split: {reason}") from reason
    if classes:  # a class without training series cannot be learnt
        learnt = set().union(*map(_classes, targets[training]))
        moved: list[int] = []
        for position in test:
            if not _classes(targets[position]) <= learnt:
                together = [position] if groups is None else test[groups[test] == groups[position]].tolist()
                moved += together
                learnt |= set().union(*map(_classes, targets[together]))
        training, test = np.concatenate([training, moved]).astype(int), np.setdiff1d(test, moved)
    if len(test) == 0 or len(training) < 2:
        raise WrongUseError(
            f"{len(targets)} series leave {len(training)} for training and {len(test)} for testing; give more series."
        )
    return np.sort(training), np.sort(test)


def _classes(target: Any) -> set[Any]:
    """The classes of a series: that of its label, or those of the labels of its rows."""
    rows = target.tolist() if isinstance(target, np.ndarray) else [target]
    return {name for name in rows if name is not None and name == name}
