"""Random cases for everything that reads files: `make fuzz SECONDS=3600`, and as tests for a few seconds.

A reader is a file of this folder with a strategy `CASES` and a function `check(case, folder)`. The function raises
nothing if the reader succeeds or refuses the case with its documented error.
"""

import argparse
import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, given, settings

READERS = ("csv_reader", "parquet_reader", "model_folder", "checkpoint")
LONGEST_CASE = 30  # seconds; a case that takes longer hangs


def fuzz(reader: str, seconds: float, first_seed: int = 0) -> int:
    """Check random cases until the time is up; returns their number. A seed determines the sequence of cases."""
    module, count, end = importlib.import_module(reader), 0, time.monotonic() + seconds

    def one(case):
        nonlocal count
        count += 1
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LONGEST_CASE)
        try:
            with tempfile.TemporaryDirectory() as folder:
                module.check(case, Path(folder))
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    few = settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    seed = first_seed
    while time.monotonic() < end:
        hypothesis.seed(seed)(few(given(module.CASES)(one)))()
        seed += 1
    return count


def _too_long(*_):
    raise AssertionError(f"a case took more than {LONGEST_CASE} s")


def _in_a_process(reader: str, seconds: float, seed: int) -> int:
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    return fuzz(reader, seconds, seed)


def main() -> None:
    """Run all readers, as many in parallel as there are cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="in all, on all cores")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first cases; default: the clock")
    options = parser.parse_args()
    workers = min(os.cpu_count() or 1, len(READERS))
    each = options.seconds * workers / len(READERS)
    print(f"seed {options.seed}, {each:.0f} s for each of {len(READERS)} readers", flush=True)
    counts, failed = [], False
    with ProcessPoolExecutor(workers) as pool:
        started = {pool.submit(_in_a_process, name, each, options.seed): name for name in READERS}
        for future in as_completed(started):
            failure = future.exception()
            if failure is None:
                counts.append(future.result())
                print(f"{started[future]:16}{counts[-1]:10,} cases", flush=True)
            else:
                failed = True
                print(f"{started[future]:16}failed", *traceback.format_exception(failure), sep="\n", flush=True)
    print(f"{'all':16}{sum(counts):10,} cases")
    sys.exit(failed)


if __name__ == "__main__":
    main()
