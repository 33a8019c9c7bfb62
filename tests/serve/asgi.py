"""Calls of an ASGI application in this process."""

import asyncio
import contextlib
import json
from urllib.parse import quote


class Answer:
    def __init__(self, status, headers, content):
        self.status, self.headers, self.content = status, dict(headers), content

    def json(self):
        return json.loads(self.content)


async def call(app, method, path, body=b"", *, query=b"", headers=(), raw_path=None):
    """One request; the body may be bytes, or anything that JSON can hold."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent, status, parts, found = False, None, [], []

    async def receive():
        nonlocal sent
        if sent:
            await asyncio.sleep(3600)
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message):
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            found.extend((name.decode(), value.decode()) for name, value in message["headers"])
        else:
            parts.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": raw_path or quote(path, errors="replace").encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", b"test"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return Answer(status, found, b"".join(parts))


@contextlib.asynccontextmanager
async def running(app):
    """The application between its start and its end."""
    async with app.router.lifespan_context(app):
        yield app


def run(app, work):
    """The result of `work(call)` while the application runs; `call(method, path, body, ...)` gives an answer."""

    async def main():
        async with running(app):
            return await work(lambda *arguments, **options: call(app, *arguments, **options))

    return asyncio.run(main())
