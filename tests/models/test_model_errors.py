"""Errors of models: they name the argument and the fix."""

import pytest
import torch
from model_cases import JUMPS, MODELS, path_of, raw_batch

import neuralcde as nc
from ragged_cases import random_series
from registered import takes

DATA = 3


def path(*, intensity=False, dtype=torch.float32, **options):
    return path_of(raw_batch(dtype), intensity=intensity, **options)


@pytest.mark.parametrize("name", MODELS)
def test_wrong_number_of_channels(name):
    """The message has both numbers, the names of the channels, and the fix."""
    expected = rf"{name} was made for 6 channels, but the path has 4: time, x0, x1, x2.*path\.channels"
    with pytest.raises(ValueError, match=expected):
        MODELS[name](6, 2)(path())


@pytest.mark.parametrize("name", MODELS)
def test_wrong_number_of_static_features(name):
    with pytest.raises(ValueError, match=rf"{name} was made for 3 static features, but the series have 2.*static=2"):
        MODELS[name](4, 2, static=3)(path())
    bare = path_of(random_series(61, dtype=torch.float32))
    with pytest.raises(ValueError, match=rf"{name} was made for 3 static features, but the series have 0"):
        MODELS[name](4, 2, static=3)(bare)


@pytest.mark.parametrize("name", MODELS)
def test_no_time_channel(name):
    fix = r"no time channel; build it from series\.with_channels\(\), or make the model with time_channel=False"
    with pytest.raises(ValueError, match=fix):
        MODELS[name](DATA, 2)(nc.linear(raw_batch(torch.float32)))


@pytest.mark.parametrize("name", JUMPS)
def test_intensity_without_counts(name):
    """An even number of channels is refused by the constructor, an odd one without counts when the model is called."""
    fix = (
        r"4 channels are not time, a count for each data channel, and data; .*\"per_channel\".*channels=path\.channels"
    )
    with pytest.raises(ValueError, match=fix):
        MODELS[name](4, 2, intensity=True)
    four = path_of(random_series(62, channels=4, dtype=torch.float32))
    fix = (
        rf"{name}\(intensity=True\) needs a path with 2 data channels and 2 counts, but it has 4 and 0.*"
        r"with_channels\(counts=\"per_channel\"\)"
    )
    with pytest.raises(ValueError, match=fix):
        MODELS[name](5, 2, intensity=True)(four)


@pytest.mark.parametrize("name", JUMPS)
def test_shared_counts_are_not_counts_per_channel(name):
    shared = nc.linear(raw_batch(torch.float32).with_channels(counts="shared"))
    with pytest.raises(ValueError, match=r"2 data channels and 2 counts, but it has 3 and 1.*counts=\"per_channel\""):
        MODELS[name](5, 2, intensity=True)(shared)


@pytest.mark.parametrize("name", JUMPS)
def test_counts_without_intensity(name):
    with pytest.raises(ValueError, match=rf"{name}\(intensity=False\) .*but it has 3 and 3.*intensity=True"):
        MODELS[name](7, 2)(path(intensity=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("at", "message"),
    [
        ([1.0, 2.2], r"t=1.0 lies outside series 'one row', .*\[1.3, 1.3\].*within path.interval"),
        (
            torch.tensor([[0.0], [0.0], [1.3], [0.5], [1.0], [9.0]], dtype=torch.float64),
            r"t=9.0 lies outside series 'one row of nothing'",
        ),
        (torch.zeros(4, 2), r"t of shape \(4, 2\) does not fit 6 series; expected .*\(k,\) shared by all, or \(6, k\)"),
        ("last", r"at='last' is not \"knots\" or a tensor of times"),
    ],
    ids=["shared", "own", "shape", "word"],
)
def test_invalid_values_of_at(name, at, message):
    with pytest.raises(ValueError, match=message):
        MODELS[name](4, 2)(path(), at=at)


@pytest.mark.wrong_types
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": "learned"}, 'initial=\'learned\' is not "zero", "linear", "static" or "both"'),
        ({"pool": "max"}, 'pool=\'max\' is not "last", "mean" or "both"'),
        (
            {"static": 3, "initial": "linear"},
            'initial=\'linear\' does not fit 3 static features; initial="static" or "both"',
        ),
        ({"initial": "static"}, "initial='static' does not fit 0 static features; give their number, static="),
        ({"static": -1}, "static must be the number of static features, got -1"),
        ({"hidden": 0}, "hidden must be an integer of at least 1, got 0"),
        ({"channels": 4.0}, "channels must be an integer of at least 1, got 4.0"),
        ({"outputs": 0}, "outputs must be an integer of at least 1, got 0"),
    ],
    ids=lambda x: ", ".join(x) if isinstance(x, dict) else "",
)
def test_options_that_do_not_exist(name, options, message):
    with pytest.raises(ValueError, match=message):
        MODELS[name](**{"channels": 4, "outputs": 2, **options})


@pytest.mark.wrong_types
@pytest.mark.parametrize("name", [name for name in MODELS if takes(MODELS[name], "variant")])
def test_unknown_variant(name):
    with pytest.raises(ValueError, match='variant=\'original\' is not "standard" or "paper"'):
        MODELS[name](4, 2, variant="original")


@pytest.mark.parametrize("name", MODELS)
def test_mismatched_dtypes(name):
    fix = (
        rf"{name} is torch.float32 on cpu, but the path is torch.float64 on cpu; "
        r"convert one: path.to\(...\) or model.to\(...\)"
    )
    with pytest.raises(ValueError, match=fix):
        MODELS[name](4, 2)(path(dtype=torch.float64))


@pytest.mark.wrong_types
@pytest.mark.parametrize("at", [None, "knots", [0.5]], ids=["last", "knots", "times"])
@pytest.mark.parametrize("name", MODELS)
def test_neither_a_path_nor_series(name, at):
    fix = rf"{name} takes a ControlPath, got Tensor; build one, e\.g\. nc\.linear\(series\.with_channels\(\)\)"
    with pytest.raises(TypeError, match=fix):
        MODELS[name](4, 2)(raw_batch(torch.float32).values, at=at)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient": "adjoint"}, r"gradient='adjoint' is not one of .*'backsolve'"),
        ({"solver": "rk5"}, r"solver='rk5' is not one of .*'rk4'"),
        ({"field": nc.LowRankField(4, 6)}, r"the field was made for hidden=6, channels=4, but z0 has 32 features"),
    ],
    ids=["gradient", "solver", "field"],
)
def test_invalid_solver_options(options, message):
    with pytest.raises(ValueError, match=message):
        nc.NeuralCDE(4, 2, **options)(path())
