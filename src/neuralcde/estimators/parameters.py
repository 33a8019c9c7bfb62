"""The options of the estimators, and the check of their values that `fit` starts with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..contracts import (
    Argument,
    ArgumentError,
    Choice,
    Either,
    Flag,
    Instance,
    Nothing,
    Number,
    Option,
    PartOf,
    Whole,
    check_options,
)
from ..solve import solvers
from ..train import TrainingSettings
from ..train.settings import OPTIONS as TRAINING
from .members import CHANNELS_TO_DROP, MANY_SERIES, MEMBERS_FOR_MANY
from .modules import SERIES_FOR_SUMMARIES
from .parts import KINDS, LARGEST, LARGEST_OPTION, check_recipes

MOST_MEMBERS = 100

# In the order of the constructors. Training options are declared in train/settings.py; some defaults differ here.
OPTIONS = {
    "model": Option(
        PartOf(KINDS["model"]),
        "neural_cde",
        "Model, one of the five by name.",
        'Or a PathModel of your own, as a class or as a recipe: `nc.ODERNN.with_options(variant="paper")`.',
    ),
    "hidden": Option(Whole(1, LARGEST_OPTION), 32, "Size of the state."),
    "width": Option(
        Whole(1, LARGEST_OPTION),
        32,
        'Width of the hidden layers in the network of the field, for "neural_cde" and "ode_rnn".',
    ),
    "depth": Option(
        Either(Choice("auto"), Whole(1, LARGEST["depth"])),
        "auto",
        'Number of hidden layers in the network of the field, for "neural_cde" and "ode_rnn". "auto": 2 with an '
        "encoder, else 3.",
    ),
    "field": Option(
        PartOf(KINDS["field"]),
        "mlp",
        'Vector field of "neural_cde". "low_rank" is cheaper for many channels.',
        "By name, as a class or as a recipe: `nc.LowRankField.with_options(rank=4)`.",
    ),
    "path": Option(
        PartOf(KINDS["path"]),
        "linear",
        'Interpolation scheme of the control path. "linear" and "hermite" interpolate forward-filled values.',
        "By name or as an object: `nc.Smoothing(penalty=10)`.",
    ),
    "encoder": Option(
        Either(Choice("auto"), Nothing("none: the path interpolates the values themselves"), PartOf(KINDS["encoder"])),
        "auto",
        "Network that turns what is known at each row (values carried forward, time since the last observation, "
        "counts, running statistics, clock) into the few features that the path interpolates. "
        '"auto": "mlp" if half of the values are missing.',
        'By name or as a recipe: `nc.RowMLP.with_options(features=("last", "elapsed"))`.',
    ),
    "readout": Option(
        Either(Choice("auto"), PartOf(KINDS["readout"])),
        "auto",
        "Map from the state to the output. "
        f'"auto": "summary" with an encoder and at least {SERIES_FOR_SUMMARIES} training series, else "linear".',
        "By name or as a recipe: `nc.SummaryReadout.with_options(bins=16)`.",
    ),
    "scale": Option(
        Choice("auto", "standard", "robust"),
        "auto",
        'How values and static features are scaled. "standard": to mean 0 and deviation 1. "robust": through their '
        "training quantiles to about a normal distribution, so that a skewed channel is spread out and extreme values "
        'stay bounded. With both, a value far outside the usual range of its channel counts as not observed. "auto": '
        '"robust" with an encoder, else "standard".',
    ),
    "intensity": Option(
        Either(Choice("auto"), Flag()),
        "auto",
        "Whether the model sees when values were observed (the observational intensity): through an additional "
        "channel per channel that counts its observations, or with an encoder through features of each row. "
        '"auto": only if values are missing.',
    ),
    "per_row": Option(
        Flag(),
        False,
        "Whether y has one target per observation instead of one per series. Predictions are then per observation; "
        'on causal paths (all but "natural_cubic" and "smoothing") they depend on the past alone.',
    ),
    "pool": Option(
        Choice("last", "mean", "both"),
        "both",
        "State that the output is read off: the last state, the mean of the states over time, or both. For an output "
        "at a row or at a given time, the mean is over the states up to it.",
    ),
    "task": Option(
        Either(Choice("auto"), PartOf(KINDS["task"])),
        "auto",
        "Task that defines loss, decoding and metrics: by name, or a Task as an object, a class or a recipe. "
        '"auto": inferred from y.',
    ),
    "members": Option(
        Either(Choice("auto"), Whole(1, MOST_MEMBERS)),
        "auto",
        "Number of models whose outputs are averaged. They differ by their seed, and by their validation series where "
        f'these are split off. They are trained in parallel, one per core. "auto": {MEMBERS_FOR_MANY} with an encoder '
        f"and at least {MANY_SERIES:,} series, else 1.",
    ),
    "boosting": Option(
        Flag(),
        False,
        "Whether to average the models with gradient boosting on summaries of the last row (last value, mean, "
        "extremes, counts, ...), static features and time. It has the same weight as all the models together.",
    ),
    "distillation": Option(
        Either(Choice("auto"), Number(0.0, 1.0)),
        "auto",
        "Share of the training loss that is on predictions in place of targets: those of gradient boosting on the same "
        "summaries as for `boosting`, fitted without the series that it predicts, in five folds. 0 for none. It needs "
        'one target per series. "auto": the fraction of the loss that these predictions explain, with an encoder and '
        f"at least {SERIES_FOR_SUMMARIES} training series; otherwise 0.",
    ),
    "solver": Option(
        Either(Choice("auto"), PartOf(solvers)),
        "auto",
        'Solver of the differential equation. "auto": "heun" with an encoder, else "rk4".',
    ),
    "substeps": Option(Whole(1, LARGEST["substeps"]), 1, "Number of steps between two observations."),
    "max_epochs": TRAINING["max_epochs"],
    "batch_size": replace(
        TRAINING["batch_size"],
        kind=Either(Choice("auto"), TRAINING["batch_size"].kind),
        default="auto",
        help=f'{TRAINING["batch_size"].help} "auto": a sixtieth of the training series, from 8 to 256; from 16 on '
        "rounded down to a multiple of 16.",
    ),
    "learning_rate": replace(
        TRAINING["learning_rate"],
        kind=Either(Choice("auto"), TRAINING["learning_rate"].kind),
        default="auto",
        help=f'{TRAINING["learning_rate"].help} "auto": 0.001 with an encoder, else 0.003.',
    ),
    "readout_lr_scale": TRAINING["readout_lr_scale"],
    "weight_penalty": TRAINING["weight_penalty"],
    "weight_decay": replace(
        TRAINING["weight_decay"],
        kind=Either(Choice("auto"), TRAINING["weight_decay"].kind),
        default="auto",
        help=f'{TRAINING["weight_decay"].help} "auto": 1 with an encoder and at least '
        f"{SERIES_FOR_SUMMARIES} training series, else 0.05.",
    ),
    "gradient_clip": replace(TRAINING["gradient_clip"], default=1.0),
    "schedule": replace(TRAINING["schedule"], default="cosine"),
    "patience": replace(
        TRAINING["patience"],
        kind=Either(Choice("auto"), TRAINING["patience"].kind),
        default="auto",
        help=f'{TRAINING["patience"].help} "auto": 30,000 divided by the number of training series, from 3 to 30.',
    ),
    "ema_decay": replace(TRAINING["ema_decay"], default=0.99),
    "channel_dropout": replace(
        TRAINING["channel_dropout"],
        kind=Either(Choice("auto"), TRAINING["channel_dropout"].kind),
        default="auto",
        help=f'{TRAINING["channel_dropout"].help} "auto": 0.2 with an encoder, at least '
        f"{SERIES_FOR_SUMMARIES} training series and {CHANNELS_TO_DROP} channels, else 0.",
    ),
    "channel_jitter": TRAINING["channel_jitter"],
    "row_dropout": TRAINING["row_dropout"],
    "auxiliary_weight": TRAINING["auxiliary_weight"],
    "average_epochs": replace(TRAINING["average_epochs"], default=5),
    "monitor": TRAINING["monitor"],
    "rescale_outputs": replace(TRAINING["rescale_outputs"], default=True),
    "validation_fraction": Option(
        Number(0.0, 1.0, open_high=True),
        0.15,
        "Fraction of the series that is held out for validation, to select the best epoch and to stop training early. "
        "If that is fewer than eight series, all series are used for training and the last epoch is kept.",
    ),
    "device": Option(
        Instance((str, torch.device), "the name of a device", read_as=str),
        "cpu",
        'Device of the computation: "cpu", "cuda", ... Under torchrun, "cuda" is the device of each process.',
    ),
    "random_state": Option(
        Either(Nothing(), Whole(0, 2**32 - 1), Instance(np.random.RandomState, "a numpy.random.RandomState")),
        None,
        "Seed of the initial weights, the validation split and the training; the same integer gives the same results.",
    ),
    "verbose": replace(TRAINING["verbose"], default=0),
}


CHOSEN_BY_FIT = ("batch_size", "learning_rate", "weight_decay", "patience", "channel_dropout")


def check_parameters(options: Mapping[str, Option], given: Mapping[str, Any]) -> TrainingSettings:
    """Check the parameters and return the settings of the training, with their own defaults in place of "auto"."""
    check_options(options, given)
    check_recipes(given)
    check_device(given["device"])
    training = {name: given[name] for name in options if name in TRAINING}
    return TrainingSettings(**{name: value for name, value in training.items() if not _automatic(value, name)})


def _automatic(value: Any, name: str) -> bool:
    """Whether `fit` chooses this training option by the data."""
    return name in CHOSEN_BY_FIT and isinstance(value, str)


def check_device(device: Any) -> None:
    """Refuse a device that torch cannot use."""
    OPTIONS["device"].check("device", device)
    name, cpu = Argument("device", str(device)), Argument("device", "cpu")
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise ArgumentError(name, ", but torch finds no GPU here; use ", cpu, ".")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as reason:
        raise ArgumentError(name, f" cannot be used: {str(reason).splitlines()[0]}; use ", cpu, ".") from reason
