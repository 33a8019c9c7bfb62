"""A Neural CDE compared with stored results of torchcde, with the same weights on complete regular data."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import neuralcde as nc
from solve_cases import ran_on

STORED = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text())
NAMES = {
    "initial": "initial.of_start",
    "field 1": "field.layers.0",
    "field 2": "field.layers.2",
    "field 3": "field.layers.4",
    "readout": "readout.linear",
}


def tensor(nested):
    return torch.tensor(nested, dtype=torch.float64)


def own_name(stored):
    layer, part = stored.split(".")
    return f"{NAMES[layer]}.{part}"


def model_of(case):
    """Our model with the stored weights."""
    weights = {own_name(name): tensor(x) for name, x in case["layers"].items()}
    hidden, channels = weights["initial.of_start.weight"].shape
    width, outputs = len(weights["field.layers.0.bias"]), len(weights["readout.linear.bias"])
    model = nc.NeuralCDE(channels, outputs, hidden=hidden, width=width, depth=2).double()
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize("case", STORED["cases"], ids=lambda case: case["scheme"])
def test_torchcde(case, engine):
    """Outputs at every row and at the end, and all gradients; both libraries take the same steps."""
    values, expected = tensor(case["values"]).requires_grad_(), tensor(case["outputs"])
    series = nc.IrregularSeries.from_padded(values.detach(), dtype=torch.float64)
    series = dataclasses.replace(series, values=values.flatten(0, 1)).with_channels()
    model, path = model_of(case), getattr(nc, case["scheme"])(series)
    outputs = model(path, at="knots").reshape(expected.shape)
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model(path), expected[:, -1], rtol=1e-12, atol=1e-12)
    assert ran_on(model.solve(path), engine)
    leaves = {"values": values} | {name: model.get_parameter(own_name(name)) for name in case["layers"]}
    assert len(leaves) == 1 + len(list(model.parameters()))
    assert leaves.keys() == case["gradients"].keys()
    found = torch.autograd.grad((outputs * tensor(case["weights"])).sum(), list(leaves.values()))
    for name, gradient in zip(leaves, found, strict=True):
        torch.testing.assert_close(gradient, tensor(case["gradients"][name]), rtol=1e-11, atol=1e-11, msg=name)


def test_the_golden_file_states_its_origin():
    assert STORED["origin"]["versions"]["torchcde"] == "0.2.5"
    assert [case["scheme"] for case in STORED["cases"]] == ["natural_cubic", "linear"]
