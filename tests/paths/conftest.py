from importlib import import_module

import pytest

from neuralcde._native import kernels
from ragged_cases import SCHEMES

# import_module: in neuralcde.paths the functions hide the modules of the same name
CALLERS = [import_module(f"neuralcde.paths.{name}") for name in ("cubic", "linear", "smoothing")]


@pytest.fixture(params=SCHEMES)
def scheme(request):
    """Name of a scheme."""
    return request.param


@pytest.fixture(params=["native", "torch"])
def engine(request, monkeypatch):
    """Run a test with the native kernels and in plain torch."""
    if request.param == "torch":
        for module in CALLERS:
            monkeypatch.setattr(module, "kernels", None)
    elif kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    return request.param


@pytest.fixture
def build(scheme, engine):
    """The function from series to path, for every scheme on every engine."""
    return SCHEMES[scheme]
