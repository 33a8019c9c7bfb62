"""Vector fields: values, parameters, options and errors."""

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde.fields import activations, as_field


def at(batch=4, hidden=3, channels=2):
    generator = torch.Generator().manual_seed(0)
    return (
        torch.zeros(batch),
        torch.randn(batch, hidden, generator=generator),
        torch.randn(batch, channels, generator=generator),
    )


def test_mlp_is_the_formula_of_its_docstring():
    field = nc.MLPField(2, 3, width=5, depth=2)
    _, z, _ = at()
    weights = dict(field.named_parameters())
    x = z
    for layer in (0, 2):
        x = torch.relu(x @ weights[f"layers.{layer}.weight"].T + weights[f"layers.{layer}.bias"])
    x = torch.tanh(x @ weights["layers.4.weight"].T + weights["layers.4.bias"])
    torch.testing.assert_close(field(torch.zeros(4), z), x.reshape(4, 3, 2))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_depth_counts_hidden_layers(depth):
    field = nc.MLPField(2, 3, width=7, depth=depth)
    layers = [layer for layer in field.layers if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in layers] == [7] * depth + [6]


@pytest.mark.parametrize("name", activations)
def test_activations_by_name(name):
    field = nc.MLPField(1, 3, width=5, depth=1, activation=name, final="identity")
    first, _, last, _ = field.layers
    _, z, _ = at()
    function = {"identity": lambda x: x, "softplus": nn.functional.softplus, "silu": nn.functional.silu}
    inner = function.get(name, getattr(torch, name, None))(first(z))
    torch.testing.assert_close(field(torch.zeros(len(z)), z)[..., 0], last(inner))
    final = nc.MLPField(1, 3, width=5, depth=1, final=name)
    assert type(final.layers[-1]) is activations[name]


def test_the_final_tanh_bounds_the_field():
    field = nc.MLPField(2, 3)
    assert field(torch.zeros(50), 1e6 * torch.randn(50, 3)).abs().max() <= 1


@pytest.mark.parametrize("kind", [nc.MLPField, nc.LowRankField])
def test_initial_scale_is_a_factor_on_the_last_layer(kind):
    def made(scale):
        torch.manual_seed(0)
        return kind(2, 3, width=5, initial_scale=scale, final="identity")

    _, z, _ = at()
    whole, small = made(1.0), made(0.01)
    torch.testing.assert_close(small.layers(z), 0.01 * whole.layers(z))
    assert torch.equal(small.layers[0].weight, whole.layers[0].weight)
    assert made(0.0)(torch.zeros(len(z)), z).abs().max() == 0


def test_low_rank_is_a_sum_of_outer_products():
    field = nc.LowRankField(4, 5, rank=2, width=6)
    z = torch.randn(3, 5)
    left, right = field.factors(z)
    assert left.shape == (3, 5, 2)
    assert right.shape == (3, 2, 4)
    matrix = field(torch.zeros(len(z)), z)
    torch.testing.assert_close(matrix, sum(left[:, :, k, None] * right[:, None, k] for k in range(2)) / 2)
    assert torch.linalg.matrix_rank(matrix.double(), tol=1e-5).tolist() == [2, 2, 2]


def test_rank_one_has_fewer_parameters():
    """Section 6.3: width x (hidden + channels) weights in the last layer instead of width x hidden x channels."""
    full, low = nc.MLPField(9, 20, width=7), nc.LowRankField(9, 20, width=7)
    assert full.layers[-2].weight.shape == (180, 7)
    assert low.layers[-2].weight.shape == (29, 7)


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 0}, "channels must be an integer of at least 1, got 0"),
        ({"hidden": -3}, "hidden must be an integer of at least 1, got -3"),
        ({"width": 0}, "width must be an integer of at least 1"),
        ({"depth": 1.5}, "depth must be an integer of at least 1, got 1.5"),
        ({"activation": "gelu"}, "activation='gelu' is not one of .*'relu', 'tanh'"),
        ({"final": None}, "final=None is not one of .*'identity'"),
    ],
)
@pytest.mark.parametrize("kind", [nc.MLPField, nc.LowRankField])
def test_wrong_options_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**{"channels": 2, "hidden": 3, **options})


def test_rank_must_be_positive():
    with pytest.raises(ValueError, match="rank must be an integer of at least 1, got 0"):
        nc.LowRankField(2, 3, rank=0)


@pytest.mark.wrong_types
def test_as_field_keeps_fields_and_wraps_functions():
    field = nc.MLPField(2, 3)
    assert as_field(field) is field
    sequential = nn.Sequential(nn.Linear(3, 6), nn.Unflatten(-1, (3, 2)))
    assert dict(as_field(sequential).named_parameters()).keys() == {"function.0.weight", "function.0.bias"}
    with pytest.raises(TypeError, match="field must be a VectorField, an nn"):
        as_field("mlp")


def test_a_field_without_forward_raises():
    class Empty(nc.VectorField):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define forward\(t, z\)"):
        Empty()(torch.zeros(1), torch.zeros(1, 3))


def test_a_matrix_of_the_wrong_shape_is_named():
    t, z, dx = at()

    def transposed(t, z):
        return torch.zeros(len(z), 2, 3)

    with pytest.raises(ValueError, match=r"transposed must return shape .* = \(4, 3, 2\), got \(4, 2, 3\)"):
        as_field(transposed).prod(t, z, dx)
    with pytest.raises(ValueError, match=r"MLPField must return shape .* = \(4, 3, 5\), got \(4, 3, 2\)"):
        nc.MLPField(2, 3).prod(t, z, torch.zeros(4, 5))


def test_a_constant_matrix_may_leave_out_the_batch():
    t, z, dx = at()
    matrix = torch.randn(3, 2)
    torch.testing.assert_close(as_field(lambda t, z: matrix).prod(t, z, dx), dx @ matrix.T)
