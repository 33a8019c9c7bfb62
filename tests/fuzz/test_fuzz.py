"""A few seconds of random cases per reader; `make fuzz` runs them for an hour."""

import os

import pytest
from run import READERS, fuzz

SECONDS = float(os.environ.get("NEURALCDE_FUZZ_SECONDS", "20"))  # for all readers together


@pytest.mark.parametrize("reader", READERS)
def test_readers_read_or_refuse_random_cases(reader):
    assert fuzz(reader, SECONDS / len(READERS)) >= 50
