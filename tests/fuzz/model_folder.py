"""Changed model folders: `nc.load` names the damage, or returns a model that predicts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import resource
import struct
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as as_safetensors

import neuralcde as nc
from neuralcde.series import FarValueWarning
from neuralcde.solve import SolveError

FILES = ("config.json", "preprocess.json", "model.safetensors")
KINDS = ("binary", "multiclass", "labels", "regression", "ensemble")
MEMORY = 500 * 2**20
HERE = "@here@"  # a placeholder for text that a change inserts into a JSON file

# Text inserted into JSON verbatim: JSON libraries do not write it, and readers may not expect it.
LONG = {
    "@many digits@": "9" * 4000,
    "@too many digits@": "9" * 5000,
    "@deep@": "[" * 200 + "]" * 200,
    "@too deep@": "[" * 100_000 + "]" * 100_000,
    "@too deep objects@": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "@long@": f'"{"a" * 100_000}"',
}
TEXTS = st.sampled_from(
    [
        *LONG,
        *("NaN", "Infinity", "-Infinity", "1e999", "-0.0", "0", "1", "-1", "2", "3.5", "1e-320", "1e300"),
        *("18446744073709551616", "9223372036854775807", "30000", "1000000", "4611686018427387904", "-1.5"),
        *("true", "false", "null", '""', '"a"', '"\\ud800"', '"\\u0000"', '"é💉"', '"../config.json"', '"/dev/zero"'),
        *("[]", "{}", "[[]]", "[null]", '[["a", 1], ["b", 2]]', '{"a": 1, "a": 2}', "[0, 1, 2, 3]", '{"counts": [0]}'),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NODES = st.integers(0, 10**6)  # a place in a file, modulo the number of places
CHANGES = st.one_of(
    st.tuples(st.just("replace"), NODES, TEXTS | VALUES.map(json.dumps)),
    st.tuples(st.just("delete"), NODES, st.just("")),
    st.tuples(
        st.just("rename"), NODES, st.text(max_size=6) | st.sampled_from(["", "model.safetensors", "/etc/passwd"])
    ),
    st.tuples(st.just("copy"), NODES, NODES),
    st.tuples(
        st.just("number"), NODES, st.sampled_from(["0", "-1", "1e-320", "1e-30", "1e30", "1e300", "30000", "1000000"])
    ),
)
NUMBERS = st.sampled_from([float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e20, 0.0, 1e-40])
TENSORS = st.one_of(
    st.tuples(st.just("number"), NODES, NUMBERS),
    st.tuples(st.just("fill"), NODES, NUMBERS),
    st.tuples(st.just("index"), NODES, st.sampled_from([-1, 0, 1, 2, 7, 50, 2**31, 2**62, -(2**63)])),
    st.tuples(st.just("shape"), NODES, st.lists(st.integers(0, 5), max_size=3)),
    st.tuples(
        st.just("type"), NODES, st.sampled_from(["float64", "float16", "bfloat16", "int64", "bool", "complex64"])
    ),
    st.tuples(st.just("drop"), NODES, st.none()),
    st.tuples(st.just("rename"), NODES, st.text(max_size=8)),
    st.tuples(st.just("header"), NODES, TEXTS),
)
BYTES = st.one_of(
    st.tuples(st.just("flip"), NODES, st.integers(1, 255)),
    st.tuples(st.just("cut"), NODES, st.none()),
    st.tuples(st.just("insert"), NODES, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("raw"), NODES, st.binary(max_size=64)),
)
PLACES = st.sampled_from(["missing", "pipe", "folder", "link out", "link to a device", "link inside", "link to itself"])
PARTS = st.one_of(
    st.tuples(st.just("json"), st.sampled_from(FILES[:2]), st.lists(CHANGES, min_size=1, max_size=3)),
    st.tuples(st.just("json"), st.sampled_from(FILES[:2]), st.lists(CHANGES, min_size=1, max_size=3)),
    st.tuples(st.just("tensors"), st.just("model.safetensors"), st.lists(TENSORS, min_size=1, max_size=3)),
    st.tuples(st.just("bytes"), st.sampled_from(FILES), st.lists(BYTES, min_size=1, max_size=3)),
    st.tuples(st.just("place"), st.sampled_from(FILES), PLACES),
)
CASES = st.tuples(st.sampled_from(KINDS), st.booleans(), st.lists(PARTS, min_size=1, max_size=2))
"""The kind of model, whether the digests are recomputed after the changes, and the changes."""


def check(case: tuple[str, bool, list[Any]], folder: Path) -> None:
    """Load a changed folder: an error names the folder, or the loaded model predicts finite numbers."""
    kind, recompute, parts = case
    contents, places = dict(saved(kind)), {}
    for how, name, changes in parts:
        if how == "place":
            places[name] = changes
            continue
        change = {"json": _changed_json, "tensors": _changed_tensors, "bytes": _changed_bytes}[how]
        contents[name] = change(contents[name], changes)
    if recompute:
        contents["config.json"] = _with_digests(contents)
    folder = folder / "model"
    folder.mkdir()
    for name, content in contents.items():
        _put(folder, name, content, places.get(name))
    with limited_memory(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FarValueWarning)  # changed limits may be anywhere
        try:
            model = nc.load(folder)
        except (FileNotFoundError, ValueError) as refusal:
            assert str(folder) in str(refusal), refusal
            assert len(str(refusal)) < 2000, len(str(refusal))
            return
        _predicts(model)


@functools.cache
def saved(kind: str) -> dict[str, bytes]:
    """The files of a small fitted model."""
    rng = np.random.default_rng(0)
    if kind == "multiclass":  # fitted on a data frame with column names
        import pandas

        X = pandas.DataFrame(rng.normal(size=(12, 4)), columns=list("abcd"))
    else:
        pairs = [
            (np.arange(6.0), np.where(rng.random((6, 2)) < 0.2, np.nan, rng.normal(size=(6, 2)))) for _ in range(12)
        ]
        static = np.stack([np.arange(12.0), np.where(np.arange(12) % 3 == 0, np.nan, 1.0 * (np.arange(12) % 2))], 1)
        X = nc.IrregularSeries.from_list(pairs, channels=["x", "y"], static=static, static_names=["s", "u"])
    if kind == "regression":  # fitted on a table with a column of text
        frame = X.to_long("pandas").assign(y=np.resize(["low", None, "high"], 72))
        X = nc.IrregularSeries.from_long(frame, id="id", time="time", static=["s", "u"])
    place = np.arange(12)
    targets = {"binary": place % 2, "multiclass": np.array(list("uvw"))[place % 3], "regression": 1.0 * place}
    targets["ensemble"] = np.array(list("uvw"))[place % 3]
    targets["labels"] = np.stack([place % 2, place % 3 == 0], 1).astype(int)
    options = {"max_epochs": 2, "hidden": 3, "width": 4, "depth": 2, "random_state": 0, "per_row": False}
    if kind != "regression":
        options["class_weight"] = {"binary": {0: 1.0, 1: 2.0}}.get(kind, "balanced")
    make = nc.NeuralCDERegressor if kind == "regression" else nc.NeuralCDEClassifier
    model = {"labels": "gru_d", "regression": "ode_rnn"}.get(kind, "neural_cde")
    callbacks = ()
    if kind == "ensemble":  # with callbacks, members are trained in this process
        options |= {"members": 2, "boosting": True}
        callbacks = (lambda row: None,)
    with tempfile.TemporaryDirectory() as folder:
        make(model, **options).fit(X, targets[kind], callbacks=callbacks).save(folder)
        return {name: (Path(folder) / name).read_bytes() for name in FILES}


def _changed_json(content: bytes, changes: list[Any]) -> bytes:
    try:
        document = {"": json.loads(content)}
    except (ValueError, RecursionError):  # an earlier change left no valid JSON
        return content
    texts = []
    for how, node, value in changes:
        places = list(_places(document))
        if how == "number":  # replaces another number
            places = [place for place in places if type(place[0][place[1]]) in (int, float)] or places
        container, key = places[node % len(places)]
        if how == "delete":
            del container[key]
        elif how == "rename" and isinstance(container, dict):
            container[value] = container.pop(key)
        elif how == "copy":
            other, name = places[value % len(places)]
            texts.append(json.dumps(other[name]))
            container[key] = f"{HERE}{len(texts) - 1}"
        elif how in ("replace", "number"):
            texts.append(LONG.get(value, value))
            container[key] = f"{HERE}{len(texts) - 1}"
        if not document:
            return b""
    text = json.dumps(next(iter(document.values())))
    for number, value in enumerate(texts):
        text = text.replace(f'"{HERE}{number}"', value)
    return text.encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in JSON as a container and a key or position in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _changed_tensors(content: bytes, changes: list[Any]) -> bytes:
    for how, node, value in changes:
        try:
            tensors = from_safetensors(content)
        except Exception:
            return content
        names = sorted(tensors)
        if not names:
            return content
        name = names[node % len(names)]
        tensor = tensors[name]
        if how == "header":
            content = _with_header(content, node, value)
            continue
        kinds = {"index": tensor.dtype == torch.int64, "number": tensor.is_floating_point()}
        if tensor.numel() and kinds.get(how, False):
            tensor.view(-1)[node % tensor.numel()] = value
        elif how == "fill" and tensor.is_floating_point():
            tensor.fill_(value)
        elif how == "shape":
            tensors[name] = torch.zeros(value)
        elif how == "type":
            tensors[name] = torch.zeros(tensor.shape, dtype=getattr(torch, value))
        elif how in ("drop", "rename"):
            del tensors[name]
            if how == "rename":
                tensors[value] = tensor
        with contextlib.suppress(Exception):  # safetensors refuses some names
            content = as_safetensors(tensors)
    return content


def _with_header(content: bytes, node: int, text: str) -> bytes:
    size = struct.unpack("<Q", content[:8])[0]
    header = _changed_json(content[8 : 8 + size], [("replace", node, text)])
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _changed_bytes(content: bytes, changes: list[Any]) -> bytes:
    for how, node, value in changes:
        place = node % (len(content) + 1)
        if how == "flip" and place < len(content):
            content = content[:place] + bytes([content[place] ^ value]) + content[place + 1 :]
        elif how == "cut":
            content = content[:place]
        elif how == "insert":
            content = content[:place] + value + content[place:]
        elif how == "raw":
            content = value
    return content


def _with_digests(contents: dict[str, bytes]) -> bytes:
    """config.json with the digests of the other files, if it is still an object with digests."""
    try:
        config = json.loads(contents["config.json"])
        for name in FILES[1:]:
            if name in config["files"]:
                config["files"][name] = hashlib.sha256(contents[name]).hexdigest()
        return json.dumps(config).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return contents["config.json"]


def _put(folder: Path, name: str, content: bytes, place: str | None) -> None:
    file = folder / name
    if place is None:
        file.write_bytes(content)
    elif place == "pipe":
        os.mkfifo(file)
    elif place == "folder":
        file.mkdir()
    elif place == "link out":
        outside = folder.with_name("outside")
        outside.write_bytes(content)
        file.symlink_to(outside)
    elif place == "link to a device":
        file.symlink_to("/dev/zero")
    elif place == "link inside":
        (folder / f"of {name}").write_bytes(content)
        file.symlink_to(folder / f"of {name}")
    elif place == "link to itself":
        file.symlink_to(file)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Limit memory to the current size plus `MEMORY`; allocating more raises an error that no test expects."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    before = resource.getrlimit(resource.RLIMIT_AS)
    if pages is None or before[0] != resource.RLIM_INFINITY:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _predicts(model: Any) -> None:
    """Assert that predictions for two small series are finite, or that the error names a series."""
    template = model.preparation_.template()
    generator = torch.Generator().manual_seed(0)
    series = dataclasses.replace(
        template,
        times=torch.tensor([0.0, 1.0, 2.5, 0.0, 0.5], dtype=torch.float64),
        values=torch.randn(5, template.channels, generator=generator).to(template.dtype),
        offsets=torch.tensor([0, 3, 5]),
        static=torch.randn(2, template.static.shape[1], generator=generator).to(template.static.dtype),
        ids=np.array(["first", "second"], dtype=object),
    )
    rows = 5 if model.per_row else 2
    try:
        found = model.predict(series)
    except (ValueError, SolveError) as refusal:  # finite weights and scales may still overflow
        assert "series 'first'" in str(refusal) or "series 'second'" in str(refusal), refusal
        return
    if isinstance(model, nc.NeuralCDERegressor):
        assert np.isfinite(found).all()
        assert found.shape == ((rows,) if model.task_.flat else (rows, model.task_.outputs))
        return
    p = model.predict_proba(series)
    assert np.isfinite(p).all()
    assert p.shape == (rows, len(model.classes_))
    if found.ndim == 1:
        assert set(found.tolist()) <= set(model.classes_.tolist())
        np.testing.assert_allclose(p.sum(1), 1.0)
