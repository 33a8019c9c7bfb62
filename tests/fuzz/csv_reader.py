"""CSV files: valid tables are read correctly in every dialect; other files are read or refused with a clear error."""

import codecs
import csv
import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from neuralcde.cli.errors import WrongUseError
from neuralcde.cli.labelled import read_series
from neuralcde.cli.tables import read_table
from neuralcde.cli.written_numbers import MISSING, NONE

ID, TIME, LABEL, CHANNELS = 'stay "1"', "hour", "outcome, coded", ["pulse; at rest", "température", "x"]


@dataclass(frozen=True)
class Dialect:
    """A format of CSV files and of the numbers in them."""

    separator: str = ","
    decimal: str = "."
    group: str = ""
    percent: bool = False
    padding: str = ""
    missing: str = ""
    quoting: int = csv.QUOTE_MINIMAL
    line_end: str = "\n"
    encoding: str = "utf-8"
    tail: str = ""

    def cell(self, value: float | None) -> str:
        if value is None:
            return self.missing
        whole, _, fraction = f"{value!r}".partition(".")
        if "e" in whole + fraction or "n" in whole:  # 1e+20, inf: only the decimal mark changes
            return f"{value!r}".replace(".", self.decimal) + "%" * self.percent
        sign, digits = whole[: len(whole) - len(whole.lstrip("-"))], whole.lstrip("-")
        if self.group:
            digits = f"{int(digits):,}".replace(",", self.group)
        number = sign + digits + (self.decimal + fraction if fraction not in ("", "0") else "")
        return self.padding + number + ("%" * self.percent) + self.padding

    @property
    def unsettled(self) -> bool:
        """Whether 1,234 is ambiguous in this dialect, or in the dialect that its separator suggests."""
        return bool(self.group) or self.decimal == "," or self.separator == ";"


@dataclass(frozen=True)
class Written:
    """A table: ids, times, values (rows, channels), and one label per id."""

    dialect: Dialect
    ids: tuple[str, ...]
    times: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]
    labels: tuple[str, ...]

    def rows(self) -> list[list[str]]:
        label = dict(zip(dict.fromkeys(self.ids), self.labels, strict=False))
        plain = Dialect(decimal=self.dialect.decimal)
        return [
            [name, plain.cell(time), *map(self.dialect.cell, row), label[name]]
            for name, time, row in zip(self.ids, self.times, self.values, strict=True)
        ]

    def content(self) -> bytes:
        out = io.StringIO()
        writer = csv.writer(
            out,
            delimiter=self.dialect.separator,
            quoting=self.dialect.quoting,  # type: ignore[arg-type]
            lineterminator=self.dialect.line_end,
        )
        writer.writerow([ID, TIME, *CHANNELS, LABEL])
        writer.writerows(self.rows())
        return (out.getvalue() + self.dialect.tail).encode(self.dialect.encoding)


def _is_plain(text: str) -> bool:
    """Whether no reader would take the text for a number, a date, a boolean or a missing value."""
    word = text.strip().lower().lstrip("+-")
    other = {*map(str.lower, (*MISSING, *NONE)), "true", "false", "inf", "infinity"}
    return word not in other and not any(c.isdigit() for c in word) and len(word) > 1


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    separator, decimal = draw(st.sampled_from(",;\t|")), draw(st.sampled_from(".,"))
    groups = ["", "'", " ", "\u202f", "\u2019", "," if decimal == "." else "."]
    group = draw(st.sampled_from(groups))
    if (separator == ";") == (group == ",") and group in (",", "."):
        group = ""  # by default 1,234 means 1.234 if semicolons separate cells, and 1.234 means 1.234 otherwise
    line_end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return Dialect(
        separator=separator,
        decimal=decimal,
        group=group,
        percent=draw(st.booleans()),
        padding=draw(st.sampled_from(["", " ", "\u00a0", "  "])) if separator != "\t" else "",
        missing=draw(st.sampled_from(["", *MISSING, "None", "  "])),
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])),
        line_end=line_end,
        encoding=draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])),
        tail=draw(st.sampled_from(["", line_end, 3 * line_end])),
    )


NUMBERS = st.one_of(
    st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3),
    st.integers(-(10**7), 10**7).map(float),
    st.sampled_from([0.0, 0.5, 1234.0, 1.234, 1234567.0, 1e12, 1e12 + 9, 1e20, 1e-30, -1e300]),
)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Cn"]), max_size=9).filter(_is_plain)


@st.composite
def tables(draw: st.DrawFn) -> Written:
    names = draw(
        st.lists(st.one_of(WORDS, st.sampled_from(["007", "=1+1", 'a"b', "1,5"])), min_size=1, max_size=4, unique=True)
    )
    lengths = [draw(st.integers(1, 4)) for _ in names]
    rows = sum(lengths)
    values = draw(
        st.lists(
            st.tuples(NUMBERS, *(st.one_of(st.none(), NUMBERS) for _ in CHANNELS[1:])), min_size=rows, max_size=rows
        )
    )
    times = [
        start + k
        for start, length in zip(
            draw(st.lists(st.sampled_from([0.0, 0.5, -3.25]), min_size=len(names), max_size=len(names))),
            lengths,
            strict=True,
        )
        for k in range(length)
    ]
    return Written(
        draw(dialects()),
        tuple(np.repeat(np.array(names, dtype=object), lengths).tolist()),
        tuple(times),
        tuple(values),
        tuple(draw(st.lists(WORDS, min_size=len(names), max_size=len(names)))),
    )


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The bytes of a valid table, some of them changed, removed, repeated or inserted."""
    content = bytearray(draw(tables()).content())
    odd = [
        b'"',
        b'""',
        b",",
        b";",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"\xe9",
        b"\xef\xbb\xbf",
        b"1e999",
        b"-",
        b"%",
        b"2024-01-03",
        b"PAR1",
    ]
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 30)))
        match draw(st.sampled_from(["cut", "insert", "double", "overwrite", "end"])):
            case "cut":
                del content[start:stop]
            case "insert":
                content[start:start] = draw(st.sampled_from(odd))
            case "double":
                content[start:start] = content[start:stop]
            case "overwrite":
                content[start:stop] = draw(st.binary(max_size=8))
            case "end":
                del content[start:]
    return bytes(content)


CASES = st.one_of(tables(), damaged(), st.binary(max_size=200), st.text(',;"\n\r\t a1.-%', max_size=60).map(str.encode))


def check(case: Written | bytes, folder: Path) -> None:
    """Read the case as series with labels, and as a table of text that must agree with Python's csv module."""
    file = folder / "table[1].csv"
    content = case if isinstance(case, bytes) else case.content()
    file.write_bytes(content)
    (folder / "table1.csv").write_text("decoy\n1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(case, Written):
            _check_series(case, file)
        else:
            _check_refused_or_read(file)
        _check_text(content, file)


def _check_series(case: Written, file: Path) -> None:
    options = {
        "table": str(file),
        "id": ID,
        "time": TIME,
        "label": LABEL,
        "channels": CHANNELS,
        "task": "classification",
    }
    try:
        series, labels = read_series(options)
    except WrongUseError as reason:
        two_ways = "can be read in two ways" in str(reason)
        assert two_ways and case.dialect.unsettled, f"a valid table was refused: {reason}"
        assert all(word in str(reason) for word in (str(file), "--exclude", " may be ")), reason
        return
    names = list(dict.fromkeys(case.ids))
    assert series.ids.tolist() == names
    assert labels.tolist() == list(case.labels[: len(names)])
    assert series.times.tolist() == [
        time for name in names for i, time in zip(case.ids, case.times, strict=True) if i == name
    ]
    expected = np.array(case.values, dtype=np.float64)
    found = series.values.double().numpy()
    assert np.array_equal(np.isnan(expected), np.isnan(found))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-37)


def _check_refused_or_read(file: Path) -> None:
    for id_column in (ID, "1"):
        options = {"table": str(file), "id": id_column, "time": TIME, "label": LABEL}
        for more in ({}, {"static": [CHANNELS[0]]}, {"per_row": True}):
            try:
                read_series(options | more)
            except WrongUseError as reason:
                assert str(file) in str(reason) or "--" in str(reason), reason
                assert len(str(reason)) < 3000


def _check_text(content: bytes, file: Path) -> None:
    """Assert that rows and cells, read as text, equal those of Python's csv module."""
    try:
        frame = read_table(file)
        frame = read_table(file, text=frame.columns)
    except WrongUseError:
        return
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if utf16 else "utf-8-sig").removeprefix("\ufeff")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    if "\r" in text.replace("\r\n", ""):
        return  # some readers take this for a line end, others for a character
    text = text.lstrip("\r\n")
    found = (frame.columns, [list(row) for row in frame.iter_rows()])
    without_blank = "\n".join(line for line in text.splitlines() if line.strip())  # a blank line need not be a row
    readings = [_by_python(one, separator) for one in (text, without_blank) for separator in ",;\t|"]
    assert found in readings, f"{found} is not what Python reads: {readings}"


def _by_python(text: str, separator: str) -> tuple[list[str], list[list[str | None]]]:
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    named = [place for place, name in enumerate(header) if name.strip()]
    cells = [[row[place] if place < len(row) else "" for place in range(len(header))] for row in rows]
    kept = [row for row in cells if any(cell not in MISSING for cell in row)]
    return (
        [header[place].strip() for place in named],
        [[None if row[place] in MISSING else row[place] for place in named] for row in kept],
    )
