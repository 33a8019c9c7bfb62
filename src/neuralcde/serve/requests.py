"""Bodies of requests: JSON of bounded size, checked by hand, so that any bytes give a clear 4xx."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ..series.table_format import TableFormat

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class RefusedError(Exception):
    """A request that is refused.

    Parameters
    ----------
    status
        The HTTP status.
    message
        What is wrong, and how to fix it.
    headers
        Headers of the answer.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def parsed(body: bytes) -> dict[str, Any]:
    """The object in a JSON body."""
    try:
        found = json.loads(body.decode(), object_pairs_hook=_named_once, parse_constant=_refuse_constant)
    except RecursionError:
        raise RefusedError(400, "the body is nested too deeply.") from None
    except ValueError as reason:
        raise RefusedError(400, f"the body is not JSON: {str(reason)[:200]}") from None
    if not isinstance(found, dict):
        raise RefusedError(422, f"the body is a JSON {type(found).__name__}; expected an object.")
    return found


def fields(given: Mapping[str, Any], where: str, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    """Refuse an object with other fields."""
    for name in required:
        if name not in given:
            raise RefusedError(422, f"{where} has no {name!r}; expected {', '.join((*required, *optional))}.")
    for name in given:
        if name not in required and name not in optional:
            raise RefusedError(422, f"{where} has {name[:80]!r}; expected {', '.join((*required, *optional))}.")


def object_of(given: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """A field that is an object; empty if it is missing or null."""
    found = given.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RefusedError(422, f"{where}: {name} is a JSON {type(found).__name__}; expected an object.")
    return found


def stream_id(given: Any, where: str = "the body") -> str:
    """An id: text, or a whole number, which becomes text."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given) if abs(given) < 10**30 else ""
    if not isinstance(given, str) or not 1 <= len(given) <= 256 or not _is_text(given):
        raise RefusedError(422, f"{where}: an id is 1 to 256 characters of text.")
    return given


def time_of(given: Any, form: TableFormat, where: str = "the body") -> float:
    """A time as the number that series hold: a number, or a date and time as text where the table had these."""
    if isinstance(given, str) and form.kind == "datetime":
        try:
            given = form.number_of_text(given)
        except (ValueError, TypeError, OverflowError) as reason:
            raise RefusedError(422, f"{where}: {given[:80]!r} is not a date and time: {reason}.") from None
    elif isinstance(given, str) and NUMBER.fullmatch(given):
        given = float(given)
    if isinstance(given, int | float) and not isinstance(given, bool):
        try:
            number = float(given)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    wanted = "a number" if form.kind == "number" else "a number, or text such as 2026-01-31T12:00"
    raise RefusedError(422, f"{where}: {form.time} must be {wanted}.")


def time_in_query(given: str, form: TableFormat) -> float:
    """A time in a query, where numbers are text too; a date of eight digits is a date."""
    if NUMBER.fullmatch(given):
        try:
            return form.number_of_text(given) if form.kind == "datetime" else time_of(given, form, "the query")
        except (ValueError, TypeError, OverflowError):
            return time_of(float(given), form, "the query")
    return time_of(given, form, "the query")


def _is_text(given: str) -> bool:
    return given.isprintable() and not any(0xD800 <= ord(character) < 0xE000 for character in given)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON; leave out what was not observed")
