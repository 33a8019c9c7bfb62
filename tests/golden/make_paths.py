"""Makes paths.json: values and derivatives of Hermite and linear paths of torchcde and diffrax, as reference for ours.

Run by hand in a separate environment, never by the tests:

    pip install torchcde==0.2.5 diffrax==0.7.2
    python tests/golden/make_paths.py

torchcde is evaluated on complete data, diffrax on data with missing values. With missing values the two define
different paths: torchcde fills gaps linearly before it fits Hermite cubics, diffrax uses one cubic from observation
to observation, as we do. Everything is float64 and evaluated inside pieces, where the side of a knot does not matter.
diffrax can choose the side, and is also evaluated to the right of every row.

With two or more missing rows in a gap, diffrax 0.7.2 has correct values and slopes at every row, but starts another
cubic at each missing row. Its Hermite path therefore jumps at the next missing row: at times (0, 1, 2, 3, 4) with
values (0, 1, NaN, NaN, 0) it jumps from 0.704 to 0.630 at 3. The tests compare Hermite paths only where diffrax uses
the cubic of the gap: to the right of every row, and inside pieces that start at an observation.
"""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np

PLACES = (0.15, 0.5, 0.85)


def inside(times):
    """Three times in every piece."""
    return (times[:-1, None] + np.diff(times)[:, None] * np.array(PLACES)).ravel()


def drawn(seed, rows, channels, missing):
    """One series; the first and the last value of every channel are observed."""
    rng = np.random.default_rng(seed)
    times = rng.uniform(0, 10) + np.concatenate([[0.0], rng.uniform(0.2, 2.0, rows - 1).cumsum()])
    values = rng.standard_normal((rows, channels))
    values[1:-1][rng.random((rows - 2, channels)) < missing] = np.nan
    return times, values


def with_torchcde(times, values, asked):
    import torch
    import torchcde

    t, x, asked = (torch.from_numpy(array) for array in (times, values, asked))
    paths = {
        "hermite": torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x, t), t),
        "linear": torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(x, t), t),
    }
    return {
        name: {"value": path.evaluate(asked).numpy(), "derivative": path.derivative(asked).numpy()}
        for name, path in paths.items()
    }


def with_diffrax(times, values, asked):
    import diffrax
    import jax

    jax.config.update("jax_enable_x64", True)
    t, x, asked = (jax.numpy.asarray(array) for array in (times, values, asked))
    paths = {
        "hermite": diffrax.CubicInterpolation(t, diffrax.backward_hermite_coefficients(t, x)),
        "linear": diffrax.LinearInterpolation(t, diffrax.linear_interpolation(t, x)),
    }
    return {
        name: {
            "value": jax.vmap(path.evaluate)(asked),
            "derivative": jax.vmap(path.derivative)(asked),
            "value at rows": jax.vmap(lambda at, path=path: path.evaluate(at, left=False))(t[:-1]),
            "derivative at rows": jax.vmap(lambda at, path=path: path.derivative(at, left=False))(t[:-1]),
        }
        for name, path in paths.items()
    }


def rounded_trip(array):
    """Convert to nested lists with None for NaN; JSON then keeps float64 exactly."""
    array = np.asarray(array)
    assert array.dtype == np.float64
    return np.where(np.isnan(array), None, array.astype(object)).tolist()


def main():
    cases = []
    for peer, ask, missing in (("torchcde", with_torchcde, 0.0), ("diffrax", with_diffrax, 0.6)):
        for seed, (rows, channels) in enumerate([(2, 1), (3, 2), (7, 3), (12, 3)]):
            times, values = drawn(seed, rows, channels, missing)
            asked = inside(times)
            expected = ask(times, values, asked)
            cases.append(
                {
                    "peer": peer,
                    "times": rounded_trip(times),
                    "values": rounded_trip(values),
                    "asked": rounded_trip(asked),
                    "expected": {
                        scheme: {what: rounded_trip(array) for what, array in answers.items()}
                        for scheme, answers in expected.items()
                    },
                }
            )
    origin = {
        "made by": "tests/golden/make_paths.py",
        "versions": {name: version(name) for name in ("torchcde", "diffrax", "torch", "jax", "numpy")},
        "machine": platform.machine(),
        "precision": "float64",
        "layout": "values (rows, channels), null = not observed; expected (asked, channels), three times in every "
        "piece, or (rows - 1, channels), on the right of every row but the last",
        "torchcde": "hermite_cubic_coefficients_with_backward_differences and linear_interpolation_coeffs, "
        "complete data",
        "diffrax": "backward_hermite_coefficients and linear_interpolation, gaps inside, first and last row observed",
    }
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = f'{{"origin": {json.dumps(origin, indent=1)},\n"cases": [\n{lines}\n]}}\n'
    Path(__file__).with_name("paths.json").write_text(text)


if __name__ == "__main__":
    main()
