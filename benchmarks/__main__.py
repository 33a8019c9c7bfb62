"""Run the benchmarks named on the command line, or all of them."""

import sys

from . import models, paths, solve

BENCHMARKS = {"paths": paths.main, "solve": solve.main, "models": models.main}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        BENCHMARKS[name]()
