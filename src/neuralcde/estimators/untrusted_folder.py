"""Files of a folder that anybody may have written: regular files of bounded size inside it, and JSON that is nothing else."""

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

LARGEST_JSON = 16 * 2**20  # bytes; Python's lists and dictionaries take about twenty times as much
LARGEST_TENSORS = 4 * 2**30


def read_file(folder: Path, name: str, largest: int, *, missing: str = "") -> bytes:
    """The content of a regular file in the folder, or of one in it that a link leads to.

    Raises
    ------
    FileNotFoundError
        Where it is not there; `missing` says what that means.
    ValueError
        Where it lies outside the folder, is no regular file (a pipe, a device), or is larger than `largest` bytes.
    """
    file = folder / name
    with damage_named(file):
        try:
            place, root = file.resolve(strict=True), folder.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            missing = missing or f"{folder} was not written by neuralcde, or not wholly."
            raise FileNotFoundError(f"{file} is not there; {missing}") from None
        except (OSError, RuntimeError) as reason:  # links that lead in a circle
            raise ValueError(str(reason)) from reason
        if not place.is_relative_to(root):
            raise ValueError(f"it is a link out of the folder, to {place}.")
        _check_regular(place.stat(), largest)
        with open(place, "rb", opener=_at_once) as stream:
            size = _check_regular(os.fstat(stream.fileno()), largest)  # it may be another one by now
            content = stream.read(size + 1)
        if len(content) != size:
            raise ValueError("it changed while it was read.")
        return content


def _check_regular(found: os.stat_result, largest: int) -> int:
    """The size of a file."""
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no regular file.")
    if found.st_size > largest:
        raise ValueError(f"it has {found.st_size:,} bytes, and up to {largest:,} are read.")
    return found.st_size


def _at_once(file: str, flags: int) -> int:
    """Open without waiting for somebody who writes, as one would at a pipe."""
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
    """The tensors that a safetensors file holds: together no larger than the file."""
    with damage_named(file):
        try:
            return from_safetensors(content)
        except (SafetensorError, KeyError, OverflowError) as reason:
            raise ValueError(str(reason)) from reason


@contextlib.contextmanager
def damage_named(file: Path) -> Iterator[None]:
    """Let errors that the content of a file causes say which file it is."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as reason:
        why = str(reason)  # which may quote the file at length
        raise ValueError(f"{file} is damaged: {why if len(why) <= 500 else why[:500] + ' ...'}") from reason


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it has the name {reprlib.repr(name)} twice in one object.")
        found[name] = value
    return found
