"""The five models: time and memory of a training step, compared with a GRU and with simple eager PyTorch loops."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import neuralcde as nc

from .measure import medians, save, show


@dataclasses.dataclass(frozen=True)
class Setting:
    """The sizes of one of the paper's experiments: batch, rows, data channels, outputs, and model sizes."""

    name: str
    batch: int
    rows: int
    data: int
    outputs: int
    cde: dict[str, int]
    ode_rnn: dict[str, int]
    gru: int
    intensity: bool = False
    static: int = 0

    def path(self, batch: int | None = None) -> nc.ControlPath:
        """Random walks of this size."""
        torch.manual_seed(0)
        count = batch or self.batch
        pairs = [
            (torch.arange(self.rows).double(), torch.randn(self.rows, self.data).cumsum(0) / 8) for _ in range(count)
        ]
        static = torch.randn(count, self.static) if self.static else None
        series = nc.IrregularSeries.from_list(pairs, static=static)
        return nc.natural_cubic(series.with_channels(counts="per_channel" if self.intensity else None))

    def model(self, name: str, **options: Any) -> nn.Module:
        """A model of this size."""
        torch.manual_seed(0)
        channels = 1 + self.data * (2 if self.intensity else 1)
        options = {"static": self.static, "initial": "static" if self.static else None, **options}
        if name == "Neural CDE":
            return nc.NeuralCDE(channels, self.outputs, **self.cde, **options)
        options["variant"] = "paper"
        if name == "GRU-ODE":
            return nc.GRUODE(channels, self.outputs, hidden=self.gru, **options)
        options["intensity"] = self.intensity
        if name == "ODE-RNN":
            return nc.ODERNN(channels, self.outputs, **self.ode_rnn, **options)
        kind = {"GRU-dt": nc.GRUDeltaT, "GRU-D": nc.GRUD}[name]
        return kind(channels, self.outputs, hidden=self.gru, **options)


MODELS = ("Neural CDE", "ODE-RNN", "GRU-D", "GRU-dt", "GRU-ODE")
SMALL = {"hidden": 32, "width": 32, "depth": 3}
CHARACTERS = Setting("CharacterTrajectories", 32, 182, 3, 20, SMALL, SMALL, 47)
SEPSIS = Setting(
    "sepsis, intensity",
    1024,
    72,
    34,
    1,
    {"hidden": 49, "width": 49, "depth": 4},
    {"hidden": 128, "width": 128, "depth": 4},
    187,
    intensity=True,
    static=7,
)
SEPSIS_PLAIN = dataclasses.replace(SEPSIS, name="sepsis", intensity=False, static=5)
SPEECH = Setting(
    "speech",
    1024,
    161,
    20,
    10,
    {"hidden": 90, "width": 40, "depth": 4},
    {"hidden": 128, "width": 64, "depth": 4},
    160,
)


def training_step(model: nn.Module, x: object) -> Callable[[], None]:
    """A function that runs one forward and backward pass."""

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()

    return step


class PlainGRU(nn.Module):
    """`torch.nn.GRU` over the same rows, with a linear readout."""

    def __init__(self, channels: int, hidden: int, outputs: int):
        super().__init__()
        self.gru, self.readout = nn.GRU(channels, hidden, batch_first=True), nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.gru(x)[0][:, -1])


class EagerGRUD(nn.Module):
    """GRU-D (paper's variant) in plain eager PyTorch: a loop over the steps of a padded batch."""

    def __init__(self, data: int, hidden: int, outputs: int):
        super().__init__()
        self.cell, self.decay = nn.GRUCell(data, hidden), nn.Linear(1, hidden)
        self.readout = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        times, values = x[..., :1], x[..., 1:]
        z = values.new_zeros(len(x), self.cell.hidden_size)
        gap = torch.zeros_like(times[:, 0])
        for step in range(x.shape[1]):
            if step:
                gap = times[:, step] - times[:, step - 1]
            z = z * torch.exp(-torch.relu(self.decay(gap)))
            z = self.cell(values[:, step], z)
        return self.readout(z)


class EagerODERNN(nn.Module):
    """ODE-RNN in plain eager PyTorch: one step of the 3/8 rule between observations, then a cell."""

    def __init__(self, data: int, outputs: int, hidden: int, width: int, depth: int):
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(hidden, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.field = nn.Sequential(*layers, nn.Linear(width, hidden))
        self.cell, self.readout = nn.GRUCell(data, hidden), nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        times, values = x[..., :1], x[..., 1:]
        z = values.new_zeros(len(x), self.cell.hidden_size)
        for step in range(x.shape[1]):
            if step:
                h = times[:, step] - times[:, step - 1]
                k1 = h * self.field(z)
                k2 = h * self.field(z + k1 / 3)
                k3 = h * self.field(z - k1 / 3 + k2)
                k4 = h * self.field(z + k1 - k2 + k3)
                z = z + (k1 + 3 * k2 + 3 * k3 + k4) / 8
            z = self.cell(values[:, step], z)
        return self.readout(z)


def main(chosen: list[str]) -> None:
    tables = {"speed": speed, "costs": costs, "rank": rank, "memory": memory}
    for name in chosen or tables:
        save("models", {name: tables[name]()})


def padded(setting: Setting) -> Tensor:
    """Time and data of shape (batch, rows, 1 + data), for the eager loops."""
    torch.manual_seed(0)
    times = torch.arange(float(setting.rows))[None, :, None].expand(setting.batch, -1, 1)
    return torch.cat([times, torch.randn(setting.batch, setting.rows, setting.data).cumsum(1) / 8], dim=2)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def speed() -> list[dict[str, object]]:
    """Each model compared with `torch.nn.GRU` of about as many parameters, and two of them with eager loops."""
    setting, rows = CHARACTERS, []
    path, x = setting.path(), padded(setting)
    gru = PlainGRU(4, 47, 20)
    eager = {
        "GRU-D": EagerGRUD(3, 47, 20),
        "ODE-RNN": EagerODERNN(3, 20, **setting.ode_rnn),
    }
    goals = {"GRU-D": 5, "ODE-RNN": 20}
    for name in MODELS:
        model = setting.model(name)
        contestants = {"ours": training_step(model, path), "gru": training_step(gru, x)}
        if name in eager:
            contestants["eager"] = training_step(eager[name], x)
        seconds = medians(contestants, repeats=15)
        row: dict[str, object] = {
            "model": name,
            "parameters": count(model),
            "ours ms": 1e3 * seconds["ours"],
            f"nn.GRU ms ({count(gru)} parameters)": 1e3 * seconds["gru"],
            "of the GRU's time": seconds["ours"] / seconds["gru"],
            "at most": 1.5,
            "eager ms": 1e3 * seconds["eager"] if name in eager else "",
            "times faster": seconds["eager"] / seconds["ours"] if name in eager else "",
            "at least": goals.get(name, ""),
        }
        rows.append(row)
    show(
        "A training step at CharacterTrajectories size (batch 32, 182 rows, rk4), medians of interleaved repeats", rows
    )
    return rows


def costs() -> list[dict[str, object]]:
    """Section 6.3: the Neural CDE compared with ODE-RNN and a GRU, at three sizes."""
    rows: list[dict[str, object]] = []
    for setting in (CHARACTERS, SEPSIS, SPEECH):
        few = setting if setting is CHARACTERS else dataclasses.replace(setting, batch=256, rows=40)
        path = few.path()
        data = torch.cat(
            [torch.zeros(few.batch, few.rows, 1), path.series.values.reshape(few.batch, few.rows, -1)], dim=2
        )
        plain = PlainGRU(data.shape[2], few.gru, few.outputs)
        contestants = {name: training_step(few.model(name), path) for name in ("Neural CDE", "ODE-RNN")}
        seconds = medians({**contestants, "GRU": training_step(plain, data)}, repeats=7)
        rows.append(
            {
                "size": f"{few.name}, batch {few.batch}, {few.rows} rows",
                "Neural CDE ms": 1e3 * seconds["Neural CDE"],
                "ODE-RNN ms": 1e3 * seconds["ODE-RNN"],
                "GRU ms": 1e3 * seconds["GRU"],
                "Neural CDE / ODE-RNN": seconds["Neural CDE"] / seconds["ODE-RNN"],
                "Neural CDE / GRU": seconds["Neural CDE"] / seconds["GRU"],
            }
        )
    show(
        "Time of a training step (the paper, section 6.3: a little faster than ODE-RNN, five times slower than an RNN)",
        rows,
    )
    return rows


def rank() -> list[dict[str, object]]:
    """Section 6.3: the rank-one field compared with the full field, at the sepsis size."""
    setting = dataclasses.replace(SEPSIS, batch=256, rows=24)
    path, hidden = setting.path(), setting.cde["hidden"]
    fields = {
        "full": nc.MLPField(path.channels, **setting.cde),
        "rank one": nc.LowRankField(
            path.channels, hidden, rank=1, width=setting.cde["width"], depth=setting.cde["depth"]
        ),
    }
    models = {
        name: nc.NeuralCDE(path.channels, 1, hidden=hidden, field=field, static=7, initial="static")
        for name, field in fields.items()
    }
    seconds = medians({name: training_step(model, path) for name, model in models.items()}, repeats=7)
    rows: list[dict[str, object]] = [
        {"field": name, "parameters of the field": count(fields[name]), "ms": 1e3 * seconds[name]} for name in fields
    ]
    show(f"The field's rank, sepsis size, batch {setting.batch}, {setting.rows} rows", rows)
    return rows


SETTINGS = {setting.name: setting for setting in (CHARACTERS, SEPSIS, SPEECH)}
SIZES = {**SETTINGS, SEPSIS_PLAIN.name: SEPSIS_PLAIN}


def memory() -> list[dict[str, object]]:
    """Peak memory of one training step in addition to model and path, each in its own process."""
    rows: list[dict[str, object]] = []
    for setting in SETTINGS.values():
        for gradient in ("checkpoint", "backprop"):
            row: dict[str, object] = {"size": setting.name, "gradient": gradient}
            for name in MODELS:
                command = [sys.executable, "-m", "benchmarks.models", setting.name, name, gradient]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                row[f"{name}, MB"] = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(json.dumps(row), flush=True)
    show("Peak memory of a training step (batch 32, 1024 and 1024), resident memory beyond model and path", rows)
    return rows


def measure_memory(setting: Setting, name: str, gradient: str) -> None:
    from .memory import peak_megabytes

    model = setting.model(name, gradient=gradient)
    training_step(model, setting.path(batch=2))()  # warm up: one-time loading and allocation must not count
    path = setting.path()
    print(json.dumps(peak_megabytes(training_step(model, path))))


if __name__ == "__main__":
    measure_memory(SIZES[sys.argv[1]], sys.argv[2], sys.argv[3])
