"""A killed training resumes and ends with the same model as an uninterrupted one.

    python examples/by_feature/resume_after_a_kill.py

With `folder=`, a checkpoint and `history.jsonl` are written atomically after every epoch. This program starts itself as
a second process, kills it with SIGKILL after a few epochs, and resumes. Then it trains once more without interruption
and compares.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import neuralcde as nc


def fit(folder: Path | None, *, resume: bool = False) -> nc.NeuralCDERegressor:
    """Learn the mean of short random walks."""
    walks = np.random.default_rng(0).normal(size=(60, 8)).cumsum(1)
    regressor = nc.NeuralCDERegressor(max_epochs=20, hidden=6, width=6, batch_size=16, random_state=0)
    return regressor.fit(walks, walks.mean(1), folder=folder, resume=resume)


def epochs(folder: Path) -> int:
    """The number of finished epochs."""
    history = folder / "history.jsonl"
    return len(history.read_text().splitlines()) if history.exists() else 0


def main() -> None:
    """Train in a second process, kill it, resume, compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = subprocess.Popen([sys.executable, __file__, str(folder)])
        while epochs(folder) < 3 and child.poll() is None:
            time.sleep(0.01)
        child.kill()
        print(f"killed: exit code {child.wait()}, {epochs(folder)} of 20 epochs are safe")
        resumed = fit(folder, resume=True)
        print(f"resumed: {epochs(folder)} epochs")
    whole = fit(None)
    same = all((a == b).all() for a, b in zip(resumed.module_.parameters(), whole.module_.parameters(), strict=True))
    print("the same weights as without a break, to the last bit" if same else "other weights")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        fit(Path(sys.argv[1]))
    else:
        main()
