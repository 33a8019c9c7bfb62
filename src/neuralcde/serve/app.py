"""The HTTP interface of the service, with FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response

from .. import __version__
from .metrics import Metrics
from .push_log import LogError
from .requests import RefusedError, parsed
from .service import Service

SECONDS_BETWEEN_CHORES = 5.0
ROW = {
    "type": "object",
    "required": ["t"],
    "properties": {
        "t": {"description": "Time of the row, later than the last one.", "example": 3.5},
        "values": {"type": "object", "description": "What was observed.", "example": {"pulse": 81}},
        "static": {"type": "object", "description": "Static features, with the first row of a stream."},
    },
}
SERIES = {
    "type": "object",
    "required": ["rows"],
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "t"],
                "properties": {"id": {"type": "string"}, "t": {}, "values": {"type": "object"}},
            },
        },
        "static": {"type": "object", "description": "Static features by id."},
        "at": {"type": "array", "items": {}, "description": "Times to predict at; without it, at the last rows."},
    },
}

PREDICTION = {"id": "bed-7", "t": 3.5, "prediction": "ill", "p_ill": 0.62, "p_well": 0.38}
REFUSALS = {
    400: "the body is not JSON",
    401: "the token is missing or wrong",
    404: "there is no such stream",
    409: "the time is not later than the last row, and the row is not the last one again",
    413: "the body is too large, or has too many rows",
    422: "the request does not fit the model",
    429: "there are too many streams",
    503: "the log cannot be written",
}

Handler = Callable[[Request], Awaitable[Any]]
Message = dict[str, Any]


def make_app(service: Service, *, token: str | None = None) -> FastAPI:
    """The application. It restores the streams when it starts, and saves them when it ends.

    Parameters
    ----------
    service
        The service.
    token
        What requests must send as `Authorization: Bearer TOKEN`; None for nothing. `/health` needs none.
    """
    metrics, predicting = Metrics(), asyncio.Lock()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not service.opened:
            service.open()
        chores = asyncio.create_task(_chores(service))
        yield
        chores.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await chores
        await service.close()

    app = FastAPI(
        title="neuralcde",
        version=__version__,
        description="Predictions for irregular time series, for whole series or one row at a time.",
        lifespan=lifespan,
    )

    async def body_of(request: Request) -> dict[str, Any]:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > service.limits.body:
                raise RefusedError(413, f"the body is larger than {service.limits.body:,} bytes.")
            parts.append(part)
        return parsed(b"".join(parts))

    async def answered(route: str, request: Request, handler: Handler) -> Response:
        started, status = time.perf_counter(), 500
        try:
            if token is not None and not _authorised(request, token):
                raise RefusedError(401, "send the header Authorization: Bearer TOKEN.")
            found, status = await handler(request), 200
        except RefusedError as reason:
            found, status = {"detail": reason.message}, reason.status
        finally:
            metrics.note(route, status, time.perf_counter() - started)
        return _json(found, status)

    @app.post(
        "/predict",
        summary="Predictions for whole series",
        openapi_extra=_body(SERIES),
        responses=_answers({"predictions": [PREDICTION]}, 400, 401, 413, 422),
    )
    async def predict(request: Request) -> Response:
        async def handler(request: Request) -> Any:
            body = await body_of(request)
            async with predicting:  # one at a time, beside the pushes
                return await asyncio.to_thread(service.predict, body)

        return await answered("/predict", request, handler)

    @app.post(
        "/streams/{id}",
        summary="Add a row to a stream",
        openapi_extra=_body(ROW),
        responses=_answers(PREDICTION | {"far": {"pulse": 8000}}, 400, 401, 409, 413, 422, 429, 503),
    )
    async def push(id: str, request: Request) -> Response:
        async def handler(request: Request) -> Any:
            return await service.push(id, await body_of(request))

        return await answered("/streams/{id}", request, handler)

    @app.get(
        "/streams/{id}",
        summary="The prediction of a stream, at its last row or at a later time",
        responses=_answers(PREDICTION, 401, 404, 409, 422),
    )
    async def peek(id: str, request: Request, at: str | None = None) -> Response:
        async def handler(request: Request) -> Any:
            return service.peek(id, at)

        return await answered("/streams/{id}", request, handler)

    @app.delete(
        "/streams/{id}",
        summary="Forget a stream",
        responses=_answers({"id": "bed-7", "deleted": True}, 401, 404, 422, 503),
    )
    async def remove(id: str, request: Request) -> Response:
        async def handler(request: Request) -> Any:
            return await service.remove(id)

        return await answered("/streams/{id}", request, handler)

    @app.get("/health", summary="Whether rows are accepted")
    async def health() -> Response:
        healthy = service.log.failed is None
        return _json({"status": "ok" if healthy else "the log cannot be written"}, 200 if healthy else 503)

    @app.get("/metrics", summary="Counts and durations, for Prometheus", response_class=PlainTextResponse)
    async def numbers(request: Request) -> Response:
        if token is not None and not _authorised(request, token):
            return _json({"detail": "send the header Authorization: Bearer TOKEN."}, 401)
        metrics.rows, metrics.repeated, metrics.expired = service.rows, service.repeated, service.expired
        return PlainTextResponse(metrics.text(service.gauges(), service.far_values()))

    return app


async def _chores(service: Service) -> None:
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_CHORES)
        with contextlib.suppress(LogError, OSError):  # a full disk is reported by /health and by the next push
            await service.expire()
            await service.compact_if_long()


def _authorised(request: Request, token: str) -> bool:
    given = request.headers.get("authorization", "")
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _answers(example: dict[str, Any], *refusals: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a route, for its description."""
    detail = {"type": "object", "properties": {"detail": {"type": "string"}}}
    found: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"example": example}}}}
    for status in refusals:
        found[status] = {"description": REFUSALS[status], "content": {"application/json": {"schema": detail}}}
    return found


def _json(content: Any, status: int) -> Response:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status_code=status, media_type="application/json")
