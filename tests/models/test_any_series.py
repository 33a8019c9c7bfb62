"""For arbitrary series the outputs are finite and have the documented shapes."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import VARIANTS, make, path_of, times_within

import neuralcde as nc

GAPS = st.floats(1e-3, 2.0)
VALUES = st.one_of(st.just(float("nan")), st.floats(-50, 50, width=32))


@st.composite
def ragged(draw):
    """Up to five series of up to six rows, with missing values, some with static features."""
    channels, pairs = draw(st.integers(1, 3)), []
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(st.integers(1, 6))
        start = draw(st.floats(-1e6, 1e6))
        times = start + np.cumsum([0.0, *draw(st.lists(GAPS, min_size=rows - 1, max_size=rows - 1))])
        row = st.lists(VALUES, min_size=channels, max_size=channels)
        pairs.append((times, draw(st.lists(row, min_size=rows, max_size=rows))))
    features = draw(st.integers(0, 2))
    static = [draw(st.lists(VALUES, min_size=features, max_size=features)) for _ in pairs] if features else None
    return nc.IrregularSeries.from_list(pairs, static=static)


@given(
    series=ragged(),
    kind=st.sampled_from(VARIANTS),
    scheme=st.sampled_from(["linear", "linear-forward", "rectilinear", "hermite"]),
    intensity=st.booleans(),
    outputs=st.integers(1, 3),
)
@settings(max_examples=60)
def test_outputs_are_finite_and_of_the_right_shape(series, kind, scheme, intensity, outputs):
    path = path_of(series, scheme=scheme, intensity=intensity)
    features = series.static.shape[1]
    model = make(
        kind, path.channels, intensity=intensity, outputs=outputs, static=features, hidden=4, dtype=torch.float32
    )
    with torch.no_grad():
        found = {
            "last": (model(path), (len(path), outputs)),
            "knots": (model(path, at="knots"), (len(path.knots), outputs)),
            "times": (model(path, at=times_within(path, (0.0, 0.5, 1.0))), (len(path), 3, outputs)),
        }
        model.pool = "mean"
        found["mean"] = model(path), (len(path), outputs)
    for name, (output, shape) in found.items():
        assert output.shape == shape, name
        assert output.dtype == torch.float32, name
        assert output.isfinite().all(), name
