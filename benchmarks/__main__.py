"""Run the benchmarks named on the command line, or all of them."""

import sys

from . import paths, solve

BENCHMARKS = {"paths": paths.main, "solve": solve.main}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        BENCHMARKS[name]()
