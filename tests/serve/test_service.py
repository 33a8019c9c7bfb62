"""The service in this process: what it says, what it refuses, and what it keeps."""

import asyncio
import json
import random
import warnings

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi")

from asgi import call, run, running

import neuralcde as nc
from neuralcde.serve import Limits, LogError, Service, make_app

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}


def fitted(**options):
    rng = np.random.default_rng(0)
    stays = np.repeat(np.arange(30), 4)
    frame = pd.DataFrame(
        {
            "stay": stays,
            "hour": np.tile([0.0, 1.0, 2.5, 4.0], 30),
            "pulse": rng.normal(80, 10, 120),
            "ascites": rng.choice(["Yes", "No"], 120),
            "age": np.repeat(rng.normal(60, 5, 30), 4),
        }
    )
    frame.loc[rng.random(120) < 0.4, "pulse"] = np.nan
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["age"])
    return nc.NeuralCDEClassifier(**QUICK, **options).fit(series, np.where(np.arange(30) % 2, "ill", "well"))


CLF = fitted()
ROWS = [(0.0, {"pulse": 80}), (1.5, {}), (2.0, {"pulse": 95.5, "ascites": "Yes"}), (7.25, {"ascites": None})]


def service(folder, clf=CLF, **limits):
    return Service(clf, folder, Limits(**limits))


def app(folder, clf=CLF, token=None, **limits):
    return make_app(service(folder, clf, **limits), token=token)


def same(answer, expected):
    probabilities = [answer[f"p_{name}"] for name in CLF.classes_]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6, atol=1e-6)
    assert answer["prediction"] == CLF.classes_[int(np.argmax(expected))]


def test_pushes_and_looks_give_the_predictions_of_streams(tmp_path):
    streams = CLF.stream()

    async def work(call):
        for t, values in ROWS:
            static = {"age": 61} if t == 0 else None
            answer = await call("POST", "/streams/bed 7", {"t": t, "values": values, "static": static})
            assert answer.status == 200, answer.content
            same(answer.json(), streams.push("bed 7", t, values, static=static))
            assert answer.json() | {"id": "bed 7", "t": t} == answer.json()
        for at in (7.25, 9.0, "1e1"):
            answer = await call("GET", "/streams/bed 7", query=f"at={at}".encode())
            same(answer.json(), streams.peek("bed 7", float(at)))
        same((await call("GET", "/streams/bed 7")).json(), streams.peek("bed 7"))
        assert (await call("DELETE", "/streams/bed 7")).json() == {"id": "bed 7", "deleted": True}
        for method in ("GET", "DELETE"):
            gone = await call(method, "/streams/bed 7")
            assert gone.status == 404
            assert gone.json() == {"detail": "there is no stream 'bed 7'; push its first row."}

    run(app(tmp_path), work)


def test_the_same_row_again_is_accepted_and_other_rows_at_old_times_are_conflicts(tmp_path):
    async def work(call):
        first = await call("POST", "/streams/a", {"t": 1, "values": {"pulse": 80}})
        again = await call("POST", "/streams/a", {"t": 1.0, "values": {"pulse": 80.0, "ascites": None}})
        assert again.json() == first.json()
        for body in ({"t": 1, "values": {"pulse": 81}}, {"t": 1}, {"t": 0.5, "values": {"pulse": 80}}):
            refused = await call("POST", "/streams/a", body)
            assert refused.status == 409
            assert "stream 'a' has a row at hour=1.0 already" in refused.json()["detail"]
        assert (await call("GET", "/streams/a", query=b"at=0")).status == 409
        assert (await call("GET", "/streams/a")).json() == first.json()

    run(app(tmp_path), work)


def test_predictions_of_whole_series(tmp_path):
    rows = [{"id": "x", "t": t, "values": values} for t, values in reversed(ROWS)]
    rows += [{"id": 5, "t": 2.0, "values": {"pulse": 70}}]
    streams = CLF.stream()
    for t, values in ROWS:
        expected = streams.push("x", t, values, static={"age": 50})

    async def work(call):
        answer = (await call("POST", "/predict", {"rows": rows, "static": {"x": {"age": 50}}})).json()
        assert [case["id"] for case in answer["predictions"]] == ["x", "5"]
        same(answer["predictions"][0], expected)
        body = {"rows": rows, "static": {"x": {"age": 50}}, "at": [1.75, 20]}
        at = (await call("POST", "/predict", body)).json()["predictions"]
        assert [(case["id"], case["t"]) for case in at] == [("x", 1.75), ("x", 20.0), ("5", 1.75), ("5", 20.0)]
        same(at[1], streams.peek("x", 20))
        assert at[2] == {"id": "5", "t": 1.75}  # it had not begun

    run(app(tmp_path), work)


@pytest.mark.parametrize("per_row", [False, True])
def test_calibrated_models_say_what_predict_proba_says(per_row, tmp_path):
    rng = np.random.default_rng(1)
    series = nc.IrregularSeries.from_list([([0.0, 1.0], rng.normal(size=(2, 1))) for _ in range(40)], channels=["x"])
    y = np.arange(80 if per_row else 40) % 2
    clf = nc.NeuralCDEClassifier(**QUICK, per_row=per_row, calibrate="temperature").fit(series, y)
    one = nc.IrregularSeries.from_list([([0.0, 1.0], [[0.5], [2.0]])], channels=["x"])
    whole = clf.predict_proba(one)[-1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        at = clf.predict_proba_at(one, [1.0])[0, 0, 1]
    assert (abs(whole - at) < 1e-6) == per_row

    async def work(call):
        rows = [{"t": 0.0, "values": {"x": 0.5}}, {"t": 1.0, "values": {"x": 2.0}}]
        answer = await call("POST", "/predict", {"rows": [row | {"id": "a"} for row in rows]})
        assert abs(answer.json()["predictions"][0]["p_1"] - whole) < 1e-6
        for row in rows:
            answer = await call("POST", "/streams/a", row)
        assert abs(answer.json()["p_1"] - at) < 1e-6
        assert abs((await call("GET", "/streams/a")).json()["p_1"] - at) < 1e-6

    run(app(tmp_path, clf), work)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is not JSON"),
        (b"{", 400, "the body is not JSON"),
        (b"\xff\xfe", 400, "the body is not JSON"),
        (b'{"t": NaN}', 400, "NaN is not a number of JSON"),
        (b'{"t": 1, "t": 2}', 400, "an object has a name twice"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b"[1]", 422, "the body is a JSON list; expected an object"),
        ({}, 422, "the body has no 't'; expected t, values, static"),
        ({"t": "noon"}, 422, "the body: hour must be a number"),
        ({"t": True}, 422, "hour must be a number"),
        ({"t": 1e999}, 400, "not a number of JSON"),
        (b'{"t": 1e999}', 422, "hour must be a number"),
        ({"t": 1, "value": {}}, 422, "the body has 'value'; expected t, values, static"),
        ({"t": 1, "values": [1]}, 422, "values is a JSON list; expected an object"),
        ({"t": 1, "values": {"plus": 1}}, 422, "there is no channel 'plus'; the model knows 'pulse', 'ascites'"),
        ({"t": 1, "values": {"pulse": "80"}}, 422, "channel 'pulse' is '80'; expected a number"),
        ({"t": 1, "values": {"pulse": 1e300}}, 422, "leave it out if it was not observed"),
        ({"t": 1, "static": {"age": {}}}, 422, "static feature 'age' is {}; expected a number"),
        (b" " * 3000, 413, "the body is larger than 2,000 bytes"),
    ],
)
def test_rows_that_are_refused_leave_no_trace(body, status, message, tmp_path):
    async def work(call):
        answer = await call("POST", "/streams/a", body)
        assert answer.status == status, answer.content
        assert message in answer.json()["detail"]
        assert (await call("GET", "/streams/a")).status == 404

    run(app(tmp_path, body=2000) if status == 413 else app(tmp_path), work)


def test_limits(tmp_path):
    rows = [{"id": "a", "t": t} for t in range(4)]

    async def work(call):
        assert (await call("POST", "/predict", {"rows": rows})).status == 413
        assert (await call("POST", "/predict", {"rows": rows[:3]})).status == 200
        assert (await call("POST", "/predict", {"rows": rows[:1], "at": [1, 2, 3, 4]})).status == 413
        assert (await call("POST", "/predict", {"rows": rows[:1] * 2})).status == 422
        for k, status in enumerate((200, 200, 429)):
            answer = await call("POST", f"/streams/{k}", {"t": 0})
            assert answer.status == status
        assert "there are 2 streams, and no more are accepted" in answer.json()["detail"]
        assert (await call("POST", "/streams/1", {"t": 1})).status == 200

    run(app(tmp_path, rows=3, streams=2), work)


def test_a_token(tmp_path):
    right = [(b"authorization", b"Bearer secret")]

    async def work(call):
        paths = [("POST", "/streams/a", {"t": 0}), ("GET", "/streams/a"), ("POST", "/predict", {}), ("GET", "/metrics")]
        for request in (*paths, ("DELETE", "/streams/a")):
            for wrong in ([], [(b"authorization", b"Bearer secre")], [(b"authorization", "Bearer é".encode("latin1"))]):
                assert (await call(*request, headers=wrong)).status == 401
            assert (await call(*request, headers=right)).status != 401
        assert (await call("GET", "/health")).status == 200

    run(app(tmp_path, token="secret"), work)


def test_health_metrics_and_the_description_of_the_interface(tmp_path):
    async def work(call):
        for t in (0, 0, 1):
            await call("POST", "/streams/a", {"t": t})
        await call("POST", "/streams/a", {"t": -1})
        far = {"t": 2, "values": {"pulse": 9000}}
        assert (await call("POST", "/streams/a", far)).json()["far"] == {"pulse": 9000}
        await call("POST", "/predict", {"rows": [far | {"id": "b"}]})
        assert (await call("GET", "/health")).json() == {"status": "ok"}
        text = (await call("GET", "/metrics")).content.decode()
        for line in (
            'neuralcde_requests_total{route="/streams/{id}",status="200"} 4',
            'neuralcde_requests_total{route="/streams/{id}",status="409"} 1',
            "neuralcde_rows_total 3",
            "neuralcde_repeated_rows_total 1",
            'neuralcde_far_values_total{channel="pulse"} 2',
            "neuralcde_streams 1",
            "neuralcde_log_lines 3",
            'neuralcde_request_seconds_bucket{route="/streams/{id}",le="+Inf"} 5',
        ):
            assert line in text.splitlines(), text
        described = (await call("GET", "/openapi.json")).json()
        assert set(described["paths"]) == {"/predict", "/streams/{id}", "/health", "/metrics"}
        answers = described["paths"]["/streams/{id}"]["post"]["responses"]
        assert set(answers) == {"200", "400", "401", "409", "413", "422", "429", "503"}
        assert (await call("GET", "/docs")).status == 200

    run(app(tmp_path), work)


def pushed(folder, rows, *, clf=CLF, end=False, **limits):
    """Push rows, then stop: regularly, or as if killed. Gives the service."""
    made = service(folder, clf, **limits)

    async def work():
        made.open()
        for id, t, values in rows:
            await made.push(id, {"t": t, "values": values})
            await made.compact_if_long()
        if end:
            await made.close()
        else:
            made.log.close()

    asyncio.run(work())
    return made


def test_streams_go_on_after_an_end_and_after_a_kill(tmp_path):
    rows = [(f"s{k % 3}", float(k), {"pulse": 60.0 + k}) for k in range(12)]
    first = pushed(tmp_path, rows[:5], end=True)
    assert first.log.lines == 0
    second = pushed(tmp_path, rows[5:8])
    third = pushed(tmp_path, rows[8:], log_lines=2)
    fourth = service(tmp_path)
    assert fourth.open() < 4
    whole = CLF.stream()
    for row in rows:
        whole.push(*row)
    assert fourth.streams.to_bytes() == whole.to_bytes() == third.streams.to_bytes() != second.streams.to_bytes()
    assert fourth.log.number == 12
    assert fourth.touched == pytest.approx(third.touched, abs=1e-2)


def test_an_incomplete_last_line_is_cut_off_and_a_damaged_one_is_named(tmp_path):
    pushed(tmp_path, [("a", 0.0, {}), ("a", 1.0, {})])
    (file,) = service(tmp_path).log.files()
    content = file.read_bytes()
    with file.open("ab") as log:
        log.write(content.splitlines(keepends=True)[-1][:-9])
    assert service(tmp_path).open() == 2
    assert file.read_bytes() == content
    file.write_bytes(content.replace(b'"a"', b'"b"', 1))
    with pytest.raises(LogError, match=r"log-0+, line 1: damaged"):
        service(tmp_path).open()
    file.write_bytes(content.splitlines(keepends=True)[1])
    with pytest.raises(LogError, match=r"line 1: damaged, or lines before it are missing"):
        service(tmp_path).open()


def test_streams_of_another_model_are_refused(tmp_path):
    pushed(tmp_path, [("a", 0.0, {})])
    with pytest.raises(ValueError, match="its states are those of another model"):
        service(tmp_path, fitted(pool="last")).open()


def test_a_row_is_acknowledged_when_it_is_on_the_disk(tmp_path, monkeypatch):
    """While the disk is busy no answer comes, and rows that arrive meanwhile are written together."""
    made, writes, free = service(tmp_path), [], asyncio.Event()
    made.open()
    write = made.log._write_now

    async def slow(function, *arguments):
        await free.wait()
        writes.append(arguments[0].count(b"\n"))
        return function(*arguments)

    async def work():
        monkeypatch.setattr(asyncio, "to_thread", slow)
        waiting = [asyncio.create_task(made.push(str(k), {"t": 0})) for k in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        again = asyncio.create_task(made.push("0", {"t": 0}))
        await asyncio.sleep(0)
        assert not again.done()
        free.set()
        await asyncio.gather(*waiting, again)

    asyncio.run(work())
    assert write == made.log._write_now
    assert sum(writes) == 5
    assert len(writes) <= 2


def test_a_repeated_row_waits_for_no_rows_after_it(tmp_path):
    """A row that comes again is answered although the log never rests."""
    made = service(tmp_path)

    async def work():
        made.open()
        await made.push("a", {"t": 0})
        stop = asyncio.Event()

        async def busy(id):
            for t in range(10_000):
                if stop.is_set():
                    break
                await made.push(id, {"t": t})

        loads = [asyncio.create_task(busy(str(k))) for k in range(3)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(made.push("a", {"t": 0}), 20)
        assert not any(load.done() for load in loads)
        stop.set()
        await asyncio.gather(*loads)
        made.log.close()

    asyncio.run(work())


def test_when_the_log_cannot_be_written_nothing_more_is_accepted(tmp_path):
    async def work(call):
        assert (await call("POST", "/streams/a", {"t": 0})).status == 200

        def fails(content):
            raise OSError("no space left")

        made.log._write_now = fails
        for _ in range(2):
            refused = await call("POST", "/streams/a", {"t": 1})
            assert refused.status == 503
            assert "the log cannot be written" in refused.json()["detail"]
        assert (await call("DELETE", "/streams/a")).status == 503
        assert (await call("GET", "/health")).status == 503
        assert (await call("GET", "/streams/a")).status == 200

    made = service(tmp_path)
    run(make_app(made), work)
    again = service(tmp_path)
    again.open()
    assert again.streams.last_time("a") == 0.0


def test_idle_streams_expire(tmp_path):
    made = service(tmp_path, idle_hours=2.0)

    async def work():
        async with running(make_app(made)):
            await made.push("old", {"t": 0})
            await made.push("new", {"t": 0})
            now = made.touched["new"]
            made.touched["old"] -= 7300
            assert await made.expire(now) == 1
            assert made.streams.ids == ["new"]
            assert await made.expire(now) == 0

    asyncio.run(work())
    again = service(tmp_path)
    again.open()
    assert again.streams.ids == ["new"]


def test_pushes_go_on_while_the_log_is_compacted(tmp_path):
    made = service(tmp_path)

    async def work():
        made.open()
        for k in range(30):
            pushes = [asyncio.create_task(made.push(str(j), {"t": k, "values": {"pulse": j}})) for j in range(5)]
            await asyncio.gather(made.compact() if k % 3 == 0 else asyncio.sleep(0), *pushes)
        made.log.close()

    asyncio.run(work())
    again = service(tmp_path)
    assert 0 < again.open() <= 15
    assert again.streams.to_bytes() == made.streams.to_bytes()


# ---- anything else is refused with a 4xx ----

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
