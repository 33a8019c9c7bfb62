"""Files of the UEA archive: reading, and errors for malformed files."""

import numpy as np
import pytest
from benchmarks.uea import read_ts

HEADER = "@problemName Two\n@timestamps false\n@univariate false\n@dimensions 2\n@classLabel true up down\n@data\n"


def read(tmp_path, text):
    file = tmp_path / "Two_TRAIN.ts"
    file.write_text(text)
    return read_ts(file)


def test_series_missing_values_and_classes(tmp_path):
    series, labels = read(tmp_path, "#a comment\n\n" + HEADER + "1,2.5,?:-1,NaN,3e-1: up\n4,5:6,7:down\n")
    assert labels == ["up", "down"]
    np.testing.assert_array_equal(series[0], np.array([[1, -1], [2.5, np.nan], [np.nan, 0.3]], dtype=np.float32))
    np.testing.assert_array_equal(series[1], [[4, 6], [5, 7]])
    assert series[0].dtype == np.float32


def test_one_channel_of_equal_length(tmp_path):
    text = "@problemName One\n@univariate true\n@equalLength true\n@seriesLength 3\n@classLabel true 1 2\n@data\n"
    series, labels = read(tmp_path, text + "1,2,3:1\n4,5,6:2\n")
    assert [x.shape for x in series] == [(3, 1), (3, 1)]
    assert labels == ["1", "2"]
    with pytest.raises(ValueError, match=r"line 7: 2 values, but @seriesLength is 3"):
        read(tmp_path, text + "1,2:1\n")
    with pytest.raises(ValueError, match="line 7: 2 dimensions, expected 1"):
        read(tmp_path, text + "1,2,3:1,2,3:1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "1,2:3,4:up\n1,2:3,4,5:up\n", "line 8: the dimensions have different lengths: 2, 3"),
        (HEADER + "1,2:up\n", "line 7: 1 dimensions, expected 2"),
        (HEADER + "1,2:3,4:left\n", "line 7: the class 'left' is not among those of @classLabel: up down"),
        (HEADER + "1,2:3,x:up\n", "line 7: could not convert string to float: .*x"),
        (HEADER + "1,2\n", "line 7: no ':' and so no class"),
        (HEADER + "1,2:3,:up\n", "line 7: could not convert"),
        (HEADER, "has no series after @data"),
        (HEADER.replace("@data\n", ""), "has no line @data"),
        (HEADER.replace("@classLabel true up down\n", ""), "line 5: there is no '@classLabel true"),
        (HEADER.replace("timestamps false", "timeStamps true"), "line 2: @timestamps true: files with timestamps"),
        (HEADER.replace("dimensions 2", "dimensions two"), "line 4: @dimensions must be a number, got 'two'"),
        ("1,2:3,4:up\n" + HEADER, "line 1: expected a line that starts with @"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"Two_TRAIN\.ts.* {message}"):
        read(tmp_path, text)
