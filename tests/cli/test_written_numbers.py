"""Numbers written as text: all cells of a column are parsed in one format, or none are."""

import math

import polars as pl
import pytest

from neuralcde.cli.written_numbers import decimal_marks, read_numbers


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        ([" 1.234 ", "\u00a02"], [1.234, 2.0]),
        (["1,234.00", "12"], [1234.0, 12.0]),
        (["1,5", "2"], [1.5, 2.0]),
        (["1,234", "0,5"], [1.234, 0.5]),
        (["1,234", "1,234,567"], [1234, 1234567]),
        (["1,234", "2,345", "1.5"], [1234.0, 2345.0, 1.5]),
        (["1.234.567", "1.234"], [1234567, 1234]),
        (["1.234,5", "-7"], [1234.5, -7.0]),
        (["1 234", "5"], [1234, 5]),
        (["1\u202f234,5", "\u22125"], [1234.5, -5.0]),
        (["1'234.5", "1\u2019000"], [1234.5, 1000.0]),
        (["12,34,567.5"], [1234567.5]),
        (["3%", "4 %"], [3, 4]),
        (["0,5%", "12%"], [0.5, 12.0]),
        (["+5", "-3"], [5, -3]),
        ([".5", "5.", "1e3", "1,000.5e-1"], [0.5, 5.0, 1000.0, 100.05]),
        (["NA", " 3", "None", None, " "], [None, 3, None, None, None]),
        (["99999999999999999999", "1"], [1e20, 1.0]),
        (["inf", "-Infinity", "2"], [math.inf, -math.inf, 2.0]),
    ],
)
def test_columns_in_one_format_are_parsed(cells, numbers):
    found = read_numbers(pl.Series("x", cells))
    assert found.to_list() == numbers
    assert {type(number) for number in found.to_list()} == {type(number) for number in numbers}


@pytest.mark.parametrize(
    ("cells", "decimal", "words"),
    [
        (["1,234", "12"], ".", ["two ways", "'1,234', '12'", "1,234 may be 1234 or 1.234"]),
        (["1,234%", "12%"], ".", ["1,234 may be 1234 or 1.234"]),
        (["1.234"], ",", ["1.234 may be 1.234 or 1234"]),
        (["1,5", "2.5", "7"], ".", ["different ways", "'1,5', '2.5'"]),
        (["1 000", "1'000"], ".", ["different ways"]),
        (["3%", "0.03"], ".", ["with and without %", "'3%', '0.03'"]),
    ],
)
def test_ambiguous_and_mixed_columns_are_refused(cells, decimal, words):
    said = read_numbers(pl.Series("x", cells), decimal)
    assert all(word in said for word in ["the column x", *words]), said


@pytest.mark.parametrize(
    "cells",
    [["a", "1"], ["north"], ["03.04.24 10h"], ["12:30"], ["\u0663"], ["1_000"], ["0x1f"], ["3-5"], ["1,,5"], [None]],
)
def test_text_is_not_parsed_as_numbers(cells):
    assert read_numbers(pl.Series("x", cells, dtype=pl.String)) is None


def test_the_decimal_mark_of_the_file_resolves_ambiguous_columns():
    cells = pl.Series("x", [" 1,234 ", "2,5"])
    assert read_numbers(cells, ",").to_list() == [1.234, 2.5]
    assert read_numbers(cells.head(1), ",").to_list() == [1.234]
    assert decimal_marks(["1,234", "7", "a.b"]) == set()
    assert decimal_marks(["1,5"]) == {","}
    assert decimal_marks(["1,234,567", "x"]) == {"."}
    assert decimal_marks([" 1.5 ", "1,5"]) == {",", "."}
