"""Training settings: every value is validated, and the error states the given and the expected value."""

import dataclasses

import numpy as np
import pytest

from neuralcde.train import TrainingSettings

OTHERS = ("schedule", "monitor", "rescale_outputs", "verbose")
NUMBERS = [field.name for field in dataclasses.fields(TrainingSettings) if field.name not in OTHERS]


@pytest.mark.wrong_types
@pytest.mark.parametrize("given", ["fast", True, [1], float("nan"), -1], ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_is_refused(name, given):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
        TrainingSettings(**{name: given})


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("verbose", "loud"),
        ("verbose", -1),
        ("verbose", 0.5),
        ("schedule", None),
        ("schedule", ["cosine"]),
        ("monitor", "auroc"),
    ],
)
def test_other_settings_are_refused(name, given):
    with pytest.raises(ValueError, match=name):
        TrainingSettings(**{name: given})


def test_numbers_of_numpy_become_plain_ones():
    settings = TrainingSettings(
        max_epochs=np.int64(3), learning_rate=np.float32(0.5), gradient_clip=np.inf, verbose=True
    )
    assert (type(settings.max_epochs), type(settings.learning_rate)) == (int, float)
    assert TrainingSettings(gradient_clip=None, patience=None).gradient_clip is None
