"""NEURALCDE_ISA: every instruction-set level, or none, each in a separate process."""

import json

import pytest

from fresh_python import fresh_python
from neuralcde._native import kernels

COMPARE = """
    import json
    from ragged_cases import SCHEMES, random_series
    from neuralcde._native import level
    series = random_series(61, count=5, rows=(3, 8))
    sums = {name: build(series).coefficients.square().sum((0, 2)).tolist() for name, build in SCHEMES.items()}
    print(json.dumps({"level": level(), "sums": sums}))
"""
LEVELS = [*kernels.supported_levels(), "none"] if kernels else []


@pytest.fixture(scope="module")
def here():
    from ragged_cases import SCHEMES, random_series

    series = random_series(61, count=5, rows=(3, 8))
    return {name: build(series).coefficients.square().sum((0, 2)).tolist() for name, build in SCHEMES.items()}


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_can_be_forced(level, here):
    done = fresh_python(COMPARE, NEURALCDE_ISA=level)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["level"] == level
    for name, sums in here.items():
        assert answer["sums"][name] == pytest.approx(sums, rel=1e-10)


def test_an_unknown_level_is_an_import_error():
    done = fresh_python("import neuralcde._native", NEURALCDE_ISA="sse9")
    assert done.returncode != 0
    assert "ImportError: NEURALCDE_ISA='sse9' cannot be used on this machine; choose one of:" in done.stderr
    assert "baseline, none." in done.stderr


def test_levels_at_run_time():
    assert "baseline" in kernels.supported_levels()
    assert kernels.level() in kernels.supported_levels()
    with pytest.raises(ValueError, match="no level 'sse9' on this machine"):
        kernels.use_level("sse9")
    with pytest.raises(TypeError):
        kernels.use_level(None)
