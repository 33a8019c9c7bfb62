"""The exported step of streams: the same numbers as `Streams`, without our code."""

import warnings

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.estimators.stream_export import stream_modules

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}
pytestmark = pytest.mark.wrong_types  # torch traces with tensors that are not quite tensors
STREAMS, ROWS = 7, 8


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, ROWS, 3))
    X[rng.random(X.shape) < 0.5] = np.nan
    return X, np.arange(40) % 3


def fitted(**options):
    X, y = data()
    return nc.NeuralCDEClassifier(**QUICK | options).fit(X, y)


@torch.no_grad()
def compare(clf, update, output):
    """Whole series through the exported step, and through `Streams`."""
    X, streams, modules = data(1)[0][:STREAMS] * 1.5, clf.stream(), stream_modules(clf)
    real, double = (part.repeat(STREAMS, 1) for part in (modules.real, modules.double))
    times = np.random.default_rng(2).uniform(0.2, 3.0, (STREAMS, ROWS)).cumsum(1)
    for k in range(ROWS):
        real, double = update(real, double, torch.from_numpy(times[:, k]), torch.from_numpy(X[:, k].copy()))
        outputs = torch.as_tensor(output(real, double))
        found = torch.as_tensor(outputs).double().softmax(1)
        expected = streams.push_many(range(STREAMS), times[:, k], X[:, k])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"model": "gru_d", "path": "hermite", "pool": "mean"},
        {"model": "ode_rnn", "path": "rectilinear", "scale": "robust"},
        {"encoder": "mlp", "readout": "summary"},
    ],
    ids=str,
)
def test_torch_export(options):
    clf = fitted(**options)
    update, output = (program.module() for program in stream_modules(clf).exported())
    compare(clf, update, output)


def test_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    clf = fitted(encoder="mlp", readout="summary")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        clf.export_stream(tmp_path)
    update, output = (runtime.InferenceSession(tmp_path / f"{name}.onnx") for name in ("update", "output"))

    def run(session, *arguments):
        names = [given.name for given in session.get_inputs()]
        given = {name: np.asarray(value) for name, value in zip(names, arguments, strict=True)}
        return [torch.from_numpy(part) for part in session.run(None, given)]

    compare(clf, lambda *given: run(update, *given), lambda *given: run(output, *given)[0])


def test_what_cannot_be_exported_is_refused_by_name():
    clf = fitted()
    clf.trees_ = object()
    with pytest.raises(ValueError, match="the trees of gradient boosting cannot be exported"):
        stream_modules(clf)
    with pytest.raises(
        ValueError, match=r"steps=FixedSteps\(size=1.0\) takes a number of steps that depends on the gap"
    ):
        stream_modules(fitted(model="gru_ode")).exported()
