"""Run one benchmark, or all: `python -m benchmarks [paths|solve|models|training|streams] [table ...]`."""

import sys

from . import models, paths, solve, streams, training

BENCHMARKS = {
    "paths": paths.main,
    "solve": solve.main,
    "models": models.main,
    "training": training.main,
    "streams": streams.main,
}

if __name__ == "__main__":
    for name in sys.argv[1:2] or BENCHMARKS:
        BENCHMARKS[name](sys.argv[2:])
