"""The numbers of parameters of the models in the paper's experiments are exactly those that it reports."""

import pytest
from model_cases import MODELS

import neuralcde as nc

EXPERIMENTS = {
    "CharacterTrajectories": {
        "all": {"channels": 4, "outputs": 20},
        "NeuralCDE": {"hidden": 32, "width": 32, "depth": 3},
        "ODERNN": {"hidden": 32, "width": 32, "depth": 3},
        "GRU": {"hidden": 47},
    },
    "sepsis, intensity": {
        "all": {"channels": 69, "outputs": 1, "static": 7, "initial": "static"},
        "NeuralCDE": {"hidden": 49, "width": 49, "depth": 4},
        "ODERNN": {"hidden": 128, "width": 128, "depth": 4},
        "GRU": {"hidden": 187},
    },
    "sepsis": {
        "all": {"channels": 35, "outputs": 1, "static": 5, "initial": "static"},
        "NeuralCDE": {"hidden": 49, "width": 49, "depth": 4},
        "ODERNN": {"hidden": 128, "width": 128, "depth": 4},
        "GRU": {"hidden": 187},
    },
    "speech commands": {
        "all": {"channels": 21, "outputs": 10},
        "NeuralCDE": {"hidden": 90, "width": 40, "depth": 4},
        "ODERNN": {"hidden": 128, "width": 64, "depth": 4},
        "GRU": {"hidden": 160},
    },
}
PAPER = {
    "CharacterTrajectories": {"NeuralCDE": 8212, "ODERNN": 8436, "GRUD": 8386, "GRUDeltaT": 8292, "GRUODE": 8372},
    "sepsis, intensity": {
        "NeuralCDE": 193541,
        "ODERNN": 194049,
        "GRUD": 195407,
        "GRUDeltaT": 195033,
        "GRUODE": 194541,
    },
    "sepsis": {"NeuralCDE": 109729, "ODERNN": 180097, "GRUD": 175260, "GRUDeltaT": 174886, "GRUODE": 174921},
    "speech commands": {"NeuralCDE": 88940, "ODERNN": 87946, "GRUD": 89290, "GRUDeltaT": 88970, "GRUODE": 89180},
}
STANDARD = {
    "CharacterTrajectories": {"NeuralCDE": 8212, "ODERNN": 8532, "GRUD": 8627, "GRUDeltaT": 8433, "GRUODE": 8292},
    "sepsis, intensity": {
        "NeuralCDE": 193541,
        "ODERNN": 194049,
        "GRUD": 201646,
        "GRUDeltaT": 195033,
        "GRUODE": 194472,
    },
    "sepsis": {"NeuralCDE": 109729, "ODERNN": 180481, "GRUD": 182060, "GRUDeltaT": 175447, "GRUODE": 174886},
    "speech commands": {"NeuralCDE": 88940, "ODERNN": 88330, "GRUD": 92850, "GRUDeltaT": 89450, "GRUODE": 88970},
}


NAMES = list(PAPER["sepsis"])


def built(name, experiment, variant):
    options = EXPERIMENTS[experiment]["all"] | EXPERIMENTS[experiment].get(name, EXPERIMENTS[experiment]["GRU"])
    if name != "NeuralCDE":
        options["variant"] = variant
    if name not in ("NeuralCDE", "GRUODE"):
        options["intensity"] = experiment.endswith("intensity")
    return MODELS[name](**options)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_paper_s_variant(experiment, name):
    assert parameters(built(name, experiment, "paper")) == PAPER[experiment][name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_standard_variant(experiment, name):
    assert parameters(built(name, experiment, "standard")) == STANDARD[experiment][name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_what_the_standard_variant_adds(experiment, name):
    """Part by part: a separate input for the gap, GRU-D's gaps and decay per channel, GRU-ODE's readout without X."""
    model, sizes = built(name, experiment, "standard"), EXPERIMENTS[experiment]["all"]
    intensity = experiment.endswith("intensity")
    hidden, data = model.hidden, (sizes["channels"] - 1) // (2 if intensity else 1)
    gap_input = 0 if intensity else 3 * hidden
    added = {
        "NeuralCDE": 0,
        "GRUODE": -sizes["outputs"] * sizes["channels"],
        "GRUDeltaT": gap_input,
        "ODERNN": gap_input,
        "GRUD": gap_input + hidden * (data - 1) + 2 * data,
    }
    assert parameters(model) - PAPER[experiment][name] == added[name]


def test_sizes_without_options():
    """The default sizes are those of the CharacterTrajectories experiment."""
    assert parameters(nc.NeuralCDE(4, 20)) == 8212
    assert parameters(nc.ODERNN(4, 20, variant="paper")) == 8436
    assert parameters(nc.GRUD(4, 20, variant="paper")) == 8386
    assert parameters(nc.GRUDeltaT(4, 20, variant="paper")) == 8292
