"""The base class of the classifier and the regressor: parameters, fit, raw outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..contracts import Argument, ArgumentError, Option, Recipe, documented
from ..models import PathModel
from ..paths import ControlPath, PathDataset, PathScheme
from ..series import FarValue, IrregularSeries, ragged
from ..solve import Tableau
from ..system import Processes
from ..tasks import Task, missing_targets
from ..train import TrainingSettings, outputs_of, train
from .inputs import OF_ARRAYS, as_series, as_targets, as_training_series, as_validation, per_series
from .modules import seeded_module
from .output_checks import check_finite
from .outputs_at import outputs_at
from .parameters import OPTIONS, check_parameters
from .parts import Chosen, copied
from .preparation import Preparation
from .splits import stratified_split

MIN_VALIDATION_SERIES = 8  # with fewer validation series, there is no validation
LARGE = 2**24  # number of values above which paths are built per batch, to save memory


@documented(OPTIONS)
class PathEstimator(BaseEstimator):  # type: ignore[misc]
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
        depth: int = 3,
        field: Chosen = "mlp",
        path: Chosen = "linear",
        encoder: Chosen = None,
        readout: Chosen = "auto",
        scale: Literal["standard", "robust"] = "robust",
        intensity: bool | Literal["auto"] = "auto",
        per_row: bool = False,
        pool: Literal["auto", "last", "mean", "both"] = "auto",
        task: Chosen = "auto",
        solver: str | Tableau = "rk4",
        substeps: int = 1,
        max_epochs: int = 100,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 3e-3,
        readout_lr_scale: float = 1.0,
        weight_penalty: float = 0.0,
        weight_decay: float = 0.0,
        gradient_clip: float | None = 1.0,
        schedule: Literal["plateau", "cosine", "one_cycle", "constant"] = "cosine",
        patience: int | None = 30,
        ema_decay: float = 0.99,
        channel_dropout: float = 0.0,
        channel_jitter: float = 0.0,
        row_dropout: float = 0.0,
        average_epochs: int = 1,
        monitor: Literal["metric", "loss"] = "metric",
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
        self.average_epochs = average_epochs
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    goal: ClassVar[str]  # "classification" or "regression": the `goal` of the tasks it accepts
    options: ClassVar[Mapping[str, Option]] = OPTIONS  # kind, default and help of each parameter
    task_: Task
    preparation_: Preparation
    module_: PathModel

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        validation: tuple[Any, Any] | None = None,
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
        callbacks
            Functions that are called after each epoch with its row of `history_`, a dictionary. If one returns True,
            training stops.
        folder
            Folder for checkpoints and the training history; None to write none.
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
        if weights is not None and not weights.all():
            chosen = np.flatnonzero(weights)
            rows = ragged.select(series.offsets, torch.from_numpy(chosen))[0] if self.per_row else chosen
            series, targets, weights = series[chosen], targets[rows], weights[chosen]
            group = None if group is None else group[chosen]
        task = self.make_task(targets)
        numbers = task.encode(targets)
        seed = Processes.current().agree(lambda: int(check_random_state(self.random_state).randint(2**31 - 1)))
        training, validating = np.arange(len(series)), np.arange(0)
        if held_out is None:
            training, validating = self._split(None if self.per_row else targets, len(series), seed, group)
        intensity = bool(series.values.isnan().any()) if self.intensity == "auto" else bool(self.intensity)
        encoded = intensity if isinstance(self.encoder, str) and self.encoder == "auto" else self.encoder is not None
        scheme = copied(PathScheme.of(self.path))
        preparation = Preparation.fit(
            series[training], intensity=intensity, encoded=encoded, scheme=scheme, scale=self.scale
        )
        preparation.warn_of_far_values(preparation.scaler.far_values(series))

        def part(chosen: NDArray[Any]) -> PathDataset:
            rows = ragged.select(series.offsets, torch.from_numpy(chosen))[0] if self.per_row else chosen
            weight = None if weights is None else torch.from_numpy(weights[chosen])
            if weight is not None and self.per_row:
                weight = weight.repeat_interleave(series[chosen].lengths)
            return self._dataset(series[chosen], preparation, numbers[rows], weight, per_batch=bool(self.row_dropout))

        data = part(training)
        judge = part(validating) if len(validating) else None
        if held_out is not None:
            judge = self._dataset(held_out[0], preparation, task.encode(held_out[1]))
        assert data.targets is not None
        if self.batch_size == "auto":
            settings = dataclasses.replace(settings, batch_size=int(np.clip(len(training) // 60, 8, 512)))
        module = seeded_module(vars(self), preparation, task, seed).to(self.device)
        module.fit_inputs(preparation.series(series[training]), per_row=bool(self.per_row))
        module.readout.start_at(task.prior(data.targets))
        result = train(
            module,
            task,
            data,
            judge,
            dataclasses.replace(settings, seed=seed % 10**6),
            folder=None if folder is None else Path(folder),
            resume=resume,
            callbacks=callbacks,
        )
        fitted = {
            "task_": task,
            "preparation_": preparation,
            "module_": module,
            "history_": result.history,
            "best_epoch_": result.best_epoch,
            "averaged_epochs_": result.averaged_epochs,
            "interrupted_": result.interrupted,
            "n_iter_": len(result.history),
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
        return _known_targets(targets), predictions[_known(targets)]

    def outputs(self, X: Any) -> Float[Tensor, "cases outputs"]:
        """Raw outputs of the model: logits for classes, standardised numbers for regression.

        Parameters
        ----------
        X
            Series, as in `fit`.

        Returns
        -------
        Tensor
            One row per series, or one per observation with `per_row`. `task_.decode` turns them into predictions.

        Raises
        ------
        ValueError
            If X does not fit the series that the estimator was fitted on, or if an output is not finite.
        """
        check_is_fitted(self, "module_")
        series = as_series(self, X)
        self.preparation_.warn_of_far_values(self.preparation_.scaler.far_values(series))
        outputs, _ = outputs_of(self.module_, self._dataset(series))
        check_finite(outputs, series, of_series=ragged.series_of_rows(series.offsets) if self.per_row else None)
        return outputs.cpu()

    def outputs_at(self, X: Any, times: Any) -> Float[Tensor, "series k outputs"]:
        """Raw outputs of the model at given times: those that `outputs` gives for `X.until(t)`.

        Nothing after a time is used for it, and the asked times do not affect each other. A time after the last row is
        allowed: time passes, and nothing new is seen. With `per_row`, it is the output for the last row of
        `X.until(t)`.

        Parameters
        ----------
        X
            Series, as in `fit`.
        times
            Shape (k,), the same times for all series, or (series, k), in the units of the table.

        Returns
        -------
        Tensor
            Shape (series, k, outputs); NaN where a series had not begun at the time.

        Raises
        ------
        ValueError
            If a time is NaN, X does not fit the series that the estimator was fitted on, or an output is not finite.

        Notes
        -----
        Cost: with a causal path, one solve of the series, and one gap per time. With "natural_cubic", "smoothing",
        `fill="interpolate"` or a model that solves no equation, each time costs a solve of the truncated series.
        """
        check_is_fitted(self, "module_")
        series = as_series(self, X)
        asked = torch.from_numpy(self.preparation_.format.numbers(times))

        def build(part: IrregularSeries) -> ControlPath | IrregularSeries:
            batch: ControlPath | IrregularSeries = self._dataset(part)[:]
            return batch

        self.preparation_.warn_of_far_values(self.preparation_.scaler.far_values(series))
        return outputs_at(self.module_, build, self.preparation_.scheme, series, asked)

    def far_values(self, X: Any) -> list[FarValue]:
        """The values of X that are far outside the range of the training series, in the order of series and time.

        `fit` and the predictions warn of such values (`neuralcde.series.FarValueWarning`). For the rule see
        `neuralcde.series.far_values.UsualRange`.

        Parameters
        ----------
        X
            Series, as in `fit`.

        Returns
        -------
        list of FarValue
            Named tuples: the id of the series, the time (None for a static feature), the channel, the value, the usual
            range, and the limits beyond which a value is far outside.
        """
        check_is_fitted(self, "module_")
        return self.preparation_.scaler.far_values(as_series(self, X)).listed()

    def read_long(self, frame: Any, *, duplicates: Literal["error", "mean", "last"] = "error") -> IrregularSeries:
        """Read a new long table in the format of the training table: same columns, categories and unit of time."""
        check_is_fitted(self, "module_")
        return IrregularSeries.from_long(frame, like=self.preparation_.template(), duplicates=duplicates)

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator in a folder: weights as safetensors, everything else as JSON.

        Load it with `nc.load`. Under torchrun only rank 0 writes.
        """
        from .saving import save

        if Processes.current().first:
            save(self, Path(folder))

    def check_parameters(self) -> TrainingSettings:
        """Check the parameters, as `fit` does first, and return the settings of the training."""
        return check_parameters(self.options, vars(self))

    def make_task(self, y: NDArray[Any]) -> Task:
        """Make the task for these targets: the one given as `task`, or one inferred from y.

        With `per_row`, y holds the targets of all rows.
        """
        y = self._checked_targets(_known_targets(y) if self.per_row else y)
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

    def _split(
        self, targets: NDArray[Any] | None, size: int, seed: int, groups: NDArray[Any] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Split into training and validation series, as sorted positions."""
        everything = np.arange(size)
        count = round(self.validation_fraction * size)
        if count >= size:
            share = Argument("validation_fraction", self.validation_fraction)
            raise ArgumentError(share, f" of {size} series leaves none to learn from.")
        if count < MIN_VALIDATION_SERIES:
            return everything, everything[:0]
        labels = targets if self.goal == "classification" else None
        training, validation = stratified_split(size, count, seed % 2**31, labels=labels, groups=groups)
        return np.sort(training), np.sort(validation)

    def _dataset(
        self,
        series: IrregularSeries,
        preparation: Preparation | None = None,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        per_batch: bool = False,
    ) -> PathDataset:
        """The data set of these series, as paths, or as prepared series if the model has an encoder.

        For large data each batch is prepared when it is needed, to save memory.
        """
        learnt = preparation or self.preparation_

        def prepared(part: IrregularSeries) -> ControlPath | IrregularSeries:
            found = learnt.series(part)
            return (found if learnt.encoded else learnt.path(found)).to(self.device)

        large = per_batch or series.values.numel() > LARGE
        return PathDataset(
            series if large else prepared(series),
            None if targets is None else targets.to(self.device),
            per_row=bool(self.per_row),
            weights=None if weights is None else weights.to(self.device),
            build=prepared if large else None,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _known(targets: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(~missing_targets(targets).reshape(len(targets), -1).any(1))


def _known_targets(targets: NDArray[Any]) -> NDArray[Any]:
    known = targets[_known(targets)]
    if not len(known):
        raise ArgumentError(
            f"y has no known target: all of its {len(targets)} rows are NaN or None; give at least one row its target.",
            argument="y",
        )
    return np.asarray(known.tolist())  # through a list, so that an object array of integers becomes an integer array
