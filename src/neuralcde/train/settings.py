"""Settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..contracts import Choice, Either, Flag, Nothing, Number, Option, Whole, check_options, documented

Schedule = Literal["plateau", "cosine", "one_cycle", "constant"]
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
        Choice("plateau", "cosine", "one_cycle", "constant"),
        "plateau",
        'Learning rate schedule. "plateau" lowers the learning rate after epochs without a better validation loss, by '
        'default to a tenth after 10 epochs; "cosine" lowers it to zero over max_epochs; "one_cycle" changes it in '
        "every step: up to learning_rate over the first tenth of all steps, then down to nearly zero; "
        '"constant" keeps it.',
    ),
    "plateau_factor": Option(SHARE, 0.1, 'Factor on the learning rate at a plateau, for schedule "plateau".'),
    "plateau_patience": Option(
        Whole(0), 10, 'Number of epochs without a better validation loss that make a plateau, for schedule "plateau".'
    ),
    "patience": Option(
        Either(Whole(1), Nothing("never")),
        30,
        "Number of epochs without a better value of the monitored criterion after which training stops.",
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
    "row_dropout": Option(
        SHARE,
        0.0,
        "Probability with which each row of a training series is dropped, drawn anew in every step. The first row is "
        "never dropped. Targets of dropped rows are dropped, too.",
    ),
    "auxiliary_weight": Option(
        FROM_ZERO, 0.5, "Weight of the second loss, on targets at the rows, if there are `auxiliary` targets."
    ),
    "average_epochs": Option(
        Whole(1),
        1,
        "Number of best epochs whose weights are averaged at the end. 1: the weights of the best epoch. The average is "
        "kept only if it is at least as good as the best epoch on the validation series. Without validation series "
        "nothing is averaged.",
    ),
    "monitor": Option(
        Choice("metric", "loss"),
        "metric",
        'Criterion that chooses the best epoch and that patience refers to. "metric": the validation metric of the '
        'task. "loss": the validation loss, which gives better calibrated probabilities.',
    ),
    "rescale_outputs": Option(
        Flag(),
        False,
        "Whether to scale the outputs after training by the factor that gives the least validation loss, about the "
        "outputs of a constant prediction. This corrects probabilities that are too near 0 and 1, and does not change "
        "the order of the predictions.",
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
    row_dropout: float = 0.0
    auxiliary_weight: float = 0.5
    average_epochs: int = 1
    monitor: Literal["metric", "loss"] = "metric"
    rescale_outputs: bool = False
    skipped_in_a_row: int = 5
    seed: int = 0
    verbose: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # from a parameter search; checkpoints hold plain numbers
                object.__setattr__(self, name, value.item())
        check_options(OPTIONS, vars(self))
