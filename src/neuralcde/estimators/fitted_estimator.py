"""What estimators do once they are fitted: raw outputs of the ensemble, reading tables, saving."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import t as student_t
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..contracts import Argument, ArgumentError, warn_user
from ..explanations import Explanation
from ..models import PathModel
from ..paths import ControlPath, PathDataset
from ..series import FarValue, IrregularSeries
from ..system import Processes
from ..tasks import Task
from .calibration import Calibration
from .ensembles import average, member_outputs, member_outputs_at
from .explaining import explain
from .inputs import as_series
from .members import Member
from .preparation import Preparation
from .training_data import dataset_of
from .trees import TreeEnsemble
from .variants import Ensemble

if TYPE_CHECKING:
    from .streams import Streams


class FittedEstimator(BaseEstimator):  # type: ignore[misc]
    """The part of an estimator that needs no training data.

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
        if over_time and not self.per_row:
            warn_user(
                "predictions at given times are not calibrated, because the calibration was learnt from whole series; "
                "fit with per_row=True and a target per row to calibrate them."
            )
            return outputs
        return self.calibration_(self.task_, outputs)

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
            Shape (cases, scores): probabilities (of the positive class, if there are two), or numbers in the units of
            the targets.

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

    def explain(self, X: Any, *, random_state: int = 0) -> Explanation:
        """Explain predictions: what each observation, static feature and gap changed, in terms that add up.

        The outputs after the last row of each series are explained; for those at an earlier time pass `X.until(t)`.

        Parameters
        ----------
        X
            Series, as in `fit`.
        random_state
            Seed of the permutations for rows with more than six observations.

        Returns
        -------
        Explanation
            Arrays of terms, `to_long()`, `top()`, `importances()`, `plot()`.

        Raises
        ------
        ValueError
            If the path is not causal ("natural_cubic", "smoothing", `fill="interpolate"`), because an output can then
            not be split among observations; or if X does not fit the series that the estimator was fitted on.

        Notes
        -----
        Cost: two solves of the series, and per row with k observations one solve of a gap for each of the $2^k - 1$
        ways to leave some of them out, up to k = 6; for more observations, about 30 k of them.
        """
        check_is_fitted(self, "members_")
        series = as_series(self, X)
        outputs = self.outputs(series)
        if self.per_row:
            outputs = outputs[series.offsets[1:] - 1]
        ensemble = Ensemble([member.module for member in self.members_], self.trees_, self.preparation_, self.device)
        return explain(ensemble, self.task_, series, outputs, random_state)

    def predictions_of(self, outputs: Float[Tensor, "cases outputs"]) -> NDArray[Any]:
        """Predictions from raw outputs: class probabilities, or numbers in the units of y."""
        return self.task_.decode(outputs)

    def stream(self, states: str | Path | None = None) -> Streams:
        """Streams, which get one row at a time and give a prediction after each.

        Parameters
        ----------
        states
            File that `Streams.save` wrote, to go on with its streams; None for no streams yet.

        Returns
        -------
        Streams
            With the methods `push`, `peek`, `push_many`, `remove` and `save`.

        Raises
        ------
        ArgumentError
            If the model cannot run on streams: its path is not causal, or its parts read whole series.
        """
        from .streams import Streams

        streams = Streams(self)
        if states is not None:
            streams.load(states)
        return streams

    def export_stream(self, folder: str | Path) -> None:
        """Write the step of streams as ONNX: `update.onnx` and `output.onnx`, state in and state out.

        `update` maps (real, double, t, x) to (next_real, next_double), and `output` maps (real, double) to raw outputs;
        scaling is part of it. `real` and `double` of a new stream are those of `stream().start(static)`.

        Parameters
        ----------
        folder
            Made if it does not exist.

        Raises
        ------
        ImportError
            Without the packages of `neuralcde[onnx]`.
        ArgumentError
            If the model cannot run on streams, has trees, or takes steps that depend on the gap (`FixedSteps`).
        """
        from .stream_export import write_onnx

        check_is_fitted(self, "members_")
        write_onnx(self, Path(folder))

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
        check_is_fitted(self, "members_")
        return self.preparation_.scaler.far_values(as_series(self, X)).listed()

    def plot_risk(self, X: IrregularSeries, id: Any, *, axes: Any = None) -> Any:
        """Plot the prediction for one series over time, from what was known at each time.

        Parameters
        ----------
        X
            Series, as in `fit`.
        id
            Id of the series to plot.
        axes
            Axes of matplotlib; None to make new ones.

        Returns
        -------
        matplotlib Axes
        """
        check_is_fitted(self, "members_")
        from .display import plot_risk

        return plot_risk(self, as_series(self, X), id, axes)

    def _html_repr(self) -> str:
        """scikit-learn's diagram, and for a fitted estimator what it was fitted on and how that went."""
        diagram = str(estimator_html_repr(self))
        if not hasattr(self, "members_"):
            return diagram
        from .display import summary_html

        return diagram + summary_html(self)

    def read_long(self, frame: Any, *, duplicates: Literal["error", "mean", "last"] = "error") -> IrregularSeries:
        """Read a new long table in the format of the training table: same columns, categories and unit of time.

        The values of a channel whose column is missing are not observed; a warning names it.
        """
        check_is_fitted(self, "members_")
        return IrregularSeries.from_long(frame, like=self.preparation_.template(), duplicates=duplicates)

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator in a folder: weights as safetensors, everything else as JSON.

        Load it with `nc.load`. Under torchrun only rank 0 writes.
        """
        from .saving import save

        if Processes.current().first:
            save(self, Path(folder))

    def _dataset(self, series: IrregularSeries) -> PathDataset:
        """The dataset of these series, without targets."""
        return dataset_of(series, self.preparation_, per_row=bool(self.per_row), device=self.device)
