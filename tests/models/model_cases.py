"""Every registered model, its variants, and a batch with the irregularities of real data."""

import dataclasses

import torch

import neuralcde as nc
from neuralcde.contracts import Recipe
from neuralcde.models import PathModel, SolvedModel
from neuralcde.models.jump_model import JumpModel
from ragged_cases import NAN, SCHEMES
from registered import build, members, takes

MODELS = {member.__name__: member for member in members(PathModel.registry).values()}
SOLVED = [name for name, member in MODELS.items() if issubclass(member, SolvedModel)]
JUMPS = [name for name, member in MODELS.items() if issubclass(member, JumpModel)]
VARIANTS = [
    kind
    for name, member in MODELS.items()
    for kind in ([f"{name} standard", f"{name} paper"] if takes(member, "variant") else [name])
]
STANDARD = [kind for kind in VARIANTS if not kind.endswith("paper")]
OUTPUTS = ["last", "mean", "knots", "times", "shared times"]
SHARED = torch.tensor([1.6, 0.5, 2.0, 1.1], dtype=torch.float64)

# All but the series of one row are defined on [0.5, 2.0625], where the shared times lie.
SERIES = {
    "a row without observations": (
        [0.0, 0.7, 1.1, 2.5, 3.0],
        [[0.3, NAN, -0.8], [NAN, 0.5, NAN], [NAN, NAN, NAN], [-1.2, NAN, 0.4], [0.6, 1.5, NAN]],
    ),
    "a channel never observed": ([-1.5, 0.2, 2.4], [[0.9, NAN, 0.1], [-0.4, NAN, NAN], [NAN, NAN, -1.1]]),
    "one row": ([1.3], [[NAN, 0.7, NAN]]),
    "nothing at the start and at the end": (
        [0.5, 0.9, 1.6, 2.2, 4.0, 4.1],
        [[NAN, NAN, NAN], [NAN, 1.0, 0.2], [0.8, NAN, -0.3], [NAN, -0.6, NAN], [1.4, 0.1, 0.9], [NAN, NAN, NAN]],
    ),
    "complete": ([0.25, 2.0625], [[1.1, -0.2, 0.5], [0.4, -0.9, -1.3]]),
    "one row of nothing": ([5.0], [[NAN, NAN, NAN]]),
}
STATIC = [[0.4, NAN], [NAN, NAN], [-1.0, 0.3], [0.2, 2.0], [1.5, -0.7], [0.0, 0.6]]


def raw_batch(dtype=torch.float64):
    """The series above, with two static features."""
    return nc.IrregularSeries.from_list(list(SERIES.values()), ids=list(SERIES), static=STATIC, dtype=dtype)


def path_of(series, *, scheme="linear-forward", intensity=False):
    """A path with a time channel, and with counts if `intensity`."""
    return SCHEMES[scheme](series.with_channels(counts="per_channel" if intensity else None))


def make(kind, channels, *, intensity=False, outputs=2, seed=1, dtype=torch.float64, **options):
    """A small model such as "GRUD paper", with weights from `seed`."""
    name, *variant = kind.split()
    options |= {"variant": variant[0]} if variant else {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        recipe = Recipe(MODELS[name], **options)
        model = build(recipe, channels, outputs, hidden=5, width=6, depth=2, intensity=intensity).to(dtype)
        if name == "GRUD" and "means" not in options:
            model.means.normal_()
    return model


def times_within(path, places=(0.7, 0.0, 1.0, 0.21, 0.7, 0.5)):
    """Times at these fractions of every interval, shape (series, k)."""
    low, high = path.interval.detach().unbind(1)
    return low[:, None] + (high - low)[:, None] * torch.tensor(places, dtype=torch.float64)


def outputs_of(model, path, output):
    """The outputs of a model, for one of `OUTPUTS`."""
    model.pool = "mean" if output == "mean" else "last"
    asked = {"knots": "knots", "times": times_within(path), "shared times": SHARED}
    return model(path, at=asked.get(output))


class ModelCase:
    """A model on the batch above, with gradients to its parameters, the data and the static features."""

    def __init__(self, kind, *, scheme="linear-forward", intensity=False, chosen=slice(None), **options):
        self.series, self.scheme, self.intensity = raw_batch()[chosen], scheme, intensity
        self.values = self.series.values.clone().requires_grad_()
        self.static = self.series.static.clone().requires_grad_()
        channels = 1 + self.series.channels * (2 if intensity else 1)
        self.model = make(kind, channels, intensity=intensity, **{"static": 2, **options})
        self.leaves = {"values": self.values, "static": self.static, **dict(self.model.named_parameters())}

    def path(self):
        series = dataclasses.replace(self.series, values=self.values, static=self.static)
        return path_of(series, scheme=self.scheme, intensity=self.intensity)

    def outputs(self, output):
        return outputs_of(self.model, self.path(), output)

    def gradients(self, output):
        """The outputs and their gradients."""
        out = self.outputs(output)
        return {"outputs": out.detach(), **gradients_of(out, self.leaves)}


def gradients_of(out, leaves):
    """The gradients of a fixed linear function of the outputs to every leaf; zeros if a leaf is not used."""
    weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).cos().reshape(out.shape).to(out.dtype)
    found = torch.autograd.grad((out * weights).sum(), list(leaves.values()), allow_unused=True, retain_graph=True)
    given = zip(leaves.items(), found, strict=True)
    return {name: torch.zeros_like(x) if g is None else g for (name, x), g in given}
