"""With pool="mean" the output at a time is that of the series cut off at that time."""

import dataclasses

import pytest
import torch
from model_cases import MODELS

import neuralcde as nc


def ragged_series():
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for length in (5, 1, 3, 8):
        times = (0.2 + torch.rand(length, generator=generator, dtype=torch.float64)).cumsum(0) - 3.0
        pairs.append((times, torch.randn(length, 2, generator=generator, dtype=torch.float64)))
    return nc.IrregularSeries.from_list(pairs, dtype=torch.float64)


def until(series, position, rows):
    """The first rows of one series, as a new series."""
    one = series[position]
    return nc.IrregularSeries.from_list([(one.times[:rows], one.values[:rows])], dtype=torch.float64)


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    return MODELS[request.param](3, 2, hidden=4, pool="mean").double()


def test_at_rows(model):
    series = ragged_series()
    outputs = model(nc.linear(series.with_channels()), at="knots")
    alone = [
        model(nc.linear(until(series, i, k + 1).with_channels()))
        for i in range(len(series))
        for k in range(int(series.lengths[i]))
    ]
    torch.testing.assert_close(outputs, torch.cat(alone))


def test_at_times_that_are_rows(model):
    series = ragged_series()
    path = nc.linear(series.with_channels())
    last = path.interval[:, 1:]
    torch.testing.assert_close(model(path, at=last)[:, 0], model(path))
    own = series[0].times
    at_rows = model(nc.linear(series[0].with_channels()), at="knots")
    torch.testing.assert_close(model(nc.linear(series[0].with_channels()), at=own)[0], at_rows)


def test_between_rows_of_a_linear_path():
    torch.manual_seed(0)
    model = nc.NeuralCDE(3, 2, hidden=4, pool="mean").double()
    series = ragged_series()[3]
    t = series.times[2] + 0.3 * (series.times[3] - series.times[2])
    between = series.values[2] + 0.3 * (series.values[3] - series.values[2])
    times = torch.cat([series.times[:3], t[None]])
    ends_there = nc.IrregularSeries.from_list(
        [(times, torch.cat([series.values[:3], between[None]]))], dtype=torch.float64
    )
    path = nc.linear(series.with_channels())
    torch.testing.assert_close(model(path, at=t[None])[0], model(nc.linear(ends_there.with_channels())))


def test_gradients_flow_through_the_mean():
    torch.manual_seed(0)
    model = nc.NeuralCDE(3, 1, hidden=3, width=4, depth=1, pool="mean").double()
    series = ragged_series().with_channels()
    at = series.times[series.offsets[:-1]][:, None]

    def outputs(values):
        path = nc.linear(dataclasses.replace(series, values=values))
        return model(path, at="knots"), model(path, at=at), model(path, at=path.interval[:, 1:] * 0.999 + 0.001 * at)

    assert torch.autograd.gradcheck(outputs, (series.values.clone().requires_grad_(),), atol=1e-6)
