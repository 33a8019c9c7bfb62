"""Kinds of options: accepted values, wording, and the type that the command line parses."""

import math
from types import NoneType
from typing import Literal, Never, Union

import numpy as np
import pytest

from neuralcde.contracts import (
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
    documented,
)
from neuralcde.paths import Linear, PathScheme

EVERYTHING = (
    None,
    True,
    np.True_,
    0,
    1,
    np.int8(1),
    2,
    10**400,
    0.5,
    np.float32(0.5),
    1.5,
    math.inf,
    math.nan,
    "a",
    [1],
)


@pytest.mark.parametrize(
    ("kind", "accepted", "words"),
    [
        (Whole(1), [1, 2, 10**400], "an integer of at least 1"),
        (Whole(0, 1), [0, 1], "an integer from 0 to 1"),
        (Whole(1, 1, booleans=True), [True, 1], "an integer from 1 to 1"),
        (Number(), [0, 1, 2, 0.5, 1.5], "a finite number"),
        (Number(0.0, 1.0), [0, 1, 0.5], "a number in [0, 1]"),
        (Number(0.0, 1.0, open_low=True, open_high=True), [0.5], "a number in (0, 1)"),
        (Number(0.0), [0, 1, 2, 0.5, 1.5], "a number in [0, inf)"),
        (Number(1.0, infinite=True), [1, 2, 1.5, math.inf], "a number in [1, inf]"),
        (Flag(), [True], "True or False"),
        (Choice("a", "b", "c"), ["a"], '"a", "b" or "c"'),
        (Nothing(), [None], "None"),
        (Nothing("never"), [None], "None for never"),
        (Instance((list, str), "text"), ["a", [1]], "text"),
        (Either(Choice("a"), Flag()), [True, "a"], '"a", True or False'),
        (Either(Whole(2, 2), Nothing("any")), [None, 2], "an integer from 2 to 2 or None for any"),
    ],
    ids=repr,
)
def test_kinds_accept_the_right_values_and_describe_them(kind, accepted, words):
    found = [value for value in EVERYTHING if kind.accepts(value)]
    assert [value for value in found if not isinstance(value, np.generic)] == accepted
    assert all(
        kind.accepts(value) == kind.accepts(value.item()) for value in EVERYTHING if isinstance(value, np.generic)
    )
    assert kind.words == words


def test_a_part_may_be_a_name_a_class_an_object_or_a_recipe():
    kind = PartOf(PathScheme.registry)
    for right in ("linear", Linear, Linear(), Linear.with_options()):
        assert kind.accepts(right)
    for wrong in ("spline", int, 3, None):
        assert not kind.accepts(wrong)
    assert kind.words.endswith(", or a PathScheme of your own")


@pytest.mark.parametrize(
    ("kind", "annotation"),
    [
        (Whole(), int),
        (Number(), float),
        (Flag(), bool),
        (Choice("a", "b"), Literal["a", "b"]),
        (Nothing(), NoneType),
        (Instance(dict, "a dictionary"), Never),
        (Instance(dict, "a dictionary", read_as=str), str),
        (Either(Choice("a"), Instance(dict, "a dictionary")), Literal["a"]),
        (Either(Choice("a"), Whole(), Nothing()), Union[Literal["a"], int, None]),  # noqa: UP007
        (Either(Instance(dict, "a dictionary")), Never),
    ],
    ids=repr,
)
def test_kinds_have_the_right_annotation_for_the_command_line(kind, annotation):
    assert kind.annotation == annotation


def test_the_command_line_accepts_the_names_of_a_registry():
    assert PartOf(PathScheme.registry).annotation == Literal[tuple(PathScheme.registry)]


@pytest.mark.parametrize(
    "value", [{}, {"a": 1}, "{}", "{0}", "x" * 10_000], ids=["{}", "dict", "text", "place", "long"]
)
def test_errors_show_the_given_and_the_expected_value(value):
    with pytest.raises(ArgumentError, match=r"^max_size must be an integer of at least 1, got ") as refusal:
        check_options({"max_size": Option(Whole(), 1, "A size.")}, {"other": "any", "max_size": value})
    assert refusal.value.argument == "max_size"
    assert refusal.value.on_the_command_line().startswith("--max-size must be an integer of at least 1, got ")
    assert len(str(refusal.value)) < 200


def test_the_docstring_of_a_class_gets_an_entry_per_option():
    options = {"size": Option(Whole(), 3, "How large."), "pool": Option(Choice("a", "b"), "a", "How many.")}

    @documented(options)
    class Example:
        """An example.

        Parameters
        ----------
        {options}

        Notes
        -----
        None.
        """

    lines = Example.__doc__.splitlines()
    assert [line.strip() for line in lines[4:8]] == [
        "size : an integer of at least 1, default 3",
        "How large.",
        'pool : "a" or "b", default \'a\'',
        "How many.",
    ]
    assert "{options}" not in Example.__doc__
