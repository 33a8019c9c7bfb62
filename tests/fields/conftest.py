import pytest
import torch


@pytest.fixture(autouse=True)
def same_numbers():
    """Whatever a test draws, it draws in every run."""
    torch.manual_seed(0)
