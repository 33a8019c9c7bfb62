"""Run one benchmark, or all: `python -m benchmarks [paths|solve|models|training|streams|explanations] [table ...]`."""

import sys
from importlib import import_module

BENCHMARKS = (
    "paths",
    "solve",
    "models",
    "training",
    "streams",
    "explanations",
)  # some need other packages: make bench installs them

if __name__ == "__main__":
    for name in sys.argv[1:2] or BENCHMARKS:
        import_module(f"benchmarks.{name}").main(sys.argv[2:])
