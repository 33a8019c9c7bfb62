"""What every vector field promises: registered ones by their names, and what else can be used as one."""

import copy
import json

import pytest
import torch
from sklearn.base import clone
from torch import nn

import neuralcde as nc
from neuralcde.contracts import Recipe
from neuralcde.fields import SignatureField, as_field, make_field
from registered import build, cases
from solve_cases import Case, largest_difference, on_engine, ran_on, some_path, states

CHANNELS, HIDDEN = 2, 3

# Name -> case -> options. Every registered field is tested; one needs an entry here only if it cannot be made with its
# defaults, or is to be tested with several options.
FIELD_OPTIONS = {"low_rank": {"rank one": {}, "rank four": {"rank": 4}}}
RECIPES = cases(nc.VectorField.registry, FIELD_OPTIONS)


class OfTime(nn.Module):
    def forward(self, t, z):
        return torch.stack([z, z * t[:, None]], dim=-1)


def made(recipe):
    return lambda: build(recipe, CHANNELS, HIDDEN, width=5, depth=2, activation="tanh")


FIELDS = {case: made(recipe) for case, recipe in RECIPES.items()} | {
    "signature": lambda: SignatureField(CHANNELS, depth=1),
    "function": lambda: as_field(lambda t, z: (z + t[:, None])[..., None].expand(-1, -1, CHANNELS)),
    "module": lambda: as_field(OfTime()),
    "sequential": lambda: as_field(nn.Sequential(nn.Linear(HIDDEN, 6), nn.Unflatten(-1, (HIDDEN, CHANNELS)))),
    "of time": lambda: nc.as_cde(lambda t, z, x: torch.sin(z + t[:, None]), hidden=1, channels=CHANNELS),
}


@pytest.fixture(params=FIELDS)
def field(request):
    torch.manual_seed(0)
    return FIELDS[request.param]().double()


def at(dtype=torch.float64, batch=4):
    generator = torch.Generator().manual_seed(0)
    t, z, dx = (torch.randn(batch, *size, generator=generator).to(dtype) for size in ((), (HIDDEN,), (CHANNELS,)))
    return t.abs(), z, dx


def test_prod_is_the_matrix_times_dx(field):
    t, z, dx = at()
    matrix = field(t, z)
    assert matrix.shape == (4, HIDDEN, CHANNELS)
    torch.testing.assert_close(field.prod(t, z, dx), torch.einsum("bhc,bc->bh", matrix, dx))


def test_a_batch_is_its_members_one_by_one(field):
    t, z, dx = at()
    together = field.prod(t, z, dx)
    for i in range(len(z)):
        one = slice(i, i + 1)
        torch.testing.assert_close(field.prod(t[one], z[one], dx[one]), together[one], rtol=1e-13, atol=1e-13)
    none = slice(0, 0)
    assert field.prod(t[none], z[none], dx[none]).shape == (0, HIDDEN)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_type_of_the_state(field, dtype):
    t, z, dx = at(dtype)
    field = field.to(dtype)
    assert field(t, z).dtype == field.prod(t, z, dx).dtype == dtype


def test_gradients(field):
    """Of the product, in the state, in dX and in every parameter."""
    t, z, dx = at()
    names, parameters = (
        zip(*field.named_parameters(), strict=True) if any(True for _ in field.parameters()) else ((), ())
    )

    def product(z, dx, *parameters):
        return torch.func.functional_call(Product(field), dict(zip(names, parameters, strict=True)), (t, z, dx))

    names = tuple(f"field.{name}" for name in names)
    inputs = [x.detach().requires_grad_() for x in (z, dx, *parameters)]
    assert torch.autograd.gradcheck(product, inputs)


class Product(nn.Module):
    """The product as a module, so that its parameters can be replaced."""

    def __init__(self, field):
        super().__init__()
        self.field = field

    def forward(self, t, z, dx):
        return self.field.prod(t, z, dx)


def test_both_engines_agree(field, monkeypatch):
    """On states and on all gradients. A field that the native engine does not know runs on plain torch, and says so."""
    from neuralcde.solve import ControlTerm

    path = some_path(5, channels=CHANNELS, count=3, rows=(1, 4))
    case, found = Case(path, states(path, HIDDEN), ControlTerm(field)), {}
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        solution, out, gradients = case.gradients(save="knots")
        found[engine] = {"states": out, **gradients}
    assert ran_on(solution, "torch")
    assert largest_difference(found["native"], found["torch"]) < 1e-10


def test_copies(field):
    t, z, dx = at()
    again = copy.deepcopy(field)
    assert torch.equal(again.prod(t, z, dx), field.prod(t, z, dx))


@pytest.mark.parametrize("case", RECIPES)
def test_saved_cloned_and_found_by_name(case):
    """By its recipe and its weights."""
    recipe, (t, z, dx) = RECIPES[case], at(torch.float32)
    config = json.loads(json.dumps(recipe.to_config(nc.VectorField.registry)))
    field = build(recipe, CHANNELS, HIDDEN)
    assert (field.channels, field.hidden) == (CHANNELS, HIDDEN)
    for again in (Recipe.of(config, nc.VectorField.registry), clone(recipe)):
        assert again == recipe
        other = make_field(again, CHANNELS, HIDDEN)
        other.load_state_dict(field.state_dict())
        assert torch.equal(other.prod(t, z, dx), field.prod(t, z, dx))
    assert type(make_field(config["name"], CHANNELS, HIDDEN)) is recipe.member
    assert type(make_field(recipe.member, CHANNELS, HIDDEN)) is recipe.member
