"""Damaged checkpoints are refused with a ValueError that names a remedy, or read exactly as they were written."""

import functools
import hashlib
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from hypothesis import strategies as st

import neuralcde as nc
from neuralcde.tasks import classification_task
from neuralcde.train import TrainingSettings, train
from neuralcde.train.checkpoints import load_state, save_state

SETTINGS = TrainingSettings(max_epochs=1, batch_size=4, schedule="constant", ema_decay=0.9, verbose=0)
OTHERS = ("another learning rate", "another model", "other data")


@dataclass(frozen=True)
class Case:
    """How the content of the file is made, and whether it is only read or a training resumes from it."""

    how: str
    details: tuple
    resume: bool


def _training(folder, *, epochs, resume=False, rate=1e-2, hidden=2, slope=1.0):
    """Weights and history of a training that takes milliseconds."""
    times = torch.arange(3, dtype=torch.float64)
    values = [slope * torch.sin(times * (1 + k % 2))[:, None] for k in range(4)]
    series = nc.IrregularSeries.from_list([(times, value) for value in values]).with_channels()
    task = classification_task([0, 1, 0, 1])
    model = nc.NeuralCDE(2, 1, hidden=hidden, width=2, depth=1)
    with torch.no_grad():
        for k, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter) / (k + 1))
    settings = TrainingSettings(**{**vars(SETTINGS), "max_epochs": epochs, "learning_rate": rate})
    data = nc.PathDataset(nc.linear(series), task.encode([0, 1, 0, 1]))
    result = train(model, task, data, None, settings, folder=folder, resume=resume)
    history = [{name: value for name, value in row.items() if name != "seconds"} for row in result.history]
    return [parameter.tolist() for parameter in model.parameters()], history


def _checkpoint(**options):
    with tempfile.TemporaryDirectory() as name:
        _training(Path(name), epochs=1, **options)
        return (Path(name) / "checkpoint.pt").read_bytes()


@functools.cache
def whole():
    """An undamaged checkpoint after one epoch."""
    return _checkpoint()


@functools.cache
def other(kind):
    """The checkpoint of another training."""
    return _checkpoint(**dict(zip(OTHERS, ({"rate": 0.5}, {"hidden": 3}, {"slope": 2.0}), strict=True))[kind])


@functools.cache
def resumed():
    """The result of resuming from the undamaged checkpoint."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "checkpoint.pt").write_bytes(whole())
        return _training(Path(name), epochs=2, resume=True)


def _signed(content):
    """A checkpoint with any content and a valid checksum."""
    with tempfile.TemporaryDirectory() as name:
        save_state(Path(name) / "a", {})
        line = (Path(name) / "a").read_bytes().split(b"\n", 1)[0]
    return line[:-64] + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _at(share, content):
    return min(int(share * len(content)), max(len(content) - 1, 0))


def _damaged(case):
    content = bytearray(whole())
    if case.how == "flip":
        for share, mask in case.details:
            content[_at(share, content)] ^= mask
    elif case.how == "flip in the first line":
        for share, mask in case.details:
            content[_at(share / 50, content)] ^= mask
    elif case.how == "truncate":
        del content[_at(case.details[0], content) :]
    elif case.how == "insert":
        position = _at(case.details[0], content)
        content[position:position] = case.details[1]
    elif case.how == "swap blocks":
        first, second, size = case.details
        first, second = sorted((_at(first, content), _at(second, content)))
        size = min(size, second - first, len(content) - second)
        one, two = bytes(content[first : first + size]), bytes(content[second : second + size])
        content[first : first + size], content[second : second + size] = two, one
    elif case.how == "splice":
        share, kind = case.details
        content = content[: _at(share, content)] + other(kind)[_at(share, content) :]
    elif case.how == "of another training":
        content = other(case.details[0])
    elif case.how == "raw":
        content = case.details[0]
    elif case.how == "raw with a checksum":
        content = _signed(case.details[0])
    else:
        buffer = io.BytesIO()
        torch.save(_state(case), buffer)
        content = _signed(buffer.getvalue())
    return bytes(content)


def _state(case):
    """The state to be saved with a valid checksum: any value, or a checkpoint without one of its entries."""
    if case.how == "anything":
        return case.details[0]
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "checkpoint.pt").write_bytes(whole())
        state = load_state(Path(name) / "checkpoint.pt")
    del state[sorted(state)[_at(case.details[0], state)]]
    return state


def _same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def check(case, folder):
    """Read the checkpoint, or resume from it."""
    file = folder / "checkpoint.pt"
    content = _damaged(case)
    resume = case.resume or content in map(other, OTHERS)  # those are not damaged; only the training can refuse them
    file.write_bytes(content)
    try:
        found = _training(folder, epochs=2, resume=True) if resume else load_state(file)
    except ValueError as reason:
        assert content != whole(), f"refused, but it is not damaged: {reason}"
        assert str(reason).startswith("cannot resume: "), reason
        assert "resume=False" in str(reason), reason
        return
    if resume:
        assert _same(found, resumed()), "resumed to another result"
        return
    file.write_bytes(whole())
    assert _same(found, load_state(file)), "another state than the one that was saved"


SHARES = st.floats(0, 1, exclude_max=True)
FLIPS = st.lists(st.tuples(SHARES, st.integers(1, 255)), min_size=1, max_size=4).map(tuple)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.builds(torch.zeros, st.integers(0, 4)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
DAMAGED = st.one_of(
    st.tuples(st.just("flip"), FLIPS),
    st.tuples(st.just("flip in the first line"), FLIPS),
    st.tuples(st.just("truncate"), st.tuples(SHARES)),
    st.tuples(st.just("insert"), st.tuples(SHARES, st.binary(max_size=64))),
    st.tuples(st.just("swap blocks"), st.tuples(SHARES, SHARES, st.integers(0, 2000))),
    st.tuples(st.just("splice"), st.tuples(SHARES, st.sampled_from(OTHERS))),
    st.tuples(st.just("raw"), st.tuples(st.binary(max_size=400))),
    st.tuples(st.just("raw with a checksum"), st.tuples(st.binary(max_size=400))),
)
FORGED = st.one_of(  # the checksum is valid, so the training must detect the error
    st.tuples(st.just("of another training"), st.tuples(st.sampled_from(OTHERS))),
    st.tuples(st.just("anything"), st.tuples(VALUES)),
    st.tuples(st.just("an entry less"), st.tuples(SHARES)),
)
CASES = st.one_of(
    st.builds(lambda pair, resume: Case(*pair, resume), DAMAGED, st.integers(0, 7).map(lambda k: k == 0)),
    st.builds(lambda pair: Case(*pair, True), FORGED),
)
