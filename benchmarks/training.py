"""Reading a large table, the overhead of the training loop, and accuracy and speed of the estimators' defaults."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import neuralcde as nc
from neuralcde.tasks import classification_task
from neuralcde.train import TrainingSettings, train

from .data import PACK, folder, read_letters
from .measure import once, save, show
from .memory import peak_megabytes
from .old_default import OLD_DEFAULT, old_batch_size

SEEDS, DROPPED = (0, 1, 2), 0.5


def main(chosen: list[str]) -> None:
    tables = {"reading": large_csv, "loop": loop_overhead, "defaults": accuracy_of_defaults, "wide": wide_table}
    for name in chosen or tables:
        rows = tables[name]()
        if rows:
            save("training", {name: rows})


def large_csv() -> list[dict[str, object]]:
    """Reading a CSV of 200 MB as series: time compared with `polars.read_csv`, memory with the size of the file.

    Every measurement runs in a new process.
    """
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "vitals.csv"
        write_csv(file, megabytes=200)
        size = file.stat().st_size / 2**20
        rows = []
        for what in ("polars", "series"):
            done = [
                json.loads(subprocess.check_output([sys.executable, "-m", "benchmarks.training", what, str(file)]))
                for _ in range(3)
            ]
            seconds = float(np.median([run["seconds"] for run in done]))
            peak = max(run["peak_mb"] for run in done)
            rows.append(
                {
                    "what": "polars.read_csv" if what == "polars" else "read_csv and from_long",
                    "rows": done[0]["rows"],
                    "file MB": size,
                    "seconds": seconds,
                    "peak MB": peak,
                    "peak / file": peak / size,
                }
            )
    rows[1]["times polars"] = rows[1]["seconds"] / rows[0]["seconds"]  # type: ignore[operator]
    show("Reading a large CSV", rows)
    return rows


def write_csv(file: Path, *, megabytes: int) -> None:
    """Write a long table: string ids, times, and eight channels with a third of the values missing."""
    rng = np.random.default_rng(0)
    with file.open("wb") as out:
        number, part = 0, 100_000
        while file.stat().st_size < megabytes * 2**20:
            ids = np.char.add("stay ", (number + np.arange(part) // 50).astype(str))
            columns = {f"channel {k}": rng.normal(size=part).round(4) for k in range(8)}
            frame = pl.DataFrame(
                {"stay": ids, "hour": np.arange(part) % 50 + (0.9 * rng.random(part)).round(2), **columns}
            )
            hidden = [
                pl.when(pl.Series(rng.random(part) < 1 / 3)).then(None).otherwise(pl.col(name)).alias(name)
                for name in columns
            ]
            frame.with_columns(hidden).write_csv(out, include_header=number == 0)
            out.flush()
            number += part // 50


def read_once(what: str, file: Path) -> dict[str, float]:
    """Read the file in this process: seconds, additional peak memory, and number of rows."""
    found: list[int] = []

    def read() -> None:
        frame = pl.read_csv(file)
        if what == "series":
            found.append(len(nc.IrregularSeries.from_long(frame, id="stay", time="hour").times))
        else:
            found.append(frame.height)

    nc.IrregularSeries.from_long(
        pl.DataFrame({"stay": ["a"], "hour": [0.0], "x": [1.0]}), id="stay", time="hour"
    )  # warm up: imports must not count
    start = time.perf_counter()
    peak = peak_megabytes(read)
    return {"seconds": time.perf_counter() - start, "peak_mb": peak, "rows": found[0]}


def loop_overhead() -> list[dict[str, object]]:
    """An epoch of `train` at CharacterTrajectories size, compared with bare forward and backward passes."""
    generator = torch.Generator().manual_seed(0)
    pairs = [(torch.arange(182.0), torch.randn(182, 3, generator=generator).cumsum(0) / 10) for _ in range(2016)]
    y = [k % 20 for k in range(2016)]
    task = classification_task(y)
    data = nc.PathDataset(nc.linear(nc.IrregularSeries.from_list(pairs).with_channels()), task.encode(y))
    rows = []
    for average in (0.0, 0.99):
        settings = TrainingSettings(max_epochs=1, batch_size=32, gradient_clip=1.0, ema_decay=average, verbose=0)
        model = nc.NeuralCDE(4, 20, hidden=32, width=32, depth=3)
        batches = [data[list(range(k, k + 32))] for k in range(0, 2016, 32)]

        def bare() -> None:
            for path, targets in batches:  # noqa: B023
                model.zero_grad()  # noqa: B023
                task.loss(model(path), targets).backward()  # noqa: B023

        def whole() -> None:
            train(model, task, data, None, settings)  # noqa: B023

        ratios, totals = [], []
        for _ in range(15):  # ratios of runs next to each other in time, because the speed of the machine drifts
            totals.append((once(bare), once(whole)))
            ratios.append(totals[-1][1] / totals[-1][0])
        seconds = np.median(totals, axis=0) / len(batches)
        rows.append(
            {
                "loop": "train" if not average else "train, moving average",
                "ms a batch": float(seconds[1]) * 1e3,
                "bare ms": float(seconds[0]) * 1e3,
                "overhead": float(np.median(ratios[1:])) - 1,
            }
        )
    show("The loop around the model: batches of 32 series of 182 observations, hidden 32", rows)
    return rows


def accuracy_of_defaults() -> list[dict[str, object]]:
    """`NeuralCDEClassifier()` on CharacterTrajectories with half of the observations dropped, tested on a fifth."""
    if not (folder() / PACK).exists():
        print(f"\nno {folder() / PACK}: the accuracy of the defaults is not measured")
        return []
    strokes, labels = read_letters(folder())
    rows = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        pairs = []
        for values in strokes:
            length = len(values)
            kept = np.sort(rng.permutation(length)[: max(2, round(length * (1 - DROPPED)))])
            pairs.append((kept.astype(float), values[kept]))
        series = nc.IrregularSeries.from_list(pairs)
        order = rng.permutation(len(series))
        test, training = order[: len(order) // 5], order[len(order) // 5 :]
        classifier = nc.NeuralCDEClassifier(random_state=seed)
        seconds = once(lambda: classifier.fit(series[training], labels[training]))  # noqa: B023
        rows.append(
            {
                "seed": seed,
                "test accuracy": classifier.score(series[test], labels[test]),
                "epochs": classifier.n_iter_,
                "seconds": seconds,
            }
        )
        print(rows[-1], flush=True)
    mean = float(np.mean([row["test accuracy"] for row in rows]))  # type: ignore[arg-type]
    rows.append(
        {"seed": "mean", "test accuracy": mean, "epochs": "", "seconds": max(row["seconds"] for row in rows)}  # type: ignore[type-var]
    )
    show("NeuralCDEClassifier() on CharacterTrajectories, half of the observations dropped", rows)
    return rows


def wide_table(
    stays: int = 2400, rounds: int = 3, predictions: int = 50, options: dict[str, Any] | None = None
) -> list[dict[str, object]]:
    """The old and the new default on a wide table: seconds per epoch, seconds to the best epoch, ms per prediction.

    Epochs are timed in short fits of both in turn, predictions of one series in turn as well. The best epoch is that
    of one whole fit of each; the seconds to it are that many epochs at the median time of an epoch. `options` are
    further options of both.
    """
    series, labels = wide_stays(stays)
    old: dict[str, Any] = {**OLD_DEFAULT, "batch_size": old_batch_size(int(0.85 * stays))}
    contestants: dict[str, dict[str, Any]] = {"old default": old, "new default": {}}
    whole: dict[str, nc.NeuralCDEClassifier] = {}
    epochs: dict[str, list[float]] = {name: [] for name in contestants}
    waits: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, changes in contestants.items():
            short = {**changes, **(options or {}), "max_epochs": 2}
            model = nc.NeuralCDEClassifier(random_state=0, **short).fit(series, labels)
            epochs[name].append(min(row["seconds"] for row in model.history_))
    for name, changes in contestants.items():
        whole[name] = nc.NeuralCDEClassifier(random_state=0, **{**changes, **(options or {})}).fit(series, labels)
    one = series[:1]
    for _ in range(predictions):
        for name, model in whole.items():
            waits[name].append(once(lambda: model.predict_proba(one)))  # noqa: B023
    rows: list[dict[str, object]] = []
    for name, model in whole.items():
        best = model.history_[model.best_epoch_ - 1]
        rows.append(
            {
                "estimator": name,
                "s per epoch": float(np.median(epochs[name])),
                "best epoch": model.best_epoch_,
                "s to it": model.best_epoch_ * float(np.median(epochs[name])),
                "epochs": model.n_iter_,
                "its AUROC": best["validation_auroc"],
                "predict one, ms": 1e3 * float(np.median(waits[name])),
            }
        )
    show(f"Old and new default on a wide table: {series!r}", rows)
    return rows


def wide_stays(stays: int, *, channels: int = 37, length: int = 75) -> tuple[nc.IrregularSeries, np.ndarray]:
    """Made-up stays with 80 % of the values missing, and a label that depends on values, trends and missingness."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1.0, (stays, length)) + 0.01, axis=1)
    level, trend = rng.normal(size=(stays, channels)), rng.normal(size=(stays, channels))
    asked = rng.uniform(0.05, 0.35, (stays, channels))
    place = np.linspace(0, 1, length)[:, None]
    values = level[:, None] + trend[:, None] * place + 0.5 * rng.normal(size=(stays, length, channels))
    values[rng.random(values.shape) > asked[:, None]] = np.nan
    odds = level[:, :3].sum(1) + trend[:, :3].sum(1) + 8 * (asked[:, 0] - 0.2) - 1
    labels = (rng.random(stays) < 1 / (1 + np.exp(-odds))).astype(int)
    return nc.IrregularSeries.from_padded(values, times, lengths=np.full(stays, length)), labels


if __name__ == "__main__":
    print(json.dumps(read_once(sys.argv[1], Path(sys.argv[2]))))
