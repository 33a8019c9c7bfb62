"""How a model is trained."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..tasks import is_finite

Schedule = Literal["plateau", "cosine", "constant"]


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained: Adam, with what the paper and noisy labels ask for.

    Parameters
    ----------
    max_epochs
        Passes over the training data, at most.
    batch_size
        Series in a step.
    learning_rate
        Of Adam.
    readout_lr_scale
        Factor on the learning rate of the readout, a real rate of its own (section 6.2).
    weight_penalty
        Times the sum of the norms of the tensors that the paper penalises: those of the field, or of everything but
        the initial network in models that jump (appendix D.1); added to the loss of training.
    weight_decay
        Decoupled from the loss (AdamW).
    gradient_clip
        Largest norm of the gradient; None for any.
    schedule
        "plateau": the rate is cut by `plateau_factor` after `plateau_patience` epochs without a better validation
        loss. "cosine": down to zero over `max_epochs`. "constant".
    patience
        Epochs without a better validation metric before training stops; None for never.
    ema_decay
        Decay of a moving average of the weights, which then is the model; 0 for none. Smaller in the first steps, so that the
        initial weights are soon forgotten.
    channel_dropout
        Share of data channels that a training series loses in a step, as if they had never been observed.
    channel_jitter
        Standard deviation of the factors near 1 that multiply every data channel of a training series and its time
        channel, drawn anew in every step: the same series a little larger or smaller and, where the model sees time
        as a channel, faster or slower.
    skipped_in_a_row
        So many batches without a finite loss, one after the other, stop the training.
    seed
        Of the order of the batches and of what is dropped or jittered.
    verbose
        0: silent. 1: a progress bar on a terminal, a line every two seconds elsewhere.
    """

    max_epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3
    readout_lr_scale: float = 1.0
    weight_penalty: float = 0.0
    weight_decay: float = 0.0
    gradient_clip: float | None = None
    schedule: Schedule = "plateau"
    plateau_factor: float = 0.1
    plateau_patience: int = 10
    patience: int | None = 30
    ema_decay: float = 0.0
    channel_dropout: float = 0.0
    channel_jitter: float = 0.0
    skipped_in_a_row: int = 5
    seed: int = 0
    verbose: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # as searches give them; checkpoints hold plain numbers alone
                object.__setattr__(self, name, value.item())
        for name in ("max_epochs", "batch_size", "skipped_in_a_row"):
            check_integer(name, getattr(self, name), low=1)
        for name in ("learning_rate", "readout_lr_scale", "weight_penalty", "weight_decay"):
            check_number(name, getattr(self, name))
        for name in ("ema_decay", "channel_dropout", "channel_jitter", "plateau_factor"):
            check_number(name, getattr(self, name), below=1.0)
        check_integer("plateau_patience", self.plateau_patience, low=0)
        check_integer("seed", self.seed, low=0, high=2**32 - 1)
        if not isinstance(self.verbose, bool):
            check_integer("verbose", self.verbose, low=0)
        if self.patience is not None:
            check_integer("patience", self.patience, low=1, otherwise=", or None for never")
        endless = isinstance(self.gradient_clip, float) and self.gradient_clip == math.inf
        if (
            self.gradient_clip is not None
            and not endless
            and not (is_finite(self.gradient_clip) and self.gradient_clip > 0)
        ):
            raise ValueError(
                f"gradient_clip must be a positive number, or None for any gradient, got {_short(self.gradient_clip)}."
            )
        check_choice("schedule", self.schedule, ("plateau", "cosine", "constant"))


def check_integer(name: str, value: Any, *, low: int, high: int | None = None, otherwise: str = "") -> None:
    """Refuse what is not a whole number in [low, high]; a truth value is none."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low or (high and value > high):
        wanted = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
        raise ValueError(f"{name} must be {wanted}{otherwise}, got {_short(value)}.")


def check_number(name: str, value: Any, *, below: float = math.inf) -> None:
    """Refuse what is not a number in [0, below)."""
    if not is_finite(value) or not 0 <= value < below:
        raise ValueError(f"{name} must be a number in [0, {below:g}), got {_short(value)}.")


def check_choice(name: str, value: Any, choices: Iterable[str], otherwise: str = "") -> None:
    """Refuse what is not one of these names; the error also says what else there is."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(filter(None, (*map(repr, choices), otherwise)))
        raise ValueError(f"{name}={_short(value)} is not one of {known}.")


def _short(value: Any) -> str:
    """The value as Python writes it; of a long list its beginning."""
    return reprlib.repr(value)
