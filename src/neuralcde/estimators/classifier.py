"""The scikit-learn classifier."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..contracts import ArgumentError, Choice, Either, Instance, Nothing, Option, documented
from ..solve import Solver
from ..tasks import ClassificationTask, check_class_weight, classification_task
from ..train import TrainingSettings
from .parts import Chosen
from .path_estimator import PathEstimator

OPTIONS = {
    **PathEstimator.options,
    "class_weight": Option(
        Either(Nothing("equal weights"), Choice("balanced"), Instance(dict, "a dictionary from class to weight")),
        None,
        'Weight of each class in the loss. "balanced": in inverse proportion to the frequency of the class.',
    ),
    "calibrate": Option(
        Either(Nothing("probabilities as they come from the models"), Choice("isotonic", "temperature")),
        None,
        "How probabilities are calibrated on held-out series: five more fits, each without a fifth of the series, "
        'predict these, and a map from their outputs to probabilities is learnt. "isotonic": an increasing curve, for '
        'a thousand series or more. "temperature": one factor on the log odds.',
    ),
}


@documented(OPTIONS)
class NeuralCDEClassifier(ClassifierMixin, PathEstimator):  # type: ignore[misc]
    """Classify series with a Neural CDE or another model of paths.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    classes_ : array of the classes, in the order of the columns of `predict_proba`
    members_ : list of the fitted models, each with its history
    module_ : the first of these models, a torch module
    history_ : list of dicts, one per epoch of the first model

    Examples
    --------
    >>> import numpy as np, neuralcde as nc
    >>> t = np.linspace(0, 6, 20)
    >>> X = np.stack([np.sin(t * (1 + k % 2)) for k in range(24)])
    >>> clf = nc.NeuralCDEClassifier(max_epochs=30, hidden=8, width=8, random_state=0).fit(X, ["slow", "fast"] * 12)
    >>> clf.predict(X[:2]).tolist()
    ['slow', 'fast']
    """

    options = OPTIONS
    goal = "classification"
    task_: ClassificationTask

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
        class_weight: Any = None,
        calibrate: Literal["isotonic", "temperature"] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        super().__init__(
            model=model,
            hidden=hidden,
            width=width,
            depth=depth,
            field=field,
            path=path,
            encoder=encoder,
            readout=readout,
            scale=scale,
            intensity=intensity,
            per_row=per_row,
            pool=pool,
            task=task,
            members=members,
            boosting=boosting,
            distillation=distillation,
            solver=solver,
            substeps=substeps,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            readout_lr_scale=readout_lr_scale,
            weight_penalty=weight_penalty,
            weight_decay=weight_decay,
            gradient_clip=gradient_clip,
            schedule=schedule,
            patience=patience,
            ema_decay=ema_decay,
            channel_dropout=channel_dropout,
            channel_jitter=channel_jitter,
            row_dropout=row_dropout,
            auxiliary_weight=auxiliary_weight,
            average_epochs=average_epochs,
            monitor=monitor,
            rescale_outputs=rescale_outputs,
            validation_fraction=validation_fraction,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight
        self.calibrate = calibrate

    def check_parameters(self) -> TrainingSettings:
        """Check the parameters, as `fit` does first, and return the settings of the training."""
        settings = super().check_parameters()
        check_class_weight(self.class_weight)
        return settings

    def _checked_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        check_classification_targets(y)
        if y.ndim == 1 and len(np.unique(y)) < 2:
            raise ArgumentError(
                f"Classifier can't train when only one class is present: y is always {y.tolist()[0]!r}.", argument="y"
            )
        return y

    def _inferred_task(self, y: NDArray[Any]) -> ClassificationTask:
        return classification_task(y, self.class_weight)

    def _task_options(self) -> dict[str, Any]:
        return {} if self.class_weight is None else {"class_weight": self.class_weight}

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes in the order of the columns of `predict_proba`; for multilabel targets, the label positions."""
        check_is_fitted(self, "members_")  # raises an AttributeError, so that hasattr is False before fit
        return self.task_.columns

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities per series, or per row with `per_row`; calibrated if `calibrate` is set.

        Returns
        -------
        array
            Shape (cases, classes); for multilabel targets (cases, labels), the probability of each label.
        """
        outputs = self.calibrated(self.outputs(X))
        return self.task_.probabilities(outputs)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class per series, or per row with `per_row`."""
        outputs = self.calibrated(self.outputs(X))
        return self.task_.decode(outputs)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of the predictions for X; y as in `fit`."""
        return float(accuracy_score(*self._pairs(X, y), sample_weight=sample_weight))

    def predict_proba_at(self, X: Any, times: Any) -> NDArray[Any]:
        """Class probabilities at given times.

        They are the probabilities for `X.until(t)`: nothing after a time is used for it. A time may lie after the last
        row. See `outputs_at` for the cost. They are calibrated only if the model was fitted `per_row`: a calibration
        that was learnt from whole series does not hold for parts of them, and a warning says so.

        Parameters
        ----------
        X
            Series, as in `fit`.
        times
            Shape (k,), the same times for all series, or (series, k), in the units of the table.

        Returns
        -------
        array
            Shape (series, k, classes); NaN where a series had not begun at the time.
        """
        return self.task_.probabilities(self.calibrated(self.outputs_at(X, times), over_time=True))

    def predictions_of(self, outputs: Float[Tensor, "cases outputs"]) -> NDArray[Any]:
        """Class probabilities from the raw outputs at some times, as `predict_proba_at` gives them."""
        return self.task_.probabilities(self.calibrated(outputs, over_time=True))
