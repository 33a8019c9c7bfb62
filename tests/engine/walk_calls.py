"""Random calls of the compiled walks, valid and invalid."""

import numpy as np
import torch

import neuralcde as nc
from engine.engine_calls import NUMBERS, wrong_integers, wrong_tensor
from neuralcde._native import kernels
from neuralcde.engine import lower
from neuralcde.solve import solvers
from solve_cases import GatedCell

COLUMNS = len(kernels.WALK_COLUMNS) if kernels else 0


class WalkCall:
    """A valid walk, as dictionaries of arguments by name: of its constructor, its forward and its backward."""

    def __init__(self, rng):
        self.rng = rng
        self.real = torch.float32 if rng.random() < 0.5 else torch.float64
        series, hidden, channels, features = (
            int(rng.integers(0, 40)),
            int(rng.integers(1, 6)),
            int(rng.integers(1, 5)),
            int(rng.integers(1, 4)),
        )
        lengths, per_gap = rng.integers(1, 5, series), int(rng.integers(1, 3))
        offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
        rows, pieces = int(offsets[-1]), int(np.where(lengths > 1, (lengths - 1) * per_gap, 1).sum())
        adaptive, jumps = rng.random() < 0.5, rng.random() < 0.6
        self.programs = {
            "flow": lower(nc.MLPField(channels, hidden, width=3, depth=1).to(self.real), hidden, channels),
            "jump": lower(GatedCell(features, hidden).to(self.real), hidden, features),
        }
        values = {name: [p.detach().contiguous() for p in made.parameters] for name, made in self.programs.items()}
        columns = solvers["dopri5" if rng.random() < 0.5 else "tsit5"].columns(with_error=adaptive)
        self.tableau = {name: getattr(columns, name) for name in ("a", "b", "c", "b_error", "order", "same_as_last")}
        every = int(rng.integers(0, 4)) if not adaptive else 0
        rule = (
            {"rtol": 1e-2, "atol": 1e-2, "max_steps": int(rng.integers(1, 60)), "smooth": float(rng.choice([0.0, 0.4]))}
            if adaptive
            else {"substeps": torch.from_numpy(rng.integers(1, 4, pieces)), "every": every}
        )
        self.walk = {
            "flow": self.programs["flow"].native,
            "flow_values": values["flow"],
            "drive": kernels.Drive.increment if rng.random() < 0.5 else kernels.Drive.value,
            "jump": self.programs["jump"].native if jumps else None,
            "jump_values": values["jump"] if jumps else [],
            "initial": self.randn(series, hidden),
            "coefficients": self.randn(pieces, int(rng.integers(2, 5)), channels),
            "row_inputs": self.randn(rows if jumps else 0, features),
            "row_offsets": torch.from_numpy(offsets),
            "time": torch.from_numpy(rng.random(rows).cumsum()),
            "pieces_per_gap": per_gap,
            "jumps": torch.from_numpy(rng.integers(0, 2, rows).astype(np.uint8)) if jumps else None,
            "registers": int(rng.integers(0, 3)),
            "threads": int(rng.choice([-5, 0, 1, 2, 100])),
            **rule,
        }
        made = self.made()
        wants_rows = rng.random() < 0.5
        self.forward = {
            "last": torch.zeros(series, hidden, dtype=self.real),
            "at_rows": torch.zeros(rows, hidden, dtype=self.real) if wants_rows else None,
            "before_jumps": torch.zeros(rows, hidden, dtype=self.real) if jumps else None,
            "counts": torch.zeros(series, COLUMNS, dtype=torch.int64),
            "stopped": torch.zeros(series, dtype=torch.float64),
            "stored_states": torch.zeros(made.stored, hidden, dtype=self.real) if every else None,
            "keep_steps": bool(rng.random() < 0.5),
        }
        self.backward = {
            **{name: self.forward[name] for name in ("last", "at_rows", "before_jumps", "counts", "stored_states")},
            "last_gradient": self.randn(series, hidden),
            "rows_gradient": self.randn(rows, hidden) if wants_rows else None,
            "flow_gradients": [torch.zeros_like(p) for p in self.walk["flow_values"]],
            "jump_gradients": [torch.zeros_like(p) for p in self.walk["jump_values"]],
            "initial_gradient": torch.zeros(series, hidden, dtype=self.real),
            "coefficient_gradient": torch.zeros_like(self.walk["coefficients"]) if rng.random() < 0.5 else None,
            "input_gradient": torch.zeros_like(self.walk["row_inputs"]) if rng.random() < 0.5 else None,
        }

    def randn(self, *shape):
        return torch.from_numpy(self.rng.standard_normal([int(n) for n in shape])).to(self.real)

    def made(self):
        """The compiled walk for these arguments."""
        kind = kernels.Walk32 if self.real == torch.float32 else kernels.Walk64
        return kind(**{**self.walk, "tableau": kernels.Tableau(**self.tableau)})

    def __call__(self):
        walk = self.made()
        steps = walk.forward(**self.forward)
        total, hidden = steps.total, self.forward["last"].shape[1]
        if self.forward["keep_steps"] is True:
            steps.read(
                piece=torch.zeros(total, dtype=torch.int64),
                start=torch.zeros(total, dtype=torch.float64),
                length=torch.zeros(total, dtype=torch.float64),
                states=torch.zeros(total + len(self.forward["last"]), hidden, dtype=self.real),
            )
        walk.backward(**self.backward)


def attempt_walk(seed):
    """Make a valid call, then an altered one, which may raise. Returns what was altered, and whether it raised."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    WalkCall(rng)()
    call = WalkCall(rng)
    parts = (call.walk, call.walk, call.walk, call.tableau, call.forward, call.backward)
    where = parts[rng.integers(len(parts))]
    name = str(rng.choice(list(where)))
    old = where[name]
    if name in ("flow", "jump"):
        where[name] = [None, 3, call.programs["jump"].native, call.programs["flow"].native][rng.integers(4)]
    elif name == "drive":
        where[name] = [2, "increment", None, kernels.Drive.value][rng.integers(4)]
    elif name in ("rtol", "atol", "smooth"):
        where[name] = [-1.0, np.nan, np.inf, 0.0, None, "1", 1e300][rng.integers(7)]
    elif isinstance(old, bool):
        where[name] = [None, 3, "yes", not old][rng.integers(4)]
    elif isinstance(old, int):
        choices = [*NUMBERS, 1.5, None, "2"]
        where[name] = choices[rng.integers(len(choices))]
    elif isinstance(old, list):
        changed = list(old)
        if changed and rng.random() < 0.7:
            changed[rng.integers(len(changed))] = wrong_tensor(rng, changed[0])
        else:
            changed = changed[:-1] if rng.random() < 0.5 else [*changed, torch.zeros(3, dtype=call.real)]
        where[name] = changed
    elif old is None:
        where[name] = wrong_tensor(rng, call.walk["initial"])
    elif old.dtype == torch.int64 and name == "substeps":
        changed = old.clone()
        if len(changed):
            changed[rng.integers(len(changed))] = int(rng.choice([-(2**63), -1, 0, 1, 9, 2**40, 2**62]))
        where[name] = changed if rng.random() < 0.7 else wrong_integers(rng, changed)[:-1]
    elif old.dtype == torch.int64 and rng.random() < 0.7:
        where[name] = wrong_integers(rng, old)
    elif old.dtype == torch.uint8:
        where[name] = [old[:-1], old.bool(), old.long(), None, old[None], torch.cat([old, old])][rng.integers(6)]
    else:
        where[name] = wrong_tensor(rng, old)
    try:
        call()
    except (TypeError, ValueError):
        return name, True
    return name, False
