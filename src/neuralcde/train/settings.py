"""How a model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

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
    readout_rate
        Factor on the learning rate of the readout, a real rate of its own (section 6.2).
    weight_penalty
        Times the sum of the norms of the tensors that the paper penalises: those of the field, or of everything but the initial
        network in models that jump (appendix D.1); added to the loss of training.
    weight_decay
        Decoupled from the loss (AdamW).
    clip
        Largest norm of the gradient; None for any.
    schedule
        "plateau": the rate is cut by `plateau_factor` after `plateau_patience` epochs without a better validation loss. "cosine":
        down to zero over `max_epochs`. "constant".
    patience
        Epochs without a better validation metric before training stops; None for never.
    average
        Decay of a moving average of the weights, which then is the model; 0 for none. Smaller in the first steps, so that the
        initial weights are soon forgotten.
    channel_dropout
        Share of data channels that a training series loses in a step, as if they had never been observed.
    channel_jitter
        Standard deviation of the factors near 1 that multiply every data channel of a training series and its time channel, drawn
        anew in every step: the same series a little larger or smaller and, where the model sees time as a channel, faster or slower.
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
    readout_rate: float = 1.0
    weight_penalty: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    schedule: Schedule = "plateau"
    plateau_factor: float = 0.1
    plateau_patience: int = 10
    patience: int | None = 30
    average: float = 0.0
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
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {getattr(self, name)!r}.")
        for name, low, high in (
            ("learning_rate", 0.0, None),
            ("readout_rate", 0.0, None),
            ("weight_penalty", 0.0, None),
            ("weight_decay", 0.0, None),
            ("average", 0.0, 1.0),
            ("channel_dropout", 0.0, 1.0),
            ("channel_jitter", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if not value >= low or (high is not None and not value < high):
                raise ValueError(
                    f"{name} must lie in [{low:g}, {'inf' if high is None else f'{high:g}'}), got {value!r}."
                )
        if self.patience is not None and not (isinstance(self.patience, int) and self.patience >= 1):
            raise ValueError(f"patience must be an integer of at least 1, or None for never, got {self.patience!r}.")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive or None, got {self.clip!r}.")
        if self.schedule not in ("plateau", "cosine", "constant"):
            raise ValueError(f'schedule={self.schedule!r} is not "plateau", "cosine" or "constant".')
