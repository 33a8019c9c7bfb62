"""Programs of the engine: every operation and its vector-Jacobian product, and errors of the builder."""

import pytest
import torch
from torch import nn

from neuralcde._native import kernels
from neuralcde.engine import ProgramBuilder, Region, lowers
from neuralcde.solve import Jump, TimeTerm
from solve_cases import Case, largest_difference, on_engine, ran_on, some_path, states

SIZE = 3  # size of the state and of the input
FUNCTIONS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": nn.functional.softplus,
    "silu": nn.functional.silu,
}
OPERATIONS = {}


class Operation(nn.Module):
    """A flow h(z, X) or a jump that computes in torch what a program computes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 2, SIZE * SIZE, dtype=torch.float64).reshape(SIZE, SIZE).sin())
        self.bias = nn.Parameter(torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64))

    def forward(self, *inputs):
        return self.compute(*inputs[-2:])


def operation(name, compute, lowering):
    """Register `compute(self, z, x)` and the program that computes the same."""
    OPERATIONS[name] = type(name, (Operation,), {"compute": compute})
    lowers(OPERATIONS[name])(lowering)


def cut_across(b, op):
    """(z_0, z_1, z_0) times (z_1, z_2, x_0): the second operand spans state and input."""
    chosen = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 0, 0]], dtype=torch.float64)
    return b.multiply(b.linear(b.state, chosen, None), Region(1, SIZE))


def onto_a_part(b, op):
    whole = b.linear(b.state, op.weight, None)
    b.linear(b.input, op.weight[:2], None, "sigmoid", onto=whole.part(0, 2))
    return whole


def used_twice(b, op):
    inner = b.linear(b.state, op.weight, None, "tanh")
    return b.multiply(inner, b.subtract(inner, b.state))


def written_into_parts(b, op):
    """The output consists of two parts, written by different operations."""
    whole = b.linear(b.input, op.weight, op.bias)
    b.linear(b.state, op.weight[1:], None, onto=whole.part(1, 2))
    return whole


operation("nothing but the state", lambda self, z, x: z, lambda b, op: b.state)
operation("nothing but the input", lambda self, z, x: x, lambda b, op: b.input)
operation("linear", lambda self, z, x: z @ self.weight.T, lambda b, op: b.linear(b.state, op.weight, None))
operation(
    "linear of the input",
    lambda self, z, x: x @ self.weight.T + self.bias,
    lambda b, op: b.linear(b.input, op.weight, op.bias),
)
operation("multiply", lambda self, z, x: z * x, lambda b, op: b.multiply(b.state, b.input))
operation("square", lambda self, z, x: z * z, lambda b, op: b.multiply(b.state, b.state))
operation("add", lambda self, z, x: z + x, lambda b, op: b.add(b.state, b.input))
operation("twice", lambda self, z, x: z + z, lambda b, op: b.add(b.state, b.state))
operation("subtract", lambda self, z, x: x - z, lambda b, op: b.subtract(b.input, b.state))
operation("affine", lambda self, z, x: -2.5 * z + 0.5, lambda b, op: b.affine(b.state, -2.5, 0.5))
operation(
    "contract",
    lambda self, z, x: (z @ self.weight.T) * x.sum(1, keepdim=True),
    lambda b, op: b.contract(b.linear(b.state, op.weight.repeat_interleave(SIZE, 0), None), b.input),
)
operation(
    "operands across regions",
    lambda self, z, x: torch.stack([z[:, 0] * z[:, 1], z[:, 1] * z[:, 2], z[:, 0] * x[:, 0]], 1),
    cut_across,
)
operation(
    "onto",
    lambda self, z, x: torch.tanh(z @ self.weight.T + self.bias + x @ self.weight.T),
    lambda b, op: b.linear(b.input, op.weight, None, "tanh", onto=b.linear(b.state, op.weight, op.bias)),
)
operation(
    "onto a part",
    lambda self, z, x: torch.cat(
        [torch.sigmoid(z @ self.weight[:2].T + x @ self.weight[:2].T), z @ self.weight[2:].T], 1
    ),
    onto_a_part,
)
operation(
    "written into parts",
    lambda self, z, x: x @ self.weight.T + self.bias + torch.nn.functional.pad(z @ self.weight[1:].T, (1, 0)),
    written_into_parts,
)
operation(
    "used twice",
    lambda self, z, x: torch.tanh(z @ self.weight.T) * (torch.tanh(z @ self.weight.T) - z),
    used_twice,
)
for function in FUNCTIONS:
    operation(
        f"{function}",
        lambda self, z, x, name=function: FUNCTIONS[name](z),
        lambda b, op, name=function: b.apply(name, b.state),
    )
    operation(
        f"linear, {function}",
        lambda self, z, x, name=function: FUNCTIONS[name](z @ self.weight.T + self.bias),
        lambda b, op, name=function: b.linear(b.state, op.weight, op.bias, name),
    )


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
@pytest.mark.parametrize("role", ["flow", "jump"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name, role, monkeypatch):
    """As h(z, X) and as a jump, compared with torch: values, and gradients to state, input and parameters."""
    path = some_path(31, scheme="linear", count=5, rows=(2, 4), channels=SIZE)
    module = OPERATIONS[name]()
    inputs = torch.randn(len(path.knots), SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    jump = Jump(module, inputs, torch.arange(len(inputs)) % 3 != 1) if role == "jump" else None
    flow = TimeTerm(module) if role == "flow" else None
    case = Case(path, states(path, SIZE), flow, jump)
    results = {}
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        solution, out, gradients = case.gradients(save="knots", solver="heun")
        assert ran_on(solution, engine), solution.stats.engine
        results[engine] = {"states": out, **gradients}
    assert largest_difference(results["native"], results["torch"]) < 1e-10
    assert results["torch"]["z0"].any()


def test_every_result_is_a_new_region():
    b = ProgramBuilder(3, 2)
    assert (b.state, b.input) == (Region(0, 3), Region(3, 2))
    inner = b.linear(b.state, torch.zeros(4, 3), torch.zeros(4))
    outer = b.apply("tanh", inner)
    assert (inner, outer) == (Region(5, 4), Region(9, 4))
    program = b.finish(outer.part(1, 3))
    assert (program.features, program.input, program.output) == (13, 2, 10)
    assert program.ops.shape == (2, len(kernels.OP_COLUMNS))
    assert program.numbers.shape == (2, 2)


def test_a_parameter_is_listed_once():
    b = ProgramBuilder(3, 2)
    weight, bias = torch.zeros(3, 3), torch.zeros(3)
    again = b.linear(b.linear(b.state, weight, bias), weight, bias)
    program = b.finish(again)
    assert [p is q for p, q in zip(program.parameters, (weight, bias), strict=True)] == [True, True]


def refusals():
    weight, bias = torch.zeros(3, 3), torch.zeros(3)
    yield "does not fit 2 inputs", lambda b: b.linear(b.input, weight, bias)
    yield "operands of 3 and 2 features do not match", lambda b: b.multiply(b.state, b.input)
    yield "a matrix of 3 entries does not fit a vector of 2", lambda b: b.contract(b.state, b.input)
    yield "the result has 2 features, but the state has 3", lambda b: b.finish(b.input)
    yield "does not fit a region of 3 features", lambda b: b.state.part(1, 3)
    yield "does not fit a region of 3 features", lambda b: b.state.part(-1, 2)
    # a value that the backward pass needs must not be overwritten
    yield "onto must hold 3 results", lambda b: b.linear(b.state, weight, bias, onto=b.state)
    yield "onto must hold 3 results", lambda b: b.linear(b.state, weight, bias, onto=b.input)
    yield (
        "onto must hold 3 results",
        lambda b: b.linear(b.state, weight, bias, onto=b.linear(b.state, weight, None, "tanh")),
    )
    yield "onto must hold 3 results", lambda b: b.linear(b.state, weight, bias, onto=b.apply("tanh", b.state))
    yield (
        "onto must hold 2 results",
        lambda b: b.linear(b.state, weight[:2], None, onto=b.linear(b.state, weight, bias)),
    )

    def read_in_between(b):
        sums = b.linear(b.state, weight, bias)
        b.multiply(sums, b.state)
        return b.linear(b.state, weight, bias, onto=sums)

    def of_itself(b):
        sums = b.linear(b.state, weight, bias)
        return b.linear(sums, weight, bias, onto=sums)

    yield "nothing has read", read_in_between
    yield "nothing has read", of_itself


@pytest.mark.parametrize(("message", "write"), list(refusals()))
def test_the_builder_refuses(message, write):
    with pytest.raises(ValueError, match=message):
        write(ProgramBuilder(3, 2))
