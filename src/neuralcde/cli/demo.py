"""`neuralcde demo`: the paths of a small embedded series, as a picture."""

from __future__ import annotations

from pathlib import Path

from ..paths import hermite, linear, natural_cubic, rectilinear, smoothing
from ..report import draw_paths
from ..series import IrregularSeries

nan = float("nan")
HOURS = [0.0, 0.7, 1.1, 2.9, 3.3, 5.0, 5.4, 7.8, 8.1, 10.0]
STAY = {
    "pulse": [82.0, nan, 91.0, nan, 104.0, 110.0, nan, 96.0, nan, 88.0],
    "lactate": [nan, 1.4, nan, nan, 2.9, nan, nan, 2.1, 1.8, nan],
    "drip": [nan, nan, 0.0, 2.0, 2.0, nan, 4.0, nan, 0.0, nan],
}


def demo(*, out: Path = Path("demo")) -> None:
    """Draw every path scheme through a small irregular series with missing values.

    Parameters
    ----------
    out
        Folder for the picture.
    """
    values = [list(row) for row in zip(*STAY.values(), strict=True)]
    series = IrregularSeries.from_list([(HOURS, values)], ids=["stay 7"], channels=list(STAY))
    paths = {
        "natural_cubic": natural_cubic(series),
        "hermite": hermite(series),
        "linear": linear(series),
        'linear, fill="forward"': linear(series, fill="forward"),
        "rectilinear": rectilinear(series),
        "smoothing, penalty=0.3": smoothing(series, penalty=0.3),
    }
    print(series)
    for name, path in paths.items():
        print(f"{name:24}{path}")
    picture = draw_paths(paths, out / "paths.png")
    print(f"picture: {picture}")
