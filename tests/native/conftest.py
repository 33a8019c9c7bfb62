import pytest

from neuralcde._native import kernels


def pytest_collection_modifyitems(items):
    """Skip these tests if the kernels were not built."""
    if kernels is None:
        for item in items:
            if "tests/native" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="the native kernels were not built or are turned off"))
