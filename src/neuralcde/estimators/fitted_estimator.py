"""What estimators do once they are fitted: explain, run on streams, show themselves, read tables, save."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from ..explanations import Explanation
from ..series import FarValue, IrregularSeries
from ..series.tables import with_optional_columns
from ..system import Processes
from .explaining import explain
from .fitted_ensemble import FittedEnsemble
from .inputs import as_series
from .variants import Ensemble

if TYPE_CHECKING:
    from .streams import Streams


class FittedEstimator(FittedEnsemble):
    """The part of an estimator that needs no training data."""

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
        found = explain(ensemble, self.task_, series, outputs, random_state)
        return dataclasses.replace(found, before_calibration=self.calibration_ is not None)

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

        The values of a channel whose column is missing are not observed; a warning names it. So are those of a static
        column of numbers that were missing for some training series.
        """
        check_is_fitted(self, "members_")
        template, flagged = self.preparation_.template(), self.preparation_.flagged
        may_lack = template.format.numeric_static(k in flagged for k in range(template.static.shape[1]))
        frame = with_optional_columns(frame, may_lack)
        return IrregularSeries.from_long(frame, like=template, duplicates=duplicates)

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator in a folder: weights as safetensors, everything else as JSON.

        Load it with `nc.load`. Under torchrun only rank 0 writes.
        """
        from .saving import save

        if Processes.current().first:
            save(self, Path(folder))
