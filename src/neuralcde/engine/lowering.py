"""Lowering of modules to programs of the native engine.

Only the package's own fields and cells, and compositions of common layers, are lowered. Everything else (a subclass of
one of these, a module with hooks, a function) runs on the plain torch loop, with the same result up to rounding.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from .._native import kernels
from ..fields import (
    DecayGRUCell,
    FunctionField,
    GRUCell,
    GRUODEField,
    LowRankField,
    MLPField,
    ODEField,
    SignatureField,
)
from .program import Program, ProgramBuilder, Region

Lowering = Callable[[ProgramBuilder, Any], Region]
_registry: dict[type[nn.Module], Lowering] = {}
# Weak keys: a cached program does not keep its module alive.
_programs: weakref.WeakKeyDictionary[nn.Module, _Cached] = weakref.WeakKeyDictionary()

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
INTERNAL = frozenset(vars(nn.Module()))  # names of attributes that are no settings
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)
FUSED = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.Softplus: "softplus"}


class NotLoweredError(Exception):
    """A module cannot be lowered; the message says why."""


def lowers(kind: type[nn.Module]) -> Callable[[Lowering], Lowering]:
    """Decorator that registers the lowering of modules of exactly this type."""

    def register(lowering: Lowering) -> Lowering:
        _registry[kind] = lowering
        return lowering

    return register


def lower(module: nn.Module, hidden: int, inputs: int) -> Program | str:
    """The program of a field or cell, or the reason why there is none.

    The program is cached until the submodules, parameters or settings of the module change.

    Parameters
    ----------
    module
        The field or cell.
    hidden, inputs
        Size of the state, and of what drives the field or of the inputs of the cell.
    """
    if type(module) not in _registry:
        return f"{type(module).__name__} is not a module that the engine knows"
    return _program(module, hidden, 0 if type(module) is ODEField else inputs, _registry[type(module)])


def lower_layers(layers: nn.Module, inputs: int) -> Program | str:
    """The program of a composition of common layers, applied row by row; or the reason why there is none."""
    return _program(layers, 0, inputs, lambda builder, layers: chain(builder, layers, builder.input))


def _program(module: nn.Module, hidden: int, inputs: int, lowering: Lowering) -> Program | str:
    before = _programs.get(module)
    if before is None or (before.hidden, before.inputs) != (hidden, inputs) or not before.valid():
        parts = _parts(module)
        try:
            check_plain(parts)
        except NotLoweredError as reason:
            return str(reason)
        before = _Cached(hidden, inputs, parts, _lowered(module, ProgramBuilder(hidden, inputs), lowering))
        # A program refers to the module's parameters, so new values need no new program. A lowering that made tensors
        # of its own (a slice of a parameter, a constant) would go stale, so such a program is not cached.
        program = before.program
        if isinstance(program, str) or {*map(id, program.parameters)} <= {*map(id, module.parameters())}:
            _programs[module] = before
    program = before.program
    # Checked at every call: `module.to(...)` changes dtype and device of the same parameters.
    for parameter in () if isinstance(program, str) else program.parameters:
        if not parameter.is_cpu or parameter.dtype not in (torch.float32, torch.float64):
            return f"a parameter is {parameter.dtype} on {parameter.device}"
    return program


def _parts(module: nn.Module) -> list[nn.Module]:
    """The module and its submodules, each once; `module.modules()` takes several times as long."""
    found = [module]
    seen = {id(module)}
    for part in found:
        for child in vars(part)["_modules"].values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


class _Cached:
    """A program, or the reason why there is none, with everything that it depends on.

    That is the type of the submodules, their parameters and their settings. Of each part the `__dict__` is kept, and
    not the part itself: a reference to the module would keep its entry in the cache alive.
    """

    def __init__(self, hidden: int, inputs: int, parts: list[nn.Module], program: Program | str):
        self.hidden, self.inputs, self.program = hidden, inputs, program
        owns = [vars(part) for part in parts]
        self._owns = [(own, dict(own)) for own in owns]
        self._children = [(own["_modules"], dict(own["_modules"])) for own in owns]
        self._submodules = parts[1:]
        self._kinds = [*map(type, self._submodules)]
        self._parameters = [(own["_parameters"], dict(own["_parameters"])) for own in owns if own["_parameters"]]
        self._shapes = [(p, p.shape) for _, held in self._parameters for p in held.values() if p is not None]
        self._hooks = [own[name] for own in owns for name in HOOKS]

    def valid(self) -> bool:
        """Whether the module is still the one that was lowered, without hooks and replaced methods.

        A comparison of dictionaries looks at values only where they are not the same objects, so it is fast.
        """
        if any(self._hooks) or any(vars(torch_module).get(name) for name in GLOBAL_HOOKS):
            return False
        for held, before in self._parameters:
            if [*map(id, held.values())] != [*map(id, before.values())]:
                return False
        for parameter, shape in self._shapes:
            if parameter.shape != shape:
                return False
        try:
            for own, before in self._owns:
                if own != before:
                    before["training"] = own.get("training")  # no program depends on it
                    if own != before:
                        return False
            same = all(held == before for held, before in self._children)
        except (RuntimeError, ValueError):  # a tensor or an array was replaced
            return False
        return same and [*map(type, self._submodules)] == self._kinds


def _lowered(module: nn.Module, builder: ProgramBuilder, lowering: Lowering) -> Program | str:
    try:
        program = builder.finish(lowering(builder, module))
    except (NotLoweredError, ValueError) as reason:
        return str(reason)
    if kernels is not None and program.features > kernels.MOST_FEATURES:
        return f"one evaluation needs {program.features} numbers per series; the engine allows {kernels.MOST_FEATURES}"
    return program


def check_plain(parts: list[nn.Module]) -> None:
    """Raise `NotLoweredError` if calling a module does more than its class's forward: hooks, replaced methods."""
    for name in GLOBAL_HOOKS:
        if getattr(torch_module, name, None):
            raise NotLoweredError("global module hooks are installed")
    for part in parts:
        own = vars(part)
        for name in HOOKS:
            if own.get(name):
                raise NotLoweredError(f"{type(part).__name__} has hooks")
        if "forward" in own or "prod" in own:
            raise NotLoweredError(f"the forward of a {type(part).__name__} was replaced")


def chain(builder: ProgramBuilder, layers: nn.Module, source: Region) -> Region:
    """Lower a composition of linear layers and activations; an activation is fused into the linear layer before it."""
    flat = _flatten(layers)
    position, here = 0, source
    while position < len(flat):
        layer = flat[position]
        position += 1
        if type(layer) is nn.Linear:
            follower = flat[position] if position < len(flat) else None
            function = "identity" if follower is None or not _plain_activation(follower) else FUSED.get(type(follower))
            if function is None or function == "identity":
                here = builder.linear(here, layer.weight, layer.bias)
            else:
                here = builder.linear(here, layer.weight, layer.bias, function)
                position += 1
        elif type(layer) is nn.SiLU:
            here = builder.apply("silu", here)
        elif _plain_activation(layer) and type(layer) in FUSED:
            here = builder.apply(FUSED[type(layer)], here)
        elif type(layer) is not nn.Identity:
            raise NotLoweredError(f"{type(layer).__name__} is not a layer that the engine knows")
    return here


def _flatten(layers: nn.Module) -> list[nn.Module]:
    """The layers of nested `nn.Sequential`s as one list."""
    if type(layers) is not nn.Sequential:
        return [layers]
    return [part for layer in layers for part in _flatten(layer)]


def _plain_activation(layer: nn.Module) -> bool:
    """Whether the layer is an activation that the engine has, with default settings."""
    if type(layer) is nn.Softplus:
        return layer.beta == 1 and layer.threshold == 20
    return type(layer) in FUSED


@lowers(MLPField)
def _mlp_field(builder: ProgramBuilder, field: MLPField) -> Region:
    return builder.contract(chain(builder, field.layers, builder.state), builder.input)


@lowers(LowRankField)
def _low_rank_field(builder: ProgramBuilder, field: LowRankField) -> Region:
    # One network computes both factors; A (B dX) is two contractions, and the full matrix is never formed.
    both = chain(builder, field.layers, builder.state)
    size = field.hidden * field.rank
    left, right = both.part(0, size), both.part(size, field.rank * field.channels)
    inner = builder.affine(builder.contract(right, builder.input), 1 / field.rank)
    return builder.contract(left, inner)


@lowers(FunctionField)
def _sequential_field(builder: ProgramBuilder, field: FunctionField) -> Region:
    """Lower an `nn.Sequential` of z that ends in `nn.Unflatten(-1, (hidden, channels))`."""
    layers = field.function
    if type(layers) is not nn.Sequential:
        name = getattr(layers, "__name__", type(layers).__name__)
        kind = "a custom module" if isinstance(layers, nn.Module) else "a function"
        raise NotLoweredError(f"{name} is {kind}, not a composition of layers that the engine knows")
    flat = _flatten(layers)
    shape = (builder.state.count, builder.input.count)
    if (
        not flat
        or type(flat[-1]) is not nn.Unflatten
        or tuple(flat[-1].unflattened_size) != shape
        or flat[-1].dim not in (-1, 1)
    ):
        raise NotLoweredError(f"the composition does not end in nn.Unflatten(-1, {shape})")
    return builder.contract(chain(builder, nn.Sequential(*flat[:-1]), builder.state), builder.input)


@lowers(GRUODEField)
def _gru_ode_field(builder: ProgramBuilder, field: GRUODEField) -> Region:
    # Each sum W x + U z is two linear operations, the second accumulating onto the result of the first.
    z, x, size = builder.state, builder.input, field.hidden
    gates = builder.linear(x, field.input_gates.weight, None)
    gates = builder.linear(z, field.state_gates.weight, field.state_gates.bias, "sigmoid", onto=gates)
    reset, stay = gates.part(0, size), gates.part(size, size)
    candidate = builder.linear(x, field.input_candidate.weight, None)
    inner = builder.multiply(reset, z)
    layer = field.state_candidate
    candidate = builder.linear(inner, layer.weight, layer.bias, "tanh", onto=candidate)
    return builder.multiply(builder.affine(stay, -1.0, 1.0), builder.subtract(candidate, z))


@lowers(ODEField)
def _ode_field(builder: ProgramBuilder, field: ODEField) -> Region:
    return chain(builder, field.layers, builder.state)


@lowers(GRUCell)
def _gru_cell(builder: ProgramBuilder, cell: GRUCell) -> Region:
    return _gru(builder, cell.gru, builder.input, builder.state)


@lowers(DecayGRUCell)
def _decay_gru_cell(builder: ProgramBuilder, cell: DecayGRUCell) -> Region:
    x, gaps = builder.input.part(0, cell.inputs), builder.input.part(cell.inputs, cell.decay.in_features)
    kept = builder.linear(gaps, cell.decay.weight, cell.decay.bias, "decay")
    return _gru(builder, cell.gru, x, builder.multiply(kept, builder.state))


def _gru(builder: ProgramBuilder, gru: nn.GRUCell, x: Region, z: Region) -> Region:
    """Lower `torch.nn.GRUCell`: gates r and s, candidate n = tanh(W x + r (U z)), result n + s (z - n).

    torch stacks the weights of r, s and n in one matrix. r and s are computed together; n separately, because r
    multiplies only its second summand.
    """
    size = gru.hidden_size
    two, third = (0, 2 * size), (2 * size, 3 * size)
    gates = builder.linear(x, gru.weight_ih, gru.bias_ih, outputs=two)
    gates = builder.linear(z, gru.weight_hh, gru.bias_hh, "sigmoid", onto=gates, outputs=two)
    candidate = builder.linear(x, gru.weight_ih, gru.bias_ih, outputs=third)
    remembered = builder.linear(z, gru.weight_hh, gru.bias_hh, outputs=third)
    reset, stay = gates.part(0, size), gates.part(size, size)
    candidate = builder.apply("tanh", builder.add(candidate, builder.multiply(reset, remembered)))
    return builder.add(candidate, builder.multiply(stay, builder.subtract(z, candidate)))


@lowers(SignatureField)
def _signature_field(builder: ProgramBuilder, field: SignatureField) -> Region:
    if (builder.state.count, builder.input.count) != (field.hidden, field.channels):
        raise NotLoweredError(f"the field was made for hidden={field.hidden}, channels={field.channels}")
    # Regions are allocated one after another, so the zero and the outer product together are one contiguous region.
    zero = builder.affine(builder.state.part(0, 1), 0.0)
    builder.outer(builder.state.part(0, field.prefixes), builder.input)
    return Region(zero.start, field.hidden)
