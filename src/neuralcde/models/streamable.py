"""Which models and path schemes can run on streams."""

from __future__ import annotations

from ..contracts import ArgumentError
from ..paths import PathScheme
from ..solve import Adaptive, FixedSteps, Tableau
from ..solve.solvers import as_solver
from .initial_state import InitialState
from .jump_model import JumpModel
from .path_model import PathModel
from .row_encoder import RowEncoder
from .solved_model import SolvedModel

MOST_STEPS = 100_000  # of `FixedSteps` in one gap


def checked_model(model: PathModel) -> SolvedModel:
    """The model, refused if it cannot run on streams."""
    name, why = type(model).__name__, ""
    kind = type(model)
    if not isinstance(model, SolvedModel) or kind.trajectory is not SolvedModel.trajectory:
        why = "it computes its states from whole series; subclass SolvedModel"
    elif isinstance(model.steps, Adaptive):
        why = "adaptive steps depend on the steps before them; use steps=AtKnots()"
    elif not isinstance(as_solver(model.solver), Tableau):
        why = f"solver={as_solver(model.solver).name!r} carries more than the state from row to row; use a Tableau"
    elif kind.forward is not PathModel.forward or kind.features is not PathModel.features:
        why = "it defines forward or features; define with_values"
    elif type(model).jump not in (SolvedModel.jump, JumpModel.jump) or not isinstance(model.initial, InitialState):
        why = "it has a jump or an initial state of its own"
    if why:
        raise ArgumentError(f"{name} cannot run on streams: {why}.", argument="model")
    assert isinstance(model, SolvedModel)
    encoder = model.encoder
    if encoder is not None and type(encoder).encode is RowEncoder.encode:
        raise ArgumentError(
            f"{type(encoder).__name__} cannot run on streams: it reads whole series. Define encode(known), with "
            "RowInputs as inputs.",
            argument="encoder",
        )
    return model


def checked_scheme(scheme: PathScheme) -> PathScheme:
    """The scheme, refused unless a gap of its paths depends on the rows before it alone."""
    if scheme.causality == "none":
        raise ArgumentError(
            f"{scheme!r} cannot run on streams: its paths depend on later observations. Use a causal scheme: "
            'Linear(), Hermite(), Rectilinear() with fill="forward".',
            argument="scheme",
        )
    if not 1 <= scheme.memory <= 2:
        raise ArgumentError(
            f"{scheme!r} cannot run on streams: it does not say what a gap depends on. Define memory (1 or 2) and "
            "gap().",
            argument="scheme",
        )
    return scheme


def check_steps(model: SolvedModel, gap: float) -> None:
    """Refuse a gap that `FixedSteps` would cross in too many steps."""
    if isinstance(model.steps, FixedSteps) and gap / model.steps.size > MOST_STEPS:
        raise ArgumentError(
            f"t: a gap of {gap:g} takes {gap / model.steps.size:,.0f} steps with {model.steps!r}; at most "
            f"{MOST_STEPS:,} are taken. Start a new stream after such a gap.",
            argument="t",
        )
