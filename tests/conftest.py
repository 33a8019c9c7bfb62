"""Settings of all tests. This file also puts tests/ on the import path, for the modules that tests share."""

import functools
import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

import type_checks

# Set before torch is imported. The test workers use all cores already; more threads would only wait for each other.
# Tests of threads set their own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Annotations are checked while the tests run, including the shapes of tensors: every function of these folders, and
# every dataclass when an instance is created. The hook must be installed before neuralcde is imported; each xdist
# worker runs this file itself. Subprocesses are not checked.
type_checks.install()

# Hypothesis uses the same examples in every run, so a failure is due to the change. New ones:
# --hypothesis-profile=fresh.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("same")

# --doctest-modules would import all conftest files again, as modules with the same name
collect_ignore_glob = ["*conftest.py", "golden/make_*.py"]  # the latter need torchcde and diffrax


ROOT = Path(__file__).parents[1]


@functools.cache
def group_of(file: str) -> str | None:
    """The group that a file of tests names in its `pytestmark`: its tests run in one worker and share slow fixtures."""
    mark = re.search(r'^pytestmark = pytest\.mark\.xdist_group\("(.+)"\)', (ROOT / file).read_text(), re.MULTILINE)
    return mark and mark[1]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Schedule by groups. xdist 3.8 notes them in an attribute that pytest 9.2 does not read, so they had no effect."""
    from xdist.scheduler import LoadGroupScheduling

    class Groups(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid.split("::")[0]) or nodeid

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(params=["native", "torch"])
def engine(request, monkeypatch):
    """Run a test on the native engine and in plain torch."""
    from neuralcde._native import kernels
    from solve_cases import on_engine

    if request.param == "native" and kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, request.param)
    return request.param


@pytest.fixture(autouse=True)
def same_numbers():
    """Seed torch, so that a test draws the same numbers in every run."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def checked_annotations(request):
    """Check annotations in all tests except those marked `wrong_types`.

    The marked tests check the package's own errors about arguments of a wrong type. The checker would raise first, with
    a message that users never see.
    """
    type_checks.begin_test(check=request.node.get_closest_marker("wrong_types") is None)
    yield
    type_checks.begin_test(check=True)
