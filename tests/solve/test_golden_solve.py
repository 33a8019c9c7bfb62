"""Solves compared with stored results of torchcde (rk4, one step per gap) and diffrax (dopri5, small tolerances)."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import neuralcde as nc
from solve_cases import on_engine, ran_on

STORED = json.loads((Path(__file__).parents[1] / "golden" / "solve.json").read_text())
PARAMETERS = {"first.weight": "0.weight", "first.bias": "0.bias", "last.weight": "2.weight", "last.bias": "2.bias"}


def cases_of(peer):
    return [case for case in STORED["cases"] if case["peer"] == peer]


def tensor(nested):
    return torch.tensor(nested, dtype=torch.float64)


def ours(case, **options):
    """Our solution, its states (series, rows, hidden), and the gradients under their names in the file."""
    values, z0 = tensor(case["values"]).requires_grad_(), tensor(case["z0"]).requires_grad_()
    count, rows, channels = values.shape
    hidden, width = z0.shape[1], len(case["first.bias"])
    series = nc.IrregularSeries.from_list([(case["times"], x.detach()) for x in values], dtype=torch.float64)
    series = dataclasses.replace(series, values=values.flatten(0, 1))
    field = nc.MLPField(channels, hidden, width=width, depth=1, activation=case["activation"]).double()
    with torch.no_grad():
        for stored, own in PARAMETERS.items():
            field.layers.get_parameter(own).copy_(tensor(case[stored]))
    path = getattr(nc, case["scheme"])(series)
    solution = nc.solve_cde(path, field, z0, save="knots", **options)
    states = solution.at_knots.reshape(count, rows, hidden)
    leaves = {"values": values, "z0": z0, **{name: field.layers.get_parameter(own) for name, own in PARAMETERS.items()}}
    found = torch.autograd.grad((states * tensor(case["weights"])).sum(), list(leaves.values()))
    return solution, states, dict(zip(leaves, found, strict=True))


def compare(case, tolerance, **options):
    solution, states, gradients = ours(case, **options)
    torch.testing.assert_close(states, tensor(case["states"]), rtol=tolerance, atol=tolerance)
    assert gradients.keys() == case["gradients"].keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, tensor(case["gradients"][name]), rtol=tolerance, atol=tolerance, msg=name)
    return solution


@pytest.mark.parametrize("scheme", ["natural_cubic", "linear"])
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
def test_torchcde(scheme, gradient, engine):
    """Both libraries take the same steps, so the results agree to rounding."""
    chosen = [case for case in cases_of("torchcde") if case["scheme"] == scheme]
    assert len(chosen) == 2
    for case in chosen:
        for steps in (nc.AtKnots(), nc.FixedSteps(1.0)):
            solution = compare(case, 1e-11, gradient=gradient, steps=steps)
            assert ran_on(solution, "torch" if gradient == "backprop" else engine)


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "tsit5", "steps": nc.AtKnots(substeps=40)},
        {"solver": "dopri5", "steps": nc.Adaptive(1e-10, 1e-10)},
        {"solver": "dopri5", "steps": nc.Adaptive(1e-10, 1e-10), "gradient": "backsolve"},
    ],
    ids=["fine", "adaptive", "backsolve"],
)
def test_diffrax(options, monkeypatch):
    """diffrax uses another discretisation, so the results agree to its tolerance."""
    on_engine(monkeypatch, "native")
    for case in cases_of("diffrax"):
        compare(case, 1e-8, **options)


def test_the_golden_file_states_its_origin():
    assert STORED["origin"]["versions"]["torchcde"] == "0.2.5"
    assert STORED["origin"]["versions"]["diffrax"] == "0.7.2"
