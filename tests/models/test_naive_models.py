"""Every model compared with a naive loop over series and rows, directly from the equations."""

import dataclasses

import pytest
import torch
from model_cases import VARIANTS, ModelCase, gradients_of, outputs_of, times_within
from naive_models import Naive

from solve_cases import largest_difference

EQUATIONS = ("NeuralCDE", "GRUODE", "GRUDeltaT", "GRUD", "ODERNN")  # written out in naive_models.py
PAPER = [kind for kind in VARIANTS if kind.split()[0] in EQUATIONS]
PATHS = [
    ("natural_cubic", False),
    ("natural_cubic", True),
    ("linear", False),
    ("linear-forward", True),
    ("rectilinear", True),
]
OUTPUTS = ["last", "mean", "knots", "times"]


def naively(case, kind, initial, asked):
    """The outputs of all series by the naive loop, arranged like the model's."""
    naive = Naive(case.model, kind, initial=initial, intensity=case.intensity)
    offsets, found = case.series.offsets, []
    for i in range(len(case.series)):
        rows = slice(offsets[i], offsets[i + 1])
        one = case.series.times[rows], case.values[rows], case.static[i]
        found.append(naive.run(*one, scheme=case.scheme, asked=asked[i]))
    return {name: (torch.cat if name == "knots" else torch.stack)([one[name] for one in found]) for name in OUTPUTS}


def compare(case, kind, initial, leaves):
    """Check that outputs and gradients agree and are not trivial."""
    path = case.path()
    expected = naively(case, kind, initial, times_within(path))
    found = {name: outputs_of(case.model, path, name) for name in OUTPUTS}
    for name in OUTPUTS:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-12, msg=name)
    found, expected = (gradients_of(torch.cat([x.flatten() for x in y.values()]), leaves) for y in (found, expected))
    assert largest_difference(found, expected) < 1e-11
    assert [name for name, gradient in expected.items() if not gradient.any()] == []


@pytest.mark.parametrize(("scheme", "intensity"), PATHS)
@pytest.mark.parametrize("kind", PAPER)
def test_outputs_and_gradients(kind, scheme, intensity):
    """Gradients with respect to parameters, static features, and data (except for scipy's splines)."""
    case = ModelCase(kind, scheme=scheme, intensity=intensity, initial="both")
    leaves = {name: x for name, x in case.leaves.items() if name != "values" or scheme != "natural_cubic"}
    compare(case, kind, "both", leaves)


@pytest.mark.parametrize(
    ("initial", "chosen"), [(i, i) for i in ("zero", "linear", "static", "both")] + [(None, "both"), (None, "linear")]
)
def test_initial_states(initial, chosen):
    """Each kind, and the defaults of a Neural CDE with and without static features."""
    static = 2 if chosen in ("static", "both") else 0
    case = ModelCase("NeuralCDE", scheme="linear", initial=initial, static=static)
    leaves = {name: x for name, x in case.leaves.items() if name != "static" or static}
    compare(case, "NeuralCDE", chosen, leaves)


@pytest.mark.parametrize("kind", [kind for kind in PAPER if kind != "NeuralCDE"])
def test_default_initial_states_of_the_other_models(kind):
    """Zero without static features, otherwise a network on the static features."""
    for static, chosen in ((0, "zero"), (2, "static")):
        case = ModelCase(kind, static=static)
        compare(case, kind, chosen, {name: x for name, x in case.leaves.items() if name != "static" or static})


@pytest.mark.parametrize("kind", PAPER)
def test_gradients_in_the_times(kind):
    """Gradients with respect to the observation times, for outputs at fixed times and at the observations."""
    case = ModelCase(kind, scheme="linear")
    case.series = dataclasses.replace(case.series, times=case.series.times.clone().requires_grad_())
    leaves, path = {"times": case.series.times}, case.path()
    asked = times_within(path, (0.7, 0.21))
    expected = naively(case, kind, "both" if kind == "NeuralCDE" else "static", asked)
    found = {name: outputs_of(case.model, path, name) for name in ("last", "mean", "knots")}
    found["times"] = case.model(path, at=asked)
    for name in OUTPUTS:
        wanted, given = (gradients_of(y[name], leaves)["times"] for y in (expected, found))
        assert wanted.any()
        torch.testing.assert_close(given, wanted, rtol=1e-11, atol=1e-11, msg=name)
