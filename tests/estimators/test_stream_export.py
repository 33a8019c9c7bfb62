"""The exported step of streams: the same numbers as `Streams`, without our code."""

import warnings

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.estimators.stream_export import stream_modules

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}
pytestmark = [
    pytest.mark.wrong_types,  # torch traces with tensors that are not quite tensors
    pytest.mark.filterwarnings("ignore::neuralcde.series.FarValueWarning"),
]
STREAMS, ROWS = 7, 8


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, ROWS, 3))
    X[rng.random(X.shape) < 0.5] = np.nan
    return X, np.arange(40) % 3


def fitted(members=1, **options):
    """A fitted estimator. The members of an ensemble are fitted here, without processes of their own."""
    X, y = data()
    options = QUICK | options
    first, *others = [nc.NeuralCDEClassifier(**options | {"random_state": k}).fit(X, y) for k in range(members)]
    first.members_ += [other.members_[0] for other in others]
    first.members = first._fitted_params["members"] = members
    return first


@torch.no_grad()
def compare(clf, update, output):
    """Whole series through the exported step, and through `Streams`; some values are far outside the training range."""
    X, streams, modules = data(1)[0][:STREAMS] * 1.5, clf.stream(), stream_modules(clf)
    X[::2, 3] *= 1000
    real, double = (part.repeat(STREAMS, 1) for part in (modules.real, modules.double))
    times = np.random.default_rng(2).uniform(0.2, 3.0, (STREAMS, ROWS)).cumsum(1)
    for k in range(ROWS):
        real, double = update(real, double, torch.from_numpy(times[:, k]), torch.from_numpy(X[:, k].copy()))
        outputs = torch.as_tensor(output(real, double))
        found = outputs.double().softmax(1)
        expected = streams.push_many(range(STREAMS), times[:, k], X[:, k])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert streams.far_values


@pytest.mark.parametrize(
    "options",
    [
        {"path": "linear"},
        {"path": "rectilinear", "pool": "last"},
        {"model": "gru_dt", "path": "linear"},
        {"model": "gru_d", "path": "linear"},
        {"model": "gru_d", "path": "hermite", "pool": "mean"},
        {"model": "ode_rnn", "path": "linear"},
        {"model": "ode_rnn", "path": "rectilinear", "scale": "robust"},
        {"encoder": "mlp", "readout": "summary", "members": 2},
    ],
    ids=str,
)
def test_torch_export(options):
    clf = fitted(**options)
    update, output = (program.module() for program in stream_modules(clf).exported())
    compare(clf, update, output)


# Conversion to ONNX takes long; `python -m benchmarks streams exported` compares every model and scheme.
@pytest.mark.parametrize(
    "options", [{"encoder": "mlp", "readout": "summary"}, {"model": "gru_d", "path": "rectilinear"}], ids=str
)
def test_onnx(options, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    clf = fitted(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        clf.export_stream(tmp_path)
    update, output = (runtime.InferenceSession(tmp_path / f"{name}.onnx") for name in ("update", "output"))

    def run(session, *arguments):
        names = [given.name for given in session.get_inputs()]
        given = {name: np.asarray(value) for name, value in zip(names, arguments, strict=True)}
        return [torch.from_numpy(part) for part in session.run(None, given)]

    compare(clf, lambda *given: run(update, *given), lambda *given: run(output, *given)[0])


def test_the_state_that_a_stream_starts_with():
    X, y = data()
    series = nc.IrregularSeries.from_padded(X, static=np.arange(40.0)[:, None], static_names=["age"])
    streams = nc.NeuralCDEClassifier(**QUICK).fit(series, y).stream()
    known, unknown = streams.start({"age": 30.0}), streams.start()
    assert not torch.equal(known.real, unknown.real)
    pushed = streams.push("a", 0.0, {"x0": 1.0}, static={"age": 30.0})
    state = known.stepper.update(known, [0.0], [[1.0, np.nan, np.nan]])
    np.testing.assert_allclose(known.stepper.outputs(state)[0].softmax(1)[0], pushed, rtol=1e-6)


def test_what_cannot_be_exported_is_refused_by_name():
    clf = fitted()
    clf.trees_ = object()
    with pytest.raises(ValueError, match="the trees of gradient boosting cannot be exported"):
        stream_modules(clf)
    with pytest.raises(
        ValueError, match=r"steps=FixedSteps\(size=1.0\) takes a number of steps that depends on the gap"
    ):
        stream_modules(fitted(model="gru_ode")).exported()
