"""What is refused before a request is looked at: tokens, other sites, paths and queries; and how bodies are read."""

from __future__ import annotations

import asyncio
import hmac
from urllib.parse import unquote_to_bytes, urlsplit

from fastapi import Request

from .limits import Limits
from .requests import RefusedError


def check_token(request: Request, token: str | None) -> None:
    """Refuse a request without the token; the name of the scheme may be in any case."""
    if token is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Headers are bytes, which starlette reads as latin-1.
    right = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
    if scheme.lower() != "bearer" or not right:
        message = "send the header Authorization: Bearer TOKEN."
        raise RefusedError(401, message, {"WWW-Authenticate": 'Bearer realm="neuralcde"'})


def check_origin(request: Request) -> None:
    """Refuse what a browser sends for a page of another site, which needs no permission to send a POST of text."""
    origin = request.headers.get("origin")
    if origin is not None and request.method not in ("GET", "HEAD"):
        try:
            site = urlsplit(origin).netloc
        except ValueError:
            site = ""
        if not site or site != request.headers.get("host"):
            raise RefusedError(403, "the header Origin names another site; send the request without a browser.")


def check_address(request: Request, query: tuple[str, ...]) -> None:
    """Refuse a path that is not UTF-8, and query parameters that are unknown or given twice."""
    try:
        unquote_to_bytes(request.scope.get("raw_path") or b"").decode()
    except UnicodeDecodeError:
        # Servers put U+FFFD in place of such bytes, so that different ids would become one.
        raise RefusedError(422, "the path: an id is text in UTF-8, with % before its bytes.") from None
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in query:
            known = f"expected {', '.join(query)}" if query else "expected none"
            raise RefusedError(422, f"the query has {name[:80]!r}; {known}.")
        if given.count(name) > 1:
            raise RefusedError(422, f"the query has {name!r} twice.")


async def read_body(request: Request, limits: Limits) -> bytes:
    """The bytes of a body, of limited size and in limited time."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise RefusedError(413, f"the body is larger than {limits.body:,} bytes.")
                parts.append(part)
    except TimeoutError:
        message = f"the body did not arrive within {limits.body_seconds:g} seconds."
        raise RefusedError(408, message, {"Connection": "close"}) from None
    return b"".join(parts)
