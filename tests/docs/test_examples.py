"""Every example by feature runs, is short, uses public names only, and prints what its docstring promises."""

import ast
import contextlib
import io
import re
import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest
from page_runs import ROOT, example_output

import neuralcde as nc

pytestmark = pytest.mark.xdist_group("examples")  # test_pages.py shares what the examples print

FOLDER = ROOT / "examples" / "by_feature"
REPLAY = ROOT / "examples" / "replay_a_day.py"
EXAMPLES = sorted(file.name for file in FOLDER.glob("*.py"))
LONGEST = 60  # lines


def numbers(pattern, text):
    """The numbers matched by a pattern; at least one must match."""
    found = [float(number) for number in re.findall(pattern, text)]
    assert found, f"{pattern} is not in\n{text}"
    return found


def table_to_model(text):
    assert numbers(r"unseen stays: ([\d.]+)", text)[0] > 0.85
    risks = dict(re.findall(r"in truth (\w+): ill with probability ([\d.]+)", text))
    assert float(risks["ill"]) > 0.5 > float(risks["well"])


def missing_values_and_intensity(text):
    without, counted = numbers(r"AUROC on unseen stays ([\d.]+)", text)
    assert without < 0.65
    assert counted > 0.9
    assert "channels with counts: time, count of lactate, count of pulse, lactate, pulse" in text


def static_features(text):
    without, known = numbers(r"accuracy ([\d.]+)", text)
    assert without < 0.65
    assert known > 0.9
    assert "place=track, place=ward, age" in text


def predictions_over_time(text):
    early, *_, late = numbers(r"AUROC ([\d.]+)", text)
    assert early < 0.65
    assert late > 0.95
    changes = numbers(r"changes the risk by ([\d.]+)", text)
    assert changes[:2] == [0, 0]  # hours 2 and 5: before anything happened
    assert min(changes[2:]) > 0.5


def targets_per_row(text):
    assert numbers(r"AUROC over rows ([\d.]+)", text)[0] > 0.85
    fine, broken = (numbers(rf": {state}, broken with probability ([\d.]+)", text) for state in ("fine", "broken"))
    assert max(fine) < 0.5 < broken[-1]


def cross_validation(text):
    assert min(numbers(r"accuracy ([\d.]+)", text)) > 0.7
    assert len(re.search(r"by fold \[(.*)\]", text)[1].split(",")) == 3
    assert "best of 2: {'path': " in text


def own_training_loop(text):
    assert numbers(r"accuracy on unseen spirals: ([\d.]+)", text)[0] > 0.95
    losses = numbers(r"loss ([\d.]+)", text)
    assert losses[-1] <= losses[0] < 0.3


def own_field(text):
    assert numbers(r"Rotation: \|z\| ends at ([\d.]+)", text) == [1.0]
    assert re.search(r"Rotation: .*; engine torch: ", text)
    first, last = numbers(r"loss ([\d.]+)", text)
    assert last < first / 4


def choosing_steps_and_gradients(text):
    estimates, errors = (numbers(rf"(?m)^\w+ +\w+, .*{column}$", text) for column in (r" (\S+) +\S+", r" \S+ +(\S+)"))
    assert all(e / 3 < t < e * 3 for e, t in zip(estimates, errors, strict=True))
    linear, hermite, natural = errors[:3], errors[3:6], errors[6:]
    assert linear[0] < 0.1 < 1 < min(hermite[0], natural[0])
    assert max(hermite[2], natural[2]) < 1e-2
    assert max(numbers(r"backprop (\S+),", text)) < 1e-12
    off = numbers(r"backsolve (\S+)", text)
    assert off == sorted(off, reverse=True)
    assert off[-1] < off[0] / 50  # the error falls with the solver's order


def resume_after_a_kill(text):
    safe = numbers(r"exit code -9, (\d+) of 20 epochs are safe", text)[0]
    assert 3 <= safe < 20
    assert "resumed: 20 epochs" in text
    assert "the same weights as without a break, to the last bit" in text


def multilabel_and_regression(text):
    assert min(numbers(r"right for ([\d.]+)", text) + numbers(r"and ([\d.]+) of the trips", text)) > 0.8
    assert min(numbers(r"R2 ([\d.]+)", text)) > 0.8
    ends = re.search(r"ends at \[(.*)\], predicted \[(.*)\]", text)
    truth, found = ([float(x) for x in part.split(",")] for part in ends.groups())
    assert found == pytest.approx(truth, abs=0.5)


def comparing_models(text):
    assert [line.split()[0] for line in text.splitlines()] == ["neural_cde", "gru_ode", "gru_dt", "gru_d", "ode_rnn"]
    assert min(numbers(r"accuracy ([\d.]+)", text)) > 0.7


def signature_features(text):
    averages, first, second, third = numbers(r"loops (-?[\d.]+)", text)
    assert max(averages, first) < 0.2
    assert min(second, third) > 0.999


def forecasting(text):
    error, spread = numbers(r"unseen waves ([\d.]+)", text) + numbers(r"forecast ([\d.]+)", text)
    assert error < spread / 2


def conformal_sets(text):
    for kind in ("classes", "numbers"):
        share, error = re.search(rf"{kind}: ([\d.]+) .* standard error ([\d.]+)", text).groups()
        assert abs(float(share) - 0.9) < 2 * float(error)
    assert numbers(r"a set has ([\d.]+)", text)[0] < 2
    width, deviation = re.search(r"is ([\d.]+) wide; the deviation of the numbers is ([\d.]+)", text).groups()
    assert float(width) < 1.8 * float(deviation)  # a normal distribution alone would need 3.3


def paths(text):
    schemes = re.findall(r"ControlPath\((\w+), 1 series, 3 channels", text)
    assert set(schemes) == {"natural_cubic", "hermite", "linear", "rectilinear", "smoothing"}
    assert Path(re.search(r"picture: (.*)", text)[1]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_shows_what_its_docstring_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    globals()[name.removesuffix(".py")](example_output(FOLDER / name))
    assert not list(tmp_path.iterdir())  # the example leaves no files


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_short_says_how_to_run_it_and_uses_public_names(name):
    text = (FOLDER / name).read_text()
    assert len(text.splitlines()) <= LONGEST
    tree = ast.parse(text)
    assert re.search(rf"(?m)^    python examples/by_feature/{name}( \[.*\])?$", ast.get_docstring(tree, clean=False))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "nc"
    }
    assert used
    assert used <= set(nc.__all__)
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module for module in modules if module.startswith("neuralcde")} <= {"neuralcde.report"}
    private = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr)]
    assert not private


def test_a_day_is_replayed_through_the_service(tmp_path):
    """Fewer stays, and fewer rounds of training than the example has."""
    pytest.importorskip("uvicorn")
    main, picture, printed = runpy.run_path(str(REPLAY))["main"], tmp_path / "day.png", io.StringIO()
    with (
        mock.patch.dict(main.__globals__, {"STAYS": 60, "SHOWN": 4, "EPOCHS": 4}),
        mock.patch.object(sys, "argv", [str(REPLAY), str(picture)]),
        contextlib.redirect_stdout(printed),
    ):
        main()
    bad, good, *_ = risks = numbers(r"bed-\d: ([\d.]+)", printed.getvalue())
    assert len(risks) == 4
    assert bad > good
    assert numbers(r"(\d+) rows;", printed.getvalue())[0] >= 60
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_there_are_at_least_ten_examples():
    assert len(EXAMPLES) >= 10
