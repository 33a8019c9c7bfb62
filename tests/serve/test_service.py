"""The service in this process: what it says, what it refuses, and what it keeps."""

import warnings

import numpy as np
import pytest

pytest.importorskip("fastapi")

from asgi import run
from served import CLF, QUICK, app

import neuralcde as nc

ROWS = [(0.0, {"pulse": 80}), (1.5, {}), (2.0, {"pulse": 95.5, "ascites": "Yes"}), (7.25, {"ascites": None})]


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
        assert set(answers) == {"200", "400", "401", "403", "408", "409", "413", "422", "429", "503"}
        assert (await call("GET", "/docs")).status == 200

    run(app(tmp_path), work)
