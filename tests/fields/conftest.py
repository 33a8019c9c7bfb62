import pytest
import torch


@pytest.fixture(autouse=True)
def same_numbers():
    """Seed torch, so that a test draws the same numbers in every run."""
    torch.manual_seed(0)
