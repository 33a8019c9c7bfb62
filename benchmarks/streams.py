"""Streams and the service: time of a step, of many streams, of a push; load, kills and malformed requests.

python -m benchmarks streams [steps|service|kills|malformed|exported]
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import neuralcde as nc
from neuralcde.estimators.streams import Streams
from neuralcde.serve import Service

from .malformed import send_malformed
from .measure import save, show

CHANNELS, MISSING, MANY = 37, 0.8, 10_000
QUICK = {"max_epochs": 1, "random_state": 0, "validation_fraction": 0, "encoder": "mlp", "readout": "summary"}


def main(chosen: list[str]) -> None:
    tables = {"steps": steps, "service": service, "kills": kills, "malformed": malformed, "exported": exported}
    for name in chosen or tables:
        save("streams", {name: tables[name]()})


def rows(count: int, seed: int = 0) -> np.ndarray:
    """Rows of a table of 37 channels, most values missing."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, CHANNELS))
    values[rng.random(values.shape) < MISSING] = np.nan
    return values


def fitted() -> nc.NeuralCDEClassifier:
    """The estimator at its default size on such a table; how well it is trained makes no difference to speed."""
    X = np.stack([rows(20, seed) for seed in range(64)])
    series = nc.IrregularSeries.from_padded(X, channels=[f"c{k}" for k in range(CHANNELS)])
    return nc.NeuralCDEClassifier(**QUICK).fit(series, np.arange(64) % 2)


def median(run: Callable[[int], object], repeats: int = 3000, warm_up: int = 200) -> float:
    """Median seconds of single calls, after a warm-up."""
    seconds = []
    for k in range(repeats + warm_up):
        start = time.perf_counter()
        run(k)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[warm_up:])


def steps() -> list[dict[str, object]]:
    """One stream, and 10,000 at once, at the default size."""
    clf = fitted()
    model, streams = clf.module_, clf.stream()
    scales = clf.preparation_.scaler.channel_scales_
    state = model.update(model.start(scales=scales), torch.zeros(1), torch.from_numpy(rows(1)).float())
    t, x = torch.ones(1, dtype=torch.float64), torch.from_numpy(rows(1, 1)).float()
    names = [f"c{k}" for k in range(CHANNELS)]
    given = [{n: float(v) for n, v in zip(names, row, strict=True) if v == v} for row in rows(4000)]
    found: list[dict[str, object]] = [
        {
            "one stream": name,
            "median us": 1e6 * seconds,
            "at most": most,
        }
        for name, seconds, most in (
            ("model.update from arrays", median(lambda k: model.update(state, t, x)), 50),
            ("model.update and output", median(lambda k: model.output(model.update(state, t, x))), 100),
            ("push of a dictionary", median(lambda k: streams.push("a", float(k), given[k])), 200),
        )
    ]
    show(f"One stream, {CHANNELS} channels, {state.stepper.engine}", found)
    state = model.update(model.start(streams=MANY, scales=scales), np.zeros(MANY), rows(MANY))
    times, values, ids = np.ones(MANY), rows(MANY, 1), list(range(MANY))
    streams.push_many(ids, times * 0, values)
    clock = iter(range(1, 1000))
    runs = {
        "model.update": (lambda: model.update(state, times, values), 200_000),
        "model.update and output": (lambda: model.output(model.update(state, times, values)), 100_000),
        "push_many without predictions": (
            lambda: streams.push_many(ids, times * next(clock), values, predict=False),
            "",
        ),
        "push_many": (lambda: streams.push_many(ids, times * next(clock), values), ""),
    }
    many: list[dict[str, object]] = [
        {f"{MANY:,} streams": name, "per second": MANY / median(lambda k, run=run: run(), 30, 5), "at least": least}
        for name, (run, least) in runs.items()
    ]
    show(f"{MANY:,} streams at once, {torch.get_num_threads()} threads", many)
    size = (state.real.nbytes + state.double.nbytes) / MANY
    print(f"\nA state takes {size:.0f} bytes; a million take {size / 1e3:.2f} GB.")
    return [*found, *many, {"bytes per stream": size}]


@contextlib.contextmanager
def serving(
    model: Path, state: Path, *options: str, chores: float = 5.0
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The service on a free port, which looks every `chores` seconds whether its log is long."""
    code = (
        f"import sys, neuralcde.serve.app as app; app.SECONDS_BETWEEN_CHORES = {chores}; "
        "from neuralcde.cli import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "serve", str(model), "--port", "0", "--state", str(state), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)/docs", process.stdout.readline())
            assert found
            yield process, int(found[1])
        finally:
            process.terminate()


def service(rate: float = 200.0, seconds: float = 20.0, senders: int = 8) -> list[dict[str, object]]:
    """Pushes at a fixed rate, whether or not the service keeps up (open loop), from this process to another."""
    with tempfile.TemporaryDirectory() as folder:
        fitted().save(Path(folder) / "model")
        with serving(Path(folder) / "model", Path(folder) / "state") as (_, port):
            count = int(rate * seconds)
            bodies = rows(count)
            delays: list[float] = [0.0] * count
            begin = time.perf_counter() + 0.5

            def send(sender: int) -> None:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.connect()
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for k in range(sender, count, senders):
                    due = begin + k / rate
                    time.sleep(max(0.0, due - time.perf_counter()))
                    values = {f"c{c}": float(v) for c, v in enumerate(bodies[k]) if v == v}
                    connection.request("POST", f"/streams/s{k % 997}", json.dumps({"t": k, "values": values}))
                    answer = connection.getresponse()
                    answer.read()
                    assert answer.status == 200
                    delays[k] = time.perf_counter() - due  # since it was due, not since it was sent

            threads = [threading.Thread(target=send, args=(k,)) for k in range(senders)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    measured = sorted(delays[int(rate) :])  # without the first second
    found: list[dict[str, object]] = [
        {
            "pushes per second": rate,
            "p50 ms": 1e3 * measured[len(measured) // 2],
            "p99 ms": 1e3 * measured[int(0.99 * len(measured))],
            "longest ms": 1e3 * measured[-1],
            "p99 at most": 15,
        }
    ]
    show("The service, open loop, each push on the disk before its answer", found)
    return found


def kills(times: int = 10, senders: int = 4, others: int = 20_000) -> list[dict[str, object]]:
    """Ends under load, each while the states are saved; then every acknowledged row must be there."""
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        model, clf = Path(folder) / "model", fitted()
        clf.save(model)
        for name, kind in (("kill -9", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)):
            state, acknowledged, saving = Path(folder) / name, dict[str, float](), 0
            asyncio.run(_filled(clf, state, others))
            for _ in range(times):
                with serving(model, state, "--log-lines", "20", chores=0.05) as (process, port):
                    threads = [
                        threading.Thread(target=_send, args=(port, f"s{k}", acknowledged)) for k in range(senders)
                    ]
                    for thread in threads:
                        thread.start()
                    time.sleep(0.5)
                    deadline = time.monotonic() + 5
                    while not list(state.glob(".*.part")) and time.monotonic() < deadline:
                        time.sleep(0.001)
                    saving += bool(list(state.glob(".*.part")))
                    process.send_signal(kind)
                    for thread in threads:
                        thread.join()
                    process.wait(60)
            streams = _restored(clf, state)
            lost = sum(streams.last_time(id) < t for id, t in acknowledged.items())
            found.append(
                {
                    "end": name,
                    "times": times,
                    "of these while saving": saving,
                    "acknowledged rows": int(sum(acknowledged.values())),
                    "streams that lost a row": lost + (len(streams) != others + senders),
                }
            )
    show("Ends under load, while the states are saved", found)
    assert not any(row["streams that lost a row"] for row in found)
    return found


async def _filled(clf: nc.NeuralCDEClassifier, state: Path, count: int) -> None:
    """A folder with so many streams that saving them takes a while."""
    service = Service(clf, state)
    service.open()
    service.streams.push_many([f"other {k}" for k in range(count)], np.zeros(count), rows(count), predict=False)
    await service.close()


def _restored(clf: nc.NeuralCDEClassifier, state: Path) -> Streams:
    """The streams after a restart."""
    service = Service(clf, state)
    service.open()
    service.log.close()
    return service.streams


def _send(port: int, id: str, acknowledged: dict[str, float]) -> None:
    """Push rows until the service ends, and note the last one that was acknowledged."""
    connection, t = http.client.HTTPConnection("127.0.0.1", port, timeout=60), acknowledged.get(id, 0.0)
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            t += 1
            connection.request("POST", f"/streams/{id}", json.dumps({"t": t, "values": {"c0": t % 7}}))
            answer = connection.getresponse()
            answer.read()
            if answer.status not in (200, 409):  # 409: written before the end, and not acknowledged
                return
            acknowledged[id] = t


def malformed(count: int = 100_000) -> list[dict[str, object]]:
    """Malformed requests over a socket. None may give a 5xx, or stay without an answer."""
    with tempfile.TemporaryDirectory() as folder:
        fitted().save(Path(folder) / "model")
        with serving(Path(folder) / "model", Path(folder) / "state") as (process, port):
            statuses = send_malformed(port, count)
            assert process.poll() is None
            check = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            check.request("GET", "/health")
            assert check.getresponse().status == 200
    found: list[dict[str, object]] = [{"status": status, "answers": n} for status, n in sorted(statuses.items())]
    show(f"{count:,} malformed requests", found)
    assert not any(status.startswith("5") or status == "none" for status in statuses)
    return found


def exported() -> list[dict[str, object]]:
    """The exported step in onnxruntime: its largest difference from `Streams`, over whole series."""
    import onnxruntime

    rng, found, names = np.random.default_rng(0), [], ("x0", "x1", "x2")
    X, later = rng.normal(size=(80, 8, 3)), rng.normal(size=(40, 12, 3))
    for values in (X, later):
        values[rng.random(values.shape) < 0.5] = np.nan
    times = rng.uniform(0.2, 3.0, (40, 12)).cumsum(1)
    for kind in ("neural_cde", "gru_dt", "gru_d", "ode_rnn"):  # the steps of gru_ode depend on the gap
        for path in ("linear", "hermite", "rectilinear"):
            for options in ({}, {"encoder": "mlp", "readout": "summary"})[: 2 if kind == "neural_cde" else 1]:
                quick = {"max_epochs": 1, "random_state": 0, "validation_fraction": 0}
                clf = nc.NeuralCDEClassifier(model=kind, path=path, **quick, **options).fit(X, np.arange(80) % 3)
                with tempfile.TemporaryDirectory() as folder:
                    clf.export_stream(folder)
                    files = (Path(folder) / f"{name}.onnx" for name in ("update", "output"))
                    update, output = (onnxruntime.InferenceSession(file) for file in files)
                streams, start, worst = clf.stream(), clf.stream().start(), 0.0
                real, double = (part.repeat(40, 1).numpy() for part in (start.real, start.double))
                for k in range(12):
                    t, x = times[:, k].copy(), later[:, k].copy()
                    real, double = update.run(None, {"real": real, "double": double, "t": t, "x": x})
                    given = output.run(None, {"real": real, "double": double})[0]
                    ours = [streams.add(id, t[id], dict(zip(names, x[id], strict=True))).outputs for id in range(40)]
                    worst = max(worst, float(np.abs(given - torch.cat(ours).numpy()).max()))
                found.append({"model": kind, "path": path, "encoder": bool(options), "largest difference": worst})
    show("The exported step in onnxruntime, raw outputs", found)
    assert all(row["largest difference"] < 1e-5 for row in found)
    return found
