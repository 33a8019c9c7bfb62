"""Every model against a loop over series and rows written straight from the equations."""

import pytest
import torch

from model_cases import VARIANTS, ModelCase, gradients_of, times_within
from naive_models import Naive
from solve_cases import largest_difference

PATHS = ["natural_cubic", "linear", "linear-forward", "rectilinear"]


def naively(case, kind, initial):
    """The outputs of all series, laid out as the model's."""
    naive = Naive(case.model, kind, initial=initial, intensity=case.intensity)
    asked = times_within(case.path())
    offsets, found = case.series.offsets, []
    for i in range(len(case.series)):
        rows = slice(offsets[i], offsets[i + 1])
        series = case.series.times[rows], case.values[rows], case.static[i]
        found.append(naive.run(*series, scheme=case.scheme, asked=asked[i] if case.output == "times" else ())[case.output])
    return torch.cat(found) if case.output == "knots" else torch.stack(found)


def compare(case, kind, initial):
    leaves = dict(case.leaves)
    if case.scheme == "natural_cubic":
        del leaves["values"]
    expected = naively(case, kind, initial)
    expected = {"outputs": expected.detach(), **gradients_of(expected, leaves)}
    found = case.gradients(leaves)
    assert found["outputs"].shape == expected["outputs"].shape
    assert largest_difference(found, expected) < 1e-11
    assert [name for name, gradient in expected.items() if not gradient.any()] == []


@pytest.mark.parametrize("output", ["last", "mean", "knots", "times"])
@pytest.mark.parametrize("intensity", [False, True], ids=["", "intensity"])
@pytest.mark.parametrize("scheme", PATHS)
@pytest.mark.parametrize("kind", VARIANTS)
def test_outputs_and_gradients(kind, scheme, intensity, output):
    """Outputs, and the gradients of them to parameters, static features and data."""
    case = ModelCase(kind, scheme=scheme, intensity=intensity, output=output, initial="both")
    compare(case, kind, "both")
