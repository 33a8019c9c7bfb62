"""Paths and models built from settings, and model sizes with matching numbers of parameters."""

from __future__ import annotations

import itertools
from typing import Any

import neuralcde as nc
from neuralcde.models import PathModel

from .experiment import Experiment, Settings, merged

# Scheme names in recorded settings that differ from those of the package, whose paths are forward-filled by default.
RECORDED_SCHEMES = {
    "linear": nc.Linear(fill="interpolate"),
    "hermite": nc.Hermite(fill="interpolate"),
    "forward": nc.Linear(fill="forward"),
}


def make_path(series: nc.IrregularSeries, settings: Settings) -> nc.ControlPath:
    """The path of series, which must have a time channel."""
    name = settings["path"]["scheme"]
    return nc.PathScheme.of(RECORDED_SCHEMES.get(name, name)).build(series)


def make_model(name: str, settings: Settings, **shape: int) -> PathModel:
    """A model for paths of this shape: channels, outputs, static features.

    `kind` among its options is the registered name of the model, where `name` is another one.
    """
    options = dict(settings["model"])
    steps = options.pop("steps", None)
    if steps is not None:
        options["steps"] = nc.AtKnots() if steps == "knots" else nc.FixedSteps(steps)
    kind: Any = PathModel.registry[options.pop("kind", name)]
    model: PathModel = kind(**shape, **options)
    return model


def parameters(model: PathModel) -> int:
    """Number of parameters of a model."""
    return sum(p.numel() for p in model.parameters())


def matched(experiment: Experiment, name: str, like: Settings) -> Settings:
    """The settings of a model with the largest state that has no more parameters than the searched model.

    `like` are the settings of the searched model. The field, if there is one, has the same depth, and its width is
    proportional to the state.
    """
    column = experiment.config["search"]["column"]
    shape, size = experiment.shape(column), like["model"]
    most = parameters(make_model(experiment.config["search"]["model"], like, **shape))
    own = experiment.settings(name, experiment.config["search"]["common"], column=column)
    own = merged(own, {"training": like["training"]})
    best = None
    for hidden in itertools.count(1):
        sizes = {"hidden": hidden}
        if "width" in own["model"]:
            sizes |= {"width": max(1, round(hidden * size["width"] / size["hidden"])), "depth": size["depth"]}
        settings = merged(own, {"model": sizes})
        if best is not None and parameters(make_model(name, settings, **shape)) > most:
            return best
        best = settings
    raise AssertionError  # unreachable: the loop only ends by returning
