"""Training with several processes (torchrun with gloo on this machine) equals training with one."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import neuralcde as nc
from neuralcde.system import Processes
from neuralcde.tasks import classification_task
from neuralcde.train import TrainingSettings, train

pytestmark = pytest.mark.xdist_group("processes")  # they share a slow fixture

torch_distributed = pytest.importorskip("torch.distributed")
SETTINGS = TrainingSettings(
    max_epochs=3, batch_size=11, learning_rate=1e-2, weight_penalty=1e-2, gradient_clip=0.5, verbose=0
)


def run_together(script, *arguments, count=2):
    """Run a script in several processes."""
    file = Path(arguments[0]) / "script.py"
    file.write_text(textwrap.dedent(script))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", str(file)]
    tests = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [*launch, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": tests, "PYTHONWARNINGS": "default"},
    )
    assert done.returncode == 0, done.stderr[:8000]
    return done.stdout


def problem(kind, count=23, seed=0):
    """Series of different lengths with one of three classes per series (weighted), or two per row, some unknown."""
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for k in range(count):
        times = torch.rand(5 + k % 7, generator=generator, dtype=torch.float64).cumsum(0)
        pairs.append((times, torch.sin(times * (1 + k % 3))[:, None].float()))
    path = nc.linear(nc.IrregularSeries.from_list(pairs).with_channels().to(torch.float64))
    if kind == "series":
        y = [k % 3 if k < 20 else 0 for k in range(count)]
        task = classification_task(y, "balanced")
        return task, nc.PathDataset(path, task.encode(y))
    y = (path.series.values[:, 1] > 0).double()
    y[::3] = torch.nan
    return classification_task([0, 1]), nc.PathDataset(path, y, per_row=True)


def trained(kind, folder=None):
    """A model and its history; every process starts from other weights, and those of the first one are used."""
    task, data = problem(kind)
    torch.manual_seed(1 + Processes.current().rank)
    model = nc.NeuralCDE(2, task.outputs, hidden=6, width=8, depth=1).double()
    result = train(model, task, data, problem(kind, 11, seed=5)[1], SETTINGS, folder=folder)
    return model, result.history


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The weights, history and gradients of a training with two processes."""
    folder = tmp_path_factory.mktemp("together")
    run_together(
        """
        import sys, torch
        from pathlib import Path
        from train.test_processes import gradients, trained
        from neuralcde.system import Processes
        folder, together = Path(sys.argv[1]), Processes.current()
        for kind in ("series", "rows"):
            model, _ = trained(kind, folder / kind)
            torch.save(model.state_dict(), folder / f"{kind}{together.rank}.pt")
        model = gradients("ddp", together)
        torch.save([p.grad for p in model.parameters()], folder / f"gradients{together.rank}.pt")
        torch.distributed.barrier()  # no process may exit while another still reads from it
        """,
        folder,
    )
    return folder


@pytest.mark.parametrize("kind", ["series", "rows"])
@pytest.mark.parametrize("rank", [0, 1])
def test_they_train_as_one_process_does(kind, rank, together):
    """With batches of 11 and 1 series, which two processes cannot split evenly, and weighted or unknown targets."""
    alone, history = trained(kind)
    weights = torch.load(together / f"{kind}{rank}.pt", weights_only=True)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=1e-9, atol=1e-11)
    rows = [json.loads(line) for line in (together / kind / "history.jsonl").read_text().splitlines()]
    for row, wanted in zip(rows, history, strict=True):
        assert {k: v for k, v in row.items() if k != "seconds"} == pytest.approx(
            {k: v for k, v in wanted.items() if k != "seconds"}, rel=1e-9
        )


@pytest.mark.parametrize("rank", [0, 1])
def test_gradients_through_ddp_are_those_of_the_doubled_batch(rank, together):
    """With torch's DistributedDataParallel, for custom training loops."""
    alone = gradients("alone", Processes())
    found = torch.load(together / f"gradients{rank}.pt", weights_only=True)
    for gradient, parameter in zip(found, alone.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-10, atol=1e-13)


def gradients(how, together):
    """The gradients of a batch of sixteen, by one process, or by two with eight each."""
    task, data = problem("series")
    torch.manual_seed(4)
    model = nc.NeuralCDE(2, task.outputs, hidden=6, width=8, depth=1).double()
    wrapped = torch.nn.parallel.DistributedDataParallel(model) if how == "ddp" else model
    path, y = data[together.share(torch.arange(16))]
    loss = torch.nn.functional.cross_entropy(wrapped(path), y.long())
    loss.backward()
    return model


def test_the_command_line_under_torchrun(tmp_path):
    generator = torch.Generator().manual_seed(0)
    rows = ["stay,hour,pulse,outcome"]
    for k in range(20):
        for t in range(6):
            rows.append(f"s{k},{t},{float(torch.randn((), generator=generator)) + k % 2},{'ill' if k % 2 else 'well'}")
    (tmp_path / "vitals.csv").write_text("\n".join(rows))
    said = run_together(
        """
        import sys
        from neuralcde.cli import main
        folder = sys.argv[1]
        names = ["--id", "stay", "--time", "hour", "--label", "outcome", "--out", f"{folder}/model"]
        sys.argv = ["neuralcde", "fit", f"{folder}/vitals.csv", *names, "--max-epochs", "2", "--hidden", "4"]
        main()
        """,
        tmp_path,
    )
    assert said.count("test auroc") == 1
    assert nc.load(tmp_path / "model").n_iter_ == 2


def test_ctrl_c_of_one_process_stops_all_at_the_same_batch(tmp_path):
    script = """
        import os, signal, sys
        from pathlib import Path
        import numpy as np, torch, neuralcde as nc
        from neuralcde.tasks import BinaryTask
        torch.set_num_threads(1)
        X = np.random.default_rng(0).normal(size=(64, 6)).cumsum(1)
        rank, loss, count = os.environ["RANK"], BinaryTask.loss, 0
        def counted(self, *given):
            global count
            count += 1
            if rank == "1" and count == 12:
                signal.raise_signal(signal.SIGINT)
            return loss(self, *given)
        BinaryTask.loss = counted
        clf = nc.NeuralCDEClassifier(hidden=4, width=4, max_epochs=1000, patience=None, batch_size=16, random_state=0)
        clf.fit(X, (X[:, -1] > 0).astype(int))
        (Path(sys.argv[1]) / rank).write_text(f"{clf.interrupted_} {len(clf.history_)}")
        torch.distributed.destroy_process_group()
        threads = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
        (Path(sys.argv[1]) / f"threads{rank}").write_text("".join(threads))
    """
    run_together(script, tmp_path)
    first, second = ((tmp_path / rank).read_text() for rank in "01")
    assert first == second
    assert first.startswith("True")
    for rank in "01":  # a thread that is still running when Python exits may abort the process
        assert "gloo" not in (tmp_path / f"threads{rank}").read_text()
