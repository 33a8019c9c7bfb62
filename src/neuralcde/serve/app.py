"""The HTTP interface of the service, with FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.requests import ClientDisconnect

from .. import __version__
from .guards import check_address, check_origin, check_token, read_body
from .metrics import Metrics
from .openapi import PREDICTION, ROW, SERIES, answers, body_of, secure
from .requests import RefusedError, parsed
from .service import Service

SECONDS_BETWEEN_CHORES = 5.0
LARGE_BODY = 65_536  # bytes; larger ones are parsed beside the event loop
CLIENT_GONE = 499  # what nginx counts it as

Handler = Callable[[Request], Awaitable[Any]]


def make_app(service: Service, *, token: str | None = None) -> FastAPI:
    """The application. It restores the streams when it starts, and saves them when it ends.

    Parameters
    ----------
    service
        The service.
    token
        What requests must send as `Authorization: Bearer TOKEN`; None for nothing. `/health` needs none.
    """
    metrics, series = Metrics(), _SeriesQueue(service)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not service.opened:
            service.open()
        stop = asyncio.Event()
        chores = asyncio.create_task(_chores(service, metrics, stop))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait([chores])  # not cancelled: it may be saving the states
            await service.close()

    app = FastAPI(
        title="neuralcde",
        version=__version__,
        description="Predictions for irregular time series, for whole series or one row at a time.",
        lifespan=lifespan,
    )
    if token is not None:
        secure(app, ("/health",))

    async def answered(route: str, request: Request, handler: Handler, query: tuple[str, ...] = ()) -> Response:
        started, status, headers = time.perf_counter(), 500, None
        try:
            check_token(request, token)
            check_origin(request)
            check_address(request, query)
            found, status = await handler(request), 200
        except RefusedError as reason:
            found, status, headers = {"detail": reason.message}, reason.status, reason.headers
        except ClientDisconnect:
            found, status = {"detail": "the client is gone."}, CLIENT_GONE
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            found, status = {"detail": "the service ends; send the request again later."}, 503
        finally:
            metrics.note(route, status, time.perf_counter() - started)
        return _json(found, status, headers)

    @app.post(
        "/predict",
        summary="Predictions for whole series",
        openapi_extra=body_of(SERIES),
        responses=answers({"predictions": [PREDICTION]}, 400, 401, 403, 408, 413, 422, 503),
    )
    async def predict(request: Request) -> Response:
        return await answered("/predict", request, series.predict)

    @app.post(
        "/streams/{id:path}",
        summary="Add a row to a stream",
        openapi_extra=body_of(ROW),
        responses=answers(PREDICTION | {"far": {"pulse": 8000}}, 400, 401, 403, 408, 409, 413, 422, 429, 503),
    )
    async def push(id: str, request: Request) -> Response:
        async def handler(request: Request) -> Any:
            content = await read_body(request, service.limits)
            large = len(content) > LARGE_BODY
            return await service.push(id, await asyncio.to_thread(parsed, content) if large else parsed(content))

        return await answered("/streams/{id}", request, handler)

    @app.get(
        "/streams/{id:path}",
        summary="The prediction of a stream, at its last row or at a later time",
        responses=answers(PREDICTION, 401, 404, 409, 422),
    )
    async def peek(id: str, request: Request, at: str | None = None) -> Response:
        async def handler(request: Request) -> Any:
            return service.peek(id, at)

        return await answered("/streams/{id}", request, handler, ("at",))

    @app.delete(
        "/streams/{id:path}",
        summary="Forget a stream",
        responses=answers({"id": "bed-7", "deleted": True}, 401, 403, 404, 422, 503),
    )
    async def remove(id: str, request: Request) -> Response:
        async def handler(request: Request) -> Any:
            return await service.remove(id)

        return await answered("/streams/{id}", request, handler)

    @app.get(
        "/health",
        summary="Whether rows are accepted",
        responses={503: {"description": "the log cannot be written"}},
    )
    async def health() -> Response:
        if service.log.failed is not None:
            return _json({"status": "the log cannot be written"}, 503)
        if service.save_failed is not None:
            return _json({"status": f"rows are accepted, but the states cannot be saved: {service.save_failed}"}, 200)
        return _json({"status": "ok"}, 200)

    @app.get(
        "/metrics",
        summary="Counts and durations, for Prometheus",
        response_class=PlainTextResponse,
        responses=answers(None, 401),
    )
    async def numbers(request: Request) -> Response:
        try:
            check_token(request, token)
        except RefusedError as reason:
            return _json({"detail": reason.message}, reason.status, reason.headers)
        metrics.rows, metrics.repeated, metrics.expired = service.rows, service.repeated, service.expired
        return PlainTextResponse(metrics.text(service.gauges(), service.far_values()))

    return app


class _SeriesQueue:
    """Predictions for whole series, one at a time beside the pushes; a limited number of requests waits."""

    def __init__(self, service: Service):
        self.service, self.waiting, self.lock = service, 0, asyncio.Lock()

    async def predict(self, request: Request) -> Any:
        """The answer to a request."""
        self._check()  # before the body takes memory
        content = await read_body(request, self.service.limits)
        self._check()
        self.waiting += 1
        try:
            await self.lock.acquire()
        finally:
            self.waiting -= 1
        try:
            return await asyncio.to_thread(lambda: self.service.predict(parsed(content)))
        finally:
            self.lock.release()

    def _check(self) -> None:
        if self.waiting >= self.service.limits.waiting:
            raise RefusedError(503, f"{self.waiting} requests wait already; try again later.", {"Retry-After": "1"})


async def _chores(service: Service, metrics: Metrics, stop: asyncio.Event) -> None:
    """Forget idle streams and compact the log, now and then. No failure ends it: the next try may succeed."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SECONDS_BETWEEN_CHORES)
            return
        for name, chore in (("expire", service.expire), ("compact", service.compact_if_long)):
            try:
                await chore()
            except Exception as reason:
                metrics.failures[name] += 1
                logging.getLogger(__name__).error("%s failed, and is tried again: %r", name, reason)


def _json(content: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status_code=status, media_type="application/json", headers=headers)
