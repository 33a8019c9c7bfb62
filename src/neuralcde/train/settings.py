"""Settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..contracts import Choice, Either, Nothing, Number, Option, Whole, check_options, documented

Schedule = Literal["plateau", "cosine", "constant"]
FROM_ZERO, SHARE = Number(0.0), Number(0.0, 1.0, open_high=True)

OPTIONS = {
    "max_epochs": Option(Whole(1), 100, "Largest number of passes over the training data."),
    "batch_size": Option(Whole(1), 32, "Number of series per step of the optimizer."),
    "learning_rate": Option(FROM_ZERO, 1e-3, "Learning rate of Adam."),
    "readout_lr_scale": Option(
        FROM_ZERO, 1.0, "Factor on the learning rate of the readout (section 6.2 of the paper)."
    ),
    "weight_penalty": Option(
        FROM_ZERO,
        0.0,
        "Factor of the paper's penalty on the training loss (appendix D.1): the sum of the norms of the weight tensors "
        "of the field; in models with jumps, of all weight tensors except those of the initial network.",
    ),
    "weight_decay": Option(FROM_ZERO, 0.0, "Weight decay, decoupled from the loss (AdamW)."),
    "gradient_clip": Option(
        Either(Number(0.0, open_low=True, infinite=True), Nothing("no clipping")),
        None,
        "Largest norm of the gradient; larger gradients are scaled down to it.",
    ),
    "schedule": Option(
        Choice("plateau", "cosine", "constant"),
        "plateau",
        'Learning rate schedule. "plateau" lowers the learning rate after epochs without a better validation loss, by '
        'default to a tenth after 10 epochs; "cosine" lowers it to zero over max_epochs; "constant" keeps it.',
    ),
    "plateau_factor": Option(SHARE, 0.1, 'Factor on the learning rate at a plateau, for schedule "plateau".'),
    "plateau_patience": Option(
        Whole(0), 10, 'Number of epochs without a better validation loss that make a plateau, for schedule "plateau".'
    ),
    "patience": Option(
        Either(Whole(1), Nothing("never")),
        30,
        "Number of epochs without a better validation metric after which training stops.",
    ),
    "ema_decay": Option(
        SHARE,
        0.0,
        "Decay per step of the exponential moving average of the weights, which is then used as the model; 0 for no "
        "average. The decay is smaller in the first steps, so that the initial weights are soon forgotten.",
    ),
    "channel_dropout": Option(
        SHARE,
        0.0,
        "Probability with which each data channel of a training series is set to missing, drawn anew in every step.",
    ),
    "channel_jitter": Option(
        SHARE,
        0.0,
        "Standard deviation of random factors near 1 that multiply each data channel and the time channel of a "
        "training series, drawn anew in every step. The model sees slightly scaled and, if time is a channel, slightly "
        "faster or slower series. This is useful if the target does not depend on scale and speed.",
    ),
    "skipped_in_a_row": Option(
        Whole(1), 5, "Number of consecutive batches without a finite loss that ends the training."
    ),
    "seed": Option(Whole(0, 2**32 - 1), 0, "Seed of the order of the batches, of dropout and of jitter."),
    "verbose": Option(
        Whole(0, booleans=True),
        1,
        "0: silent. 1: a progress bar on a terminal, a line every two seconds elsewhere.",
    ),
}


@documented(OPTIONS)
@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training loop, which uses Adam.

    Parameters
    ----------
    {options}
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
            if isinstance(value, np.generic):  # from a parameter search; checkpoints hold plain numbers
                object.__setattr__(self, name, value.item())
        check_options(OPTIONS, vars(self))
