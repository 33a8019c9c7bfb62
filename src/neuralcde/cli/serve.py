"""`neuralcde serve`: a saved model as a service, for whole series and for streams of rows."""

from __future__ import annotations

import ipaddress
import math
import os
import socket
import sys
from pathlib import Path

from .errors import WrongUseError, report_errors

TOKEN = "NEURALCDE_TOKEN"
CONNECTIONS = 900  # usually a process may open 1024 files, and the log needs some
SECONDS_TO_FINISH = 10  # for requests that are under way when the service is told to end


@report_errors
def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    state: Path | None = None,
    max_streams: int = 1_000_000,
    max_rows: int = 100_000,
    max_body: int = 8 * 2**20,
    idle_hours: float | None = None,
    log_lines: int = 100_000,
    debug: bool = False,
) -> None:
    """Serve a saved model over HTTP: POST /predict, POST /streams/ID, GET /streams/ID?at=T, DELETE /streams/ID.

    A row is on the disk before it is acknowledged. After a kill the streams go on where they were. There is one worker
    process, because streams are kept in memory. If the environment variable NEURALCDE_TOKEN is set, requests need the
    header "Authorization: Bearer TOKEN". /docs describes the interface.

    Parameters
    ----------
    folder
        Folder of the model.
    host
        Address to listen on; by default this machine alone can connect.
    port
        Port to listen on; 0 for any free one.
    state
        Folder for the streams; by default the folder "streams" in that of the model.
    max_streams
        Largest number of streams.
    max_rows
        Largest number of rows per request.
    max_body
        Largest number of bytes per request.
    idle_hours
        Forget streams without a new row for so many hours; by default they are kept.
    log_lines
        Number of rows in the log after which the states are saved, and the log begins anew.
    debug
        Show the traceback of an error.
    """
    for option, value in (
        ("--max-streams", max_streams),
        ("--max-rows", max_rows),
        ("--max-body", max_body),
        ("--idle-hours", idle_hours),
        ("--log-lines", log_lines),
    ):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise WrongUseError(f"{option} {value}: expected a positive number.")
    try:
        import uvicorn

        from ..serve import Limits, LogError, Service, make_app
    except ImportError as reason:
        raise WrongUseError(f"the service needs more packages: pip install 'neuralcde[serve]' ({reason}).") from reason
    from ..estimators import load
    from ..system import folder_lock

    try:
        estimator = load(folder)
    except (FileNotFoundError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason
    token = token_of_environment()
    if token is None and not is_loopback(host):
        print(f"neuralcde: --host {host} is open to others, and {TOKEN} is not set.", file=sys.stderr)
    limits = Limits(body=max_body, rows=max_rows, streams=max_streams, idle_hours=idle_hours, log_lines=log_lines)
    state = folder / "streams" if state is None else state
    try:
        with folder_lock(state):
            service = Service(estimator, state, limits)
            service.open()
            app = make_app(service, token=token)
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=SECONDS_TO_FINISH,
            )
            server = uvicorn.Server(config)
            with _socket(host, port) as listening:
                shown = f"[{host}]" if ":" in host else host
                print(f"neuralcde: http://{shown}:{listening.getsockname()[1]}/docs, streams in {state}", flush=True)
                server.run(sockets=[listening])
    except (LogError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason


def token_of_environment() -> str | None:
    """The token in the environment, without white space around it, as in a line of a file."""
    given = os.environ.get(TOKEN)
    if given is None:
        return None
    if not given.strip() or not given.strip().isprintable():
        raise WrongUseError(f"{TOKEN} is set, but it is not a token; give one, or unset it to serve without a token.")
    return given.strip()


def _socket(host: str, port: int) -> socket.socket:
    """A socket that listens; a port that is in use raises OSError before anything is printed."""
    listening = socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
    )
    # Inherited by connections. Without it, an answer in two parts waits 40 ms for the acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
