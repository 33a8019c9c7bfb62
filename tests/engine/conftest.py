import pytest
import torch

from neuralcde._native import kernels
from solve_cases import on_engine


@pytest.fixture(params=["native", "torch"])
def engine(request, monkeypatch):
    """Solves on the native engine, and on plain torch."""
    if request.param == "native" and kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, request.param)
    return request.param


@pytest.fixture(autouse=True)
def same_numbers():
    """Whatever a test draws, it draws in every run."""
    torch.manual_seed(0)
