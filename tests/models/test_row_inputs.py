"""What encoders and readouts know at each row: families by name, the clock, and nothing from later rows."""

import dataclasses

import pytest
import torch
from model_cases import raw_batch
from torch import nn

import neuralcde as nc
from neuralcde.models import RowInputs, RowMLP, SummaryReadout, drawing_from
from neuralcde.models.dropout import Dropout
from neuralcde.series.row_features import FAMILIES, INTENSITY_FAMILIES, row_features


def prepared():
    return raw_batch().with_channels()


def test_families_by_name_then_the_clock():
    series = prepared()
    inputs = RowInputs(3, features=("elapsed", "last"), hats=2).double()
    inputs.fit(series)
    found = inputs(series)
    assert found.shape == (len(series.times), inputs.outputs) == (len(series.times), 2 * 3 + 1 + 2)
    torch.testing.assert_close(
        found[:, :6], row_features(series.times, series.values[:, 1:], series.offsets, ("elapsed", "last"))
    )
    since = torch.cat([one.times - one.times[0] for one in series])
    torch.testing.assert_close(found[:, 6], since / since.max())
    torch.testing.assert_close(found[:, 7:].sum(1), torch.full_like(since, 2**0.5))  # hat functions sum to one


def test_without_intensity_nothing_tells_when_something_was_measured():
    chosen = RowInputs(3, intensity=False).families
    assert not set(chosen) & set(INTENSITY_FAMILIES)
    assert set(chosen) | set(INTENSITY_FAMILIES) == set(FAMILIES)
    assert RowInputs(3, features=("count", "last"), intensity=False).families == ("last",)
    with pytest.raises(ValueError, match=r"all tell when something was measured, .* add a family of values"):
        RowInputs(3, features=("count", "elapsed"), intensity=False)


def test_later_rows_change_nothing():
    series = prepared()
    inputs = RowInputs(3).double()
    inputs.fit(series)
    found, one = inputs(series), series[3]
    for rows in range(1, len(one.times)):
        cut = nc.IrregularSeries.from_list([(one.times[:rows], one.values[:rows, 1:])], dtype=torch.float64)
        start = int(series.offsets[3])
        torch.testing.assert_close(inputs(cut.with_channels()), found[start : start + rows])


def test_a_clock_that_stands_still():
    """Series of one row: no time passes, and nothing is divided by zero."""
    series = nc.IrregularSeries.from_list([([3.0], [[1.0]]), ([7.0], [[2.0]])]).with_channels()
    inputs = RowInputs(1, hats=4)
    inputs.fit(series)
    assert inputs(series).isfinite().all()
    assert inputs.knots.diff().min() > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("last", "features must be a list of names, got 'last'"),
        (("last", "median"), "features has the unknown name 'median'; known: last, mean"),
        (("last", "last"), "features has 'last' twice"),
    ],
)
def test_wrong_families_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        RowInputs(3, features=wrong)


def test_no_families_leave_the_clock():
    inputs = RowInputs(3, features=(), hats=2)
    assert inputs(prepared()).shape[1] == inputs.outputs == 3


@pytest.mark.parametrize("pool", ["last", "mean", "both"])
def test_encoder_and_readout_do_not_look_ahead(pool):
    """At rows: the outputs of a series that is cut after a row are those of the whole series up to it."""
    series = prepared()
    torch.manual_seed(0)
    model = nc.NeuralCDE(4, 2, hidden=3, static=2, encoder=RowMLP, readout=SummaryReadout, pool=pool).double().eval()
    model.fit_inputs(series, per_row=True)
    found = model(series, at="knots").detach()
    last = series.offsets[1:] - 1
    torch.testing.assert_close(model(series), found[last])
    one, start = raw_batch()[3], int(series.offsets[3])
    for rows in range(1, len(one.times)):
        pair = (one.times[:rows], one.values[:rows])
        cut = nc.IrregularSeries.from_list([pair], static=one.static, dtype=torch.float64).with_channels()
        torch.testing.assert_close(model(cut)[0], found[start + rows - 1])


def test_alone_and_in_a_batch_the_same_bits():
    series = raw_batch(torch.float32).with_channels()
    torch.manual_seed(0)
    model = nc.NeuralCDE(4, 1, hidden=3, static=2, encoder=RowMLP, readout=SummaryReadout, pool="both").eval()
    model.fit_inputs(series)
    with torch.no_grad():
        together = model(series)
        for i, one in enumerate(series):
            assert torch.equal(model(one)[0], together[i])


def test_dropout_in_training_alone():
    series = prepared()
    torch.manual_seed(0)
    model = nc.NeuralCDE(4, 1, hidden=3, static=2, encoder=RowMLP, readout=SummaryReadout, pool="both").double()
    model.fit_inputs(series)
    assert not torch.equal(model(series), model(series))
    model.eval()
    assert torch.equal(model(series), model(series))


def test_starts_at_the_prior_for_every_series():
    series = prepared()
    model = nc.NeuralCDE(4, 2, hidden=3, static=2, encoder=RowMLP, readout=SummaryReadout).double()
    model.readout.start_at(torch.tensor([0.5, -2.0], dtype=torch.float64))
    torch.testing.assert_close(model(series), torch.tensor([[0.5, -2.0]], dtype=torch.float64).expand(6, 2))


def test_dropout_draws_from_the_generator_it_is_given():
    layer, values = Dropout(0.25), torch.ones(10_000)
    drawn = []
    for seed in (0, 0, 1):
        with drawing_from(nn.Sequential(layer), torch.Generator().manual_seed(seed)):
            drawn.append(layer(values))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    torch.testing.assert_close(drawn[0].unique(), torch.tensor([0.0, 4 / 3]))
    assert abs(float((drawn[0] == 0).float().mean()) - 0.25) < 0.02
    assert torch.equal(layer.eval()(values), values)
    with pytest.raises(ValueError, match=r"dropout must be a number in \[0, 1\), got 1.0"):
        Dropout(1.0)


def test_times_that_differ_by_rounding_alone_make_one_knot():
    times = torch.tensor([0.0, 0.1, 0.1 + 1e-12, 0.3], dtype=torch.float64)
    series = nc.IrregularSeries.from_list([(times, torch.zeros(4, 1))]).with_channels()
    inputs = RowInputs(1, hats=8)
    inputs.fit(series)
    assert inputs.knots.diff().min() > 0
    assert inputs(series).isfinite().all()


def test_the_clock_has_the_origin_of_the_table_or_of_the_series():
    """Hours since admission count from the admission; dates count from the first row."""
    hours = nc.IrregularSeries.from_list([([1.0, 5.0], [[0.0], [1.0]]), ([3.0, 9.0], [[0.0], [1.0]])]).with_channels()
    inputs = RowInputs(1, features=("last",), hats=0)
    inputs.fit(hours)
    assert inputs(hours)[:, -1].mul(9).tolist() == pytest.approx([1, 5, 3, 9])
    dates = dataclasses.replace(hours, times=hours.times + 1e6)
    inputs.fit(dates)
    assert inputs(dates)[:, -1].mul(6).tolist() == pytest.approx([0, 4, 0, 6])
