"""Invalid calls of the compiled engine raise errors and never crash."""

import json

import pytest
import torch
from engine_calls import attempt, whole_call

from fresh_python import fresh_python
from neuralcde._native import kernels

pytestmark = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")


def test_thousands_of_calls_in_their_own_process():
    """In a separate process, and first: there a crash is a failed test, in this process it would end the test run."""
    done = fresh_python(
        """
        import collections, json
        from engine.engine_calls import attempt, few_checkpoints
        few_checkpoints()
        refused, accepted = collections.Counter(), collections.Counter()
        for seed in range(700):
            name, wrong = attempt(seed)
            (refused if wrong else accepted)[name] += 1
        print(json.dumps([refused, accepted]))
        """
    )
    assert done.returncode == 0, done.stderr
    refused, accepted = json.loads(done.stdout)
    assert sum(refused.values()) > 2 * sum(accepted.values())
    assert len(refused) > 25  # every argument was altered at least once


def test_a_valid_call_works():
    call = whole_call()
    call()
    assert call.forward["states"].any()
    assert call.backward["initial_gradient"].any()
    assert all(gradient.any() for gradient in call.backward["flow_gradients"])


def changed(x, place, value):
    y = x.clone()
    y[place] = value
    return y


@pytest.mark.parametrize(
    ("where", "name", "change", "message"),
    [
        ("events", "offsets", lambda x: changed(x, 1, 2**62), "offsets must increase"),
        ("events", "offsets", lambda x: changed(x, 0, 1), "offsets must start at 0"),
        ("events", "offsets", lambda x: changed(x, -1, 1), "end at the total"),
        ("events", "offsets", lambda x: x[:-1], "end at the total"),
        ("events", "offsets", lambda x: x[:0], "at least one number"),
        ("events", "piece", lambda x: changed(x, 0, 2**40), "names a piece that is not there"),
        ("events", "piece", lambda x: changed(x, 0, -2), "names a piece that is not there"),
        ("events", "jump_row", lambda x: changed(x, 0, 10**6), "names a row that is not there"),
        ("events", "jump_row", lambda x: None, "a jump needs rows"),
        ("events", "piece", lambda x: None, "events differ in number|end at the total"),
        ("events", "time", lambda x: torch.zeros(3, dtype=torch.float64), "events differ in number"),
        ("saved", "offsets", lambda x: changed(x, 1, -1), "offsets must increase"),
        ("saved", "event", lambda x: changed(x, 0, 10**6), "saved events must be sorted and within their series"),
        ("saved", "event", lambda x: changed(x, 0, -1), "saved events must be sorted and within their series"),
        ("tableau", "b", lambda x: torch.zeros(0, dtype=torch.float64), "the tableau has the wrong size"),
        ("tableau", "a", lambda x: torch.zeros(41, 41, dtype=torch.float64), "the tableau has the wrong size"),
        ("solve", "initial", lambda x: x[:-1], "one more than the series"),
        ("solve", "registers", lambda x: 3, "one or two registers wide"),
        ("solve", "every", lambda x: -1, "every must not be negative"),
        ("solve", "coefficients", lambda x: torch.zeros(len(x), 5, x.shape[2], dtype=x.dtype), "degree 1 to 3"),
        ("solve", "flow_values", lambda x: x[:-1], "asks for a parameter that is not there"),
        ("solve", "flow_values", lambda x: [x[1], *x[1:]], "a weight has the wrong size"),
    ],
)
def test_wrong_numbers_are_named(where, name, change, message):
    call = whole_call()
    arguments = getattr(call, where)
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, 8, "unknown code"),
        (0, -1, "unknown code"),
        (1, 7, "unknown function"),
        (1, 5, "silu needs an op of its own"),
        (2, 10**6, "an operand is out of range"),
        (3, 2**62, "an operand is out of range"),
        (3, -1, "an operand is out of range"),
        (5, 0, "an operand is out of range"),
        (6, 0, "need columns"),
        (7, -1, "a linear op needs a weight"),
        (2, 0, "may not overlap its operands"),
        (9, -1, "a parameter is out of range"),
        (10, 2**63 - 1, "a parameter is out of range"),
    ],
)
def test_wrong_operands_are_named(column, value, message):
    call = whole_call()
    ops = call.programs["flow"].ops.clone()
    assert ops[0, 0] == 0  # a linear operation on the state
    ops[0, column] = value
    with pytest.raises(ValueError, match=message):
        call.program("flow", ops=ops)


def test_outputs_must_fit():
    for where, name, message in (
        ("forward", "states", "saved states must have shape"),
        ("forward", "failed_event", "one number per series"),
        ("forward", "checkpoints", "checkpoints have the wrong size"),
        ("backward", "checkpoints", "checkpoints have the wrong size"),
        ("backward", "states_gradient", "saved states must have shape"),
        ("backward", "initial_gradient", "initial_gradient must have the shape of initial"),
    ):
        call = whole_call()
        getattr(call, where)[name] = getattr(call, where)[name][:-1]
        with pytest.raises(ValueError, match=message):
            call()
    call = whole_call()
    call.backward["flow_gradients"] = call.backward["flow_gradients"][:-1]
    with pytest.raises(ValueError, match="one gradient for each parameter"):
        call()
    call = whole_call()
    call.solve["every"] = 0
    with pytest.raises(ValueError, match="backward needs checkpoints"):
        call.made().backward(**call.backward)


def test_one_precision_in_a_call():
    for name in ("initial", "coefficients", "row_inputs"):
        call = whole_call()
        other = torch.float64 if call.real == torch.float32 else torch.float32
        call.solve[name] = call.solve[name].to(other)
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("seed", range(20_000, 20_050))
def test_wrong_calls(seed):
    name, refused = attempt(seed)
    assert isinstance(name, str)
    assert refused in (True, False)


def test_a_program_without_operations():
    nothing = torch.zeros(0, len(kernels.OP_COLUMNS), dtype=torch.int64), torch.zeros(0, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="a program needs operations"):
        kernels.Program(*nothing, 5, 2, 0)


def test_thousands_of_walks_in_their_own_process():
    done = fresh_python(
        """
        import collections, json
        from engine.walk_calls import attempt_walk
        refused, accepted = collections.Counter(), collections.Counter()
        for seed in range(700):
            name, wrong = attempt_walk(seed)
            (refused if wrong else accepted)[name] += 1
        print(json.dumps([refused, accepted]))
        """
    )
    assert done.returncode == 0, done.stderr
    refused, accepted = json.loads(done.stdout)
    assert sum(refused.values()) > sum(accepted.values())
    assert len(refused) > 25  # nearly every argument was altered at least once
