"""Makes models.json: outputs and gradients of a Neural CDE written with torchcde, as reference for our model.

Run by hand in a separate environment, never by the tests:

    pip install torchcde==0.2.5
    python tests/golden/make_models.py

The model is that of torchcde's README. z0 is a linear map of X(0); the field is Linear, ReLU, Linear, ReLU, Linear,
tanh, reshaped to (hidden, channels); the output is a linear map of z. The data are complete, at times 0, 1, 2, ...,
which are the first channel. The solver is torchdiffeq's rk4 (the 3/8 rule) with one step per gap. With perturb=True
it evaluates just inside each step, so that the derivative of X is that of the piece of the step. The gradients are
those of the sum of all outputs, at every row, times `weights`, by backpropagation through the solver.
"""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import torchcde

SERIES, ROWS, DATA, HIDDEN, WIDTH, OUTPUTS = 3, 6, 2, 4, 5, 2
CHANNELS = 1 + DATA
LAYERS = {
    "initial": (HIDDEN, CHANNELS),
    "field 1": (WIDTH, HIDDEN),
    "field 2": (WIDTH, WIDTH),
    "field 3": (HIDDEN * CHANNELS, WIDTH),
    "readout": (OUTPUTS, HIDDEN),
}


def drawn(seed):
    """Random data, weights of the layers, and weights of the loss."""
    rng = np.random.default_rng(seed)
    layers = {}
    for name, shape in LAYERS.items():
        layers[f"{name}.weight"] = rng.standard_normal(shape) / np.sqrt(shape[1])
        layers[f"{name}.bias"] = 0.3 * rng.standard_normal(shape[0])
    values = 0.7 * rng.standard_normal((SERIES, ROWS, DATA))
    return values, rng.standard_normal((SERIES, ROWS, OUTPUTS)), layers


class Field(torch.nn.Module):
    """The paper's vector field."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, t, z):
        z = torch.relu(linear(self.layers, "field 1", z))
        z = torch.relu(linear(self.layers, "field 2", z))
        return torch.tanh(linear(self.layers, "field 3", z)).reshape(-1, HIDDEN, CHANNELS)


def linear(layers, name, x):
    """A layer by its name."""
    return torch.nn.functional.linear(x, layers[f"{name}.weight"], layers[f"{name}.bias"])


def with_torchcde(values, weights, layers, scheme):
    """Outputs (series, rows, outputs), and gradients with respect to the layers and the values."""
    layers = {name: torch.from_numpy(x).requires_grad_() for name, x in layers.items()}
    values = torch.from_numpy(values).requires_grad_()
    times = torch.arange(ROWS, dtype=torch.float64)
    observed = torch.cat([times.expand(SERIES, ROWS)[..., None], values], dim=2)
    if scheme == "natural_cubic":
        path = torchcde.CubicSpline(torchcde.natural_cubic_coeffs(observed))
    else:
        path = torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(observed))
    states = torchcde.cdeint(
        path,
        Field(layers),
        linear(layers, "initial", path.evaluate(path.interval[0])),
        times,
        adjoint=False,
        method="rk4",
        options={"step_size": 1.0, "perturb": True},
    )
    outputs = linear(layers, "readout", states)
    (outputs * torch.from_numpy(weights)).sum().backward()
    gradients = {name: x.grad.tolist() for name, x in layers.items()}
    return {"outputs": outputs.tolist(), "gradients": {"values": values.grad.tolist(), **gradients}}


def main():
    cases = []
    for seed, scheme in enumerate(("natural_cubic", "linear")):
        values, weights, layers = drawn(seed)
        given = {"values": values.tolist(), "weights": weights.tolist()}
        layers_given = {name: x.tolist() for name, x in layers.items()}
        cases.append(
            {"scheme": scheme, **given, "layers": layers_given, **with_torchcde(values, weights, layers, scheme)}
        )
    origin = {
        "made by": "tests/golden/make_models.py",
        "versions": {name: version(name) for name in ("torchcde", "torchdiffeq", "torch", "numpy")},
        "machine": platform.machine(),
        "precision": "float64",
        "layout": "values (series, rows, data), outputs and weights (series, rows, outputs), "
        "gradients as what they belong to",
        "torchcde": "cdeint(method='rk4', options=dict(step_size=1.0, perturb=True), adjoint=False)",
    }
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = f'{{"origin": {json.dumps(origin, indent=1)},\n"cases": [\n{lines}\n]}}\n'
    Path(__file__).with_name("models.json").write_text(text)


if __name__ == "__main__":
    main()
