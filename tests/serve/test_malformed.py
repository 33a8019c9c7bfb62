"""Malformed requests: each is refused with a clear 4xx."""

import asyncio
import json
import random

import pytest

pytest.importorskip("fastapi")

from asgi import call, running
from served import service

from neuralcde.serve import make_app

PIECES = [
    b'{"t":', b"1", b"-0", b"1e400", b"NaN", b"null", b"true", b'"x"', b'"\\ud800"', b"\xff", b"\x00", b"{", b"}", b"[",
    b"]", b",", b":", b'"values":', b'{"pulse":', b'"static":', b'{"age":', b'"rows":', b'[{"id":', b'"at":', b'"id"',
    b'"ascites":', b'"Yes"', b"9" * 5000, b"[" * 3000, b"0.5", b'"2026-01-01"', b'""', b"\\u0000",
]  # fmt: skip
VALUES = [
    None, True, 0, -1, 1.5, 10**400, 1e308, "", "x", "é\u2028", "\ud800", "a" * 300, [], {}, [[]], {"": 1},
    {"pulse": 1}, {"pulse": [1]}, {"age": "old"}, [{"id": "a", "t": 1}], [{"id": "a", "t": 1}] * 2, [0], ["noon"],
    {"a": {"age": 1}}, {"a": 1}, [1, 2, None], [{"id": None, "t": 1}], [{"id": "a", "t": "1", "values": {"pulse": 2}}],
]  # fmt: skip
PATHS = ["/streams/a", "/predict", "/streams/", "/streams/\x00", "/streams/" + "x" * 300, "/streams/\udcff", "/nothing"]
HEADERS = [(b"content-type", b"text/plain"), (b"content-type", b"\xff"), (b"content-length", b"-5"), (b"x", b"\x00")]


def malformed(rng):
    """A request: random pieces of JSON, an object with random fields, or a good one with a change."""
    kind = rng.randrange(4)
    if kind == 0:
        body = b"".join(rng.choices(PIECES, k=rng.randrange(12)))
    elif kind == 1:
        names = rng.sample(["t", "values", "static", "rows", "at", "id", "\ud800"], rng.randrange(1, 5))
        body = json.dumps({name: rng.choice(VALUES) for name in names}).encode()
    else:
        good = {"t": rng.random() * 100, "values": {"pulse": 80}}
        good = good if kind == 2 else {"rows": [{"id": "a", "t": 1, "values": {"pulse": 80}}], "at": [2.0]}
        body = bytearray(json.dumps(good).encode())
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        body = bytes(body)
    method = rng.choice(["POST", "POST", "POST", "GET", "DELETE", "PUT", "HEAD", "nonsense"])
    query = rng.choice([b"", b"at=1", b"at=", b"at=nan", b"at=1e999", b"at=%ff", b"at=\xff", b"at=1&at=2", b"x" * 999])
    return method, rng.choice(PATHS), body, query, rng.sample(HEADERS, rng.randrange(2))


def test_ten_thousand_malformed_requests_are_refused_clearly(tmp_path):
    rng, counts = random.Random(0), {}
    made = service(tmp_path, body=20_000, streams=5)

    async def work():
        running_app = make_app(made)
        async with running(running_app):
            for _ in range(10_000):
                method, path, body, query, headers = malformed(rng)
                answer = await call(running_app, method, path, body, query=query, headers=headers)
                request = method, path, body[:200], query, headers
                assert answer.status is not None and answer.status < 500, (request, answer.content)
                if answer.status >= 400 and method != "HEAD":
                    assert answer.json()["detail"], request
                counts[answer.status] = counts.get(answer.status, 0) + 1

    asyncio.run(work())
    assert {200, 400, 404, 405, 422} <= set(counts), counts
