"""Malformed requests for the service, over a socket: broken JSON, wrong types, good requests with changes, broken HTTP.

python -m benchmarks streams malformed
"""

from __future__ import annotations

import json
import random
import re
import socket
from collections import Counter
from typing import Any

SECONDS = 10.0  # after which a request counts as not answered
PIECES = [b'{"t":', b"1", b"1e400", b"NaN", b"null", b'"x"', b'"\\ud800"', b"\xff", b"\x00", b"{", b"}", b"[", b"]"]
PIECES += [b",", b":", b'"values":', b'{"c1":', b'"static":', b'"rows":', b'[{"id":', b'"at":', b"9" * 500, b"[" * 500]
VALUES: list[Any] = [None, True, 0, -1, 1.5, 10**400, 1e308, "", "x", "\ud800", "a" * 300, [], {}, [[]], {"": 1}]
VALUES += [{"c1": 1}, {"c1": [1]}, {"c1": "1"}, [{"id": "a", "t": 1}], [{"id": "a", "t": 1}] * 2, ["noon"], {"a": 1}]
PATHS = ["/streams/a", "/predict", "/streams/%ff", "/streams/%00", "/streams/" + "x" * 400, "/x", "/streams/a/b"]
QUERIES = ["", "", "?at=1", "?at=", "?at=nan", "?at=1e999", "?at=%ff", "?at=1&at=2", "?" + "x" * 999]
GOOD = [
    {"t": 1e6, "values": {"c1": 0.5, "c2": -1}, "static": {}},
    {"rows": [{"id": "a", "t": 1, "values": {"c1": 0.5}}, {"id": "b", "t": 2}], "at": [2.0]},
]


def malformed_request(rng: random.Random) -> bytes:
    """A request that is nearly always malformed in one way or another."""
    body = _body(rng)
    method = rng.choice(["POST", "POST", "POST", "GET", "DELETE", "PUT", "BREW"])
    target = rng.choice(PATHS) + rng.choice(QUERIES)
    length = f"Content-Length: {len(body)}\r\n"
    if rng.random() < 0.05:
        length, body = "Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = bytearray(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{length}\r\n".encode())
    if rng.random() < 0.05:
        head[rng.randrange(len(head) // 2)] = rng.randrange(256)
    return bytes(head) + body


def _body(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return b"".join(rng.choices(PIECES, k=rng.randrange(10)))
    if kind == 1:
        names = rng.sample(["t", "values", "static", "rows", "at", "id"], rng.randrange(1, 5))
        return json.dumps({name: rng.choice(VALUES) for name in names}).encode()
    body = bytearray(json.dumps(rng.choice(GOOD)).encode())
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] = rng.choice(b'0123456789{}[]",:etn.-\x00\xff')
    return bytes(body)


def send_malformed(port: int, count: int, seed: int = 0) -> Counter[str]:
    """Number of answers per status, "closed" for a connection that was closed, "none" for no answer in time."""
    rng, statuses = random.Random(seed), Counter[str]()
    connection = _connected(port)
    for _ in range(count):
        try:
            connection.sendall(malformed_request(rng))
            answer = _answer(connection)
            statuses[answer[9:12].decode() or "closed"] += 1
        except TimeoutError:
            answer = b""
            statuses["none"] += 1
        except OSError:
            answer = b""
            statuses["closed"] += 1
        if not answer or b"connection: close" in answer.lower():
            connection.close()
            connection = _connected(port)
    connection.close()
    return statuses


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _answer(connection: socket.socket) -> bytes:
    """One answer, complete with its body; empty if the connection was closed."""
    content = b""
    while b"\r\n\r\n" not in content:
        part = connection.recv(65536)
        if not part:
            return content
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length[1]):
        part = connection.recv(65536)
        if not part:
            break
        body += part
    return head
