"""Fields, flows, jumps and paths shared by the tests of fields/, engine/ and solve/."""

import dataclasses

import torch
from torch import nn

import neuralcde as nc
from neuralcde.engine import Region, lowers
from neuralcde.solve import ControlTerm, Jump, Term, TimeTerm, solve, solvers
from ragged_cases import SCHEMES, random_series
from registered import members

SOLVERS = list(solvers)
TABLEAUX = {name: s for name, s in members(solvers).items() if isinstance(s, nc.Tableau)}
# their quadrature is exact for the derivative of a cubic
EXACT_ON_CUBICS = [
    name
    for name, s in TABLEAUX.items()
    if all(abs(sum(b * c**k for b, c in zip(s.b, s.c, strict=False)) - 1 / (k + 1)) < 1e-12 for k in range(3))
]
CUBIC = [case for case, make in SCHEMES.items() if make(random_series(0)).degree == 3]
STRAIGHT = [case for case in SCHEMES if case not in CUBIC]


def on_engine(monkeypatch, engine):
    """Make solves run on the engine "native" or "torch" for the rest of the test."""
    monkeypatch.setenv("NEURALCDE_ENGINE", "torch" if engine == "torch" else "")


def ran_on(solution, engine):
    """Whether the requested engine ran."""
    return solution.stats.engine.startswith(engine)


def some_path(seed=0, *, scheme="natural_cubic", count=5, rows=(2, 7), channels=3, dtype=torch.float64, **options):
    """A random ragged batch with missing values."""
    return SCHEMES[scheme](random_series(seed, count=count, rows=rows, channels=channels, dtype=dtype, **options))


def mlp(path, hidden, *, activation="tanh", seed=1, width=6, depth=2, **options):
    """The paper's field with smooth activations, the dtype of the path, and weights from `seed`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        field = nc.MLPField(path.channels, hidden, width=width, depth=depth, activation=activation, **options)
    return field.to(path.dtype)


def states(path, hidden, seed=2):
    """Initial states."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(path), hidden, generator=generator, dtype=torch.float64).to(path.dtype)


def smooth_path(count=3, rows=6, channels=2, scheme="natural_cubic"):
    """Samples of slow waves: smooth paths, for measuring convergence orders and errors."""
    pairs = []
    for i in range(count):
        times = torch.linspace(0, 2 + 0.3 * i, rows, dtype=torch.float64)
        phases = torch.arange(channels) + 0.4 * i
        pairs.append((times, torch.sin(times[:, None] + phases)))
    return SCHEMES[scheme](nc.IrregularSeries.from_list(pairs, dtype=torch.float64))


def identity_field(channels, dtype=torch.float64):
    """f(z) = identity, made of layers that the engine supports."""
    layer = nn.Linear(channels, channels * channels).to(dtype)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.eye(channels, dtype=dtype).flatten())
    return nn.Sequential(layer, nn.Unflatten(-1, (channels, channels)))


class Driven(nn.Module):
    """h(z, X) = tanh(W [z, X] + b) - z."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.inner = nn.Linear(hidden + channels, hidden)

    def forward(self, t, z, x):
        return torch.tanh(self.inner(torch.cat([z, x], 1))) - z


class Autonomous(nn.Module):
    """h(z) = W softplus(V z + c) + b."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(hidden, 4), nn.Softplus(), nn.Linear(4, hidden))

    def forward(self, t, z, x):
        return self.layers(z)


class GatedCell(nn.Module):
    """A toy jump: g z + (1 - g) silu(W [z, x] + b) with the gate g = sigmoid(V z + c + U x)."""

    def __init__(self, features, hidden):
        super().__init__()
        self.gate_z = nn.Linear(hidden, hidden)
        self.gate_x = nn.Linear(features, hidden, bias=False)
        self.new = nn.Linear(hidden + features, hidden)

    def forward(self, z, x):
        gate = torch.sigmoid(self.gate_z(z) + self.gate_x(x))
        return gate * z + (1 - gate) * nn.functional.silu(self.new(torch.cat([z, x], 1)))


@lowers(Driven)
def _driven(builder, flow):
    both = Region(0, builder.state.count + builder.input.count)
    return builder.subtract(builder.linear(both, flow.inner.weight, flow.inner.bias, "tanh"), builder.state)


@lowers(Autonomous)
def _autonomous(builder, flow):
    first, _, last = flow.layers
    return builder.linear(builder.linear(builder.state, first.weight, first.bias, "softplus"), last.weight, last.bias)


@lowers(GatedCell)
def _gated_cell(builder, cell):
    both = Region(0, builder.state.count + builder.input.count)
    before = builder.linear(builder.state, cell.gate_z.weight, cell.gate_z.bias)
    gate = builder.linear(builder.input, cell.gate_x.weight, None, "sigmoid", onto=before)
    new = builder.apply("silu", builder.linear(both, cell.new.weight, cell.new.bias))
    kept = builder.multiply(gate, builder.state)
    return builder.add(kept, builder.multiply(builder.affine(gate, -1.0, 1.0), new))


def some_jump(path, hidden, *, features=2, seed=3, every_row=False):
    """A jump at about two thirds of the rows, with inputs independent of the path."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        rows = len(path.knots)
        inputs = torch.randn(rows, features, dtype=torch.float64).to(path.dtype)
        at = torch.ones(rows, dtype=torch.bool) if every_row else torch.rand(rows) < 0.67
        return Jump(GatedCell(features, hidden).to(path.dtype), inputs, at)


def some_flow(kind, path, hidden, *, seed=4):
    """A flow by name: a CDE, h(z, X), h(z) or none."""
    if kind == "none":
        return None
    if kind == "cde":
        return ControlTerm(mlp(path, hidden, seed=seed))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = {"driven": Driven, "autonomous": Autonomous}[kind](path.channels, hidden)
    return TimeTerm(module.to(path.dtype))


@dataclasses.dataclass
class Case:
    """A solve whose differentiable inputs are all leaves that require gradients."""

    path: nc.ControlPath
    z0: torch.Tensor
    flow: Term | None
    jump: Jump | None = None

    def __post_init__(self):
        self.z0 = self.z0.detach().requires_grad_()
        coefficients = self.path.coefficients.detach().requires_grad_()
        self.path = dataclasses.replace(self.path, coefficients=coefficients)
        self.leaves = {"z0": self.z0, "path": coefficients}
        if self.jump is not None:
            self.jump = dataclasses.replace(self.jump, inputs=self.jump.inputs.detach().requires_grad_())
            self.leaves["row inputs"] = self.jump.inputs
            self.leaves |= {f"jump {name}": p for name, p in self.jump.cell.named_parameters()}
        if self.flow is not None:
            self.leaves |= {f"flow {name}": p for name, p in self.flow.field.named_parameters()}

    def solve(self, **options):
        return solve(self.path, self.z0, flow=self.flow, jump=self.jump, **options)

    def outputs(self, save="last", **options):
        """The solution, and all saved states in one tensor (states, hidden)."""
        solution = self.solve(save=save, **options)
        parts = [solution.last]
        if isinstance(save, torch.Tensor):
            parts.append(solution.at_times.flatten(0, 1))
        if save == "knots":
            parts.append(solution.at_knots)
        if save == "dense":
            low, high = self.path.interval.detach().unbind(1)
            asked = low[:, None] + (high - low)[:, None] * torch.tensor(
                [0.9, 0.0, 0.3, 0.301, 1.0], dtype=torch.float64
            )
            parts.append(solution.evaluate(asked).flatten(0, 1))
        return solution, torch.cat(parts)

    def gradients(self, **options):
        """The solution, its states, and the gradients of a fixed linear function of the states, by leaf."""
        solution, out = self.outputs(**options)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).cos().reshape(out.shape).to(out.dtype)
        found = torch.autograd.grad((out * weights).sum(), list(self.leaves.values()), allow_unused=True)
        given = zip(self.leaves.items(), found, strict=True)
        return solution, out.detach(), {name: torch.zeros_like(x) if g is None else g for (name, x), g in given}


def largest_difference(a, b):
    """Largest difference between two dictionaries of tensors, relative to the larger of 1 and the values."""
    assert a.keys() == b.keys()
    return max(float(((a[k] - b[k]).abs() / b[k].abs().clamp(min=1)).amax()) for k in a if a[k].numel())
