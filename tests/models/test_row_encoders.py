"""Row encoders: one from outside, through every model, and what is made of its numbers."""

import pytest
import torch
from model_cases import MODELS, make, raw_batch, times_within
from torch import nn

import neuralcde as nc
from neuralcde.models import RowEncoder
from neuralcde.models.row_encoder import encoded_series
from registered import members

RAW = 3  # channels of the series that the encoder reads, without time


class Mixed(RowEncoder, name="test mixed"):
    """From outside the package: two numbers, a layer on the values of the row and on which of them were observed."""

    def __init__(self, channels, *, outputs=2):
        super().__init__()
        self.outputs = outputs
        self.layer = nn.Linear(2 * channels, outputs)

    def forward(self, series):
        return torch.tanh(
            self.layer(torch.cat([series.values.nan_to_num(0.0), series.observed.to(series.dtype)], dim=1))
        )


def encoder():
    torch.manual_seed(0)
    return Mixed(1 + RAW).double()


def series():
    return raw_batch().with_channels()


def test_the_path_runs_through_time_and_what_the_encoder_makes_of_rows():
    made, given = encoder(), series()
    found = encoded_series(made, given)
    assert found.channel_names == ("time", "encoded 0", "encoded 1")
    assert found.roles == ("time", "data", "data")
    assert torch.equal(found.values[:, 0], given.values[:, 0])
    assert torch.equal(found.values[:, 1:], made(given))
    assert torch.equal(found.offsets, given.offsets)
    assert torch.equal(found.times, given.times)


def test_time_is_added_where_the_series_have_none():
    raw = raw_batch()
    found = encoded_series(Mixed(RAW).double(), raw)
    assert torch.equal(found.values[:, 0], raw.with_channels().values[:, 0])
    assert found.channels == 3


def test_a_batch_is_its_series_one_by_one():
    made, given = encoder(), series()
    together = encoded_series(made, given)
    for i, one in enumerate(given):
        torch.testing.assert_close(encoded_series(made, one).values, together[i].values, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", MODELS)
def test_in_every_model(name, engine):
    """By name, by class, by recipe and as an object; paths and series give the same; the encoder learns."""
    given = series()
    kinds = ("test mixed", Mixed, Mixed.with_options(outputs=2), encoder())
    models = [make(name, given.channels, encoder=kind, scheme="linear") for kind in kinds]
    for model in models:
        assert isinstance(model.encoder, Mixed)
        assert model.path_channels == 3
        model.load_state_dict(models[0].state_dict())
        torch.testing.assert_close(model(given), models[0](given))
    model = models[0]
    assert torch.equal(model(nc.rectilinear(given)), model(given))  # of a path its series are read
    assert model(given, at="knots").shape == (len(given.times), 2)
    assert model(given, at=times_within(nc.linear(given))).shape == (6, 6, 2)
    model(given, at="knots").square().sum().backward()
    assert model.encoder.layer.weight.grad.any()


def test_gradients_through_a_model():
    made, given = make("NeuralCDE", 1 + RAW, encoder="test mixed", hidden=3), series()[[0, 2]]
    weight = made.encoder.layer.weight.detach().clone().requires_grad_()

    def outputs(weight):
        return torch.func.functional_call(made, {"encoder.layer.weight": weight}, (given,))

    assert torch.autograd.gradcheck(outputs, (weight,), fast_mode=True)


def test_sizes_that_were_not_promised_are_named():
    made = encoder()
    made.outputs = 3
    with pytest.raises(ValueError, match=r"Mixed must return shape \(rows, outputs\) = \(18, 3\), got \(18, 2\)"):
        encoded_series(made, series())


def test_an_encoder_without_forward_says_what_to_write():
    class Empty(RowEncoder):
        outputs = 1

    with pytest.raises(NotImplementedError, match=r"Empty must define forward\(series\)"):
        encoded_series(Empty(), series())


def test_an_unknown_encoder_is_named():
    with pytest.raises(ValueError, match="there is no row encoder 'attention'"):
        nc.NeuralCDE(4, 2, encoder="attention")


def test_the_paper_s_gru_ode_has_no_encoder():
    with pytest.raises(ValueError, match="reads X itself and does not support an encoder"):
        nc.GRUODE(4, 2, variant="paper", encoder="test mixed")


@pytest.mark.parametrize("name", members(RowEncoder.registry))
def test_every_registered_encoder(name):
    """In a model: outputs alone and in a batch, in the type of the series."""
    given = raw_batch(torch.float32).with_channels()
    model = make("NeuralCDE", given.channels, encoder=name, dtype=torch.float32)
    outputs = model.eval()(given)
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(torch.cat([model(one) for one in given]), outputs)
