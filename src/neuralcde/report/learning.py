"""Learning curves: training and validation loss, and the validation metric that selects the best epoch."""

from __future__ import annotations

from typing import Any

from ..estimators.path_estimator import PathEstimator
from ..figures import DARK, DOTS, LINE, Drawing, draw, score
from ..tasks import metric_title


def learning_curves(estimator: PathEstimator) -> list[Drawing]:
    """The losses per epoch and, if there is a validation set, the validation metric per epoch."""
    history, best, averaged = estimator.history_, estimator.best_epoch_, estimator.averaged_epochs_
    epochs = [row["epoch"] for row in history]
    validated = bool(history) and "validation_loss" in history[0]
    dots = {"marker": "o", "markersize": 3} if len(epochs) < 25 else {}

    def mark(axes: Any) -> None:
        word = "best" if averaged else "kept"
        axes.axvline(best, color=DARK, linewidth=0.9, linestyle=(0, (3, 3)), label=f"{word}: epoch {best}")
        axes.set_xlabel("epoch")
        if len(epochs) < 25:
            axes.set_xlim(0.5, len(epochs) + 0.5)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()

    def losses(axes: Any) -> None:
        axes.plot(epochs, [row["loss"] for row in history], color=LINE, label="training", **dots)
        if validated:
            axes.plot(epochs, [row["validation_loss"] for row in history], color=DOTS, label="validation", **dots)
        axes.set_ylabel("loss")
        mark(axes)

    see = (
        "Both losses fall while the model learns something that generalises. Where the validation loss rises and the "
        "training loss still falls, the model overfits."
        if validated
        else "The loss falls while the model learns. There is no validation set, so the last epoch is kept."
    )
    drawings = [draw("Loss", see, losses)]
    if validated:
        metric = estimator.task_.metric
        title = metric_title(metric)

        def quality(axes: Any) -> None:
            axes.plot(epochs, [row[f"validation_{metric}"] for row in history], color=DOTS, **dots)
            axes.set_ylabel(title)
            mark(axes)

        value = score(history[best - 1][f"validation_{metric}"])
        see = f"The weights of the epoch with the best value are kept: {value} at epoch {best}."
        if averaged:
            see = (
                f"The best value is {value}, at epoch {best}. The average of the weights of the best epochs is kept, "
                "because it is at least as good on the validation series."
            )
        drawings.append(draw(f"{title} on validation series", see, quality))
    return drawings
