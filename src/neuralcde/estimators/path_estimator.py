"""The base class of the classifier and the regressor: parameters, fit, raw outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import Tags, check_random_state
from torch import Tensor

from ..contracts import Argument, ArgumentError, Option, Recipe, documented, warn_user
from ..models import SummaryReadout
from ..paths import PathScheme
from ..series import IrregularSeries, ragged
from ..solve import Solver
from ..system import Processes
from ..tasks import Task
from ..tasks.task import listed_by_weight
from ..train import TrainingSettings
from .auxiliary import Auxiliary, as_auxiliary
from .boosting import check_boosting, fit_boosting
from .calibration import Calibration, indicators_of
from .data_checks import warn_of_outcomes
from .distillation import DROPOUT, soft_targets, suits_distillation
from .fitted_estimator import FittedEstimator
from .held_out_outputs import InterruptedFoldError, fitted_outputs, held_out_outputs
from .inputs import (
    OF_ARRAYS,
    as_series,
    as_targets,
    as_training_series,
    as_validation,
    known_targets,
    per_series,
    where_known,
)
from .members import Plan, check_callbacks, member_folder, member_seed, number_of_members, settings_of, train_members
from .modules import seeded_module, suited_readout
from .parameters import CHOSEN_BY_FIT, OPTIONS, check_parameters
from .parts import Chosen, copied
from .preparation import Preparation
from .splits import folds_of, validation_split
from .training_data import TrainingData, encoded_validation

MISSING_TO_ENCODE = 0.5  # fraction of missing values from which on encoder="auto" is "mlp"


@documented(OPTIONS)
class PathEstimator(FittedEstimator):
    """Fit a model of paths to series and targets.

    Parameters
    ----------
    {options}
    """

    def __init__(
        self,
        model: Chosen = "neural_cde",
        *,
        hidden: int = 32,
        width: int = 32,
        depth: int | Literal["auto"] = "auto",
        field: Chosen = "mlp",
        path: Chosen = "linear",
        encoder: Chosen = "auto",
        readout: Chosen = "auto",
        scale: Literal["auto", "standard", "robust"] = "auto",
        intensity: bool | Literal["auto"] = "auto",
        per_row: bool = False,
        pool: Literal["last", "mean", "both"] = "both",
        task: Chosen = "auto",
        members: int | Literal["auto"] = "auto",
        boosting: bool = False,
        distillation: float | Literal["auto"] = "auto",
        solver: str | Solver = "auto",
        substeps: int = 1,
        max_epochs: int = 100,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float | Literal["auto"] = "auto",
        readout_lr_scale: float = 1.0,
        weight_penalty: float = 0.0,
        weight_decay: float | Literal["auto"] = "auto",
        gradient_clip: float | None = 1.0,
        schedule: Literal["plateau", "cosine", "one_cycle", "constant"] = "cosine",
        patience: int | Literal["auto"] | None = "auto",
        ema_decay: float = 0.99,
        channel_dropout: float | Literal["auto"] = "auto",
        channel_jitter: float = 0.0,
        row_dropout: float = 0.0,
        auxiliary_weight: float = 0.5,
        average_epochs: int = 5,
        monitor: Literal["metric", "loss"] = "metric",
        rescale_outputs: bool = True,
        validation_fraction: float = 0.15,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.model = model
        self.hidden = hidden
        self.width = width
        self.depth = depth
        self.field = field
        self.path = path
        self.encoder = encoder
        self.readout = readout
        self.scale = scale
        self.intensity = intensity
        self.per_row = per_row
        self.pool = pool
        self.task = task
        self.members = members
        self.boosting = boosting
        self.distillation = distillation
        self.solver = solver
        self.substeps = substeps
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.readout_lr_scale = readout_lr_scale
        self.weight_penalty = weight_penalty
        self.weight_decay = weight_decay
        self.gradient_clip = gradient_clip
        self.schedule = schedule
        self.patience = patience
        self.ema_decay = ema_decay
        self.channel_dropout = channel_dropout
        self.channel_jitter = channel_jitter
        self.row_dropout = row_dropout
        self.auxiliary_weight = auxiliary_weight
        self.average_epochs = average_epochs
        self.monitor = monitor
        self.rescale_outputs = rescale_outputs
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    goal: ClassVar[str]  # "classification" or "regression": the `goal` of the tasks it accepts
    options: ClassVar[Mapping[str, Option]] = OPTIONS  # kind, default and help of each parameter

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        validation: tuple[Any, Any] | None = None,
        auxiliary: Any = None,
        callbacks: Sequence[Callable[[dict[str, Any]], Any]] = (),
        folder: Path | str | None = None,
        resume: bool = False,
    ) -> Any:
        """Fit the model to series and their targets.

        Parameters
        ----------
        X
            An `IrregularSeries`; or an array (series, steps, channels), or (series, steps) for one channel, with NaN
            for missing values.
        y
            One target per series: an array in the order of the series, or a mapping (or pandas Series) from id to
            target. With `per_row` one target per row: one array for all rows, or one array per series, by position or
            by id; NaN for unknown targets.
        sample_weight
            One weight per series, by position or by id like y, on its loss in training and in validation. A series
            with weight 0 is left out. None for equal weights.
        groups
            One group per series, by position or by id like y, e.g. the patient of a stay. The validation split keeps
            the series of a group together.
        validation
            X and y of the validation series, in place of a split.
        auxiliary
            One target per row, like y with `per_row`, for a second loss in training with the weight `auxiliary_weight`:
            a linear map of the state at each row predicts it. For example hourly labels, where y has one per stay. NaN
            for unknown targets. Text and at most 20 different whole numbers are classes, other numbers are quantities.
        callbacks
            Functions that are called after each epoch with its row of `history_`, a dictionary. If one returns True,
            training stops. With callbacks, the members of an ensemble are trained one after the other.
        folder
            Folder for checkpoints and the training history; None to write none. The members of an ensemble have folders
            of their own in it: `member 1`, ...
        resume
            Whether to resume from the checkpoint in `folder`.

        Returns
        -------
        self
        """
        settings = self.check_parameters()
        if resume and self.random_state is None:
            raise ArgumentError(
                Argument("resume", True),
                " needs a random_state, the same as in the checkpointed run.",
                argument="random_state",
            )
        series, noted = as_training_series(self, X)
        targets = as_targets(y, series, by_id=series is X, per_row=self.per_row)
        weights = per_series("sample_weight", sample_weight, series, by_id=series is X)
        group = per_series("groups", groups, series, by_id=series is X)
        held_out = as_validation(self, noted, validation, per_row=self.per_row)
        check_callbacks(callbacks)
        second = as_auxiliary(auxiliary, series, by_id=series is X)
        if weights is not None and not weights.all():
            chosen = np.flatnonzero(weights)
            rows = ragged.select(series.offsets, torch.from_numpy(chosen))[0]
            second = None if second is None else Auxiliary(second.task, second.targets[rows])
            targets = targets[rows if self.per_row else chosen]
            series, weights = series[chosen], weights[chosen]
            group = None if group is None else group[chosen]
        task = self.make_task(self._listed(targets, weights, series))
        numbers = task.encode(targets)
        warn_of_outcomes(series, targets, per_row=bool(self.per_row), task=task, grouped=group is not None)
        seed = Processes.current().agree(lambda: int(check_random_state(self.random_state).randint(2**31 - 1)))
        if self.boosting:
            check_boosting(task, numbers)
        method = getattr(self, "calibrate", None)
        folds = None
        if method is not None:
            indicators_of(task, numbers)
            folds = folds_of(
                len(series), seed, None if self.per_row else targets, group, argument="calibrate", instead=None
            )
        missing = float(series.values.isnan().double().mean())
        intensity = missing > 0 if self.intensity == "auto" else bool(self.intensity)
        automatic = isinstance(self.encoder, str) and self.encoder == "auto"
        encoded = missing >= MISSING_TO_ENCODE if automatic else self.encoder is not None
        count = number_of_members(self.members, len(series), encoded=encoded)
        seeds = [member_seed(seed, number) for number in range(count)]
        splits = [(np.arange(len(series)), np.arange(0)) for _ in seeds]
        if held_out is None:
            labels = targets if self.goal == "classification" and not self.per_row else None
            splits = [validation_split(self.validation_fraction, len(series), own, labels, group) for own in seeds]
        scheme = copied(PathScheme.of(self.path))
        # Members have different training series. What they share is fitted on all series, and never sees a target.
        learnt_from = series if count > 1 or self.boosting else series[splits[0][0]]
        preparation = Preparation.fit(
            learnt_from, len(splits[0][0]), intensity=intensity, encoded=encoded, scheme=scheme, scale=self.scale
        )
        preparation.warn_of_far_values(preparation.scaler.far_values(series))
        judged = None if held_out is None else encoded_validation(*held_out, task, preparation)
        data = TrainingData(
            series,
            numbers,
            weights,
            judged,
            second,
            task,
            preparation,
            per_row=bool(self.per_row),
            per_batch=bool(self.row_dropout),
            device=self.device,
        )
        soft, share = self._distilled(data, seed, None if self.per_row else targets, group)
        data = replace(data, soft=soft)
        trees = fit_boosting(data, *splits[0], seed) if self.boosting else None
        readout = self.readout
        if isinstance(readout, str) and readout == "auto":
            readout = suited_readout(preparation)
            if soft is not None and readout == "summary":
                readout = SummaryReadout.with_options(dropout=DROPOUT)
        plans = [
            Plan(
                seeded_module(vars(self) | {"readout": readout}, preparation, task, own).to(self.device),
                *split,
                settings_of(settings, vars(self), data, len(split[0]), own),
                member_folder(folder, number, count),
                resume,
            )
            for number, (own, split) in enumerate(zip(seeds, splits, strict=True))
        ]
        members = train_members(data, plans, callbacks)
        interrupted = len(members) < len(plans) or any(member.interrupted for member in members)
        calibration = None
        if method is not None and folds is not None and not interrupted:
            settled = {name: getattr(plans[0].settings, name) for name in CHOSEN_BY_FIT} | {
                "members": count,
                "distillation": share,
                "intensity": intensity,
                "encoder": "mlp" if automatic and encoded else None if automatic else self.encoder,
                "readout": readout,
            }
            try:
                held = held_out_outputs(
                    self,
                    series,
                    targets,
                    folds=folds,
                    task=task,
                    seed=seed,
                    weights=weights,
                    groups=group,
                    validation=held_out,
                    auxiliary=second,
                    chosen=settled,
                    # of several members, others saw the validation series of one
                    reference=fitted_outputs(self, members, trees, preparation, series[splits[0][1]], task)
                    if count == 1
                    else torch.zeros(0, task.outputs),
                )
                calibration = Calibration.fit(method, task, held, numbers, data.case_weights())
            except InterruptedFoldError:
                interrupted = True
        if folds is not None and calibration is None:
            warn_user("the training was interrupted: the probabilities are not calibrated.")
        fitted = {
            "task_": task,
            "preparation_": preparation,
            "members_": members,
            "trees_": trees,
            "calibration_": calibration,
            "interrupted_": interrupted,
            "_fitted_params": copied(self.get_params(deep=False)),
        }
        # A single assignment at the end: a fit that fails or is interrupted leaves the estimator unchanged.
        others = {name: value for name, value in vars(self).items() if name not in OF_ARRAYS}
        self.__dict__ = others | noted | fitted
        return self

    def _pairs(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """The known targets, and the predictions for them."""
        series = as_series(self, X)
        targets = as_targets(y, series, by_id=series is X, per_row=self.per_row)
        predictions = self.predict(series)  # not X, so that an array is validated and copied only once
        if not self.per_row:
            return targets, predictions
        return known_targets(targets), predictions[where_known(targets)]

    def check_parameters(self) -> TrainingSettings:
        """Check the parameters, as `fit` does first, and return the settings of the training."""
        return check_parameters(self.options, vars(self))

    def _listed(self, targets: NDArray[Any], weights: NDArray[Any] | None, series: IrregularSeries) -> NDArray[Any]:
        """Targets from which a task learns their mean and deviation: numbers with weights are listed by weight."""
        if weights is None or self.goal == "classification":
            return targets
        weights = np.repeat(weights, series.lengths.numpy()) if self.per_row else weights
        return np.asarray(targets[listed_by_weight(torch.from_numpy(weights)).numpy()])

    def _distilled(
        self, data: TrainingData, seed: int, labels: NDArray[Any] | None, groups: NDArray[Any] | None
    ) -> tuple[Tensor | None, float]:
        """The soft targets of training and the share of trees in them; None and 0 without distillation."""
        given = None if isinstance(self.distillation, str) else self.distillation
        if given == 0 or (given is None and not suits_distillation(data.preparation, per_row=data.per_row)):
            return None, 0.0
        classes = labels if self.goal == "classification" else None
        soft, share = soft_targets(data, given, seed=seed, labels=classes, groups=groups, verbose=self.verbose)
        if self.verbose:
            print(f"distillation: {share:.2f} of the loss is on predictions of trees", file=sys.stderr, flush=True)
        return soft, share

    def make_task(self, y: NDArray[Any]) -> Task:
        """Make the task for these targets: the one given as `task`, or one inferred from y.

        With `per_row`, y holds the targets of all rows.
        """
        y = self._checked_targets(known_targets(y) if self.per_row else y)
        given = self._task_options()
        if isinstance(self.task, str) and self.task == "auto":
            task = self._inferred_task(y)
        elif isinstance(self.task, Task):
            for name in given:
                raise ArgumentError(
                    Argument(name), " cannot be given together with a task object; pass it to the task instead."
                )
            task = copied(self.task)
        else:
            recipe = Recipe.of(self.task, Task.registry)
            task = recipe.member.from_targets(y, **recipe.options | given)
        if task.goal != self.goal:
            raise ArgumentError(
                Argument("task", self.task), f" is a {task.goal} task, but this estimator is for {self.goal}."
            )
        return task

    def _checked_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Known targets, refused if they do not fit the estimator's goal. Each estimator defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define _checked_targets(y)")

    def _inferred_task(self, y: NDArray[Any]) -> Task:
        """The task for task="auto". Each estimator defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define _inferred_task(y)")

    def _task_options(self) -> dict[str, Any]:
        """Parameters of the estimator that are passed to the task."""
        return {}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags
