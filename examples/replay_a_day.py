"""A day of unseen stays, replayed through `neuralcde serve` row by row, with a plot of their risks.

    python examples/replay_a_day.py [FILE]

Trains on synthetic stays, starts the service, pushes every row in the order of time, and draws the answers.
"""

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import neuralcde as nc

STAYS, SHOWN, EPOCHS = 200, 8, 20


def stay(rng: np.random.Generator, bad: bool) -> tuple[np.ndarray, np.ndarray]:
    """A day at irregular hours; pulse is measured often, lactate rarely. A bad stay gets worse at some hour."""
    hours = np.sort(rng.uniform(0, 24, rng.integers(15, 30)))
    decline = bad * np.clip(hours - rng.uniform(6, 14), 0, None)
    values = np.stack([78 + 3 * decline, 1.2 + 0.2 * decline], 1) + rng.normal(0, (4, 0.2), (len(hours), 2))
    values[rng.random(values.shape) > (0.8, 0.35)] = np.nan
    return hours, values


def push(address: str, id: str, hour: float, row: np.ndarray) -> float:
    """Push a row, and give the risk."""
    values = {name: value for name, value in zip(("pulse", "lactate"), row.tolist(), strict=True) if value == value}
    body = json.dumps({"t": hour, "values": values}).encode()
    request = urllib.request.Request(f"{address}/streams/{id}", body, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["p_1"]


def main() -> None:
    """Train, serve, replay, draw."""
    rng = np.random.default_rng(3)
    bad = np.arange(STAYS) % 3 == 0
    past = nc.IrregularSeries.from_list([stay(rng, one) for one in bad], channels=["pulse", "lactate"])
    clf = nc.NeuralCDEClassifier(max_epochs=EPOCHS, random_state=0).fit(past, bad.astype(int))
    today = {f"bed-{k}": stay(rng, k % 2 == 0) for k in range(SHOWN)}
    rows = sorted(
        (hour, id, row) for id, (hours, values) in today.items() for hour, row in zip(hours, values, strict=True)
    )
    risks: dict[str, list[tuple[float, float]]] = {id: [] for id in today}
    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "model")
        command = [str(Path(sys.executable).parent / "neuralcde"), "serve", f"{folder}/model", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            address = re.search(r"http://\S+:\d+", service.stdout.readline())[0]
            for hour, id, row in rows:
                risks[id].append((hour, push(address, id, hour, row)))
            service.terminate()
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    for k, points in enumerate(risks.values()):
        axes.step(*zip(*points, strict=True), where="post", color="#d1495b" if k % 2 == 0 else "#1f6f8b")
    axes.set(xlabel="hour", ylabel="risk", ylim=(-0.03, 1.03), title="Red: stays that get worse. Blue: the others")
    file = Path(sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "replay_a_day.png")
    figure.savefig(file, dpi=120)
    last = {id: points[-1][1] for id, points in risks.items()}
    print(f"{len(rows)} rows; last risks {', '.join(f'{id}: {risk:.2f}' for id, risk in last.items())}")
    print(f"picture: {file}")


if __name__ == "__main__":
    main()
