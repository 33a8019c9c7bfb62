"""Readouts: what every registered one promises, what they are shown, and one from outside in a model."""

import dataclasses
import json

import pytest
import torch
from model_cases import MODELS, path_of, raw_batch, times_within
from sklearn.base import clone
from torch import nn

from neuralcde.contracts import Recipe
from neuralcde.models import Readout, Seen, SummaryReadout, summary_readout
from registered import build, cases

FEATURES, OUTPUTS = 4, 2

# Name -> case -> options. Every registered readout is tested; one needs an entry here only if it cannot be made with
# its defaults, or is to be tested with several options.
READOUT_OPTIONS = {}
RECIPES = cases(Readout.registry, READOUT_OPTIONS)


def seen_by(path, shape, dtype=torch.float64):
    """States and rows of this shape."""
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(*shape, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    return Seen(state, path, torch.randint(len(path.knots), shape, generator=generator), path.series)


@pytest.fixture(params=RECIPES)
def readout(request):
    torch.manual_seed(0)
    path = path_of(raw_batch())
    return build(RECIPES[request.param], FEATURES, OUTPUTS, **sizes_of(path)).double().eval()


def sizes_of(path):
    return {"channels": path.channels, "data": path.channels - 1, "static": 2}


class TestEveryReadout:
    @pytest.mark.parametrize("shape", [(6,), (3, 5), (0,)])
    def test_shapes_and_a_batch_one_by_one(self, readout, shape):
        seen = seen_by(path_of(raw_batch()), shape)
        outputs = readout(seen)
        assert outputs.shape == (*shape, OUTPUTS)
        for i in range(shape[0]):
            alone = readout(dataclasses.replace(seen, state=seen.state[i : i + 1], row=seen.row[i : i + 1]))
            torch.testing.assert_close(alone, outputs[i : i + 1], rtol=1e-13, atol=1e-13)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_keeps_the_type_of_the_state(self, readout, dtype):
        assert readout.to(dtype)(seen_by(path_of(raw_batch(dtype)), (6,), dtype)).dtype == dtype

    def test_gradients(self, readout):
        seen = seen_by(path_of(raw_batch()), (3,))
        inputs = seen.state.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda state: readout(dataclasses.replace(seen, state=state)), (inputs,))

    def test_starts_where_it_is_told_if_it_can(self, readout):
        """The outputs of a state of zeros; a readout may leave `start_at` as it is."""
        seen = seen_by(path_of(raw_batch()), (3,))
        readout.start_at(torch.tensor([0.5, -2.0], dtype=torch.float64))
        if type(readout).start_at is not Readout.start_at:
            found = readout(dataclasses.replace(seen, state=torch.zeros_like(seen.state)))
            torch.testing.assert_close(found, torch.tensor([[0.5, -2.0]], dtype=torch.float64).expand(3, 2))

    @pytest.mark.parametrize("case", RECIPES)
    def test_saved_cloned_and_found_by_name(self, case):
        recipe, path = RECIPES[case], path_of(raw_batch(torch.float32))
        sizes = sizes_of(path)
        config = json.loads(json.dumps(recipe.to_config(Readout.registry)))
        made, seen = build(recipe, FEATURES, OUTPUTS, **sizes), seen_by(path, (6,), torch.float32)
        for again in (Recipe.of(config, Readout.registry), clone(recipe)):
            assert again == recipe
            other = again.build(FEATURES, OUTPUTS, **sizes)
            other.load_state_dict(made.state_dict())
            assert torch.equal(other.eval()(seen), made.eval()(seen))

    @pytest.mark.parametrize("case", RECIPES)
    @pytest.mark.parametrize("name", MODELS)
    def test_in_every_model(self, name, case):
        path = path_of(raw_batch(torch.float32))
        model = MODELS[name](path.channels, OUTPUTS, hidden=FEATURES, static=2, readout=RECIPES[case])
        assert model(path).shape == (len(path), OUTPUTS)


class EverythingSeen(Readout, name="test everything seen"):
    """From outside the package: the state, X at the last row and the static features, side by side."""

    def __init__(self, features, outputs, *, channels, static, factor=1.0):
        super().__init__()
        self.factor = factor
        self.linear = nn.Linear(features + channels + static, outputs)

    def forward(self, seen):
        return self.factor * self.linear(torch.cat([seen.state, seen.values, seen.static], dim=-1))


def test_what_is_seen_belongs_to_the_last_row():
    path = path_of(raw_batch())
    row = torch.tensor([[0, 4], [5, 8]])  # of the series 0, 0, 1 and 2
    seen = Seen(torch.zeros(2, 2, FEATURES, dtype=torch.float64), path, row, path.series)
    assert torch.equal(seen.values, path.at_rows()[row])
    static = path.series.static.nan_to_num(0.0)
    assert torch.equal(seen.static, static[torch.tensor([[0, 0], [1, 2]])])


@pytest.mark.parametrize("name", MODELS)
def test_one_from_outside(name):
    """By name, by class and by recipe; it learns, and it is shown the last row before each output."""
    path = path_of(raw_batch())
    torch.manual_seed(0)
    given = ("test everything seen", EverythingSeen, EverythingSeen.with_options(factor=2.0))
    models = [MODELS[name](path.channels, OUTPUTS, hidden=FEATURES, static=2, readout=x).double() for x in given]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    first, second, doubled = models
    assert torch.equal(first(path), second(path))
    torch.testing.assert_close(doubled(path), 2 * first(path))
    at_rows, last = first(path, at="knots"), path.series.offsets[1:] - 1
    torch.testing.assert_close(at_rows[last], first(path))
    torch.testing.assert_close(first(path, at=times_within(path, (1.0,)))[:, 0], first(path))
    first(path).sum().backward()
    assert first.readout.linear.weight.grad.any(dim=0).all()


def test_a_readout_without_forward_says_what_to_write():
    class Empty(Readout):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define forward\(seen\)"):
        Empty()(seen_by(path_of(raw_batch()), (1,)))


def test_an_unknown_readout_is_named():
    with pytest.raises(ValueError, match=r"there is no readout 'quadratic'; there are .*'linear'"):
        MODELS["NeuralCDE"](4, 2, readout="quadratic")
    with pytest.raises(TypeError, match=r"EverythingSeen has no option 'factors'; it has"):
        EverythingSeen.with_options(factors=2)


@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_encodings_of_some_rows_at_a_time_change_nothing(shape, monkeypatch):
    path = path_of(raw_batch(torch.float32))
    sizes = sizes_of(path)
    readout = SummaryReadout(FEATURES, OUTPUTS, data=sizes["data"], static=sizes["static"]).eval()
    seen = seen_by(path, shape, torch.float32)
    whole, widths, encode = readout(seen), [], type(readout.encoding).forward
    monkeypatch.setattr(summary_readout, "ENCODINGS_AT_ONCE", 2 * readout.encoding.outputs * (shape[1:] or (1,))[0])
    monkeypatch.setattr(
        type(readout.encoding), "forward", lambda self, values: widths.append(len(values)) or encode(self, values)
    )
    torch.testing.assert_close(readout(seen), whole, rtol=0, atol=1e-6)
    assert widths == [2] * (shape[0] // 2) + [1]
