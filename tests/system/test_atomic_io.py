"""Atomic writes: if the writing process is killed, files are complete or absent."""

import errno
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.system import atomic_io, folder_lock
from neuralcde.system.atomic_io import staged, tidy, write_atomically


def killed(work):
    """Do some work in a forked process that is killed by SIGKILL, at the latest when the work is done."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fitted(seed):
    X = np.random.default_rng(0).normal(size=(8, 3))
    return nc.NeuralCDEClassifier(max_epochs=1, hidden=2, width=2, random_state=seed).fit(X, [0, 1] * 4)


def test_a_kill_during_a_save_leaves_the_old_or_the_new_model(tmp_path):
    """The process is killed before each of seven steps: three files are synced, committed together, and moved."""
    old, new = fitted(0), fitted(1)
    weights = [model.module_.readout.linear.weight.tolist() for model in (old, new)]
    replace, fsync = Path.replace, os.fsync
    found = []
    for moment in range(8):
        folder = tmp_path / str(moment)
        old.save(folder)

        def mortal(act, left=[moment]):  # noqa: B006
            def killed_or_done(*arguments):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return act(*arguments)

            return killed_or_done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", mortal(replace))
            patch.setattr(os, "fsync", mortal(fsync))
            killed(lambda folder=folder: new.save(folder))
        found.append(weights.index(nc.load(folder).module_.readout.linear.weight.tolist()))
    assert found == [0] * 4 + [1] * 4
    new.save(folder)
    assert names(folder) == ["config.json", "model.safetensors", "preprocess.json"]


def test_loading_a_half_moved_model_reads_the_new_one_and_writes_nothing(tmp_path):
    """So a model on a read-only disk can be loaded."""
    old, new = tmp_path / "old", tmp_path / "new"
    fitted(0).save(old)
    expected = fitted(1)
    expected.save(new)
    (old / ".complete").mkdir()
    (new / "config.json").rename(old / "config.json")
    for name in ("model.safetensors", "preprocess.json"):
        (new / name).rename(old / ".complete" / name)
    before = sorted(path.relative_to(old) for path in old.rglob("*"))
    found = nc.load(old)
    assert all(
        torch.equal(a, b) for a, b in zip(found.module_.parameters(), expected.module_.parameters(), strict=True)
    )
    assert sorted(path.relative_to(old) for path in old.rglob("*")) == before


def test_files_behind_links_are_not_moved(tmp_path):
    """Tidying an untrusted folder must not remove files from another folder."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / ".complete").symlink_to(tmp_path / "mine")
    (tmp_path / "sent" / ".0123456789abcdef.part").symlink_to(tmp_path / "mine")
    tidy(tmp_path / "sent")
    assert names(tmp_path / "mine") == ["letter"]


def test_processes_with_the_same_id_do_not_collide(tmp_path, monkeypatch):
    """In a container every run has process id 1, and a killed run has left its folder behind."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    (tmp_path / ".0123456789abcdef.part").mkdir()
    with staged(tmp_path) as part:
        (part / "a").write_text("new")
    assert (tmp_path / "a").read_text() == "new"


def test_files_of_killed_processes_are_removed_and_those_of_running_ones_kept(tmp_path):
    def interrupted():
        with staged(tmp_path) as part:
            write_atomically(part / "a", b"lost")
            os.kill(os.getpid(), signal.SIGKILL)

    killed(interrupted)
    (tmp_path / ".00112233445566aa.part").mkdir()
    (tmp_path / ".checkpoint.pt.0123456789abcdef.part").write_bytes(b"lost")
    (tmp_path / ".mine.part").write_bytes(b"of somebody else")
    assert len(names(tmp_path)) == 4
    with staged(tmp_path) as part:
        write_atomically(part / "b", b"new")
        tidy(tmp_path)
        assert names(tmp_path) == sorted([part.name, ".mine.part"])
    assert names(tmp_path) == [".mine.part", "b"]


def test_a_failure_leaves_no_new_folder(tmp_path):
    with pytest.raises(OSError, match="full"), staged(tmp_path / "a" / "b"):
        raise OSError("full")
    with pytest.raises(OSError, match="full"), folder_lock(tmp_path / "a" / "b"):
        raise OSError("full")
    assert names(tmp_path) == []


def test_obsolete_files_are_removed_when_new_files_are_in_place(tmp_path):
    write_atomically(tmp_path / "page", b"old")
    with pytest.raises(OSError, match="full"), staged(tmp_path, obsolete=["page"]):
        raise OSError("full")
    assert names(tmp_path) == ["page"]
    with staged(tmp_path, obsolete=["page"]) as part:
        write_atomically(part / "model", b"new")
    assert names(tmp_path) == ["model"]


@pytest.fixture
def locked(tmp_path):
    """A folder, and the process that holds its lock."""
    folder = tmp_path / "run"
    ready, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with folder_lock(folder):
                os.write(write, b".")
                signal.pause()
        finally:
            os._exit(1)
    os.read(ready, 1)
    yield folder, child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    os.close(write)


def test_a_folder_is_locked_until_its_process_ends(locked):
    folder, process = locked
    message = rf"{folder} is in use: another run is writing to it\. Wait .* or choose another folder"
    with pytest.raises(ValueError, match=message), folder_lock(folder):
        pass
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # the fixture reaps it
    assert names(folder) == [".lock"]
    with folder_lock(folder), pytest.raises(ValueError, match="in use"), folder_lock(folder):
        pass
    assert names(folder) == []


def test_file_systems_without_locks_are_supported(tmp_path, monkeypatch):
    """Without locks no run is refused, and no file that another run may need is removed."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic_io.fcntl, "flock", refuse)
    (tmp_path / ".0123456789abcdef.part").mkdir()
    with folder_lock(tmp_path), folder_lock(tmp_path), staged(tmp_path) as part:
        write_atomically(part / "a", b"new")
    monkeypatch.setattr(atomic_io, "fcntl", None)
    with folder_lock(tmp_path), folder_lock(tmp_path), staged(tmp_path) as part:
        write_atomically(part / "b", b"new")
    assert names(tmp_path) == [".0123456789abcdef.part", "a", "b"]


def test_a_link_named_like_the_staging_folder_is_not_followed(tmp_path):
    """The files that the link points to stay in place."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "model"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "key").write_text("secret")
    (folder / ".complete").symlink_to(elsewhere)
    tidy(folder)
    assert (elsewhere / "key").read_text() == "secret"
    assert not (folder / "key").exists()
