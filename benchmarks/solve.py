"""Forward and backward solves, compared with torchcde, diffrax, a GRU, and the speed of torch's matrix product."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Callable

import torch
import torchcde
from torch import nn

import neuralcde as nc

from .measure import RESULTS, medians, save, show


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes of a model and a batch; `batch` series of `steps` steps."""

    name: str
    batch: int
    steps: int
    hidden: int
    width: int
    depth: int
    channels: int

    def products(self, stages: int) -> float:
        """Floating-point operations of the matrix products in a forward pass."""
        inner = self.hidden * self.width + (self.depth - 1) * self.width**2 + self.width * self.hidden * self.channels
        return 2.0 * inner * stages * self.steps * self.batch


CHARACTERS = Size("CharacterTrajectories", 32, 181, 32, 32, 3, 4)
SEPSIS = Size("sepsis", 1024, 71, 49, 49, 4, 69)
SPEECH = Size("speech", 1024, 160, 90, 40, 4, 21)
RTOL, ATOL = 1e-3, 1e-5


class Ours:
    """`nc.solve_cde` at a given size: one forward pass, or one forward and backward pass."""

    def __init__(
        self,
        size: Size,
        solver: str = "rk4",
        *,
        lengths: list[int] | None = None,
        gradient: object = "checkpoint",
        steps: object = None,
    ):
        torch.manual_seed(0)
        self.options = {"solver": solver, "gradient": gradient, "steps": steps}
        lengths = lengths or [size.steps + 1] * size.batch
        pairs = [(torch.arange(n).double(), torch.randn(n, size.channels).cumsum(0) / 8) for n in lengths]
        self.path = nc.natural_cubic(nc.IrregularSeries.from_list(pairs))
        self.field = nc.MLPField(size.channels, size.hidden, width=size.width, depth=size.depth)
        self.z0 = torch.randn(size.batch, size.hidden)

    def forward(self) -> None:
        with torch.no_grad():
            nc.solve_cde(self.path, self.field, self.z0, **self.options)

    def train(self) -> None:
        nc.solve_cde(self.path, self.field, self.z0, **self.options).last.sum().backward()


class TorchCDE:
    """The same solve with torchcde: rk4 with unit steps on the same kind of path, or dopri5 with adaptive steps."""

    def __init__(self, size: Size, *, adjoint: bool, adaptive: bool = False):
        torch.manual_seed(0)
        self.options: dict[str, object] = {"method": "rk4", "options": {"step_size": 1.0}}
        if adaptive:  # the norm over z and a alone is the seminorm
            self.options = {"method": "dopri5", "rtol": RTOL, "atol": ATOL}
            if adjoint:
                self.options["adjoint_options"] = {"norm": "seminorm"}
        x = torch.randn(size.batch, size.steps + 1, size.channels).cumsum(1) / 8
        self.control = torchcde.CubicSpline(torchcde.natural_cubic_coeffs(x))
        self.field, self.adjoint = nc.MLPField(size.channels, size.hidden, width=size.width, depth=size.depth), adjoint
        self.z0 = torch.randn(size.batch, size.hidden)

    def solve(self) -> torch.Tensor:
        states = torchcde.cdeint(
            self.control,
            self.field,
            self.z0,
            self.control.interval,
            adjoint=self.adjoint,
            **self.options,
        )
        return states[:, -1]

    def forward(self) -> None:
        with torch.no_grad():
            self.solve()

    def train(self) -> None:
        self.solve().sum().backward()


class GRU:
    """`torch.nn.GRU` with about as many parameters, over as many steps."""

    def __init__(self, size: Size, hidden: int):
        torch.manual_seed(0)
        self.gru = nn.GRU(size.channels, hidden, batch_first=True)
        self.x = torch.randn(size.batch, size.steps + 1, size.channels)

    def forward(self) -> None:
        with torch.no_grad():
            self.gru(self.x)

    def train(self) -> None:
        self.gru(self.x)[0][:, -1].sum().backward()


class Diffrax:
    """The same field and a Hermite path with diffrax, jit-compiled, default gradient; Heun, or adaptive Tsit5."""

    def __init__(self, size: Size, *, adaptive: bool = False):
        import diffrax
        import jax
        import jax.numpy as jnp
        import numpy as np

        generator = np.random.default_rng(0)
        ts = jnp.arange(size.steps + 1.0)
        x = jnp.asarray(generator.normal(size=(size.batch, size.steps + 1, size.channels)).cumsum(1) / 8, jnp.float32)
        coefficients = jax.vmap(lambda v: diffrax.backward_hermite_coefficients(ts, v))(x)
        sizes = [
            (size.hidden, size.width),
            *[(size.width, size.width)] * (size.depth - 1),
            (size.width, size.hidden * size.channels),
        ]
        weights = [
            (jnp.asarray(generator.normal(size=(o, i)) / i**0.5, jnp.float32), jnp.zeros(o, jnp.float32))
            for i, o in sizes
        ]
        z0 = jnp.asarray(generator.normal(size=(size.batch, size.hidden)), jnp.float32)

        def field(t: object, z: object, weights: object) -> object:
            for w, b in weights[:-1]:
                z = jax.nn.relu(w @ z + b)
            w, b = weights[-1]
            return jnp.tanh(w @ z + b).reshape(size.hidden, size.channels)

        def one(weights: object, coefficients: object, z0: object) -> object:
            control = diffrax.CubicInterpolation(ts, coefficients)
            term = diffrax.ControlTerm(field, control).to_ode()
            steps = diffrax.PIDController(rtol=RTOL, atol=ATOL) if adaptive else diffrax.ConstantStepSize()
            solver = diffrax.Tsit5() if adaptive else diffrax.Heun()
            return diffrax.diffeqsolve(
                term, solver, ts[0], ts[-1], None if adaptive else 1.0, z0, weights, stepsize_controller=steps
            ).ys[-1]

        def loss(weights: object) -> object:
            return jax.vmap(lambda c, z: one(weights, c, z))(coefficients, z0).sum()

        run, gradient = jax.jit(loss), jax.jit(jax.value_and_grad(loss))
        self.forward: Callable[[], object] = lambda: jax.block_until_ready(run(weights))
        self.train: Callable[[], object] = lambda: jax.block_until_ready(gradient(weights))


def main(chosen: list[str]) -> None:
    tables = {
        "peers": peers,
        "modes": modes,
        "rate": rate,
        "threads": threads,
        "growth": growth,
        "ragged": ragged,
        "memory": memory,
        "substeps": substeps,
    }
    for name in chosen or tables:
        save("solve", {name: tables[name]()})


def matrix_product() -> Callable[[], object]:
    a = torch.randn(512, 512)
    return lambda: a @ a


def peers() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []

    def compare(
        label: str, peer: str, ours: Callable[[], object], theirs: Callable[[], object], goal: float, repeats: int
    ) -> None:
        seconds = medians({"ours": ours, "theirs": theirs}, repeats=repeats)
        rows.append(
            {
                "size": label,
                "against": peer,
                "peer ms": 1e3 * seconds["theirs"],
                "ours ms": 1e3 * seconds["ours"],
                "ratio": seconds["theirs"] / seconds["ours"],
                "at least": goal,
            }
        )

    ours = Ours(CHARACTERS)
    compare(
        "CharacterTrajectories, rk4", "torchcde adjoint", ours.train, TorchCDE(CHARACTERS, adjoint=True).train, 40, 5
    )
    compare(
        "CharacterTrajectories, rk4", "torchcde backprop", ours.train, TorchCDE(CHARACTERS, adjoint=False).train, 20, 7
    )
    compare("CharacterTrajectories, rk4", "nn.GRU(47)", ours.train, GRU(CHARACTERS, 47).train, 2.5, 15)
    few_sepsis, few_speech = dataclasses.replace(SEPSIS, steps=6), dataclasses.replace(SPEECH, steps=10)
    compare(
        "sepsis, rk4, 6 steps",
        "torchcde adjoint",
        Ours(few_sepsis).train,
        TorchCDE(few_sepsis, adjoint=True).train,
        3.5,
        3,
    )
    compare(
        "speech, rk4, 10 steps",
        "torchcde adjoint",
        Ours(few_speech).train,
        TorchCDE(few_speech, adjoint=True).train,
        3.5,
        3,
    )
    single = dataclasses.replace(CHARACTERS, batch=1)
    compare(
        "one series, 182 observations, forward",
        "torchcde",
        Ours(single).forward,
        TorchCDE(single, adjoint=False).forward,
        40,
        9,
    )
    # Last, because the threads of jax disturb every timing after it.
    compare(
        "CharacterTrajectories, heun", "diffrax jit", Ours(CHARACTERS, "heun").train, Diffrax(CHARACTERS).train, 6, 9
    )
    show("Forward and backward (one series: forward only), medians of interleaved repeats", rows)
    return rows


def modes() -> list[dict[str, object]]:
    """Adaptive steps, the continuous adjoint and a single series, against the peers; torch on one thread."""
    most = torch.get_num_threads()
    torch.set_num_threads(1)
    adaptive = nc.Adaptive(rtol=RTOL, atol=ATOL)
    ours = {
        "adaptive": Ours(CHARACTERS, "tsit5", steps=adaptive),
        "adaptive adjoint": Ours(CHARACTERS, "tsit5", steps=adaptive, gradient="backsolve"),
        "rk4 adjoint": Ours(CHARACTERS, gradient="backsolve"),
        "rk4 checkpoint": Ours(CHARACTERS),
        "one": Ours(dataclasses.replace(CHARACTERS, batch=1)),
    }
    theirs = {
        "one": TorchCDE(dataclasses.replace(CHARACTERS, batch=1), adjoint=False),
        "adaptive": TorchCDE(CHARACTERS, adjoint=False, adaptive=True),
        "adaptive adjoint": TorchCDE(CHARACTERS, adjoint=True, adaptive=True),
    }
    # So little work that what is measured is Python; against a tenth of a millisecond, not a peer.
    tiny = Ours(dataclasses.replace(CHARACTERS, batch=1, steps=1, hidden=2, width=2, depth=1))
    share = medians({"ours": tiny.forward}, repeats=15)["ours"]
    peer = Diffrax(CHARACTERS, adaptive=True)
    comparisons: list[tuple[str, str, Callable[[], object], Callable[[], object], float | str, int]] = [
        ("one series of 182 rows, rk4, forward", "torchcde", ours["one"].forward, theirs["one"].forward, 120, 7),
        ("adaptive, forward", "torchcde", ours["adaptive"].forward, theirs["adaptive"].forward, "", 3),
        ("adaptive, forward and backward", "torchcde", ours["adaptive"].train, theirs["adaptive"].train, "", 3),
        (
            "adaptive, adjoint with the seminorm",
            "torchcde",
            ours["adaptive adjoint"].train,
            theirs["adaptive adjoint"].train,
            40,
            3,
        ),
        (
            "adaptive, adjoint",
            "our checkpoint",
            ours["adaptive adjoint"].train,
            ours["adaptive"].train,
            1 / 3,
            7,
        ),
        ("rk4, adjoint", "our checkpoint", ours["rk4 adjoint"].train, ours["rk4 checkpoint"].train, 1 / 3, 7),
        # Last, because the threads of jax disturb every timing after it.
        ("adaptive, forward", "diffrax jit", ours["adaptive"].forward, peer.forward, 4, 15),
        ("adaptive, forward and backward", "diffrax jit", ours["adaptive"].train, peer.train, 6, 9),
    ]
    rows: list[dict[str, object]] = []
    for label, against, mine, other, goal, repeats in comparisons:
        seconds = medians({"ours": mine, "theirs": other}, repeats=repeats)
        rows.append(
            {
                "mode": label,
                "against": against,
                "peer ms": 1e3 * seconds["theirs"],
                "ours ms": 1e3 * seconds["ours"],
                "ratio": seconds["theirs"] / seconds["ours"],
                "at least": goal,
            }
        )
    goal_ms = 0.1
    rows.append(
        {
            "mode": "Python's share: one series of 2 rows, hidden 2, forward",
            "against": "the goal",
            "peer ms": goal_ms,
            "ours ms": 1e3 * share,
            "ratio": goal_ms / (1e3 * share),
            "at least": 1,
        }
    )
    torch.set_num_threads(most)
    show("Modes of the engine at CharacterTrajectories size, one thread of torch, medians of interleaved repeats", rows)
    return rows


def rate() -> list[dict[str, object]]:
    """FLOP/s as a fraction of those of torch's 512 x 512 matrix product; training counts as four forward passes."""
    rows: list[dict[str, object]] = []
    most = torch.get_num_threads()
    sizes = (
        CHARACTERS,
        dataclasses.replace(CHARACTERS, batch=256),
        dataclasses.replace(SEPSIS, steps=12),
        dataclasses.replace(SPEECH, steps=24),
    )
    for size, count in itertools.product(sizes, sorted({1, most})):
        ours = Ours(size)
        torch.set_num_threads(count)
        seconds = medians({"forward": ours.forward, "train": ours.train, "product": matrix_product()}, repeats=9)
        peak, forward = 2 * 512**3 / seconds["product"], size.products(4)
        rows.append(
            {
                "size": f"{size.name}, batch {size.batch}, {size.steps} steps",
                "threads": count,
                "sgemm GFLOP/s": peak / 1e9,
                "forward GFLOP/s": forward / seconds["forward"] / 1e9,
                "of sgemm": forward / seconds["forward"] / peak,
                "training GFLOP/s": 4 * forward / seconds["train"] / 1e9,
                "of sgemm, training": 4 * forward / seconds["train"] / peak,
            }
        )
    torch.set_num_threads(most)
    show("Share of the machine's own matrix product", rows)
    return rows


def threads() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for size in (CHARACTERS, dataclasses.replace(SEPSIS, steps=12)):
        ours = Ours(size)

        def with_threads(count: int, ours: Ours = ours) -> Callable[[], object]:
            def run() -> None:
                torch.set_num_threads(count)
                ours.train()

            return run

        seconds = medians({"1": with_threads(1), "2": with_threads(2)}, repeats=7)
        rows.append(
            {
                "size": size.name,
                "1 thread ms": 1e3 * seconds["1"],
                "2 threads ms": 1e3 * seconds["2"],
                "speed-up": seconds["1"] / seconds["2"],
            }
        )
    show("Training on one and on two threads", rows)
    return rows


def growth() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for what, values in (
        ("steps", (50, 100, 200, 400, 800)),
        ("batch", (32, 64, 128, 256)),
        ("width", (32, 64, 128, 256)),
    ):
        for value in values:
            size = dataclasses.replace(CHARACTERS, **{what: value})
            seconds = medians({"train": Ours(size).train}, repeats=5)["train"]
            rows.append(
                {
                    "grows": what,
                    "value": value,
                    "ms": 1e3 * seconds,
                    "ns per 1000 products": 1e12 * seconds / size.products(4),
                }
            )
    show("Cost as one size grows (the last column is flat where cost is linear)", rows)
    plot(rows)
    return rows


def ragged() -> list[dict[str, object]]:
    size = dataclasses.replace(CHARACTERS, batch=256)
    lengths = torch.linspace(10, 180, size.batch).round().long()
    lengths = lengths[torch.randperm(size.batch, generator=torch.Generator().manual_seed(0))].tolist()
    even = Ours(dataclasses.replace(size, steps=179))
    uneven = Ours(size, lengths=lengths)
    seconds = medians({"even": even.train, "ragged": uneven.train}, repeats=9)
    share = sum(n - 1 for n in lengths) / (179 * size.batch)
    rows: list[dict[str, object]] = [
        {
            "batch": "256 series of 180",
            "ms": 1e3 * seconds["even"],
            "share of its steps": 1.0,
            "cost over its share": 1.0,
        },
        {
            "batch": "256 series of 10 .. 180",
            "ms": 1e3 * seconds["ragged"],
            "share of its steps": share,
            "cost over its share": seconds["ragged"] / seconds["even"] / share,
        },
    ]
    show("A ragged batch", rows)
    return rows


def memory() -> list[dict[str, object]]:
    """Additional peak memory of one forward and backward solve, each in its own process."""
    rows: list[dict[str, object]] = []
    for steps in (1_000, 10_000, 100_000):
        row: dict[str, object] = {"steps": steps, "hidden x steps floats, MB": 4 * 16 * 32 * steps / 2**20}
        for method in ("checkpoint", "checkpoint every 100", "backsolve", "torchcde adjoint", "torchcde backprop"):
            if steps > 10_000 and method.startswith("torchcde"):
                continue
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.solve", method, str(steps)],
                capture_output=True,
                text=True,
                check=True,
            )
            row[f"{method}, MB"] = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(json.dumps(row), flush=True)
    show("Peak memory of a training solve, 16 series, hidden 32, width 32, 4 channels, heun, beyond the path", rows)
    return rows


def substeps() -> list[dict[str, object]]:
    """Additional peak memory of one forward and backward solve of many steps over ten gaps."""
    rows: list[dict[str, object]] = []
    for steps in (1_000, 10_000, 100_000):
        row: dict[str, object] = {"steps": steps}
        for method in ("checkpoint", "backsolve", "reversible", "reversible_heun"):
            command = [sys.executable, "-m", "benchmarks.solve", method, str(steps), "gaps"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row[f"{method}, MB"] = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
    show(
        "Peak memory of a training solve over 10 gaps, 16 series, hidden 32, width 32, 4 channels",
        rows,
    )
    return rows


def measure_memory(method: str, steps: int, *, gaps: bool = False) -> None:
    from .memory import peak_megabytes

    torch.set_num_threads(1)
    if gaps:
        size = dataclasses.replace(CHARACTERS, batch=16, steps=10)
        solver, gradient = ("reversible_heun", "reversible") if method == "reversible_heun" else ("ees25", method)
        warm, long = (
            Ours(size, solver, gradient=gradient, steps=nc.AtKnots(count)) for count in (2, steps // size.steps)
        )
        warm.train()
        print(json.dumps(peak_megabytes(long.train)))
        return
    size = dataclasses.replace(CHARACTERS, batch=16, steps=steps)
    if method.startswith("torchcde"):
        contestant: Ours | TorchCDE = TorchCDE(size, adjoint=method.endswith("adjoint"))
        warm: Ours | TorchCDE = TorchCDE(dataclasses.replace(size, steps=20), adjoint=method.endswith("adjoint"))
    else:
        gradient: object = nc.Checkpoint(every=100) if method.endswith("100") else method
        contestant = Ours(size, "euler" if method == "backsolve" else "heun", gradient=gradient)
        warm = Ours(dataclasses.replace(size, steps=20), gradient=gradient)
    warm.train()
    print(json.dumps(peak_megabytes(contestant.train)))


def plot(rows: list[dict[str, object]]) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axes, what in zip(panels, ("steps", "batch", "width"), strict=True):
        part = [row for row in rows if row["grows"] == what]
        values, times = [row["value"] for row in part], [row["ms"] for row in part]
        work = [dataclasses.replace(CHARACTERS, **{what: value}).products(4) for value in values]
        axes.plot(values, times, "o-", color="#1f6f8b", label="measured")
        axes.plot(values, [times[-1] * w / work[-1] for w in work], "--", color="#999999", label="its operations")
        axes.set(xscale="log", yscale="log", xlabel=what, ylabel="ms, forward and backward" if what == "steps" else "")
        axes.set_xticks(values, [str(value) for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks([ms for ms in (5, 10, 20, 50, 100, 200) if min(times) * 0.7 < ms < max(times) * 1.4])
        axes.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.suptitle("Cost of a training solve (CharacterTrajectories size) grows as its operations do")
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "solve.png", dpi=120)
    print(f"picture: {RESULTS / 'solve.png'}")


if __name__ == "__main__":
    measure_memory(sys.argv[1], int(sys.argv[2]), gaps="gaps" in sys.argv)
