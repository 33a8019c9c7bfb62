"""Every model against a loop over series and rows written straight from the equations."""

import dataclasses

import pytest
import torch
from model_cases import VARIANTS, ModelCase, gradients_of, outputs_of, times_within
from naive_models import Naive

from solve_cases import largest_difference

PATHS = [
    ("natural_cubic", False),
    ("natural_cubic", True),
    ("linear", False),
    ("linear-forward", True),
    ("rectilinear", True),
]
OUTPUTS = ["last", "mean", "knots", "times"]


def naively(case, kind, initial, asked):
    """All outputs of all series, laid out as the model's."""
    naive = Naive(case.model, kind, initial=initial, intensity=case.intensity)
    offsets, found = case.series.offsets, []
    for i in range(len(case.series)):
        rows = slice(offsets[i], offsets[i + 1])
        one = case.series.times[rows], case.values[rows], case.static[i]
        found.append(naive.run(*one, scheme=case.scheme, asked=asked[i]))
    return {name: (torch.cat if name == "knots" else torch.stack)([one[name] for one in found]) for name in OUTPUTS}


def compare(case, kind, initial, leaves):
    """Outputs, and the gradients of all of them together, agree and are not trivial."""
    path = case.path()
    expected = naively(case, kind, initial, times_within(path))
    found = {name: outputs_of(case.model, path, name) for name in OUTPUTS}
    for name in OUTPUTS:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-12, msg=name)
    found, expected = (gradients_of(torch.cat([x.flatten() for x in y.values()]), leaves) for y in (found, expected))
    assert largest_difference(found, expected) < 1e-11
    assert [name for name, gradient in expected.items() if not gradient.any()] == []


@pytest.mark.parametrize(("scheme", "intensity"), PATHS)
@pytest.mark.parametrize("kind", VARIANTS)
def test_outputs_and_gradients(kind, scheme, intensity):
    """The gradients are those to parameters, static features and, where the path is not scipy's, data."""
    case = ModelCase(kind, scheme=scheme, intensity=intensity, initial="both")
    leaves = {name: x for name, x in case.leaves.items() if name != "values" or scheme != "natural_cubic"}
    compare(case, kind, "both", leaves)


@pytest.mark.parametrize(
    ("initial", "chosen"), [(i, i) for i in ("zero", "linear", "static", "both")] + [(None, "both"), (None, "linear")]
)
def test_initial_states(initial, chosen):
    """Each kind, and what a Neural CDE chooses with and without static features."""
    static = 2 if chosen in ("static", "both") else 0
    case = ModelCase("NeuralCDE", scheme="linear", initial=initial, static=static)
    leaves = {name: x for name, x in case.leaves.items() if name != "static" or static}
    compare(case, "NeuralCDE", chosen, leaves)


@pytest.mark.parametrize("kind", VARIANTS[1:])
def test_initial_states_that_the_others_choose(kind):
    """Zero without static features, a network of them with."""
    for static, chosen in ((0, "zero"), (2, "static")):
        case = ModelCase(kind, static=static)
        compare(case, kind, chosen, {name: x for name, x in case.leaves.items() if name != "static" or static})


@pytest.mark.parametrize("kind", VARIANTS)
def test_gradients_in_the_times(kind):
    """Of the observations, at outputs that lie between them or move with them."""
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
