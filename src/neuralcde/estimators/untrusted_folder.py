"""Read files from an untrusted folder: regular files of bounded size, plain JSON, safetensors."""

from __future__ import annotations

import contextlib
import json
import os
import reprlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from torch import Tensor

LARGEST_JSON = 16 * 2**20  # bytes; parsed it takes about twenty times as much memory
LARGEST_TENSORS = 4 * 2**30


def read_file(folder: Path, name: str, largest: int, *, missing: str = "") -> bytes:
    """The content of a regular file in the folder; links are followed as long as they stay inside it.

    Raises
    ------
    FileNotFoundError
        If the file is missing; `missing` says what that means.
    ValueError
        If it lies outside the folder, is not a regular file (a pipe, a device), or is larger than `largest` bytes.
    """
    file = folder / name
    with damage_named(file):
        try:
            place, root = file.resolve(strict=True), folder.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            missing = missing or f"{folder} was not written by neuralcde, or is incomplete."
            raise FileNotFoundError(f"{file} is not there; {missing}") from None
        except (OSError, RuntimeError) as reason:  # circular links
            raise ValueError(str(reason)) from reason
        if not place.is_relative_to(root):
            raise ValueError(f"it is a link out of the folder, to {place}.")
        _check_regular(place.stat(), largest)
        with open(place, "rb", opener=_at_once) as stream:
            size = _check_regular(os.fstat(stream.fileno()), largest)  # the file may have been replaced since
            content = stream.read(size + 1)
        if len(content) != size:
            raise ValueError("it changed while it was read.")
        return content


def _check_regular(found: os.stat_result, largest: int) -> int:
    """Check the kind and the size of a file; returns the size."""
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a regular file.")
    if found.st_size > largest:
        raise ValueError(f"it has {found.st_size:,} bytes, and up to {largest:,} are read.")
    return found.st_size


def _at_once(file: str, flags: int) -> int:
    """Open without blocking; a pipe without a writer would block otherwise."""
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0))


def parse_json(file: Path, content: bytes) -> dict[str, Any]:
    """The object that a JSON file holds."""
    with damage_named(file):
        try:
            found = json.loads(content.decode(), object_pairs_hook=_named_once)
        except RecursionError:
            raise ValueError("it is nested too deeply.") from None
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, expected an object.")
        return found


def parse_tensors(file: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file; together they are no larger than the file."""
    with damage_named(file):
        try:
            return from_safetensors(content)
        except (SafetensorError, KeyError, OverflowError) as reason:
            raise ValueError(str(reason)) from reason


@contextlib.contextmanager
def damage_named(file: Path) -> Iterator[None]:
    """Name the file in errors that its content causes."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as reason:
        why = str(reason)  # may quote the file at length
        raise ValueError(f"{file} is damaged: {why if len(why) <= 500 else why[:500] + ' ...'}") from reason


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it has the name {reprlib.repr(name)} twice in one object.")
        found[name] = value
    return found
