r"""Universal approximation: linear maps of a CDE's last state fit any function of the path, better with depth.

    python examples/universal_approximation.py --out demo/universal_approximation.csv

Appendix B of the paper proves this with the signature, which solves the linear CDE
$\mathrm{d}S = S \otimes \mathrm{d}X$. Only the linear map is fitted, by ridge regression in closed form, so the result
does not depend on an optimiser. The example fits three functions of irregularly observed paths in the plane, all of
which start at 0:

- the square of the area between path and chord. It is a polynomial in words of length 2, by the shuffle identity a
  linear map of words of length 4, and so exact up to rounding from depth 4 on;
- the final angle of a pendulum that is pushed by the path. It is a smooth function of all words, and its error falls
  with every level;
- the maximum of the first channel. It has kinks, and its error falls slowly.

Prints the error on unseen paths, relative to the standard deviation of the function, and writes it to `--out`, with a
picture next to it.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch

import neuralcde as nc

PENALTIES = np.logspace(-13, 2, 31)
EXACT = 1e-6  # smaller errors are rounding


def random_paths(count: int, generator: np.random.Generator) -> nc.ControlPath:
    """Sums of three slow waves in two channels, observed at 12 to 24 irregular times; time is a third channel."""
    pairs = []
    for _ in range(count):
        gaps = generator.uniform(0.2, 1.0, generator.integers(11, 24))
        times = np.concatenate([[0.0], gaps.cumsum()]) / gaps.sum()
        waves = np.sin(np.pi * np.outer(times, [1, 2, 3])) @ generator.standard_normal((3, 2))
        drift = times[:, None] * generator.standard_normal(2)
        pairs.append((times, 0.6 * (waves + drift)))
    return nc.linear(nc.IrregularSeries.from_list(pairs, dtype=torch.float64).with_channels())


def squared_area(path: nc.ControlPath) -> torch.Tensor:
    """The square of the signed area between each path and its chord, by the shoelace formula."""
    areas = []
    for rows in path.at_rows().split(path.series.lengths.tolist()):
        x, y = rows[:, 1], rows[:, 2]
        areas.append((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)
    return torch.stack(areas) ** 2


def pendulum(path: nc.ControlPath) -> torch.Tensor:
    """The last angle of a pendulum that swings by itself and is pushed by both channels."""

    def push(t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        angle, speed = z.unbind(1)
        still = torch.zeros_like(angle)
        rows = [speed, still, still], [-angle.sin(), angle.cos(), angle.sin()]
        return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)

    start = torch.tensor([[0.5, 0.0]], dtype=torch.float64).expand(len(path), 2)
    return nc.solve_cde(path, push, start, solver="dopri5", steps=nc.AtKnots(substeps=4)).last[:, 0]


def largest_value(path: nc.ControlPath) -> torch.Tensor:
    """The maximum of the first channel, which a piecewise linear path attains at a knot."""
    x = path.at_rows()[:, 1]
    return torch.stack([part.max() for part in x.split(path.series.lengths.tolist())])


FUNCTIONS = {"squared area": squared_area, "pendulum": pendulum, "maximum": largest_value}


def fit_linear_map(words: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and intercept of a ridge regression on standardised words; leave-one-out error selects the penalty."""
    centre, scale = words.mean(0), words.std(0)
    scale[scale < 1e-9] = (
        1.0  # words of time only are constant, because all paths take the same time; do not scale up rounding
    )
    left, size, right = np.linalg.svd((words - centre) / scale, full_matrices=False)
    mean = values.mean()
    along, best = left.T @ (values - mean), (np.inf, np.zeros(words.shape[1]))
    for penalty in PENALTIES * len(words):
        kept = size**2 / (size**2 + penalty)
        residual = values - mean - left @ (kept * along)
        left_out = residual / (1 - 1 / len(words) - left**2 @ kept)
        error = float(np.square(left_out).mean())
        if error < best[0]:
            best = error, right.T @ (kept / np.maximum(size, 1e-300) * along) / scale
    return best[1], float(mean - centre @ best[1])


def held_out_errors(paths: nc.ControlPath, others: nc.ControlPath, depth: int) -> list[dict[str, float]]:
    """The number of words and the relative error of each function on the other paths, per depth up to `depth`."""
    words, other_words = (nc.signature(path, depth).numpy() for path in (paths, others))
    targets = {name: (f(paths).numpy(), f(others).numpy()) for name, f in FUNCTIONS.items()}
    table = []
    for level in range(1, depth + 1):
        count = sum(paths.channels**k for k in range(1, level + 1))
        row: dict[str, float] = {"depth": level, "words": count}
        for name, (values, unseen) in targets.items():
            weights, intercept = fit_linear_map(words[:, :count], values)
            error = other_words[:, :count] @ weights + intercept - unseen
            row[name] = float(np.sqrt(np.square(error).mean()) / unseen.std())
        table.append(row)
    return table


def draw(table: list[dict[str, float]], file: Path) -> None:
    """Plot the error against depth, one line per function."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    depths = [row["depth"] for row in table]
    bottom = 0.5 * min(row[name] for row in table for name in FUNCTIONS if row[name] > EXACT)
    for name, colour, marker in zip(FUNCTIONS, ("#1f6f8b", "#d1495b", "#edae49"), "osD", strict=True):
        axes.semilogy(depths, [row[name] for row in table], marker=marker, color=colour, label=name)
        exact = [row for row in table if row[name] < EXACT]
        if exact:  # drawn in full, it would compress all other lines
            words = f"{name} is exact:\n{exact[0][name]:.0e} at depth {exact[0]['depth']}"
            axes.annotate(words, (exact[0]["depth"] - 0.78, 1.4 * bottom), color=colour, fontsize=9)
    axes.set_ylim(bottom, 1.3)
    axes.set_xticks(depths)
    axes.set_xlabel("depth of the signature")
    axes.set_ylabel("error on unseen paths / standard deviation")
    axes.set_title("A linear map on the state of a linear CDE")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(file, dpi=130)


def main(arguments: list[str] | None = None) -> list[dict[str, float]]:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=2000, help="paths to fit on")
    parser.add_argument("--held-out", type=int, default=1000, help="paths to measure the error on")
    parser.add_argument("--depth", type=int, default=6, help="largest depth")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=Path("universal_approximation.csv"), help="table; a .png goes beside it"
    )
    options = parser.parse_args(arguments)
    began, generator = time.perf_counter(), np.random.default_rng(options.seed)
    paths, others = (random_paths(count, generator) for count in (options.series, options.held_out))
    table = held_out_errors(paths, others, options.depth)

    print(f"{'depth':>5} {'words':>6}" + "".join(f"{name:>15}" for name in FUNCTIONS))
    for row in table:
        print(f"{row['depth']:>5} {row['words']:>6}" + "".join(f"{row[name]:>15.2e}" for name in FUNCTIONS))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    picture = options.out.with_suffix(".png")
    draw(table, picture)
    print(f"{options.series} paths, {time.perf_counter() - began:.1f} s; {options.out}, {picture}")
    return table


if __name__ == "__main__":
    main()
