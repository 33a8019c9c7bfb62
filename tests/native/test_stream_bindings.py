"""The bindings of streams refuse plans and arrays that do not fit; nothing crashes."""

import copy

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.models import RowMLP

if kernels is None:
    pytest.skip("the native kernels were not built or are turned off", allow_module_level=True)


def plans():
    """Plans of a model with an encoder and summaries, and of one with jumps."""
    torch.manual_seed(0)
    encoder = RowMLP.with_options(outputs=3, width=5, hats=4)
    first = nc.NeuralCDE(4, 2, hidden=5, static=2, encoder=encoder, readout="summary", pool="both", scheme="hermite")
    second = nc.GRUD(4, 2, hidden=5)
    return [model.eval().start().stepper.native.plan for model in (first, second)]


def arrays(made, plan, streams=3):
    return (
        np.zeros((streams, plan["reals"]), np.float32),
        np.zeros((streams, plan["doubles"])),
        np.zeros(streams),
        np.zeros((streams, plan["data"])),
    )


def entries(plan, path=()):
    """All places in a plan."""
    items = plan.items() if isinstance(plan, dict) else enumerate(plan) if isinstance(plan, list | tuple) else ()
    for key, value in items:
        yield (*path, key), value
        if isinstance(value, dict | list | tuple) and len(value) < 60:
            yield from entries(value, (*path, key))


def changed(plan, path, value):
    found = copy.copy(plan)
    if len(path) > 1:
        value = changed(plan[path[0]], path[1:], value)
    if isinstance(plan, tuple):
        return (*plan[: path[0]], value, *plan[path[0] + 1 :])
    found[path[0]] = value
    return found


WRONG = [None, -1, 10**6, 2**40, "x", [], {}, [1.0] * 3, 1.5]


@pytest.mark.parametrize("number", [0, 1])
def test_changed_plans_are_refused_or_run(number):
    plan = plans()[number]
    refused = ran = 0
    for path, _ in list(entries(plan)):
        for wrong in WRONG:
            if isinstance(wrong, int) and wrong > 1000 and path[-1] == "substeps":
                continue  # as many steps as it says
            try:
                made = kernels.Stream32(changed(plan, path, wrong))
            except (ValueError, TypeError, RuntimeError, OverflowError, KeyError, IndexError):
                refused += 1
                continue
            try:
                real, double, t, x = arrays(made, changed(plan, path, wrong))
                made.update(real, double, t, x, 1)
                made.update(real, double, t + 1, x, 1)
                made.read(real, double, np.zeros((1, 3, 2), np.float32), 1)
            except (ValueError, TypeError, MemoryError):
                refused += 1
            ran += 1
    assert refused > 3 * ran


def test_arrays_of_other_shapes_and_types_are_refused():
    plan = plans()[0]
    made = kernels.Stream32(plan)
    good = arrays(made, plan)
    made.update(*good, 1)
    for place, part in enumerate(good):
        for wrong in (
            part[:-1],
            part[..., :-1],
            part.astype(np.float16),
            np.asfortranarray(np.tile(part.T, 2).T),
            None,
        ):
            given = [*good[:place], wrong, *good[place + 1 :]]
            with pytest.raises((ValueError, TypeError)):
                made.update(*given, 1)
    for shape in ((1, 3, 1), (2, 3, 2), (1, 2, 2), (3, 2)):
        with pytest.raises((ValueError, TypeError)):
            made.read(*good[:2], np.zeros(shape, np.float32), 1)
