"""HTTP: addresses, queries, headers, bodies that do not arrive, and requests that wait."""

import asyncio
import json
import threading

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi")

from asgi import call, run, running
from served import CLF, QUICK, app, service

import neuralcde as nc
import neuralcde.serve.app as app_module
from neuralcde.cli.errors import WrongUseError
from neuralcde.cli.serve import serve, token_of_environment
from neuralcde.serve import Limits, make_app


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_that_are_not_positive_are_refused_by_name(value, tmp_path):
    for name in ("body", "rows", "streams", "idle_hours", "log_lines", "waiting", "body_seconds"):
        with pytest.raises(ValueError, match=f"{name}={value}: expected a positive number"):
            Limits(**{name: value})
    for name in ("max_streams", "max_rows", "max_body", "idle_hours", "log_lines"):
        with pytest.raises(WrongUseError, match=f"--{name.replace('_', '-')} {value}: expected a positive number"):
            serve(tmp_path, debug=True, **{name: value})


def test_ids_may_have_slashes_and_must_be_utf_8(tmp_path):
    async def work(call):
        for k, (path, raw) in enumerate(
            [
                ("/streams/a/b", b"/streams/a%2Fb"),
                ("/streams/a/b", b"/streams/a/b"),
                ("/streams/a/b/", b"/streams/a/b/"),
                ("/streams/客 é", b"/streams/%E5%AE%A2%20%C3%A9"),
                ("/streams/\ufffd", b"/streams/%EF%BF%BD"),
            ]
        ):
            answer = await call("POST", path, {"t": k}, raw_path=raw)
            assert answer.status == 200, answer.content
            assert answer.json()["id"] == path.removeprefix("/streams/")
            assert (await call("GET", path, raw_path=raw)).json()["t"] == k
        for raw in (b"/streams/%ff", b"/streams/%fe", b"/streams/a%C3"):  # what servers make of it is the same
            for method in ("POST", "GET", "DELETE"):
                refused = await call(method, "/streams/\ufffd", {"t": 9}, raw_path=raw)
                assert refused.status == 422
                assert "an id is text in UTF-8" in refused.json()["detail"]
        assert (await call("GET", "/streams/\ufffd")).json()["t"] == 4
        assert (await call("DELETE", "/streams/a/b")).status == 200
        assert (await call("POST", "/streams/", {"t": 0})).status == 422

    run(app(tmp_path), work)


def test_queries_must_be_known_and_given_once(tmp_path):
    async def work(call):
        await call("POST", "/streams/a", {"t": 0})
        for method, query, message in (
            ("GET", b"AT=9", "the query has 'AT'; expected at"),
            ("GET", b"at=1&at=2", "the query has 'at' twice"),
            ("POST", b"y=1", "the query has 'y'; expected none"),
            ("DELETE", b"at=1", "the query has 'at'; expected none"),
        ):
            refused = await call(method, "/streams/a", {"t": 1}, query=query)
            assert refused.status == 422
            assert message in refused.json()["detail"]
        assert (await call("GET", "/streams/a", query=b"at=1")).status == 200

    run(app(tmp_path), work)


def test_what_a_browser_sends_for_another_site_is_refused(tmp_path):
    async def work(call):
        for origin in (b"http://evil.example", b"null", b"http://test:81", b"http://[", b""):
            for method, path in (("POST", "/streams/a"), ("POST", "/predict"), ("DELETE", "/streams/a")):
                refused = await call(method, path, {"t": 0}, headers=[(b"origin", origin)])
                assert refused.status == 403, (origin, refused.content)
        own = [(b"origin", b"http://test"), (b"content-type", b"application/x-www-form-urlencoded")]  # /docs; curl -d
        assert (await call("POST", "/streams/a", {"t": 0}, headers=own)).status == 200
        assert (await call("POST", "/streams/a", {"t": 1}, headers=own[1:])).status == 200

    run(app(tmp_path), work)


@pytest.mark.parametrize("token", ["secret", "gehéim 1"])
def test_tokens(token, tmp_path):
    async def work(call):
        for scheme in ("Bearer", "bearer", "BEARER"):
            header = (b"authorization", f"{scheme} {token}".encode())
            assert (await call("GET", "/metrics", headers=[header])).status == 200
        for wrong in (f"Basic {token}", f"Bearer {token}x", token, "Bearer"):
            for path in ("/metrics", "/streams/a"):
                refused = await call("GET", path, headers=[(b"authorization", wrong.encode())])
                assert refused.status == 401
                assert refused.headers["www-authenticate"].startswith("Bearer")

    run(app(tmp_path, token=token), work)


@pytest.mark.parametrize("token", ["", " \n", "a\nb"], ids=repr)
def test_a_token_that_is_none_does_not_leave_the_service_open(token, monkeypatch):
    """As when a secret was not found. White space around a token, as at the end of a file, is left out."""
    monkeypatch.setenv("NEURALCDE_TOKEN", token)
    with pytest.raises(WrongUseError, match="NEURALCDE_TOKEN is set, but it is not a token"):
        token_of_environment()
    monkeypatch.setenv("NEURALCDE_TOKEN", "secret\n")
    assert token_of_environment() == "secret"
    monkeypatch.delenv("NEURALCDE_TOKEN")
    assert token_of_environment() is None


def test_the_description_names_tokens_and_refusals(tmp_path):
    async def work(call):
        found = (await call("GET", "/openapi.json")).json()
        assert found["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
        paths = found["paths"]
        assert paths["/streams/{id}"]["post"]["security"] == [{"token": []}]
        assert paths["/health"]["get"]["security"] == []
        assert "503" in paths["/health"]["get"]["responses"]
        assert "401" in paths["/metrics"]["get"]["responses"]

    run(app(tmp_path / "a", token="secret"), work)
    assert "components" not in app(tmp_path / "b").openapi() or "securitySchemes" not in app(tmp_path).openapi()


def test_gauges_have_all_their_digits(tmp_path):
    made = service(tmp_path)
    made.gauges = lambda: {"streams": 1234567, "log_write_seconds": 0.123456789}

    async def work(call):
        lines = (await call("GET", "/metrics")).content.decode().splitlines()
        assert {"neuralcde_streams 1234567", "neuralcde_log_write_seconds 0.123456789"} <= set(lines)

    run(make_app(made), work)


async def send_half(running_app, path, rest):
    """A request whose body stops in the middle; `rest` gives the message after it."""
    messages, first = [], True

    async def receive():
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": b'{"t":', "more_body": True}
        return await rest()

    async def send(message):
        messages.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": [(b"host", b"test")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await running_app(scope, receive, send)
    return messages[0]["status"] if messages else None


def test_a_client_that_is_gone_is_no_failure(tmp_path):
    async def gone():
        return {"type": "http.disconnect"}

    async def work():
        made = app(tmp_path)
        async with running(made):
            await send_half(made, "/streams/a", gone)
            await send_half(made, "/predict", gone)
            text = (await call(made, "GET", "/metrics")).content.decode()
        assert 'neuralcde_requests_total{route="/streams/{id}",status="499"} 1' in text.splitlines()
        assert 'neuralcde_requests_total{route="/predict",status="499"} 1' in text.splitlines()

    asyncio.run(work())


def test_a_body_must_arrive_in_time(tmp_path):
    async def never():
        await asyncio.sleep(20)

    async def work():
        made = app(tmp_path, body_seconds=0.05)
        async with running(made):
            for path in ("/streams/a", "/predict"):
                assert await asyncio.wait_for(send_half(made, path, never), 10) == 408

    asyncio.run(work())


def test_a_limited_number_of_predictions_waits(tmp_path):
    """And bodies are parsed beside the event loop."""
    made, release, threads = service(tmp_path, waiting=2), threading.Event(), []
    predict = made.predict

    def slow(body):
        threads.append(threading.current_thread())
        release.wait(20)
        return predict(body)

    made.predict = slow
    body = {"rows": [{"id": "a", "t": 0}]}

    async def work():
        running_app = make_app(made)
        async with running(running_app):
            tasks = [asyncio.create_task(call(running_app, "POST", "/predict", body)) for _ in range(3)]
            await asyncio.sleep(0.1)
            refused = await asyncio.wait_for(call(running_app, "POST", "/predict", body), 10)
            assert refused.status == 503
            assert refused.headers["retry-after"] == "1"
            assert (await call(running_app, "POST", "/streams/a", {"t": 0})).status == 200
            release.set()
            assert [answer.status for answer in await asyncio.gather(*tasks)] == [200] * 3
            assert (await call(running_app, "POST", "/predict", body)).status == 200

    asyncio.run(work())
    assert len(threads) == 4


def test_large_bodies_are_parsed_beside_the_event_loop(tmp_path, monkeypatch):
    threads, parsed = [], app_module.parsed

    def noted(content):
        threads.append(threading.current_thread() is threading.main_thread())
        return parsed(content)

    monkeypatch.setattr(app_module, "parsed", noted)

    async def work(call):
        rows = [{"id": "a", "t": t, "values": {"pulse": 80}} for t in range(3000)]
        assert (await call("POST", "/predict", {"rows": rows})).status == 200
        assert (await call("POST", "/streams/a", json.dumps({"t": 0}).encode() + b" " * 100_000)).status == 200
        assert (await call("POST", "/streams/a", {"t": 1})).status == 200

    run(app(tmp_path), work)
    assert threads == [False, False, True]


def dated(zone=None):
    """A model whose times are dates, in hours."""
    days = pd.Timestamp("2026-01-01", tz=zone) + pd.to_timedelta(np.tile([0.0, 1.0], 12), unit="h")
    frame = pd.DataFrame({"id": np.repeat(np.arange(12), 2), "time": days, "x": np.arange(24) % 5.0})
    return nc.NeuralCDEClassifier(**QUICK).fit(
        nc.IrregularSeries.from_long(frame, id="id", time="time", unit="h"), np.arange(12) % 2
    )


def test_text_of_digits_is_a_date_or_nothing(tmp_path):
    """Seconds since 1970 that nobody meant were read from 2026 and 20260131; Python and the service agree."""
    clf = dated()
    streams = clf.stream()
    midnight = clf.preparation_.format.numbers(np.datetime64("2026-01-31"))
    for k, text in enumerate(("20260131", "2026-01-31", "2026-01-31T00:00")):
        streams.push(k, text, {})
        assert streams.last_time(k) == midnight
    for wrong in ("2026", "202601", "1769860800", "5.5", "1e3", "noon", "2026-01-31T00:00Z", True, np.True_):
        with pytest.raises(TypeError, match="is not a time like those of the training table"):
            streams.push("wrong", wrong, {})

    async def work(call):
        for k, text in enumerate(("20260131", "2026-01-31", "2026-01-31T00:00", float(midnight))):
            assert (await call("POST", f"/streams/{k}", {"t": text})).json()["t"] == midnight
        for wrong in ("2026", "202601", "1769860800", "5.5", "1e3", "noon", "2026-01-31T00:00Z", True):
            refused = await call("POST", "/streams/wrong", {"t": wrong})
            assert refused.status == 422, wrong
        rows = [{"id": "a", "t": "20260131"}]
        at = (await call("POST", "/predict", {"rows": rows, "at": ["2026-01-31T01:00"]})).json()
        assert at["predictions"][0]["t"] > midnight
        # A query is text: there, what is no date may be the number that answers give.
        for query in ("2026-01-31", "20260131", repr(float(midnight)), str(midnight + 1)):
            answer = await call("GET", "/streams/0", query=f"at={query}".encode())
            assert answer.status == 200, answer.content

    run(app(tmp_path, clf), work)


def test_dates_with_a_zone(tmp_path):
    clf = dated("Europe/Berlin")
    streams = clf.stream()
    streams.push("a", "2026-01-31T01:00+01:00", {})
    with pytest.raises(TypeError, match=r"it has no time zone, but .* had Europe/Berlin; write it as in"):
        streams.push("b", "2026-01-31T00:00", {})

    async def work(call):
        answer = await call("POST", "/streams/a", {"t": "2026-01-31T00:00Z"})
        assert answer.json()["t"] == streams.last_time("a")
        refused = await call("POST", "/streams/b", {"t": "2026-01-31T00:00"})
        assert refused.status == 422
        assert "it has no time zone, but the table" in refused.json()["detail"]

    run(app(tmp_path, clf), work)


def test_truth_values_are_no_times():
    with pytest.raises(TypeError, match="t=True is not a time"):
        CLF.stream().push("v", True, {})
