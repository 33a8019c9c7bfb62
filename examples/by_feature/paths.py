"""Every kind of path through the same irregular series with missing values, as a picture.

    python examples/by_feature/paths.py [FILE]

All except the smoothing path pass through every observation. They differ in how they connect the observations.
"""

import sys
import tempfile
from pathlib import Path

import neuralcde as nc
from neuralcde.report import draw_paths

nan = float("nan")
hours = [0.0, 0.7, 1.1, 2.9, 3.3, 5.0, 5.4, 7.8, 8.1, 10.0]
stay = {
    "pulse": [82.0, nan, 91.0, nan, 104.0, 110.0, nan, 96.0, nan, 88.0],
    "lactate": [nan, 1.4, nan, nan, 2.9, nan, nan, 2.1, 1.8, nan],
    "drip": [nan, nan, 0.0, 2.0, 2.0, nan, 4.0, nan, 0.0, nan],
}
rows = [list(row) for row in zip(*stay.values(), strict=True)]
series = nc.IrregularSeries.from_list([(hours, rows)], ids=["stay 7"], channels=list(stay))
paths = {
    "natural_cubic": nc.natural_cubic(series),
    "hermite": nc.hermite(series),
    "linear": nc.linear(series),
    'linear, fill="forward"': nc.linear(series, fill="forward"),
    "rectilinear": nc.rectilinear(series),
    "smoothing, penalty=0.3": nc.smoothing(series, penalty=0.3),
}
for name, path in paths.items():
    print(f"{name:24}{path}")
file = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + "/paths.png")
print(f"picture: {draw_paths(paths, file)}")
