"""Figures of classification tasks: ROC and precision-recall curves, calibration, confusion matrix, AUROC per label."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, precision_recall_curve, roc_auc_score, roc_curve

from ..figures import DARK, DASHED, DOTS, GREY, LINE, Drawing, Table, draw, percent, score, short
from .evaluation import Evaluation
from .operating_points import decision_curve, wilson

Array = NDArray[Any]
CURVE = 400  # maximum number of points of a curve
CLASSES = 24  # maximum number of classes of a confusion matrix; rarer classes are pooled


def binary_figures(p: Array, test: Evaluation, beside: Array | None = None, *, event: int = 1) -> list[Drawing]:
    """ROC curve, precision-recall curve, calibration and decision curve; none if all targets have the same class.

    `beside` holds the probabilities of gradient boosting, for comparison; `event` is the class that they are about.
    """
    others = None if beside is None else where_known(beside, test)[1]
    truth, p = where_known(p, test)
    yes, share = truth == event, float((truth == event).mean())
    if not 0 < share < 1:
        return []
    p = p[:, event]
    no_name, yes_name = (short(test.names[k], 20) for k in (1 - event, event))
    area = float(roc_auc_score(yes, p))

    def roc(axes: Any) -> None:
        false, true, _ = roc_curve(yes, p)
        axes.plot([0, 1], [0, 1], **DASHED)
        axes.plot(*thin(false, true), color=LINE)
        positive = p > 0.5
        axes.plot(positive[~yes].mean(), positive[yes].mean(), "o", color=DOTS, markersize=6)
        axes.set(xlabel=f"false positive rate ({no_name})", ylabel=f"true positive rate ({yes_name})")
        _unit_square(axes)

    def precision_recall(axes: Any) -> None:
        precisions, recalls, _ = precision_recall_curve(yes, p)
        axes.axhline(share, **DASHED)
        axes.plot(*thin(recalls[recalls > 0], precisions[recalls > 0]), color=LINE, drawstyle="steps-post")
        positive = p > 0.5
        if positive.any():
            axes.plot(positive[yes].mean(), yes[positive].mean(), "o", color=DOTS, markersize=6)
        axes.set(xlabel=f"recall ({yes_name})", ylabel="precision")
        _unit_square(axes)

    return [
        draw(
            "ROC curve",
            f"The nearer to the top left corner the better. In {percent(area)} of the pairs of {test.cases}, one "
            f'with "{yes_name}" and one with "{no_name}", the first has the higher score. Dashed line: chance level. '
            "Dot: threshold 0.5 on the probability.",
            roc,
        ),
        draw(
            f"Precision and recall of {yes_name}",
            "The nearer to the top right corner the better. It is more informative than the ROC curve if one class is "
            f'rare. Dashed line: chance level ("{yes_name}" is the truth for {percent(share)} of the test '
            f"{test.cases}). Dot: threshold 0.5 on the probability.",
            precision_recall,
        ),
        calibration_figure(
            f"Calibration of the probability of {yes_name}",
            f'Of the {test.cases} with a predicted probability of about 30 %, is "{yes_name}" the truth for 30 %? Dots '
            "on the diagonal mean yes. Dots below it mean that the probabilities are too high. Bars: 95 % intervals.",
            p,
            yes,
            xlabel=f"predicted probability of {yes_name}",
            ylabel=f"fraction with {yes_name}",
        ),
        decision_curve(
            p,
            yes,
            yes_name,
            None if others is None else others[:, event],
        ),
    ]


def multiclass_figures(p: Array, test: Evaluation) -> list[Drawing]:
    """Confusion matrix, and calibration of the probability of the predicted class."""
    truth, p = where_known(p, test)
    found = p.argmax(1)
    names, pairs = pooled(test.names, truth, found)
    counts = confusion_matrix(*pairs, labels=range(len(names)))
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = len(names)
    longest = max(len(name) for name in names)
    side = 1.1 + 0.05 * longest + max(0.29 * size, 1.8)

    def confusion(axes: Any) -> None:
        axes.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1.15, edgecolors="white", linewidth=0.8)
        for row, column in zip(*np.nonzero(counts), strict=True):
            light = shares[row, column] > 0.55
            axes.text(
                column + 0.5,
                row + 0.52,
                f"{counts[row, column]}",
                ha="center",
                va="center",
                color="white" if light else DARK,
                fontsize=8 if size <= 12 else 7,
            )
        axes.set_xticks(np.arange(size) + 0.5, names, rotation=90 if longest > 2 else 0)
        axes.set_yticks(np.arange(size) + 0.5, names)
        axes.set(xlabel="predicted", ylabel="true", aspect="equal")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
        axes.invert_yaxis()

    right = found == truth
    return [
        draw(
            "Confusion matrix",
            f"Number of test {test.cases} per true class (row) and predicted class (column). Correct predictions lie "
            "on the diagonal. A dark cell off the diagonal is a pair of classes that the model confuses.",
            confusion,
            size=(side, side * 0.94),
            wide=size > 8,
        ),
        calibration_figure(
            "Calibration",
            "Of the predictions with a probability of about 80 %, are 80 % correct? Dots on the diagonal mean yes. "
            "Dots below it mean that the model is overconfident. Bars: 95 % intervals.",
            p.max(1),
            right,
            xlabel="probability of the predicted class",
            ylabel="fraction correct",
        ),
    ]


def mistakes(p: Array, test: Evaluation, most: int = 8) -> Table:
    """Table of the most frequent pairs of a true class and a wrongly predicted class."""
    truth, p = where_known(p, test)
    wrong = p.argmax(1) != truth
    pairs, counts = np.unique(np.stack([truth, p.argmax(1)])[:, wrong], axis=1, return_counts=True)
    rows = []
    for k in np.argsort(-counts, kind="stable")[:most]:
        true, predicted = pairs[:, k]
        of = int((truth == true).sum())
        rows.append((short(test.names[true], 24), short(test.names[predicted], 24), f"{counts[k]} of {of}"))
    see = f"The most frequent mistakes, with the number of test {test.cases} of the true class."
    return Table(
        ("true", "predicted", "count"), tuple(rows), see if rows else "There are no mistakes on the test series."
    )


def multilabel_figures(test: Evaluation, most: int = 30) -> list[Drawing]:
    """Bar chart of the AUROC per label."""
    truth, outputs = test.targets.numpy(), test.outputs.numpy()
    areas = []
    for k in range(truth.shape[1]):
        known = ~np.isnan(truth[:, k])
        if len(set(truth[known, k].tolist())) == 2:
            areas.append((float(roc_auc_score(truth[known, k], outputs[known, k])), short(test.names[k])))
    areas = sorted(areas)[-most:]
    if not areas:
        return []

    def bars(axes: Any) -> None:
        axes.barh([name for _, name in areas], [area - 0.5 for area, _ in areas], left=0.5, color=LINE, height=0.65)
        for place, (area, _) in enumerate(areas):
            axes.text(max(area, 0.5) + 0.01, place, score(area), va="center", fontsize=8)
        axes.axvline(0.5, **DASHED)
        axes.set(xlabel="AUROC", xlim=(min(0.45, areas[0][0] - 0.02), 1.1))
        axes.grid(visible=False, axis="y")

    see = "The longer the bar, the better the label is predicted. Dashed line: chance level."
    return [draw("AUROC per label", see, bars, size=(3.9, 1.2 + 0.25 * len(areas)))]


def calibration_figure(title: str, see: str, p: Array, yes: Array, *, xlabel: str, ylabel: str) -> Drawing:
    """Reliability diagram: fraction of positives in bins of predicted probability, with Wilson intervals."""
    edges = np.unique(np.quantile(p, np.linspace(0, 1, min(10, max(2, len(p) // 15)) + 1)))
    group = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, max(len(edges) - 2, 0))
    size = np.bincount(group)
    there = size > 0
    mean, share = np.bincount(group, p)[there] / size[there], np.bincount(group, yes)[there] / size[there]
    low, high = wilson(share, size[there])
    reach = np.stack([share - low, high - share]).clip(min=0)

    def paint(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], **DASHED)
        axes.errorbar(mean, share, yerr=reach, color=LINE, ecolor=GREY, elinewidth=1, marker="o", markersize=4.5)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        _unit_square(axes)

    return draw(title, see, paint)


def where_known(p: Array, test: Evaluation) -> tuple[NDArray[np.int64], Array]:
    """The true classes as positions, and the probabilities, of the cases with a known target."""
    truth = test.targets.numpy()
    known = ~np.isnan(truth)
    return truth[known].astype(np.int64), p[known]


def pooled(names: list[str], truth: Array, found: Array) -> tuple[list[str], tuple[Array, Array]]:
    """Short names, and true and predicted classes; the rarest classes are pooled if there are more than `CLASSES`."""
    if len(names) <= CLASSES:
        return [short(name, 16) for name in names], (truth, found)
    common = np.sort(np.argsort(-np.bincount(truth, minlength=len(names)), kind="stable")[: CLASSES - 1])
    place = np.full(len(names), CLASSES - 1)
    place[common] = np.arange(CLASSES - 1)
    rest = f"{len(names) - len(common)} others"
    return [*(short(names[k], 16) for k in common), rest], (place[truth], place[found])


def thin(x: Array, y: Array) -> tuple[Array, Array]:
    """Reduce a curve to at most `CURVE` points."""
    if len(x) <= CURVE:
        return x, y
    chosen = np.unique(np.linspace(0, len(x) - 1, CURVE).round().astype(int))
    return x[chosen], y[chosen]


def _unit_square(axes: Any) -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
