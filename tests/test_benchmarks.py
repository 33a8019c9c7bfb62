"""The results of benchmarks keep when and where each table was measured."""

import json

from benchmarks import measure


def test_a_table_measured_again_leaves_the_dates_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    file = tmp_path / "solve.json"
    old = {"date": "2026-01-01", "machine": "an old one", "neuralcde": "0.0.1", "torch": "2.0"}
    file.write_text(json.dumps({**old, "results": {"peers": [1], "modes": [2]}}))  # before each table had its own
    measure.save("solve", {"modes": [3]})
    measure.save("solve", {"rate": [4]})
    found = json.loads(file.read_text())
    assert found["results"] == {"peers": [1], "modes": [3], "rate": [4]}
    assert found["measured"]["peers"] == old
    assert found["measured"]["modes"]["machine"] != "an old one"
    assert found["measured"].keys() == found["results"].keys()
