"""Settings of all tests; that this file exists also puts tests/ on the import path, where shared modules lie."""

import os

import pytest
from hypothesis import settings

# Before torch is imported. Two workers with two threads each on two cores wait for each other most of the time. Tests of threads ask for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run: a red build is a fault of the change at hand. Fresh ones: --hypothesis-profile=fresh.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("same")

# --doctest-modules would import the conftest files again, as modules that all have the same name
collect_ignore_glob = ["*conftest.py", "golden/make_*.py"]  # the latter need the peers


@pytest.fixture(params=["native", "torch"])
def engine(request, monkeypatch):
    """Solves on the native engine, and on plain torch."""
    from neuralcde._native import kernels
    from solve_cases import on_engine

    if request.param == "native" and kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, request.param)
    return request.param


@pytest.fixture(autouse=True)
def same_numbers():
    """Whatever a test draws, it draws in every run."""
    import torch

    torch.manual_seed(0)
