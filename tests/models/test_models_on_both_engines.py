"""Every model on the native engine against the same model on plain torch: outputs and all gradients."""

import pytest
import torch

from model_cases import OUTPUTS, VARIANTS, ModelCase
from neuralcde._native import kernels
from ragged_cases import SCHEMES
from solve_cases import largest_difference, on_engine, ran_on

pytestmark = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")


def compare(monkeypatch, case, output, zero=()):
    results = {}
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        results[engine] = case.gradients(output)
        with torch.no_grad():
            assert ran_on(case.model.solve(case.path()), engine)
    assert largest_difference(results["native"], results["torch"]) < 1e-10
    assert [name for name, gradient in results["torch"].items() if not gradient.any()] == list(zero)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("intensity", [False, True], ids=["values", "intensity"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_every_output_of_every_model(kind, intensity, output, monkeypatch):
    chosen = raw_long if output == "shared times" else slice(None)
    compare(monkeypatch, ModelCase(kind, intensity=intensity, chosen=chosen), output)


raw_long = [0, 1, 3, 4]  # the series of more than one row


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "linear-forward"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_every_path(kind, scheme, monkeypatch):
    compare(monkeypatch, ModelCase(kind, scheme=scheme, initial="both"), "knots")


@pytest.mark.parametrize("kind", VARIANTS)
def test_more_series_than_a_tile(kind, monkeypatch):
    """And sizes that are no multiple of a register."""
    case = ModelCase(kind, chosen=[0, 1, 2, 3, 4, 5] * 7, hidden=11)
    compare(monkeypatch, case, "knots")
