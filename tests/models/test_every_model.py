"""Conformance suite for every registered model: states, gradients and saving."""

import dataclasses
import json

import pytest
import torch
from model_cases import MODELS, VARIANTS, gradients_of, make, path_of, raw_batch, times_within
from sklearn.base import clone

from neuralcde.contracts import Recipe
from neuralcde.models import PathModel
from registered import build


@pytest.mark.parametrize("kind", VARIANTS)
def test_states_that_were_asked_for(kind, engine):
    """The last state, those at rows and those at times agree, whichever were asked for together."""
    path = path_of(raw_batch())
    model = make(kind, path.channels)
    offsets, times = path.series.offsets, times_within(path, (0.0, 0.4, 1.0))
    last = model.trajectory(path).last
    assert last.shape == (len(path), model.hidden)
    rows, at_times, both = (
        model.trajectory(path, rows=rows, times=asked) for rows, asked in ((True, None), (False, times), (True, times))
    )
    for found in (rows, both):
        torch.testing.assert_close(found.at_rows[offsets[1:] - 1], last, rtol=1e-13, atol=1e-13)
        assert len(found.at_rows) == len(path.knots)
    for found in (at_times, both):
        torch.testing.assert_close(found.at_times[:, -1], last, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(found.at_times[:, 0], rows.at_rows[offsets[:-1]], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(both.at_times, at_times.at_times, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", VARIANTS)
def test_gradients(kind, engine):
    """Of the outputs at rows, in the observations; by small differences."""
    series = raw_batch()[[0, 2]]
    observed = series.observed
    model = make(kind, path_of(series).channels, hidden=3)

    def outputs(observations):
        values = series.values.masked_scatter(observed, observations)
        return model(path_of(dataclasses.replace(series, values=values)), at="knots")

    assert torch.autograd.gradcheck(outputs, (series.values[observed].requires_grad_(),), fast_mode=True, atol=1e-6)


@pytest.mark.parametrize("kind", VARIANTS)
def test_everything_learns(kind):
    """No parameter is left out of the outputs; those that the paper penalises are among them."""
    path = path_of(raw_batch())
    model = make(kind, path.channels, static=2)
    gradients = gradients_of(model(path, at="knots"), dict(model.named_parameters()))
    assert [name for name, gradient in gradients.items() if not gradient.any()] == []
    own = {id(p) for p in model.parameters()}
    assert model.penalised()
    assert {id(p) for p in model.penalised()} <= own


@pytest.mark.parametrize("name", MODELS)
def test_saved_cloned_and_found_by_name(name):
    """By its recipe and its weights."""
    path = path_of(raw_batch(torch.float32))
    recipe = Recipe(MODELS[name], hidden=4, pool="mean")
    model = build(recipe, path.channels, 2)
    config = json.loads(json.dumps(recipe.to_config(PathModel.registry)))
    for again in (Recipe.of(config, PathModel.registry), clone(recipe)):
        assert again == recipe
        other = again.build(path.channels, 2)
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(path), model(path))
    assert PathModel.registry[config["name"]] is MODELS[name]


@pytest.mark.parametrize("name", MODELS)
def test_takes_series_in_place_of_paths(name):
    series = raw_batch(torch.float32).with_channels()
    model = MODELS[name](series.channels, 2, hidden=4, scheme="rectilinear")
    assert torch.equal(model(series, at="knots"), model(model.scheme.build(series), at="knots"))
