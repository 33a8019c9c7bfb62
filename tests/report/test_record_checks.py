"""Untrusted records: the command names the damaged file, and no text of a record becomes HTML."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from report_runs import NASTY, fitted
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as as_safetensors

import neuralcde.report
from neuralcde.cli.report import report
from neuralcde.report import write_report
from neuralcde.report.run import read_run

pytestmark = pytest.mark.xdist_group("records")  # these tests share slow fixtures

COST = {"seconds": 1.5, "peak_memory_mb": 200.0, "parameters": 99, "epochs": 1, "best_epoch": 1}
NAN, HUGE, DELETED = float("nan"), 10**400, object()


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """One folder per kind of task, as `neuralcde fit` writes it."""
    root = tmp_path_factory.mktemp("runs")
    for kind in ("multiclass", "regression", "rows"):
        fitted(kind, root / kind, count=24, max_epochs=1)
        (root / kind / "metrics.json").write_text(json.dumps({"test": {}, "series": 6, "cost": COST}))
        (root / kind / "config.toml").write_text('label = "y"\ntable = "t.csv"\nstatic = ["age", "unit"]\n')
    return root


@pytest.fixture
def copied(originals, tmp_path):
    def copy(kind="multiclass"):
        return shutil.copytree(originals / kind, tmp_path / "run")

    return copy


def change(file, way, value):
    """Replace or delete the value at a path of keys in a JSON file."""
    document = json.loads(file.read_text())
    *before, last = way
    place = document
    for key in before:
        place = place[key]
    if value is DELETED:
        del place[last]
    else:
        place[last] = value
    file.write_text(json.dumps(document))


def seal(folder):
    """Update the digests to the current files, so that they do not reveal a change."""
    for name in ("config.json", "data.json"):
        document = json.loads((folder / name).read_text())
        document["files"] = {
            other: hashlib.sha256((folder / other).read_bytes()).hexdigest() for other in document["files"]
        }
        (folder / name).write_text(json.dumps(document))


def refused(folder, name, capsys):
    """Assert that the command exits with 2 and a message that names the file."""
    with pytest.raises(SystemExit) as end:
        report(folder)
    said = " ".join(capsys.readouterr().err.split())
    assert end.value.code == 2
    assert name in said
    assert "Traceback" not in said
    assert not (folder / "report.html").exists()


DATA = {
    ("written",): (5, None, [], "\ud800"),
    ("series",): ([], None, {}),
    ("series", "rows"): (0, -1, "many", NAN),
    ("series", "values"): (1.5, HUGE, None),
    ("series", "lengths"): (None, [], {}),
    ("series", "lengths", "quantiles"): ([], [1.0] * 6, [2.0, 1.0] * 3 + [0.0], [NAN] * 7, "1234567"),
    ("series", "lengths", "edges"): ([], [1.0], [3.0, 2.0, 1.0], [1e300] * 3, None),
    ("series", "lengths", "counts"): ([], [1] * 99, ["1"], [-1]),
    ("series", "gaps", "logarithmic"): (1, "yes"),
    ("series", "gaps", "edges"): ([],),
    ("series", "channels"): ([], None, [{"name": "pulse"}], [{"name": "other", "missing": 0.5}] * 2),
    ("series", "channels", 0, "missing"): (2.0, -1.0, "half", NAN, '0"></i><script>'),
    ("series", "static"): (None, [[]], [{"name": 5, "missing": 0.0}]),
    ("series", "test"): (99, "all", None),
    ("cases",): ([], {}, {"training": "a", "test": 1}),
    ("targets",): ([], {}, {"training": [], "test": []}, {"training": [1], "test": [1]}),
    ("targets", "training"): ([1, 2], [1, 2, "3"], [1, 2, NAN], [[1], [2], [3]], None),
    ("far",): ([], {}, None, {"training": [], "test": []}),
    ("far", "test"): ({"counts": [{"name": "other", "count": 1}], "listed": []}, {"counts": [], "listed": [{}]}),
    ("far", "training", "counts"): (None, [{"name": "pulse", "count": 1}], [{"name": "pulse", "count": 0}], [5]),
    ("far", "training", "listed"): (None, ["x"], [{"series": "a", "time": 0.0, "channel": "pulse", "value": 1e9}]),
    ("examples",): ([[99, "worst"]], [[0]], [[0, "odd"]], [["0", "worst"]], [5], None, [], [[0, "worst"]] * 9),
    ("ids",): (["a"], [None] * 3, [[]] * 3, ["a", 1, 2.5], "abc", None),
    ("findings",): (None, [{}], [{"kind": "outcome", "columns": "a", "text": "b"}], ["text"]),
    ("by_time",): ([], {"from_start": False, "points": []}, {"points": None}, 5),
    ("by_group",): (None, [[]], [{"feature": "age", "group": "old", "series": 0, "value": 1.0}]),
    ("importances",): ([], {"series": 3}, {"series": 3, "unit": "", "columns": [{"column": "a", "net": -1.0}]}),
    ("test_ids",): (None, "short", 5),
    ("spread",): (1.0, 0, -1.0, "low", [], DELETED),  # a single model has none
    ("machine",): ([], {}, None),
    ("machine", "threads"): ("two", NAN),
    ("machine", "versions"): ([], {}, {"neuralcde": 5}, {"neuralcde": "1", "torch": []}),
    ("files",): ([], {}, None, {"model.safetensors": "no"}, {"/dev/zero": "0" * 64}),
}


@pytest.mark.parametrize(
    ("way", "value"),
    [(way, value) for way, values in DATA.items() for value in values],
    ids=lambda x: ".".join(map(str, x)) if isinstance(x, tuple) else str(x)[:20].encode("ascii", "replace").decode(),
)
def test_a_changed_summary_is_refused(copied, way, value):
    folder = copied()
    change(folder / "data.json", way, value)
    with pytest.raises(ValueError, match=r"(data\.json|test_outputs\.safetensors) is damaged: |different runs"):
        read_run(folder)


@pytest.mark.parametrize("kind", ["multiclass", "regression", "rows"])
def test_every_part_of_a_summary_is_required(copied, kind):
    folder = copied(kind)
    whole = (folder / "data.json").read_text()
    for key in json.loads(whole):
        (folder / "data.json").write_text(whole)
        change(folder / "data.json", [key], DELETED)
        with pytest.raises(ValueError, match=rf"data\.json is damaged: its content has no '{key}'"):
            read_run(folder)


ODD = {
    "list": b"[]",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "digits": b'{"cost": ' + b"9" * 5000 + b"}",
    "not UTF-8": b"\xff\xfe",
    "number": b"5",
    "nothing": b"",
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["data.json", "metrics.json", "config.json", "preprocess.json"])
def test_invalid_json_is_named_by_the_command(copied, name, odd, capsys):
    folder = copied()
    (folder / name).write_bytes(ODD[odd])
    refused(folder, name, capsys)


@pytest.mark.parametrize(
    "cost",
    [
        [],
        "low",
        5,
        {},
        COST | {"seconds": "long"},
        COST | {"seconds": NAN},
        COST | {"parameters": 1.5},
        {"seconds": 1.0},
    ],
    ids=str,
)
def test_invalid_metrics_are_named_by_the_command(copied, cost, capsys):
    folder = copied()
    change(folder / "metrics.json", ["cost"], cost)
    refused(folder, "metrics.json", capsys)


@pytest.mark.parametrize(
    "row", [{}, [], {"epoch": 1}, {"epoch": 1, "loss": "low", "rate": 1.0, "seconds": 1.0}], ids=str
)
def test_an_invalid_history_is_named_by_the_command(copied, row, capsys):
    folder = copied()
    change(folder / "config.json", ["members", 0, "history", 0], row)
    refused(folder, "config.json", capsys)


@pytest.mark.parametrize(
    "content", [b"label = ", b"\xff", b"a = " + b"[" * 100_000, b"x = 1\nx = 2", b"#" * 2**21], ids=lambda x: str(x[:8])
)
def test_an_invalid_config_toml_is_named_by_the_command(copied, content, capsys):
    folder = copied()
    (folder / "config.toml").write_bytes(content)
    refused(folder, "config.toml", capsys)


@pytest.mark.parametrize("name", ["data.json", "metrics.json", "config.toml", "test_outputs.safetensors"])
def test_pipes_and_devices_are_named_by_the_command(copied, name, capsys):
    folder = copied()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, name, capsys)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    refused(folder, name, capsys)


def tensors_with(folder, name, **parts):
    file = folder / name
    found = from_safetensors(file.read_bytes())
    found |= {key: make(found[key]) for key, make in parts.items() if key in found}
    file.write_bytes(as_safetensors({key: value.contiguous() for key, value in found.items()}))
    seal(folder)


WRONG_TENSORS = {
    "test_outputs.safetensors": {
        "outputs": [lambda x: x[:-1], lambda x: x[:, :1], lambda x: x * torch.nan, lambda x: x.long()],
        "targets": [lambda x: x[:-1], lambda x: x + 0.5, lambda x: x - 1, lambda x: x * torch.inf, lambda x: x.float()],
        "counts": [lambda x: x[:-1], lambda x: x + 1, lambda x: x - 1, lambda x: x.double(), lambda x: x[:0]],
    },
    "examples.safetensors": {
        "times": [lambda x: x[:-1], lambda x: -x, lambda x: x * torch.nan, lambda x: x.float(), lambda x: x[0]],
        "values": [lambda x: x[:, :1], lambda x: x + torch.inf, lambda x: x.double()],
        "offsets": [lambda x: x + 1, lambda x: x[:-1], lambda x: x * 0, lambda x: x.double(), lambda x: x * 2**40],
        "static": [lambda x: x[:-1], lambda x: x + torch.inf],
    },
}


@pytest.mark.parametrize(
    ("name", "part", "number"),
    [(n, part, k) for n, parts in WRONG_TENSORS.items() for part, makes in parts.items() for k in range(len(makes))],
)
def test_changed_tensors_are_refused(copied, name, part, number):
    folder = copied()
    tensors_with(folder, name, **{part: WRONG_TENSORS[name][part][number]})
    with pytest.raises(ValueError, match=rf"{re.escape(name)} is damaged: "):
        read_run(folder)


def test_examples_with_other_row_counts_than_the_test_are_refused(copied):
    folder = copied("rows")
    data = json.loads((folder / "data.json").read_text())
    positions = [position for position, _ in data["examples"]]
    counts = from_safetensors((folder / "test_outputs.safetensors").read_bytes())["counts"]
    other = next(k for k in range(len(counts)) if counts[k] != counts[positions[0]])
    change(folder / "data.json", ["examples", 0, 0], other)
    with pytest.raises(ValueError, match=r"examples\.safetensors is damaged: examples do not have as many rows"):
        read_run(folder)


def test_a_model_without_finite_outputs_is_named_by_the_command(copied, capsys):
    """Finite weights may still be too large for finite outputs."""
    folder = copied()
    tensors_with(folder, "model.safetensors", **{"0.readout.linear.weight": lambda x: torch.full_like(x, 3e38)})
    refused(folder, "cannot be reported", capsys)


def names_replaced(value, kept):
    """Replace every string in JSON by a script tag, except the strings in `kept`."""
    if isinstance(value, dict):
        return {key: names_replaced(part, kept) for key, part in value.items()}
    if isinstance(value, list):
        return [names_replaced(part, kept) for part in value]
    return NASTY if isinstance(value, str) and value not in kept else value


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_no_text_of_a_record_becomes_html(copied, kind):
    folder = copied(kind)
    data = json.loads((folder / "data.json").read_text())
    kept = {"surest", "typical", "worst", "0" * 64, *(channel["name"] for channel in data["series"]["channels"])}
    files, data["test_ids"] = data.pop("files"), "0" * 64
    value = {"series": "a", "time": 0.0, "channel": "pulse", "value": 99.0, "usual": [0.0, 1.0], "limits": [-9.0, 9.0]}
    data["far"]["test"] = {"counts": [{"name": "pulse", "count": 1}], "listed": [value]}
    data = names_replaced(data, kept)
    data["machine"]["versions"][NASTY] = NASTY
    (folder / "data.json").write_text(json.dumps(data | {"files": files}))
    text = json.dumps(NASTY)
    (folder / "config.toml").write_text(
        f"label = {text}\ntable = {text}\nstatic = [{text}, [{text}]]\n{text} = {text}\n"
        f"inside = {{ {text} = {text} }}\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config["neuralcde"] = config["torch"] = NASTY
    if kind == "multiclass":
        config["task"]["classes"] = [f"{NASTY}{k}" for k in range(3)]
        config["parameters"]["class_weight"] = [[NASTY, 1.0]]
    (folder / "config.json").write_text(json.dumps(config))
    preparation = json.loads((folder / "preprocess.json").read_text())
    preparation["format"] |= {"id": NASTY, "time": NASTY}
    (folder / "preprocess.json").write_text(json.dumps(preparation))
    seal(folder)
    page = write_report(folder).read_text()
    own = (Path(neuralcde.report.__file__).parent / "script.js").read_text()
    assert page.count(f"<script>{own}</script>") == 1
    page = page.replace(f"<script>{own}</script>", "")
    assert "&lt;script&gt;" in page
    assert not re.search(r"<\s*script|<[^>]*\son\w+\s*=|javascript:", page, re.IGNORECASE)
    tags = {tag.lower() for tag in re.findall(r"<\s*([a-zA-Z][\w-]*)", page)}
    original = read_run(folder).estimator  # the page was made from the changed model
    assert original.preparation_.format.time == NASTY
    assert tags <= TAGS, tags - TAGS


TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "footer",
        "nav",
        "h1",
        "h2",
        "h3",
        "p",
        "span",
    ),
    *(
        "b",
        "a",
        "div",
        "dl",
        "dt",
        "dd",
        "ul",
        "li",
        "i",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "strong",
    ),
    *("details", "summary", "section", "small", "label", "input", "output"),
    *("figure", "figcaption", "svg", "g", "path", "defs", "use", "clippath", "rect", "text", "tspan", "image"),
}


def test_an_unchanged_record_is_read(originals):
    for kind in ("multiclass", "regression", "rows"):
        run = read_run(originals / kind)
        assert run.cost["parameters"] == 99
        assert run.label == "y"
        assert np.isfinite(run.outputs.numpy()).all()
