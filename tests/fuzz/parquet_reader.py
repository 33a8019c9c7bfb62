"""Parquet files: unusual types and damaged files are read or refused with a clear error.

One limitation remains. On some damaged pages polars asks for 2**61 bytes and aborts the process, which no `except`
catches. So a separate process reads each damaged file first, and files that abort it are skipped.
"""

import atexit
import datetime as dt
import functools
import io
import math
import resource
import select
import struct
import subprocess
import sys
import warnings
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from neuralcde.cli.errors import WrongUseError
from neuralcde.cli.labelled import read_series

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
STAMPS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
LENGTHS = st.timedeltas(dt.timedelta(days=-1000), dt.timedelta(days=1000))
WHOLE = {
    kind: (low, high)
    for bits in (8, 16, 32, 64)
    for kind, low, high in (
        (getattr(pl, f"Int{bits}"), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
        (getattr(pl, f"UInt{bits}"), 0, 2**bits - 1),
    )
}
# types of channels, and their values
NUMBERS: dict[Any, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*bounds) for kind, bounds in WHOLE.items()},
    pl.Int128: st.integers(-(2**100), 2**100),
    pl.Float32: st.floats(-(2.0**99), 2.0**99, width=32),
    pl.Float64: st.one_of(st.floats(-1e9, 1e9), st.sampled_from([1e12, 1e12 + 9, 1e-300, 1e38, 1e39, math.nan])),
    pl.Decimal(20, 4): st.integers(-(10**12), 10**12).map(lambda k: Decimal(k) / 10_000),
    pl.Boolean: st.booleans(),
}
# types that are not numeric
OTHERS: dict[Any, st.SearchStrategy[Any]] = {
    pl.String: st.one_of(WORDS, st.sampled_from(["1,234", " 2.5 ", "3%", "NA", "None", "=1+1", ""])),
    pl.Categorical: WORDS,
    pl.Enum(["a", "b", "1", "2"]): st.sampled_from(["a", "b", "1", "2"]),
    pl.Binary: st.binary(max_size=5),
    pl.Date: STAMPS.map(dt.datetime.date),
    pl.Time: st.times(),
    pl.Datetime("us"): STAMPS,
    pl.Datetime("ns"): STAMPS,
    pl.Datetime("ms", "Europe/Berlin"): STAMPS.map(lambda stamp: stamp.replace(tzinfo=dt.UTC)),
    pl.Duration("us"): LENGTHS,
    pl.Duration("ns"): LENGTHS,
    pl.Null: st.none(),
    pl.List(pl.Float64): st.lists(st.floats(allow_nan=False), max_size=3),
    pl.Array(pl.Int64, 2): st.lists(st.integers(0, 9), min_size=2, max_size=2),
    pl.List(pl.List(pl.String)): st.lists(st.lists(WORDS, max_size=2), max_size=2),
    pl.Struct({"a": pl.Int64, "b": pl.List(pl.String)}): st.fixed_dictionaries(
        {"a": st.integers(0, 9), "b": st.lists(WORDS, max_size=2)}
    ),
}
KINDS = NUMBERS | OTHERS


@dataclass(frozen=True)
class Stored:
    """A table, its Parquet compression, and the options to read it with."""

    frame: pl.DataFrame
    options: dict[str, Any]
    compression: str

    def content(self) -> bytes:
        out = io.BytesIO()
        self.frame.write_parquet(out, compression=self.compression, row_group_size=3)  # type: ignore[arg-type]
        return out.getvalue()


@st.composite
def columns(draw: st.DrawFn, name: str, rows: int, kinds: dict[Any, st.SearchStrategy[Any]]) -> pl.Series:
    kind = draw(st.sampled_from(list(kinds)))
    cell = draw(st.sampled_from([kinds[kind], st.one_of(st.none(), kinds[kind]), st.none()]))
    return pl.Series(name, draw(st.lists(cell, min_size=rows, max_size=rows)), dtype=kind, strict=False)


@st.composite
def readable(draw: st.DrawFn) -> Stored:
    """Series of two rows with channels of any numeric type."""
    series = draw(st.integers(1, 4))
    rows = 2 * series
    names = draw(
        st.lists(st.one_of(WORDS.filter(bool), st.integers(0, 99)), min_size=series, max_size=series, unique_by=str)
    )
    names = names if all(isinstance(name, int) for name in names) else list(map(str, names))
    start = draw(st.sampled_from([0, 0.5, dt.datetime(2024, 1, 1), dt.timedelta(0)]))
    step = dt.timedelta(hours=1) if not isinstance(start, (int, float)) else 1
    frame = pl.DataFrame(
        [
            pl.Series("stay", np.repeat(np.array(names, dtype=object), 2).tolist()),
            pl.Series("hour", [start, start + step] * series),  # type: ignore[operator]
            pl.Series("outcome", np.repeat([["ill", "well"][k % 2] for k in range(series)], 2).tolist()),
            *(draw(columns(f"x{k}", rows, NUMBERS)) for k in range(draw(st.integers(1, 3)))),
        ]
    )
    channels = [name for name in frame.columns if name.startswith("x")]
    return Stored(frame, {"channels": channels}, draw(st.sampled_from(["zstd", "snappy", "uncompressed", "lz4"])))


@st.composite
def odd(draw: st.DrawFn) -> Stored:
    """Columns of any type in any role."""
    rows = draw(st.integers(0, 6))
    frame = pl.DataFrame(
        [draw(columns(name, rows, KINDS)) for name in ("stay", "hour", "outcome", "x0", "x1", "x2")],
    )
    if draw(st.booleans()):
        frame = frame.with_columns(stay=pl.Series(["a", "b"] * rows, dtype=pl.String).head(rows))
    if draw(st.booleans()):
        frame = frame.with_columns(hour=pl.int_range(rows))
    options: dict[str, Any] = {
        "static": draw(st.sampled_from([[], ["x1"], ["x1", "x2"]])),
        "per_row": draw(st.booleans()),
        "duplicates": draw(st.sampled_from(["error", "mean", "last"])),
    }
    if draw(st.booleans()):
        options["channels"] = ["x0"]
    if draw(st.booleans()):
        options["task"] = draw(st.sampled_from(["classification", "regression"]))
    return Stored(frame, options, "uncompressed")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The bytes of a valid file, some of them changed or removed."""
    content = bytearray(draw(st.one_of(readable(), odd())).content())
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        match draw(st.sampled_from(["flip", "cut", "end", "overwrite"])):
            case "flip":
                content[place : place + 1] = bytes(
                    byte ^ (1 << draw(st.integers(0, 7))) for byte in content[place : place + 1]
                )
            case "cut":
                del content[place : place + draw(st.integers(1, 20))]
            case "end":
                del content[place:]
            case "overwrite":
                new = draw(st.binary(min_size=1, max_size=8))
                content[place : place + len(new)] = new
    return bytes(content)


CASES = st.one_of(readable(), odd(), damaged(), st.binary(max_size=100).map(lambda body: b"PAR1\x15" + body + b"PAR1"))


MEMORY, SECONDS = 8 * 2**30, 30  # limits of the separate process that reads damaged files first
SERVE = """
import io, struct, sys
import polars
while header := sys.stdin.buffer.read(8):
    content = sys.stdin.buffer.read(struct.unpack("<q", header)[0])
    try:
        polars.read_parquet(io.BytesIO(content))
    except (Exception, polars.exceptions.PanicException):
        pass
    sys.stdout.buffer.write(b"alive")
    sys.stdout.buffer.flush()
"""


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    atexit.register(server.communicate)  # closes the server's input, which ends it
    return server


def polars_survives(content: bytes) -> bool:
    """Whether polars reads or refuses the file without aborting, in a separate process with limited memory."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(struct.pack("<q", len(content)) + content)
        server.stdin.flush()
        if select.select([server.stdout], [], [], SECONDS)[0] and server.stdout.read(5) == b"alive":
            return True
    except BrokenPipeError:
        pass
    atexit.unregister(server.communicate)
    server.kill()
    server.communicate()
    _server.cache_clear()
    return False


def check(case: Stored | bytes, folder: Path) -> None:
    """Assert that the file is read or refused with `WrongUseError`, and that readable tables keep their values."""
    if isinstance(case, bytes) and not polars_survives(case):
        return
    file = folder / "table[1].parquet"
    file.write_bytes(case if isinstance(case, bytes) else case.content())
    options = {"table": str(file), "id": "stay", "time": "hour", "label": "outcome"}
    more = [{}, {"static": ["x1"]}, {"per_row": True}] if isinstance(case, bytes) else [case.options]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for other in more:
            try:
                series, labels = read_series(options | other)
            except WrongUseError as reason:
                assert str(file) in str(reason) or "--" in str(reason), reason
                assert len(str(reason)) < 3000
                valid = isinstance(case, Stored) and list(case.options) == ["channels"]
                assert not valid, f"a valid table was refused: {reason}"
            else:
                if isinstance(case, Stored) and list(case.options) == ["channels"]:
                    _check_values(case, series, labels)


def _check_values(case: Stored, series: Any, labels: Any) -> None:
    names = case.frame["stay"].unique(maintain_order=True).to_list()
    assert list(map(str, series.ids.tolist())) == list(map(str, names))
    assert labels.tolist() == case.frame["outcome"].to_list()[::2]
    found = series.values.double().numpy()
    for position, name in enumerate(case.options["channels"]):
        expected = np.array([math.nan if cell is None else float(cell) for cell in case.frame[name]])
        np.testing.assert_allclose(found[:, position], expected, rtol=1e-6, atol=1e-37)
