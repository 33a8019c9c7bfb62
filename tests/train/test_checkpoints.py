"""Checkpoints: replaced only by newer ones, refused if damaged, and written by one training at a time."""

import json
from dataclasses import replace

import pytest
import torch

import neuralcde as nc
from neuralcde.system import folder_lock
from neuralcde.train import train
from neuralcde.train.checkpoints import load_state, save_state
from train.test_training import SETTINGS, fitted, problem, same_weights

FEW = replace(SETTINGS, max_epochs=2, schedule="constant")


@pytest.fixture
def folder(tmp_path):
    """The folder of a training of two epochs."""
    fitted(FEW, folder=tmp_path)
    return tmp_path


def interrupted(monkeypatch, **options):
    """Run a training that is interrupted in its first epoch."""
    with monkeypatch.context() as patch:
        patch.setattr("neuralcde.train.loop._epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fitted(**options)


def test_a_training_that_does_not_get_far_leaves_the_earlier_checkpoint(folder, monkeypatch):
    before = (folder / "checkpoint.pt").read_bytes()
    interrupted(monkeypatch, settings=FEW, folder=folder)
    task, data = problem()
    mistyped = nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1, solver="rk5")
    with pytest.raises(ValueError, match="rk5"):
        train(mistyped, task, data, None, FEW, folder=folder)
    assert (folder / "checkpoint.pt").read_bytes() == before
    resumed, _ = fitted(replace(FEW, max_epochs=3), folder=folder, resume=True)
    assert same_weights(resumed, fitted(replace(FEW, max_epochs=3))[0])


def test_the_earlier_checkpoint_is_not_resumed_by_mistake(folder, monkeypatch):
    """A second training was started without resume, and interrupted before its first checkpoint."""
    other = replace(FEW, learning_rate=0.5, max_epochs=3)
    interrupted(monkeypatch, settings=other, folder=folder)
    with pytest.raises(
        ValueError, match="cannot resume: learning_rate must be the same as in the checkpointed run; use resume=False"
    ):
        fitted(other, folder=folder, resume=True)
    fitted(replace(other, max_epochs=1), folder=folder)
    resumed, result = fitted(other, folder=folder, resume=True)
    assert [row["epoch"] for row in result.history] == [1, 2, 3]
    assert same_weights(resumed, fitted(other)[0])


def test_a_damaged_checkpoint_is_refused_before_torch_reads_it(folder, monkeypatch):
    """Flipped bits in a weight would otherwise silently resume to another model."""
    file = folder / "checkpoint.pt"
    whole = file.read_bytes()
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch read damaged bytes"))
    damaged = [whole[:-1], whole + b"\0", whole[:90], whole[: len(whole) // 2], b"", b"nonsense"]
    damaged += [whole[:k] + bytes([whole[k] ^ 4]) + whole[k + 1 :] for k in range(0, len(whole), len(whole) // 150)]
    assert len(damaged) > 150
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(
            ValueError, match=rf"^cannot resume: {file} is damaged.*; use resume=False to start anew\.$"
        ):
            load_state(file)


def test_a_checkpoint_without_a_checksum_is_refused(folder):
    """An earlier version wrote the output of torch.save without a checksum."""
    file = folder / "checkpoint.pt"
    torch.save(load_state(file), file)
    with pytest.raises(ValueError, match=r"is damaged, or was written by an earlier version; use resume=False"):
        fitted(FEW, folder=folder, resume=True)
    fitted(FEW, folder=folder)
    assert len(load_state(file)["result"]["history"]) == 2


def test_a_checkpoint_runs_no_code(folder):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("the checkpoint ran code",)

    save_state(folder / "checkpoint.pt", {"model": Trap()})
    with pytest.raises(ValueError, match="is damaged"):
        fitted(FEW, folder=folder, resume=True)


@pytest.mark.parametrize("name", ["settings", "model", "optimizer", "result", "best", "averaged", "fingerprint"])
def test_a_checkpoint_that_lacks_something_is_refused(name, folder):
    state = load_state(folder / "checkpoint.pt")
    del state[name]
    save_state(folder / "checkpoint.pt", state)
    with pytest.raises(ValueError, match="cannot resume"):
        fitted(FEW, folder=folder, resume=True)


def test_two_trainings_do_not_share_a_folder(folder):
    with folder_lock(folder), pytest.raises(ValueError, match=rf"{folder} is in use"):
        fitted(FEW, folder=folder, resume=True)


def test_temporary_files_of_a_killed_training_are_removed(folder):
    part = folder / ".checkpoint.pt.0123456789abcdef.part"
    part.write_bytes(b"half")
    fitted(replace(FEW, max_epochs=3), folder=folder, resume=True)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.pt", "history.jsonl"]


def test_the_history_is_that_of_the_checkpoint(folder):
    """A kill between writing checkpoint and history of the last epoch: resuming writes the history."""
    file = folder / "history.jsonl"
    whole = file.read_text()
    file.write_text(whole.splitlines()[0] + "\n")
    _, result = fitted(FEW, folder=folder, resume=True)
    assert [json.loads(line) for line in file.read_text().splitlines()] == result.history
    assert file.read_text() == whole
