"""Invalid parameters: the error names the argument, the given value and what is expected."""

import inspect

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.contracts import ArgumentError

X = np.random.default_rng(0).normal(size=(10, 4)).cumsum(1)
Y = np.arange(10) % 2
PARAMETERS = list(inspect.signature(nc.NeuralCDEClassifier.__init__).parameters)[1:]
WRONG = {"text": "fast", "truth": True, "list": [1], "NaN": float("nan"), "array": np.ones(2), "negative": -1}
RIGHT = {(name, "truth") for name in ("per_row", "boosting", "intensity", "rescale_outputs", "verbose")}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in PARAMETERS for kind in WRONG if (name, kind) not in RIGHT]
)
def test_every_parameter_is_checked(name, kind):
    given = WRONG[kind]
    with pytest.raises(ArgumentError) as refusal:
        nc.NeuralCDEClassifier(**{"random_state": 0, name: given}).fit(X, Y)
    message = str(refusal.value)
    assert refusal.value.argument == name
    assert message.startswith(name)
    assert repr(given) in message or f'"{given}"' in message or "array(" in message
    assert "must be" in message or "cannot be used" in message


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("learning_rate", "fast", r'learning_rate must be "auto" or a number in \[0, inf\), got .fast.'),
        ("hidden", 0, "hidden must be an integer from 1 to 100000, got 0"),
        ("depth", 10**6, "depth must be .auto. or an integer from 1 to 1000, got 1000000"),
        ("batch_size", "all", 'batch_size must be "auto" or an integer of at least 1, got .all.'),
        ("patience", 0, 'patience must be "auto", an integer of at least 1 or None for never, got 0'),
        ("intensity", "yes", 'intensity must be "auto", True or False, got .yes.'),
        ("validation_fraction", 1, r"validation_fraction must be a number in \[0, 1\), got 1"),
        (
            "random_state",
            2**32,
            "random_state must be None, an integer from 0 to 4294967295 or a .*RandomState, got 4294967296",
        ),
        ("class_weight", {0: 1.0, 1: "much"}, "class_weight=.*: weights must be positive numbers"),
        ("learning_rate", 10**400, r'learning_rate must be "auto" or a number in \[0, inf\), got 1000'),
    ],
)
def test_errors_say_what_is_expected(name, value, words):
    with pytest.raises(ValueError, match=words):
        nc.NeuralCDEClassifier(**{name: value}).fit(X, Y)


def test_numpy_numbers_and_torch_devices_are_accepted():
    options = {
        "hidden": np.int32(3),
        "width": np.int64(3),
        "validation_fraction": np.float32(0.1),
        "gradient_clip": np.inf,
    }
    options |= {"per_row": np.False_, "intensity": np.True_, "device": torch.device("cpu"), "verbose": False}
    clf = nc.NeuralCDEClassifier(max_epochs=1, random_state=np.random.RandomState(0), **options).fit(X, Y)
    assert clf.predict(X).shape == (10,)
