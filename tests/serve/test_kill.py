"""The service as a process: it is killed under load, and no acknowledged row is lost."""

import contextlib
import http.client
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import neuralcde as nc
from neuralcde.cli.serve import is_loopback, serve
from neuralcde.serve import Limits, Service

COMMAND = str(Path(sys.executable).parent / "neuralcde")
KILLS, STREAMS = 2, 4
QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}


@contextlib.contextmanager
def serving(model, *options):
    """A service on a free port; gives the process and the port."""
    command = [COMMAND, "serve", str(model), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/docs", process.stdout.readline())
            assert found
            yield process, int(found[1])
        finally:
            process.kill()


def push_until_killed(port, id, first, acknowledged):
    """Push rows to one stream until the connection breaks; note the times that were acknowledged."""
    t = first
    with (
        contextlib.suppress(OSError, http.client.HTTPException),
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
    ):
        while True:
            connection.request("POST", f"/streams/{id}", json.dumps({"t": t, "values": {"x0": t % 7}}))
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status in (200, 409), content  # 409: pushed before the kill, and not acknowledged
            acknowledged[id] = t
            t += 1


def test_kills_under_load_lose_no_acknowledged_row(tmp_path):
    X = [[[float(k % 5)], [float(k % 3)]] for k in range(20)]
    clf = nc.NeuralCDEClassifier(**QUICK).fit(X, [0, 1] * 10)
    clf.save(tmp_path / "model")
    acknowledged = {}
    for _ in range(KILLS):
        with serving(tmp_path / "model", "--state", str(tmp_path / "state")) as (process, port):
            loads = []
            for k in range(STREAMS):
                id = f"s{k}"
                load = threading.Thread(
                    target=push_until_killed, args=(port, id, acknowledged.get(id, -1.0) + 1, acknowledged)
                )
                loads.append(load)
                load.start()
            threading.Event().wait(1.0)
            process.send_signal(signal.SIGKILL)
            for load in loads:
                load.join()
    assert len(acknowledged) == STREAMS
    assert min(acknowledged.values()) >= 1
    service = Service(nc.load(tmp_path / "model"), tmp_path / "state")
    service.open()
    service.log.close()
    for id, t in acknowledged.items():
        assert service.streams.last_time(id) >= t
        alone = clf.stream()
        for k in range(int(service.streams.last_time(id)) + 1):
            expected = alone.push(id, float(k), {"x0": float(k % 7)})
        assert (service.streams.peek(id) == expected).all()


def test_others_are_told_apart_from_this_machine():
    hosts = {
        "127.0.0.1": True,
        "::1": True,
        "localhost": True,
        "0.0.0.0": False,
        "10.0.0.7": False,
        "ward.org": False,
    }
    assert {host: is_loopback(host) for host in hosts} == hosts
    assert inspect.signature(serve).parameters["host"].default == "127.0.0.1"


def test_a_service_ends_regularly_and_a_second_one_is_refused(tmp_path):
    clf = nc.NeuralCDEClassifier(**QUICK).fit([[[0.0], [1.0]], [[1.0], [0.0]]] * 6, [0, 1] * 6)
    clf.save(tmp_path / "model")
    with serving(tmp_path / "model") as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/streams/a", json.dumps({"t": 0}))
        assert connection.getresponse().status == 200
        connection.close()
        second = subprocess.run(
            [COMMAND, "serve", str(tmp_path / "model"), "--port", "0"], capture_output=True, text=True
        )
        assert second.returncode == 2
        assert "is in use" in " ".join(second.stderr.split())
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert "a" in clf.stream(tmp_path / "model" / "streams" / "streams.safetensors")
    missing = subprocess.run([COMMAND, "serve", str(tmp_path / "none")], capture_output=True, text=True, env=os.environ)
    assert missing.returncode == 2


def test_half_sent_requests_do_not_hold_up_the_end(tmp_path):
    """Nor does a connection without a request. The states are saved all the same."""
    clf = nc.NeuralCDEClassifier(**QUICK).fit([[[0.0], [1.0]], [[1.0], [0.0]]] * 6, [0, 1] * 6)
    clf.save(tmp_path / "model")
    code = (
        "import pathlib, neuralcde.cli.serve as s; s.SECONDS_TO_FINISH = 1; "
        f"s.serve(pathlib.Path({str(tmp_path / 'model')!r}), port=0)"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/docs", process.stdout.readline())[1])
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3)]
        head = b"POST /streams/zz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        held[0].sendall(head + b"\r\n{")
        held[1].sendall(head)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/streams/a", json.dumps({"t": 0}))
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert held[0].recv(99).startswith(b"HTTP/1.1 503")
        process.wait(20)  # far less than the body may take
        assert "Traceback" not in process.stderr.read()
    assert "a" in clf.stream(tmp_path / "model" / "streams" / "streams.safetensors")
    assert Limits().body_seconds > 20
