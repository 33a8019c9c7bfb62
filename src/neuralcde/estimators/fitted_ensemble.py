"""What a fitted ensemble puts out: the raw outputs of its members, their mean, their spread, and their calibration."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import t as student_t
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..contracts import Argument, ArgumentError, warn_user
from ..models import PathModel
from ..paths import ControlPath, PathDataset
from ..series import IrregularSeries
from ..tasks import Task
from .calibration import Calibration
from .ensembles import average, member_outputs, member_outputs_at
from .inputs import as_series
from .members import Member
from .preparation import Preparation
from .training_data import dataset_of
from .trees import TreeEnsemble


class FittedEnsemble(BaseEstimator):  # type: ignore[misc]
    """Fitted models, perhaps trees, and their outputs.

    Attributes
    ----------
    task_ : the task
    preparation_ : the preprocessing, shared by all members
    members_ : list of the fitted models
    trees_ : the trees of gradient boosting, or None
    calibration_ : the map from outputs to calibrated outputs, or None
    interrupted_ : whether Ctrl-C ended the training; an ensemble may then have fewer members than asked for
    """

    per_row: bool
    device: Any
    task_: Task
    preparation_: Preparation
    members_: list[Member]
    trees_: TreeEnsemble | None
    calibration_: Calibration | None
    interrupted_: bool

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
        return average(self.member_outputs(X), boosted=self.trees_ is not None)

    def member_outputs(self, X: Any) -> Float[Tensor, "members cases outputs"]:
        """Raw outputs of each member of the ensemble; with `boosting`, those of gradient boosting come last.

        `outputs` is their mean. With `boosting`, it is the mean of two: the mean of the models, and gradient boosting.
        """
        check_is_fitted(self, "members_")
        series = as_series(self, X)
        self.preparation_.warn_of_far_values(self.preparation_.scaler.far_values(series))
        modules = [member.module for member in self.members_]
        return member_outputs(modules, self.trees_, self.preparation_, series, self._dataset(series))

    def calibrated(
        self, outputs: Float[Tensor, "*cases outputs"], *, over_time: bool = False
    ) -> Float[Tensor, "*cases outputs"]:
        """Calibrated outputs, of which `task_.probabilities` makes calibrated probabilities.

        Parameters
        ----------
        outputs
            Raw outputs, from `outputs` or `outputs_at`. They are returned unchanged without `calibrate`.
        over_time
            Whether they are outputs at given times, for parts of series. A calibration that was learnt from whole
            series does not hold for these: then they are returned unchanged, with a warning.
        """
        check_is_fitted(self, "members_")
        if self.calibration_ is None:
            return outputs
        if over_time and not self.calibrated_over_time:
            warn_user(
                [
                    "predictions at given times are not calibrated, because the calibration was learnt from whole "
                    "series; fit with ",
                    Argument("per_row", True),
                    " and a target per row to calibrate them.",
                ]
            )
            return outputs
        return self.calibration_(self.task_, outputs)

    @property
    def calibrated_over_time(self) -> bool:
        """Whether predictions at given times are as calibrated as those for whole series; true without `calibrate`."""
        return self.calibration_ is None or bool(self.per_row)

    def member_intervals(self, X: Any, level: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        r"""Intervals in which the prediction of one more member would lie: how much the members disagree.

        With the mean m and the standard deviation s of M members, they are $m \pm t\, s \sqrt{1 + 1/M}$, with t the
        quantile of Student's distribution, for the log odds of a class or the number of a target. They tell how
        uncertain the models are, not how often the truth lies inside: for that see split-conformal prediction.

        Parameters
        ----------
        X
            Series, as in `fit`.
        level
            Probability of the intervals.

        Returns
        -------
        low, high
            Shape (cases, scores): probabilities (if there are two classes, of `task_.classes[task_.event]`, which
            explanations are about, too), or numbers in the units of the targets.

        Raises
        ------
        ValueError
            If there is only one member. Gradient boosting counts as a member.
        """
        if not 0 < level < 1:
            raise ArgumentError(Argument("level", level), " must lie between 0 and 1.", argument="level")
        outputs = self.member_outputs(X)
        count = len(outputs)
        if count < 2:
            raise ArgumentError(
                "intervals need several members, but this model has one; fit with ", Argument("members", 5), "."
            )
        scores = self.task_.scores(self.calibrated(outputs)).numpy()
        width = student_t.ppf((1 + level) / 2, count - 1) * scores.std(0, ddof=1) * math.sqrt(1 + 1 / count)
        low, high = scores.mean(0) - width, scores.mean(0) + width
        return (expit(low), expit(high)) if self.task_.score_unit == "log odds" else (low, high)

    def spread(self, X: Any) -> Float[Tensor, "cases outputs"]:
        """Standard deviation of the raw outputs over the members: how much they disagree on each case.

        Gradient boosting counts as one member. For several classes, the mean of the logits of a member is subtracted
        first, because it has no effect on the probabilities. With a single member the spread is 0.
        """
        found = self.task_.centred(self.member_outputs(X).double())
        return found.std(0, correction=0).float()

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
        check_is_fitted(self, "members_")
        series = as_series(self, X)
        asked = torch.from_numpy(self.preparation_.format.numbers(times))
        self.preparation_.warn_of_far_values(self.preparation_.scaler.far_values(series))

        def build(part: IrregularSeries) -> ControlPath | IrregularSeries:
            batch: ControlPath | IrregularSeries = self._dataset(part)[:]
            return batch

        modules = [member.module for member in self.members_]
        found = member_outputs_at(modules, self.trees_, self.preparation_, build, series, asked)
        return average(found, boosted=self.trees_ is not None)

    def predictions_of(self, outputs: Float[Tensor, "cases outputs"]) -> NDArray[Any]:
        """Predictions from raw outputs: class probabilities, or numbers in the units of y."""
        return self.task_.decode(outputs)

    @property
    def module_(self) -> PathModel:
        """The fitted model; in an ensemble, the first one."""
        check_is_fitted(self, "members_")  # raises an AttributeError, so that hasattr is False before fit
        return self.members_[0].module

    @property
    def ensemble_(self) -> str:
        """What is averaged, in words: "5 models and gradient boosting"; empty for a single model."""
        check_is_fitted(self, "members_")
        models = len(self.members_)
        if models == 1 and self.trees_ is None:
            return ""
        boosting = "" if self.trees_ is None else " and gradient boosting"
        return f"{models} model{'s' if models > 1 else ''}{boosting}"

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One row per epoch of `module_`."""
        check_is_fitted(self, "members_")
        return self.members_[0].history

    @property
    def best_epoch_(self) -> int:
        """The epoch whose weights `module_` has, counted from 1."""
        check_is_fitted(self, "members_")
        return self.members_[0].best_epoch

    @property
    def averaged_epochs_(self) -> list[int]:
        """The epochs whose weights were averaged for `module_`; empty if it has the weights of the best epoch."""
        check_is_fitted(self, "members_")
        return self.members_[0].averaged_epochs

    @property
    def n_iter_(self) -> int:
        """Number of epochs of `module_`."""
        return len(self.history_)

    def _dataset(self, series: IrregularSeries) -> PathDataset:
        """The dataset of these series, without targets."""
        return dataset_of(series, self.preparation_, per_row=bool(self.per_row), device=self.device)
