"""Seconds per training epoch of the Neural CDE, compared with the same model in torchcde."""

from __future__ import annotations

import itertools
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import neuralcde as nc
from neuralcde.series import ragged

from .experiment import Experiment, Run, merged
from .lines import Lines
from .models import make_model
from .provenance import provenance

EPOCHS = 2


class ForTorchCDE(nn.Module):
    """A field as torchcde calls it: with one time for the whole batch."""

    def __init__(self, field: nn.Module):
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        """f(t, z) as a matrix; torchcde multiplies it by the derivative of the path."""
        found: Tensor = self.field(t.expand(len(z)), z)
        return found


class InTorchCDE(nn.Module):
    """A `NeuralCDE` solved by torchcde as in the paper: rk4, unit steps, adjoint, state at the end of each series."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.field = model, ForTorchCDE(model.field)

    def forward(self, path: nc.ControlPath, coefficients: Tensor) -> Tensor:
        """The outputs for a batch; `coefficients` are torchcde's spline coefficients of the same series."""
        import torchcde

        last = path.interval[:, 1].long() - first_time(path.series)
        ends, which = last.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        states = torchcde.cdeint(
            torchcde.CubicSpline(coefficients),
            self.field,
            self.model.initial(path),
            torch.cat([ends.new_zeros(1), ends]).float(),
            adjoint=True,
            method="rk4",
            options={"step_size": 1.0},
        )
        outputs: Tensor = self.model.readout.linear(states[torch.arange(len(last)), which + 1])
        return outputs


def first_time(series: nc.IrregularSeries) -> int:
    """The earliest time of all series, where the common grid starts."""
    return int(series.times.min())


def on_grid(series: nc.IrregularSeries) -> Tensor:
    """Series with integer times on one grid, for torchcde: NaN for absent rows, but time everywhere."""
    start = first_time(series)
    steps = int(series.times.max()) + 1 - start
    block = torch.full((len(series), steps, series.channels), torch.nan)
    block[ragged.series_of_rows(series.offsets), series.times.long() - start] = series.values
    block[..., 0] = torch.arange(float(steps)) + start
    return block


def torchcde_coefficients(path: nc.ControlPath) -> Tensor:
    """The coefficients of natural cubic splines as torchcde keeps them, on a grid of unit steps.

    If all series start together and have a row at every step, they are those of our path. Otherwise torchcde computes
    them, which takes minutes for some hundreds of series with missing values.
    """
    import torchcde

    series = path.series
    together = bool((path.interval[:, 0] == first_time(series)).all())
    if not together or bool((path.interval[:, 1] - path.interval[:, 0] + 1 != series.lengths).any()):
        found: Tensor = torchcde.natural_cubic_coeffs(on_grid(series))
        return found
    pieces = path.piece_offsets.diff()
    block = path.coefficients.new_zeros(len(series), int(pieces.max()), 4, series.channels)
    owner = ragged.series_of_rows(path.piece_offsets)
    block[owner, torch.arange(len(owner)) - path.piece_offsets[owner]] = path.coefficients
    # a + b s + (2c) s^2 / 2 + (3d) s^3 / 3
    return (block * torch.tensor([1.0, 1.0, 2.0, 3.0])[:, None]).flatten(2)


def measure_speed(experiment: Experiment, data: Path, *, epochs: int = EPOCHS) -> bool:
    """Write one line of results per column: seconds per epoch of ours and of torchcde. False if torchcde is missing.

    Ours is measured with the steps of the table, and with steps from knot to knot.
    """
    if find_spec("torchcde") is None:
        print("torchcde is not installed; `pip install torchcde==0.2.5`, or `make bench`, installs it.")
        return False
    with Lines(experiment.file("speed")) as lines:
        for column in experiment.config["columns"]:
            line = compare(experiment, data, column, epochs, experiment.config.get("speed", {}).get("batches"))
            lines.append({experiment.config["column"]: column, **line, **provenance(), "torchcde": version("torchcde")})
            ratio = line["torchcde_seconds_per_epoch"] / line["seconds_per_epoch"]
            print(f"{column}: {ratio:.0f} times faster than torchcde", flush=True)
    return True


def compare(experiment: Experiment, data: Path, column: Any, epochs: int, batches: int | None = None) -> dict[str, Any]:
    """Seconds per epoch of all contestants, which take training steps on the same batches in turn.

    Splines are built beforehand and do not count. The grid of torchcde starts at the first time of all series, ours at
    the first observation of each. With `batches` only so many batches are taken, once each, and the seconds of an epoch
    are extrapolated.
    """
    settings = experiment.settings("neural_cde", column=column)
    parts = experiment.prepare(data, Run("neural_cde", column, 0, settings))
    size, task = settings["training"]["batch_size"], parts.task
    torch.manual_seed(0)
    ours = make_model("neural_cde", settings, **parts.shape)
    knots = make_model("neural_cde", merged(settings, {"model": {"steps": "knots"}}), **parts.shape)
    models = {"": ours, "knots_": knots, "torchcde_": InTorchCDE(make_model("neural_cde", settings, **parts.shape))}
    optimizers = {name: torch.optim.Adam(model.parameters(), lr=1e-3) for name, model in models.items()}
    loader = parts.training.loader(size, shuffle=True, generator=torch.Generator().manual_seed(0))
    chosen = [(path, targets, torchcde_coefficients(path)) for path, targets in itertools.islice(loader, batches)]
    rounds = epochs if batches is None else 1
    share = len(chosen) * rounds / len(loader)  # epochs that are measured

    def one_step(name: str, path: nc.ControlPath, targets: Tensor, coefficients: Tensor) -> float:
        start = time.perf_counter()
        optimizers[name].zero_grad(set_to_none=True)
        outputs = models[name](path, coefficients) if name == "torchcde_" else models[name](path)
        task.loss(outputs, targets).backward()  # type: ignore[no-untyped-call]
        optimizers[name].step()
        return time.perf_counter() - start

    seconds, warm = dict.fromkeys(models, 0.0), False
    for batch in itertools.chain.from_iterable(itertools.repeat(chosen, rounds)):
        for name in models:
            if not warm:
                one_step(name, *batch)
            seconds[name] += one_step(name, *batch)
        warm = True
    return {"epochs": round(share, 3), "batch_size": size} | {
        f"{name}seconds_per_epoch": total / share for name, total in seconds.items()
    }
