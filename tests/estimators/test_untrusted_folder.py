"""Untrusted model folders: only known files are read, and all of their content is checked."""

import hashlib
import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as as_safetensors

import neuralcde as nc
from fuzz.model_folder import limited_memory

pytestmark = pytest.mark.xdist_group("folders")  # these tests share slow fixtures

FILES = ("config.json", "preprocess.json", "model.safetensors")
WALKS = np.random.default_rng(0).normal(size=(12, 5)).cumsum(1)
DELETED = object()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The files of a classifier (a) fitted on series with missing values, and of a regressor (b) fitted on a frame."""
    folder = tmp_path_factory.mktemp("models")
    values = np.where(np.random.default_rng(1).random((12, 5)) < 0.2, np.nan, WALKS)
    series = nc.IrregularSeries.from_padded(
        values[:, :, None], static=np.where(np.arange(12) % 3, 1.0 * np.arange(12), np.nan)[:, None]
    )
    options = {"max_epochs": 2, "hidden": 3, "width": 4, "depth": 1, "random_state": 0, "scale": "robust"}
    nc.NeuralCDEClassifier(**options, class_weight={0: 1.0, 1: 3.0}).fit(series, np.arange(12) % 2).save(folder / "a")
    nc.NeuralCDERegressor(**options).fit(pd.DataFrame(WALKS, columns=list("abcde")), WALKS[:, 0]).save(folder / "b")
    return {kind: {name: (folder / kind / name).read_bytes() for name in FILES} for kind in "ab"}


def write(folder, contents, *, digests=True):
    """Write the files, with the digests of their current content."""
    contents = dict(contents)
    if digests:
        config = json.loads(contents["config.json"])
        config["files"] |= {name: hashlib.sha256(contents[name]).hexdigest() for name in FILES[1:]}
        contents["config.json"] = json.dumps(config).encode()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def changed(content, way, value):
    """JSON with the value at a path of keys replaced or deleted."""
    document = json.loads(content)
    *before, last = way
    place = document
    for key in before:
        place = place[key]
    if value is DELETED:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document).encode()


def refused(folder, words):
    with limited_memory(), pytest.raises(ValueError, match=words) as refusal:
        nc.load(folder)
    assert str(folder) in str(refusal.value)


@pytest.mark.parametrize("name", ["/dev/zero", "../secret", "/etc/hostname", "report.html"])
def test_only_known_files_are_read(original, name, tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "report.html").write_text("page")
    config = json.loads(original["a"]["config.json"])
    config["files"][name] = hashlib.sha256(b"secret").hexdigest()
    write(folder, original["a"] | {"config.json": json.dumps(config).encode()})
    refused(folder, r"config\.json is damaged: files has .*which are not files of an estimator")


@pytest.mark.parametrize("name", FILES)
def test_only_regular_files_inside_the_folder_are_read(original, name, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder, original["a"])
    file, outside = folder / name, tmp_path / "outside"
    content = file.read_bytes()
    expected = nc.load(folder).predict(series_like(nc.load(folder)))
    file.unlink()
    os.mkfifo(file)
    refused(folder, r"is damaged: it is not a regular file")
    file.unlink()
    file.symlink_to("/dev/zero")
    refused(folder, r"is damaged: it is a link out of the folder, to /dev/zero")
    outside.write_bytes(content)
    file.unlink()
    file.symlink_to(outside)
    refused(folder, r"is damaged: it is a link out of the folder")
    file.unlink()
    file.symlink_to(file)
    refused(folder, r"is damaged: .*[Ll]oop|too many")
    file.unlink()
    file.mkdir()
    refused(folder, r"is damaged: it is not a regular file")
    file.rmdir()
    (folder / "inside").write_bytes(content)
    file.symlink_to("inside")
    (tmp_path / "alias").symlink_to(folder)
    again = nc.load(tmp_path / "alias")  # links inside the folder, and a link to the folder itself, are accepted
    np.testing.assert_array_equal(again.predict(series_like(again)), expected)


def series_like(estimator):
    template = estimator.preparation_.template()
    pairs = [([0.0, 1.0], np.ones((2, template.channels))), ([0.0], np.zeros((1, template.channels)))]
    static = np.zeros((2, template.static.shape[1]))
    return nc.IrregularSeries.from_list(
        pairs, channels=template.channel_names, static=static, static_names=template.static_names
    )


@pytest.mark.parametrize("name", FILES)
def test_files_above_the_size_limit_are_not_read(original, name, tmp_path):
    write(tmp_path, original["a"])
    os.truncate(tmp_path / name, 2**40)  # a sparse file, which takes no space on the disk
    refused(tmp_path, r"it has 1,099,511,627,776 bytes, and up to [0-9,]+ are read")


def test_a_model_too_large_to_load_is_not_saved(original, tmp_path, monkeypatch):
    estimator = nc.load(write(tmp_path, original["a"]))
    monkeypatch.setitem(nc.estimators.saving.FILES, "config.json", 100)
    with pytest.raises(ValueError, match=r"config\.json would have .* bytes, and load reads up to 100"):
        estimator.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"hidden": 30_000, "width": 30_000}, r"describes a model with .* of shape \(\d+.*but model\.safetensors"),
        ({"hidden": 100_000, "width": 100_000, "depth": 1000}, "describes a model with"),
        ({"depth": 10**6}, 'depth must be "auto" or an integer from 1 to 1000, got 1000000'),
        ({"hidden": 10**30}, "hidden must be an integer from 1 to 100000"),
        ({"substeps": 10**9}, "substeps must be an integer from 1 to 1000"),
        ({"model": "gru_d"}, r"describes a model with 0\.cell"),
    ],
    ids=str,
)
def test_sizes_are_compared_before_memory_is_allocated(original, parameters, words, tmp_path):
    content = original["a"]["config.json"]
    for name, value in parameters.items():
        content = changed(content, ["parameters", name], value)
    write(tmp_path, original["a"] | {"config.json": content})
    refused(tmp_path, words)


def test_the_output_size_is_compared_before_memory_is_allocated(original, tmp_path):
    task = {"name": "multilabel", "labels": 2**62, "positive_weights": None}
    write(tmp_path, original["a"] | {"config.json": changed(original["a"]["config.json"], ["task"], task)})
    refused(tmp_path, r"config\.json is damaged")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(original, value, tmp_path):
    weights = from_safetensors(original["a"]["model.safetensors"])
    weights["0.readout.linear.weight"][0, 0] = value
    write(tmp_path, original["a"] | {"model.safetensors": as_safetensors(weights)})
    refused(tmp_path, r"model\.safetensors is damaged: 0\.readout\.linear\.weight is not made of finite")


def test_weights_with_other_names_or_dtypes_are_refused(original, tmp_path):
    weights = from_safetensors(original["a"]["model.safetensors"])
    write(tmp_path, original["a"] | {"model.safetensors": as_safetensors(weights | {"more": torch.zeros(1)})})
    refused(tmp_path, "describes a model with more of shape none")
    double = {name: value.double() for name, value in weights.items()}
    write(tmp_path, original["a"] | {"model.safetensors": as_safetensors(double)})
    refused(tmp_path, "not made of finite float32 numbers")


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("digest", [DELETED, None, "", "0" * 64, 5], ids=["none", "null", "empty", "wrong", "number"])
def test_missing_and_wrong_digests_are_refused(original, name, digest, tmp_path):
    content = changed(original["a"]["config.json"], ["files", name], digest)
    write(tmp_path, original["a"] | {"config.json": content}, digests=False)
    refused(tmp_path, r"is damaged: .*(has no|SHA-256|not the one)")


ODD = {
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "nothing": b"",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of many digits": b'{"format": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"format": "\xff"}',
    "UTF-16": '{"format": 3}'.encode("utf-16"),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", FILES[:2])
def test_invalid_json_is_refused(original, name, odd, tmp_path):
    contents = original["a"] | {name: ODD[odd]}
    if name == "preprocess.json":
        write(tmp_path, contents)
    else:
        write(tmp_path, contents, digests=False)
    refused(tmp_path, rf"{name} is damaged: ")


def test_repeated_keys_in_json_are_refused(original, tmp_path):
    content = original["a"]["preprocess.json"].replace(b'"intensity": true', b'"intensity": false, "intensity": true')
    write(tmp_path, original["a"] | {"preprocess.json": content})
    refused(tmp_path, "it has the name 'intensity' twice")


NAN, HUGE = float("nan"), 10**400
CONFIG = {
    ("format",): (True, "3", 3.0, -1, HUGE, []),
    ("estimator",): ([], {}, 5, "PathEstimator"),
    ("parameters",): ([], "no", None),
    ("parameters", "hidden"): (NAN, "3", 3.5, [3], True),
    ("parameters", "learning_rate"): (NAN, "fast", HUGE),
    ("parameters", "unknown"): (1,),
    ("parameters", "solver"): (["rk4"], "rk5"),
    ("parameters", "class_weight"): ([[0]], [[[], 1.0]], "heavy", [[0, NAN]], [1, 2]),
    ("parameters", "random_state"): ("0", -1, HUGE),
    ("parameters", "path"): ("{}", "{0}{}", [{"": None}], {"name": "{}"}),  # braces are text, not format fields
    ("parameters", "task"): ({}, 5, "unknown", {"name": []}, {"name": "binary", "unknown": 1}),
    ("task",): ([], None, {}),
    ("task", "name"): ({}, "regression", "unknown"),
    ("task", "classes"): ([1, NAN], ["a", 1], [[], []], "ab", 5, ["a"]),
    ("channels",): (NAN, 2.0, -1, 99, "3"),
    ("array",): ([], None, {"n_features_in_": "5"}, {"feature_names_in_": ["a"]}, {"feature_names_in_": 5}),
    ("parameters", "members"): (0, 101, 1.0, True),
    ("parameters", "boosting"): (True, 1, None),
    ("members",): ([], {}, None, [1], [{}]),
    ("members", 0, "unknown"): (1,),
    ("members", 0, "history"): (
        *([], {}, None, [1], [[]], [{}]),
        [{"epoch": 5, "loss": 1.0, "rate": 1.0, "seconds": 1.0}] * 2,
    ),
    ("members", 0, "history", 0, "loss"): ("low", None, [], True, {}),
    ("members", 0, "history", 1, "epoch"): (0, 1, NAN),
    ("members", 0, "history", 1, "seconds"): (DELETED,),
    ("members", 0, "best_epoch"): (-1, 0, 3, 1.0, NAN, HUGE, None),
    ("members", 0, "averaged_epochs"): ([0], [3], [1.0], None, DELETED),
    ("files",): ([], None, "no"),
}
PREPROCESS = {
    ("scaler",): ([], None, {}),
    ("scaler", "scale"): ("other", 1, [], "standard", "paper"),  # the maps are those of "robust"
    ("scaler", "mean_"): ([], [0.0, 0.0], [NAN], ["0"], 0.0, [[0.0]], [HUGE], [None]),
    ("scaler", "scale_"): ([0.0], [-1.0], [NAN], [float("inf")], [True], [1e-300], [1e300]),
    ("scaler", "static_scale_"): ([0.0], [], [1.0, 1.0]),
    ("scaler", "static_mean_"): ([NAN], []),
    ("scaler", "channel_names_in_"): ([], "x", [5], ["a", "b"], ["\ud800"]),
    ("scaler", "static_names_in_"): ([], ["a", "b"]),
    ("scaler", "quantiles_"): (DELETED, [], None, [5], [{}], [{"knots": [0.0]}], [None, None]),
    ("scaler", "quantiles_", 0, "knots"): ([], [0.0], [0.0, 1.0], [NAN] * 8, None, "no", [HUGE], [[0.0]]),
    ("scaler", "quantiles_", 0, "knots", 1): (-1e9, 1e9, NAN, 1e200, "0", None, HUGE),
    ("scaler", "quantiles_", 0, "scores"): ([], [0.0], [0.0, 1.0], None),
    ("scaler", "quantiles_", 0, "scores", 1): (-9.0, 9.0, 1e9, NAN, float("inf"), True),
    ("scaler", "static_quantiles_"): (DELETED, [], None, [{"knots": [], "scores": []}]),
    ("scaler", "static_quantiles_", 0, "scores", 0): (50.0,),
    ("scaler", "usual_"): (DELETED, [], [[0.0, 1.0]], [[1.0, 0.0, -9.0, 9.0]], [[0.0, 1.0, 0.5, 9.0]], [[NAN] * 4]),
    ("scaler", "static_usual_"): (DELETED, [None, None], [[0.0, 1.0, -9.0, HUGE]], [5]),
    ("scaler", "time_scale_"): (0.0, -1.0, NAN, "1", HUGE, None),
    ("scaler", "channel_scales_"): ([], {}, None),
    ("scaler", "channel_scales_", "time"): (0.0, NAN),
    ("scaler", "channel_scales_", "counts"): ([0.0], [1.0, 1.0], "no", 5),
    ("scaler", "channel_scales_", "unknown"): (1,),
    ("intensity",): (1, "yes", None, False),  # False implies another number of channels
    ("scheme",): ("spline", [], None),
    ("flagged",): ([5], [-1], [0, 0], [0.0], "no", []),
    ("use",): ([], [2.0], [NAN], [1.0, 1.0], [True]),
    ("static_use",): ([], [0.5]),
    ("dtype",): ("float16", "bool", None, []),
    ("format",): ([], {}, None),
    ("format", "id"): (5, None),
    ("format", "kind"): ("date", []),
    ("format", "unit"): ("fortnight", 5),
    ("format", "static"): (None, [[]], [{"name": "s0", "categories": ["a", "b"]}], [{"name": "other"}]),
    ("format", "backend"): ("os", 5),
    ("format", "in_order"): (1,),
    ("format", "text_channels"): (DELETED, None, [[]], [{"name": "x0"}], [{"name": "x0", "categories": ["a"]}]),
    ("format", "unknown"): (1,),
}


@pytest.mark.parametrize(
    ("name", "way", "value"),
    [(FILES[k], way, value) for k, ways in enumerate((CONFIG, PREPROCESS)) for way in ways for value in ways[way]],
    ids=lambda x: ".".join(map(str, x)) if isinstance(x, tuple) else str(x)[:20].encode("ascii", "replace").decode(),
)
def test_invalid_values_are_refused(original, name, way, value, tmp_path):
    contents = original["a"] | {name: changed(original["a"][name], way, value)}
    write(tmp_path, contents, digests=way != ("files",))
    refused(tmp_path, r"is damaged: |does not hold an estimator|older version")


@pytest.mark.parametrize("name", FILES[:2])
def test_every_key_is_required(original, name, tmp_path):
    optional = {"neuralcde", "torch"}  # versions, which are for information only
    for key in json.loads(original["a"][name]):
        contents = original["a"] | {name: changed(original["a"][name], [key], DELETED)}
        write(tmp_path, contents, digests=key != "files")
        if key in optional:
            nc.load(tmp_path)
        else:
            refused(tmp_path, "is damaged|does not hold an estimator")


def test_a_task_of_the_other_estimator_is_refused(original, tmp_path):
    content = changed(original["b"]["config.json"], ["task"], {"name": "binary", "classes": [0, 1]})
    write(tmp_path, original["b"] | {"config.json": content})
    refused(tmp_path, "NeuralCDERegressor does not train the task 'binary'")


def test_invalid_column_names_are_refused(original, tmp_path):
    write(tmp_path, original["b"])
    assert nc.load(tmp_path).feature_names_in_.tolist() == list("abcde")
    for wrong in (["a"], "abcde", [1, 2, 3, 4, 5]):
        content = changed(original["b"]["config.json"], ["array", "feature_names_in_"], wrong)
        write(tmp_path, original["b"] | {"config.json": content})
        refused(tmp_path, r"feature_names_in_")


def test_nan_losses_and_infinite_gradient_clips_can_be_loaded(tmp_path):
    """A fit can produce both: a loss that is NaN, and a parameter that is infinite."""
    X = np.random.default_rng(0).normal(size=(12, 4)).cumsum(1)
    clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=3, width=4, gradient_clip=float("inf"), random_state=0)
    clf.fit(X, np.arange(12) % 2)
    clf.history_[0]["loss"] = float("nan")
    clf.save(tmp_path)
    again = nc.load(tmp_path)
    assert again.gradient_clip == float("inf")
    assert np.isnan(again.history_[0]["loss"])
    assert not any(value.is_meta for value in again.module_.state_dict().values())
    assert all(parameter.requires_grad for parameter in again.module_.parameters())
