"""Gradient boosting on summaries of the last row: a member of an ensemble that is not a neural network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

from ..contracts import Argument, ArgumentError
from ..models.row_inputs import RowInputs
from ..models.summary_readout import SUMMARIES
from ..models.variations import Variations
from ..series import IrregularSeries, ragged
from ..series.channels import time_since_start
from ..series.row_statistics import RowStatistics
from ..tasks import BoostingProblem, Task
from .preparation import Preparation
from .training_data import TrainingData
from .trees import TreeEnsemble

MOST_ROWS = 200_000  # training rows with `per_row`
FEW_CASES = 200  # with fewer training cases there are fewer iterations, and no early stopping
MIN_VALIDATION_CASES = 8
SETTINGS = {"learning_rate": 0.03, "l2_regularization": 1.0, "max_leaf_nodes": 15}
MOST_ITERATIONS, FEW_ITERATIONS = 1000, 150
# Small trees on random thirds of the features, for classes without validation: on made-up stays, walks and sparse rows
# with 60 to 200 cases their log-loss was 7 to 14 % lower, and their AUROC on average 0.01 higher.
FOR_FEW_CASES = {"max_leaf_nodes": 4, "max_features": 0.3}
FEW_CASES_PER_LEAF = 10
CASES_PER_LEAF = 5, 100  # bounds; between them, one for every LEAF_SHARE training cases
LEAF_SHARE = 250
CELLS = 1 << 21  # most values of series whose features are computed at once


def check_boosting(task: Task, targets: Tensor) -> None:
    """Refuse a task that cannot be boosted."""
    if task.boosting_problems(targets[:1]) is None:
        raise ArgumentError(
            Argument("boosting", True),
            f": the task {type(task).__name__} does not say how it is boosted; use ",
            Argument("boosting", False),
            ", or define its boosting_problems(targets).",
        )


def feature_count(preparation: Preparation) -> int:
    """Number of features of a row."""
    return _inputs(preparation).outputs + preparation.static_features


def boosting_features(
    preparation: Preparation, series: IrregularSeries, rows: Int[Tensor, " cases"] | None = None
) -> Float[Tensor, "cases features"]:
    """What gradient boosting sees at some rows, in increasing order; None for the last row of each series.

    These are the summaries of each channel up to the row (`RowInputs`), the clock and the static features. With
    intensity, summaries of a channel that was never observed are NaN, except for its count. Without it they are 0,
    as in the models.
    """
    return torch.cat(list(_feature_parts(preparation, series, rows)))


def tree_outputs(
    trees: TreeEnsemble, preparation: Preparation, series: IrregularSeries, rows: Int[Tensor, " cases"] | None = None
) -> Float[Tensor, "cases outputs"]:
    """The outputs of the trees at some rows, without the features of all of them in memory; see `boosting_features`."""
    return torch.cat([trees(part) for part in _feature_parts(preparation, series, rows)])


def _feature_parts(
    preparation: Preparation, series: IrregularSeries, rows: Int[Tensor, " cases"] | None
) -> Iterator[Float[Tensor, "cases features"]]:
    """The features of some rows, in parts that fit in memory; the first part is empty."""
    yield torch.zeros(0, feature_count(preparation))
    last = series.offsets[1:] - 1
    for part in _in_memory(series):
        start, stop = int(series.offsets[part.start]), int(series.offsets[part.stop])
        chosen = last[part] if rows is None else rows[(rows >= start) & (rows < stop)]
        if len(chosen):
            yield features_of_prepared(preparation, preparation.series(series[part]), chosen - start)


def features_of_prepared(
    preparation: Preparation, prepared: IrregularSeries, rows: Int[Tensor, " cases"]
) -> Float[Tensor, "cases features"]:
    """The features of some rows of prepared series."""
    return _with_clock(preparation, prepared, rows, _inputs(preparation).of_channels(prepared, rows))


def features_of_variations(preparation: Preparation, part: Variations) -> Float[Tensor, "cases features"]:
    """The features of rows of which only some channels are observed."""
    return _with_clock(preparation, part.history.series, part.row, part.features(_inputs(preparation).families))


def features_of_statistics(
    preparation: Preparation, known: RowStatistics, static: Float[Tensor, "streams static"]
) -> Float[Tensor, "streams features"]:
    """The features at the last row of streams."""
    channels = _with_unknown(preparation, known.features(_inputs(preparation).families))
    clock = known.time if preparation.common_origin else known.time - known.start
    return torch.cat([channels, clock[:, None].to(channels.dtype), static], dim=1)


def _with_clock(
    preparation: Preparation, prepared: IrregularSeries, rows: Int[Tensor, " cases"], known: Tensor
) -> Float[Tensor, "cases features"]:
    """Summaries of the channels at rows, with the clock and the static features."""
    static = prepared.static[ragged.series_of(prepared.offsets, rows)]
    clock = prepared.times if preparation.common_origin else time_since_start(prepared.times, prepared.offsets)
    return torch.cat([_with_unknown(preparation, known), clock[rows, None].to(known.dtype), static], dim=1)


def _with_unknown(preparation: Preparation, known: Float[Tensor, "cases features"]) -> Float[Tensor, "cases features"]:
    """Summaries of channels; with intensity, those of channels that were never observed are NaN, except the count."""
    if not preparation.intensity:
        return known
    families = _inputs(preparation).families
    blocks = known.reshape(len(known), len(families), -1)
    never = blocks[:, families.index("count")] == 0
    unknown = torch.tensor([name != "count" for name in families])
    return blocks.masked_fill(never[:, None] & unknown[:, None], torch.nan).flatten(1)


def _inputs(preparation: Preparation) -> RowInputs:
    channels = len(preparation.scaler.channel_names_in_)
    return RowInputs(channels, features=SUMMARIES, intensity=preparation.intensity, hats=0)


def _in_memory(series: IrregularSeries) -> Iterator[slice]:
    """Ranges of series whose features fit in memory together."""
    block = (series.offsets[1:] - 1) * series.channels // CELLS
    start = 0
    for count in torch.unique_consecutive(block, return_counts=True)[1].tolist():
        yield slice(start, start + count)
        start += count


class Cases(NamedTuple):
    """Features, targets and weights of training or validation cases."""

    features: NDArray[Any]
    targets: NDArray[Any]
    weights: NDArray[Any] | None

    def where(self, chosen: NDArray[np.bool_]) -> Cases:
        """Some of the cases."""
        return Cases(
            self.features[chosen], self.targets[chosen], None if self.weights is None else self.weights[chosen]
        )


def fit_boosting(
    data: TrainingData,
    training: NDArray[Any],
    validating: NDArray[Any],
    seed: int,
    *,
    features: Float[Tensor, "series features"] | None = None,
) -> TreeEnsemble:
    """Fit gradient boosting on the training series, with early stopping on the validation series.

    With fewer than 200 training cases or without validation, a smaller number of iterations on all series is used.

    Parameters
    ----------
    data
        Series, targets and task.
    training, validating
        Positions of the training and the validation series.
    seed
        Seed of the draw of rows, and of scikit-learn's bins.
    features
        `boosting_features` of all series, where they are known already; for one target per series.
    """
    everything = np.sort(np.concatenate([training, validating]))
    validation: Callable[[BoostingProblem], Cases] | None = None
    if data.held_out is not None:
        validation = _cases(data, *data.held_out, None, seed)
    elif len(validating):
        validation = _cases(data, data.series, data.targets, validating, seed, features)
    fitted_on = _cases(data, data.series, data.targets, training, seed, features)
    on_all = fitted_on if validation is None or data.held_out is not None else None
    baseline, models = _prior(data), []
    for place, problem in enumerate(_problems(data.task, data.targets)):
        known = fitted_on(problem)
        judge = None
        if validation is not None:
            targets = data.targets if data.held_out is None else data.held_out[1]
            judge = validation(_problems(data.task, targets)[place])
            if problem.goal == "classification":
                judge = judge.where(np.isin(judge.targets, np.unique(known.targets)))
        one_class = problem.goal == "classification" and len(np.unique(known.targets)) < 2
        if judge is None or len(known.targets) < FEW_CASES or len(judge.targets) < MIN_VALIDATION_CASES or one_class:
            on_all = on_all or _cases(data, data.series, data.targets, everything, seed, features)
            known, judge = on_all(problem), None
        if len(known.targets) < 2 or (problem.goal == "classification" and len(np.unique(known.targets)) < 2):
            continue  # nothing to learn: the constant of the prior remains
        model = _fitted(problem.goal, known, judge, seed)
        columns, start = _columns(problem, model, baseline)
        baseline[columns] = start
        models.append((model, columns))
    return TreeEnsemble.of_boosting(baseline, models)


def _prior(data: TrainingData) -> Tensor:
    """The constant outputs that fit all weighted targets best."""
    weights = data.case_weights()
    known = None if weights is None else torch.from_numpy(weights)
    return data.task.weighted_prior(data.targets, known).double().clone()


def _problems(task: Task, targets: Tensor) -> list[BoostingProblem]:
    problems = task.boosting_problems(targets)
    assert problems is not None
    return problems


def _cases(
    data: TrainingData,
    series: IrregularSeries,
    targets: Tensor,
    chosen: NDArray[Any] | None,
    seed: int,
    known: Float[Tensor, "series features"] | None = None,
) -> Callable[[BoostingProblem], Cases]:
    """A function from a problem to its known cases among the chosen series; None for all series."""
    own = series is data.series
    cases = np.arange(len(targets)) if chosen is None else np.asarray(data.cases(chosen))
    if data.per_row:
        cases = cases[(~targets.reshape(len(targets), -1).isnan()).any(1).numpy()[cases]]
        if len(cases) > MOST_ROWS:
            cases = np.sort(np.random.default_rng(seed).choice(cases, MOST_ROWS, replace=False))
    rows = torch.from_numpy(cases) if data.per_row else (series.offsets[1:] - 1)[torch.from_numpy(cases)]
    found = boosting_features(data.preparation, series, rows) if known is None else known[torch.from_numpy(cases)]
    features = found.double().numpy()
    given = data.case_weights() if own else None

    def of(problem: BoostingProblem) -> Cases:
        y = problem.targets.double().numpy()[cases]
        weights = None if problem.weights is None else problem.weights.double().numpy()[cases]
        if given is not None:
            weights = given[cases] * (1.0 if weights is None else weights)
        return Cases(features, y, weights).where(~np.isnan(y))

    return of


def _fitted(goal: str, known: Cases, judge: Cases | None, seed: int) -> Any:
    """The fitted model of scikit-learn."""
    make = HistGradientBoostingClassifier if goal == "classification" else HistGradientBoostingRegressor
    few = goal == "classification" and judge is None and len(known.targets) < 2 * FEW_CASES
    leaf = FEW_CASES_PER_LEAF if few else int(np.clip(len(known.targets) // LEAF_SHARE, *CASES_PER_LEAF))
    # A feature known in fewer cases than a leaf needs is never split, and scikit-learn cannot bin one without values.
    rare = (~np.isnan(known.features)).sum(0) < leaf
    features = np.where(rare, 0.0, known.features) if rare.any() else known.features
    model = make(
        **SETTINGS | (FOR_FEW_CASES if few else {}),
        min_samples_leaf=leaf,
        max_iter=FEW_ITERATIONS if judge is None else MOST_ITERATIONS,
        early_stopping=judge is not None,
        random_state=seed,
    )
    if judge is None:
        return model.fit(features, known.targets, known.weights)
    return model.fit(
        features,
        known.targets,
        known.weights,
        X_val=judge.features,
        y_val=judge.targets,
        sample_weight_val=judge.weights,
    )


def _columns(problem: BoostingProblem, model: Any, prior: Tensor) -> tuple[list[int], Tensor]:
    """The outputs that the model's raw scores belong to, and the constants to which its trees add."""
    start = torch.from_numpy(np.array(model._baseline_prediction, dtype=np.float64).reshape(-1))
    if len(problem.columns) == 1:
        return [problem.columns[0]], start
    present = [problem.columns[int(place)] for place in model.classes_]
    if len(present) == 2:  # one score: the logit of the second class against the first
        return present[1:], start + prior[present[0]]
    if len(present) < len(problem.columns):  # classes without cases keep their prior: bring the others to its level
        start = start + prior[present].mean() - start.mean()
    return present, start
