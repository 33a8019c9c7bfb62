"""Recognise the type of a file by its first bytes, because an extension such as .csv may be wrong."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from .errors import WrongUseError

PARQUET, ARROW, TEXT = "a Parquet file", "an Arrow file", "text"
STREAM = b"\xff\xff\xff\xff"  # start of the Arrow streaming format
# pattern of the first bytes, type of the file, fix for the error message
KINDS = (
    (rb"PAR1\x15", PARQUET, "Rename it: mv {file} {stem}.parquet"),
    (rb"ARROW1\0\0|\xff\xff\xff\xff(?s:..)\0\0", ARROW, "Rename it: mv {file} {stem}.arrow"),
    (rb"\x1f\x8b", "compressed with gzip", "Decompress it: gunzip < {file} > {new}"),
    (rb"\x28\xb5\x2f\xfd", "compressed with zstd", "Decompress it: zstd -d < {file} > {new}"),
    (rb"BZh\d1AY&SY", "compressed with bzip2", "Decompress it: bunzip2 < {file} > {new}"),
    (rb"\xfd7zXZ\0", "compressed with xz", "Decompress it: xz -d < {file} > {new}"),
    (rb"PK\x03\x04", "an Excel workbook or another ZIP archive", "Save the sheet as CSV, or unzip the table"),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook", "Save the sheet as CSV"),
    (rb"", TEXT, "If it is CSV, rename it: mv {file} {stem}.csv"),
)
WANTED = {".csv": TEXT, ".parquet": PARQUET, ".arrow": ARROW, ".feather": ARROW}


def check_contents(content: bytes, file: Path) -> None:
    """Refuse a file that is empty, or whose content does not match its extension. The message says how to fix it."""
    if re.search(rb"\S", content) is None:
        raise WrongUseError(f"{file} is empty.")
    found, fix = next((what, fix) for start, what, fix in KINDS if re.match(start, content))
    wanted = WANTED[file.suffix.lower()]
    if found == wanted:
        return
    paths = {"file": file, "stem": file.with_suffix(""), "new": file.with_name(f"plain_{file.name}")}
    command = fix.format(**{name: shlex.quote(str(path)) for name, path in paths.items()})
    what = f"starts with {content[:12]!r}" if found == TEXT else f"is {found}"
    raise WrongUseError(f"{file} is not {'CSV' if wanted == TEXT else wanted}: it {what}. {command}")
