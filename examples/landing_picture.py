"""The picture of the README: observations of two synthetic stays, their paths, and the risk that a model predicts.

    python examples/landing_picture.py [FILE]

A third of the training stays gets worse at some hour. The model is not told when: it learns from one outcome per stay.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import neuralcde as nc

STAYS, SHOWN = 300, {"survived": "#1f6f8b", "died": "#d1495b"}


def stays(rng: np.random.Generator, worse: np.ndarray) -> nc.IrregularSeries:
    """Stays of one day at irregular hours; pulse is measured often, lactate rarely."""
    pairs = []
    for bad in worse:
        hours = np.sort(rng.uniform(0, 24, rng.integers(12, 22)))
        decline = bad * np.clip(hours - rng.uniform(6, 14), 0, None)
        values = np.stack([78 + 3 * decline, 1.2 + 0.2 * decline], 1) + rng.normal(0, (4, 0.2), (len(hours), 2))
        values[rng.random(values.shape) > (0.8, 0.35)] = np.nan
        pairs.append((hours, values))
    return nc.IrregularSeries.from_list(pairs, channels=["pulse", "lactate"])


def main() -> None:
    """Train, predict over time for two unseen stays, and draw."""
    rng = np.random.default_rng(2)
    worse = np.arange(STAYS) % 3 == 0
    clf = nc.NeuralCDEClassifier(max_epochs=30, batch_size=16, random_state=0).fit(stays(rng, worse), worse)
    unseen = stays(rng, np.array([False, True]))
    path = nc.linear(unseen, fill="forward")  # as the estimators build it
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True)
    for k, (name, colour) in enumerate(SHOWN.items()):
        hours, values = unseen[k].times.numpy(), unseen[k].values.numpy()
        dense = np.linspace(hours[0], hours[-1], 400)
        for channel, axes in enumerate(panels[:2]):
            known = dense >= hours[~np.isnan(values[:, channel])][0]  # earlier, the path is at the mean
            axes.plot(dense[known], path[k].evaluate(dense[known])[0, :, channel], color=colour, linewidth=1.4)
            axes.plot(hours, values[:, channel], "o", color=colour, markersize=5)
        risk = clf.predict_proba_at(unseen[k], dense[None])[0, :, 1]
        panels[2].plot(dense, risk, color=colour, linewidth=2)
        end, offset = (dense[-1], risk[-1]), (-4, 8 - 24 * k)  # the rising line has its name below
        panels[2].annotate(name, end, offset, textcoords="offset points", ha="right", color=colour)
        print(f"{name}: risk {risk[0]:.2f} at the first observation, {risk[-1]:.2f} at the last")
    for axes, title in zip(panels, ("pulse", "lactate", "predicted risk of death"), strict=True):
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("hour", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    panels[2].set_ylim(-0.03, 1.03)
    file = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + "/landing.png")
    figure.savefig(file, dpi=110)
    print(f"picture: {file.resolve()}")


if __name__ == "__main__":
    main()
