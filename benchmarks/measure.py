"""Timing with interleaved repeats and medians, and storage of the results."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

import neuralcde

RESULTS = Path(__file__).parent / "results"


def medians(contestants: Mapping[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each contestant, after a warm-up run; the repeats of all contestants are interleaved.

    A contestant that takes less than a tenth of a second is run several times in a row per repeat, as in a training
    loop, and the mean counts.
    """
    counts = {}
    for name, run in contestants.items():
        run()
        counts[name] = max(1, min(20, int(0.1 / once(run))))
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                run()
            seconds[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(times) for name, times in seconds.items()}


def once(run: Callable[[], object]) -> float:
    """Seconds of a single run, for slow contestants."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def show(title: str, rows: list[dict[str, object]]) -> None:
    """Print rows as a table."""
    print(f"\n{title}")
    names = list(rows[0])
    cells = [[_text(row.get(name, "")) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    for line in [names, ["-" * width for width in widths], *cells]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def save(name: str, results: dict[str, object]) -> None:
    """Write tables to benchmarks/results, with machine and date of each; other tables in the file are kept as they are.

    The machine and the date of a table are under its name in `measured`.
    """
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.json"
    before = json.loads(file.read_text()) if file.exists() else {"results": {}, "measured": {}}
    now = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {torch.get_num_threads()} threads",
        "neuralcde": neuralcde.__version__,
        "torch": torch.__version__,
    }
    if "measured" not in before:  # a file of when all tables had the date of the last one
        whole = {name: value for name, value in before.items() if name != "results"}
        before["measured"] = dict.fromkeys(before["results"], whole)
    record = {
        "measured": {**before["measured"], **dict.fromkeys(results, now)},
        "results": {**before["results"], **results},
    }
    file.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\nwritten to {file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def processor() -> str:
    """Name of the processor."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()
