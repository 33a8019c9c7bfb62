"""Streams: row by row, a model says what it says about the whole series."""

import copy
import dataclasses
import pickle

import pytest
import torch
from model_cases import JUMPS, NAN, VARIANTS, make, raw_batch
from torch import nn

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.models import PathModel, Readout, RowEncoder, RowInputs, RowMLP
from ragged_cases import random_series
from solve_cases import on_engine

SCHEMES = {"linear": nc.Linear(), "hermite": nc.Hermite(), "rectilinear": nc.Rectilinear()}
POOLS = ["last", "mean", "both"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def stream(model, series, **options):
    """The outputs after every row, one row of all streams at a time, as rows of the series; and the final states."""
    static = series.static if model.static else None
    state = model.start(static, streams=len(series), **options)
    found, final = torch.full((len(series.times), model.outputs), torch.nan, dtype=series.dtype), {}
    alive = torch.arange(len(series))
    for step in range(int(series.lengths.max())):
        going = series.lengths[alive] > step
        alive, state = alive[going], state[going]
        row = series.offsets[alive] + step
        state = model.update(state, series.times[row], series.values[row])
        found[row] = model.output(state)
        ended = (series.lengths[alive] == step + 1).nonzero()[:, 0].tolist()
        final |= {int(alive[k]): state[k : k + 1] for k in ended}
    return found, final


def whole(model, series, scheme, counts=None):
    """The outputs at every row of the series, each that of the series up to it."""
    with torch.no_grad():
        return model(scheme.build(series.with_channels(counts=counts)), at="knots")


def same(found, expected, dtype=torch.float64):
    torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", VARIANTS)
def test_every_model_scheme_and_pooling(kind, scheme, pool, engine):
    series = raw_batch()
    model = make(kind, 4, static=2, pool=pool)
    found, final = stream(model, series, scheme=SCHEMES[scheme])
    same(found, whole(model, series, SCHEMES[scheme]))
    last = torch.cat([model.output(final[i]) for i in range(len(series))])
    same(last, model(SCHEMES[scheme].build(series.with_channels())))


@pytest.mark.parametrize("kind", VARIANTS)
def test_with_counts_and_steps_in_float32(kind, engine):
    series = random_series(3, count=20, dtype=torch.float32)
    for steps in (nc.AtKnots(3), nc.FixedSteps(0.4)):
        model = make(kind, 7, intensity=True, dtype=torch.float32)
        model.steps = steps
        found, _ = stream(model, series, scheme=nc.Linear(), counts="per_channel")
        same(found, whole(model, series, nc.Linear(), "per_channel"), torch.float32)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if "GRUODE paper" not in kind])
def test_with_the_encoder_and_the_readout_of_the_estimators(kind, scheme, dtype, engine):
    series = random_series(5, count=30, dtype=dtype, start=100.0)
    options = {"encoder": RowMLP.with_options(outputs=3, width=7), "readout": "summary", "scheme": scheme}
    model = make(kind, 4, dtype=dtype, pool="both", **options)
    given = series.with_channels()
    model.fit_inputs(given)
    model.eval()
    found, _ = stream(model, series)
    with torch.no_grad():
        expected = model(given, at="knots")
    same(found, expected, dtype)
    model.train()  # dropout is never applied on streams
    again, _ = stream(model, series)
    assert torch.equal(again, found)


THOUSAND = {
    dtype: random_series(11, count=1000, rows=(1, 7), channels=4, missing=0.5, dtype=dtype) for dtype in TOLERANCE
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", VARIANTS)
def test_a_thousand_random_series(kind, scheme):
    """Every model and scheme in both precisions, by itself, and with the encoder and the summary readout."""
    whole_model = {"encoder": "mlp", "readout": "summary", "scheme": scheme}
    for number, (dtype, series) in enumerate(THOUSAND.items()):
        for options in ({}, whole_model)[: 1 if "GRUODE paper" in kind else 2]:
            pool = POOLS[(len(kind) + len(scheme) + number + len(options)) % 3]
            model = make(kind, 5, dtype=dtype, pool=pool, **options).eval()
            if options:
                model.fit_inputs(series.with_channels())
            found, _ = stream(model, series, scheme=SCHEMES[scheme])
            same(found, whole(model, series, SCHEMES[scheme]), dtype)


def test_a_row_without_observations_is_a_look_at_that_time():
    series, model = raw_batch(), make("GRUD standard", 4, static=2, pool="mean")
    _, final = stream(model, series)
    for i, one in enumerate(series):
        later = float(one.times[-1]) + 0.7
        peeked = model.output(model.update(final[i], later, torch.full((1, 3), NAN, dtype=torch.float64)))
        same(peeked, model(nc.Linear().build(one.until(later).with_channels())))


def test_fields_of_time_and_times_far_from_zero():
    model = make("NeuralCDE", 4, pool="mean")
    field = model.field

    class Timed(nc.VectorField):
        def forward(self, t, z):
            return field(t, z) * (1 + t)[:, None, None]

    model.field = Timed()
    series = random_series(2, start=1.7e9)
    found, _ = stream(model, series)
    same(found, whole(model, series, nc.Linear()))


def test_states_are_tensors_that_are_never_changed_and_can_be_split_and_joined():
    model, series = make("NeuralCDE", 4), random_series(1, count=4, rows=(6, 6))
    state = model.start(streams=4)
    before = state.real.clone(), state.double.clone()
    row = series.offsets[:-1]
    after = model.update(state, series.times[row], series.values[row])
    assert torch.equal(state.real, before[0])
    assert torch.equal(state.double, before[1])
    parts = [
        model.update(state[k : k + 1], series.times[row][k : k + 1], series.values[row][k : k + 1]) for k in (2, 0)
    ]
    again = type(state).cat(parts)
    same(again.real, after.real[[2, 0]])
    same(again.double, after.double[[2, 0]])
    with pytest.raises(ValueError, match="not of one model"):
        type(state).cat([state, model.start()])


def test_states_can_be_copied_pickled_and_made_of_their_tensors():
    model = make("NeuralCDE", 4, pool="mean")
    state = model.update(model.start(streams=2), 0.0, torch.ones(2, 3))
    copied = copy.deepcopy(state)
    made = dataclasses.replace(model.start(), real=state.real, double=state.double)
    expected = model.output(model.update(state, 1.0, torch.zeros(2, 3)))
    for again in (copied, made):
        assert torch.equal(model.output(model.update(again, 1.0, torch.zeros(2, 3))), expected)
    other_model, other = pickle.loads(pickle.dumps((model, state)))
    assert torch.equal(other_model.output(other_model.update(other, 1.0, torch.zeros(2, 3))), expected)


def test_states_of_another_model_are_refused():
    """Their own model would run, and nobody would notice."""
    model, other = make("NeuralCDE", 4), make("NeuralCDE", 4)
    state = model.update(model.start(), 0.0, torch.ones(1, 3))
    with pytest.raises(ValueError, match="state is that of another model"):
        other.update(state, 1.0, torch.ones(1, 3))
    with pytest.raises(ValueError, match="state is that of another model"):
        other.output(state)


def test_a_million_streams_take_two_kilobytes_each():
    options = {"hidden": 32, "width": 32, "encoder": "mlp", "readout": "summary", "pool": "both"}
    state = nc.NeuralCDE(38, 1, **options).start(streams=10)
    assert (state.real.nbytes + state.double.nbytes) / 10 < 2200


def test_wrong_rows_are_refused():
    model = make("NeuralCDE", 4)
    state = model.start(streams=2)
    with pytest.raises(ValueError, match=r"x has shape \(2, 4\); expected \(streams, data channels\) = \(2, 3\)"):
        model.update(state, [0.0, 1.0], torch.zeros(2, 4))
    with pytest.raises(ValueError, match="a stream has no row yet"):
        model.output(state)
    state = model.update(state, [0.0, 1.0], torch.zeros(2, 3))
    for times in ([1.0, 1.0], [1.0, 0.5]):
        with pytest.raises(ValueError, match="the row of stream 1 is not later than its last one"):
            model.update(state, times, torch.zeros(2, 3))
    with pytest.raises(ValueError, match="t must be one finite time for each of the 2 streams"):
        model.update(state, [2.0, NAN], torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"static has shape \(1, 1\); expected \(streams, 0\)"):
        model.start(torch.zeros(1, 1))


class Sums(RowEncoder):
    def __init__(self, channels):
        super().__init__()
        self.outputs = channels

    def forward(self, series):
        return series.values.nan_to_num(0.0)


class Distance(Readout):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, seen):
        return self.linear(seen.state) + seen.path.at_rows()[seen.row].sum(-1, keepdim=True)


class Alone(PathModel):
    def trajectory(self, path, *, rows=False, times=None):
        raise AssertionError


def test_parts_that_read_whole_series_are_refused_by_name():
    with pytest.raises(ValueError, match=r"NaturalCubic\(\) cannot run on streams: its paths depend on later"):
        make("NeuralCDE", 4).start(scheme=nc.NaturalCubic())
    with pytest.raises(ValueError, match="NeuralCDE cannot run on streams: adaptive steps"):
        nc.NeuralCDE(4, 1, solver="dopri5", steps=nc.Adaptive()).start()
    with pytest.raises(ValueError, match=r"Sums cannot run on streams: it reads whole series. Define encode"):
        nc.NeuralCDE(4, 1, encoder=Sums).start()
    with pytest.raises(ValueError, match="Alone cannot run on streams: it computes its states from whole series"):
        Alone(4, 1, hidden=3).start()
    model = nc.NeuralCDE(4, 1, readout=Distance)
    state = model.update(model.start(), 0.0, torch.zeros(1, 3))
    with pytest.raises(AttributeError, match=r"a readout cannot use seen.path there; use seen.state"):
        model.output(state)


class OwnEncoder(RowEncoder):
    def __init__(self, channels):
        super().__init__()
        self.outputs, self.inputs = 2, RowInputs(channels - 1, features=["last", "observed"], hats=0)
        self.layer = nn.Linear(self.inputs.outputs, 2)

    def forward(self, series):
        return self.encode(self.inputs(series))

    def encode(self, known):
        return torch.sin(self.layer(known))


class Beside(Readout):
    def __init__(self, features, outputs, *, channels, static):
        super().__init__()
        self.linear = nn.Linear(features + channels + static, outputs)

    def forward(self, seen):
        return self.linear(torch.cat([seen.state, seen.values, seen.static], dim=-1))


@pytest.mark.parametrize("kind", ["NeuralCDE", *(f"{name} standard" for name in JUMPS)])
def test_parts_from_outside(kind, engine):
    series = raw_batch()
    model = make(kind, 4, static=2, encoder=OwnEncoder, readout=Beside, scheme="hermite")
    found, _ = stream(model, series)
    with torch.no_grad():
        same(found, model(series.with_channels(), at="knots"))


def test_scales_of_series_are_followed():
    series = random_series(4, count=5)
    scaled = nc.SeriesScaler().fit(series).transform(series)
    scaled = dataclasses.replace(scaled, scales=dataclasses.replace(scaled.scales, counts=(2.0, 3.0, 1.5)))
    model = make("NeuralCDE", 7)
    found, _ = stream(model, scaled, scheme=nc.Linear(), counts="per_channel", scales=scaled.scales)
    same(found, whole(model, scaled, nc.Linear(), "per_channel"))


@pytest.mark.parametrize("kind", VARIANTS)
def test_the_native_step_knows_every_model_and_follows_the_weights(kind, monkeypatch):
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    model, series = make(kind, 4, pool="both"), random_series(1, count=3, rows=(4, 4))
    state = model.start(streams=3)
    assert state.stepper.engine.startswith("native")
    for step in range(3):
        row = series.offsets[:-1] + step
        if step == 1:
            with torch.no_grad():
                model.readout.linear.bias += 1.0
        given = state, series.times[row], series.values[row]
        state = model.update(*given)
        found = model.output(state)
        on_engine(monkeypatch, "torch")
        assert state.stepper.engine.startswith("torch")
        plain = model.update(*given)
        for part in ("real", "double"):
            same(getattr(state, part), getattr(plain, part))
        same(found, model.output(plain))
        monkeypatch.undo()


def test_parts_that_the_native_step_does_not_know_are_named():
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    model = make("NeuralCDE", 4, static=2, encoder=OwnEncoder, readout=Beside)
    assert model.start().stepper.engine == "torch: OwnEncoder is not an encoder that the native step knows"
    model = make("NeuralCDE", 4)
    model.field.register_forward_hook(lambda *_: None)
    assert model.start().stepper.engine == "torch: MLPField has hooks"


def test_a_stream_does_not_depend_on_its_batch_mates_or_the_number_of_threads():
    model, series = make("NeuralCDE", 4, pool="both"), random_series(1, count=100, rows=(3, 3))
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(stream(model, series)[0])
        assert torch.equal(*found)
    finally:
        torch.set_num_threads(before)
    alone, _ = stream(model, series[7])
    if kernels is not None:
        assert torch.equal(alone, found[0][21:24])


def test_gaps_of_too_many_steps_are_refused():
    model = make("GRUODE standard", 4)
    model.steps = nc.FixedSteps(1e-3)
    state = model.update(model.start(), 0.0, torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"a gap of 1000 takes 1,000,000 steps with FixedSteps\(size=0.001\)"):
        model.update(state, 1000.0, torch.zeros(1, 3))
