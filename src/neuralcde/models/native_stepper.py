"""Models on streams as plans of the native step, as far as it knows their parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..engine import Program, lower, most_stages
from ..engine.lowering import lower_layers
from ..engine.stream import CELLS, COUNTS, POOLS, SCHEMES, StreamProgram, described, numbers
from ..paths import Hermite, Linear, PathScheme, Rectilinear
from ..series.channels import ChannelScales
from ..series.row_features import FAMILIES
from ..series.row_scaling import RowScaling
from ..solve import AtKnots, FixedSteps, Tableau
from ..solve.solvers import as_solver
from .gru_d import GRUD
from .gru_delta_t import GRUDeltaT
from .gru_ode import GRUODE
from .initial_state import InitialState
from .jump_model import JumpModel
from .neural_cde import NeuralCDE
from .ode_rnn import ODERNN
from .readout import LinearReadout
from .row_inputs import RowInputs
from .row_mlp import RowMLP
from .solved_model import SolvedModel
from .stream_state import Layout
from .summary_readout import SummaryReadout

KINDS = {Linear: "linear", Rectilinear: "rectilinear", Hermite: "hermite"}
MODELS = (NeuralCDE, GRUODE, GRUDeltaT, GRUD, ODERNN)


class UnknownPartError(Exception):
    """A part that the native step does not know; the message names it."""


def native_program(
    models: Sequence[SolvedModel],
    schemes: Sequence[PathScheme],
    layout: Layout,
    counts: str | None,
    scales: ChannelScales,
    scaling: RowScaling | None,
    dtype: torch.dtype,
) -> StreamProgram | str:
    """The native step of these models, or the reason why there is none."""
    try:
        members = [
            _model(model, scheme, layout, number)
            for number, (model, scheme) in enumerate(zip(models, schemes, strict=True))
        ]
        sources = [source for model in models for source in _tensors(model)]
    except UnknownPartError as reason:
        return str(reason)
    plan = {
        "data": layout.data,
        "static": layout.static,
        "reals": layout.reals,
        "doubles": layout.doubles,
        "counts": COUNTS.index(counts),
        "from_start": scales.from_start,
        "time_scale": scales.time,
        "count_scale": scales.count,
        "count_scales": list(scales.counts or (1.0,) * layout.data),
        "scaling": None if scaling is None else _scaling(scaling),
        "models": members,
    }
    return StreamProgram(plan, sources, dtype)


def _tensors(model: nn.Module) -> Iterator[tuple[dict[str, Any], str]]:
    """The parameters and buffers of a model, with the dictionaries that hold them."""
    for part in model.modules():
        for kind in ("_parameters", "_buffers"):
            held = vars(part)[kind]
            for name, value in held.items():
                if value is not None:
                    if value.dtype not in (torch.float32, torch.float64) or value.device.type != "cpu":
                        raise UnknownPartError(f"{name} is {value.dtype} on {value.device}")
                    yield held, name


def _model(model: SolvedModel, scheme: PathScheme, layout: Layout, number: int) -> dict[str, Any]:
    if type(model) not in MODELS or type(scheme) not in KINDS or type(model.initial) is not InitialState:
        raise UnknownPartError(f"{type(model).__name__} along {scheme!r} is not a model that the native step knows")
    values_first = isinstance(model, GRUODE) and model.variant == "paper"
    start = model.initial
    found = {
        "hidden": model.hidden,
        "channels": model.path_channels,
        "memory": scheme.memory,
        "outputs": model.outputs,
        "real_start": layout.real_starts[number],
        "double_start": layout.double_starts[number],
        "timed": bool(model.time_channel or model.encoder is not None),
        "values_first": values_first,
        "scheme": SCHEMES.index(KINDS[type(scheme)]),
        "pool": POOLS.index(model.pool),
        "encoder": None,
        "encoder_inputs": _no_inputs(),
        "of_start": _layers(start.of_start, model.path_channels),
        "of_static": _layers(start.of_static, layout.static),
    }
    if model.encoder is not None:
        if type(model.encoder) is not RowMLP:
            raise UnknownPartError(f"{type(model.encoder).__name__} is not an encoder that the native step knows")
        found["encoder_inputs"] = _inputs(model.encoder.inputs)
        found["encoder"] = _layers(model.encoder.layers, model.encoder.inputs.outputs)
    return found | _flow(model) | _cell(model) | _readout(model, layout.static)


def _flow(model: SolvedModel) -> dict[str, Any]:
    term, tableau, steps = model.flow(), as_solver(model.solver), model.steps
    assert isinstance(steps, AtKnots | FixedSteps)
    assert isinstance(tableau, Tableau)  # checked by `checked_model`
    if tableau.stages > most_stages():
        raise UnknownPartError(f"{tableau.name} has more than {most_stages()} stages")
    program = None
    if term is not None:
        program = described(_known(lower(term.field, model.hidden, model.path_channels)))
    columns = tableau.columns()
    return {
        "flow": program,
        "drive": int(term is not None and term.driven_by == "value"),
        "stages": tableau.stages,
        "a": numbers(columns.a),
        "b": numbers(columns.b),
        "c": numbers(columns.c),
        "substeps": steps.substeps if isinstance(steps, AtKnots) else 1,
        "step_size": 0.0 if isinstance(steps, AtKnots) else float(steps.size),
    }


def _cell(model: SolvedModel) -> dict[str, Any]:
    kind, program, mask = "none", None, False
    fade: tuple[list[float], list[float]] = [], []
    means: list[float] = []
    if isinstance(model, JumpModel):
        mask = model.intensity
        kind = "shifted" if model.variant == "paper" and not mask else "values"
        extra = 0
        if isinstance(model, GRUD):
            kind, extra = ("decaying", model.data) if model.variant == "standard" else ("paper_decaying", 1)
            if kind == "decaying":
                fade, means = (numbers(model.fade["weight"]), numbers(model.fade["bias"])), numbers(model.means)
        program = described(_known(lower(model.cell, model.hidden, model.inputs + extra)))
    return {
        "cell": CELLS.index(kind),
        "mask": mask,
        "jump": program,
        "fade_weight": fade[0],
        "fade_bias": fade[1],
        "means": means,
    }


def _readout(model: SolvedModel, static: int) -> dict[str, Any]:
    readout = model.readout
    seen = model.readout_features * (2 if model.pool == "both" else 1)
    if type(readout) is LinearReadout:
        return {"summary": False, "readout": _layers(readout.linear, seen)}
    if type(readout) is not SummaryReadout:
        raise UnknownPartError(f"{type(readout).__name__} is not a readout that the native step knows")
    first, encoding = readout.summary[0], readout.encoding
    assert isinstance(first, nn.Linear)
    _layers(readout.summary, first.in_features)  # refused if it has hooks
    return {
        "summary": True,
        "summary_inputs": _inputs(readout.inputs),
        "bins": encoding.bins,
        "width": first.out_features,
        "edges": numbers(encoding.edges),
        "inverse_widths": numbers(encoding.inverse_widths),
        "encoding_mean": numbers(encoding.mean),
        "inverse_deviation": numbers(encoding.inverse_deviation),
        "summary_weight": numbers(first.weight),
        "summary_bias": numbers(first.bias),
        "readout": _layers(readout.layers, first.out_features + seen + static),
    }


def _inputs(inputs: RowInputs) -> dict[str, Any]:
    return {
        "families": [FAMILIES.index(name) for name in inputs.families],
        "knots": numbers(inputs.knots),
        "scale": float(inputs.scale),
        "common_origin": bool(inputs.common_origin),
    }


def _no_inputs() -> dict[str, Any]:
    return {"families": [], "knots": [], "scale": 1.0, "common_origin": False}


def _layers(layers: nn.Module | None, inputs: int) -> tuple[Any, ...] | None:
    return None if layers is None else described(_known(lower_layers(layers, inputs)))


def _known(program: Program | str) -> Program:
    if isinstance(program, str):
        raise UnknownPartError(program)
    return program


def _scaling(scaling: RowScaling) -> dict[str, Any]:
    def padded(values: Tensor) -> list[float]:
        return numbers(values)

    return {
        "single": scaling.dtype == torch.float32,
        "time": scaling.time_scale,
        "mean": numbers(scaling.mean),
        "deviation": numbers(scaling.deviation),
        "use": numbers(scaling.use),
        "lowest": numbers(scaling.lowest),
        "highest": numbers(scaling.highest),
        "mapped": scaling.mapped.long().tolist(),
        "counts": scaling.counts.tolist(),
        "most": scaling.knots.shape[1],
        "knots": padded(scaling.knots),
        "scores": padded(scaling.scores),
    }
