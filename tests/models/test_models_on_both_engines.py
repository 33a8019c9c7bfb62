"""Every model on the native engine compared with plain torch: outputs and all gradients."""

import pytest
from model_cases import OUTPUTS, SOLVED, VARIANTS, ModelCase

from neuralcde._native import kernels
from solve_cases import largest_difference, on_engine

pytestmark = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")

LONGER = [0, 1, 3, 4]  # the series of more than one row


def compare(monkeypatch, case, output):
    results = {}
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        results[engine] = case.gradients(output)
    assert largest_difference(results["native"], results["torch"]) < 1e-10
    assert [name for name, gradient in results["torch"].items() if not gradient.any()] == []


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("intensity", [False, True], ids=["values", "intensity"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_every_output_of_every_model(kind, intensity, output, monkeypatch):
    chosen = LONGER if output == "shared times" else slice(None)
    compare(monkeypatch, ModelCase(kind, intensity=intensity, chosen=chosen), output)


@pytest.mark.parametrize("intensity", [False, True], ids=["values", "intensity"])
@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind.split()[0] in SOLVED])
def test_both_engines_run(kind, intensity, monkeypatch):
    """Shows that the other tests here compare two different engines."""
    case = ModelCase(kind, intensity=intensity)
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        assert case.model.engine(case.path()).startswith(engine)


@pytest.mark.parametrize("scheme", ["natural_cubic", "hermite", "rectilinear"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_other_paths(kind, scheme, monkeypatch):
    compare(monkeypatch, ModelCase(kind, scheme=scheme, initial="both"), "knots")


@pytest.mark.parametrize("kind", VARIANTS)
def test_more_series_than_a_tile(kind, monkeypatch):
    """With sizes that are not multiples of a SIMD register."""
    case = ModelCase(kind, chosen=[0, 1, 2, 3, 4, 5] * 7, hidden=11)
    compare(monkeypatch, case, "knots")
