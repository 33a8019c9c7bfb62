"""Random calls of the compiled engine, valid and invalid."""

import numpy as np
import torch

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.engine import lower
from solve_cases import GatedCell

NUMBERS = [-(2**63), -(2**40), -(2**31), -7, -1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1]


class EngineCall:
    """A valid call, as dictionaries of arguments by name: of the solve, of its forward and of its backward."""

    def __init__(self, rng):
        self.rng = rng
        self.real = torch.float32 if rng.random() < 0.5 else torch.float64
        series, hidden, channels, features = (
            rng.integers(0, 20),
            rng.integers(1, 6),
            rng.integers(1, 5),
            rng.integers(1, 4),
        )
        listed = rng.random() < 0.6  # explicit steps; otherwise one step per piece
        steps = rng.integers(0 if listed else 1, 5, series)
        events = np.concatenate([[0], (steps + 1).cumsum()]).astype(np.int64)
        pieces, rows = int(steps.sum()) + int(listed), int(events[-1]) + 1
        total, stages = int(events[-1]), int(rng.integers(1, 8))
        last = np.isin(np.arange(total), events[1:] - 1)
        self.programs = {
            "flow": lower(
                nc.MLPField(int(channels), int(hidden), width=3, depth=1).to(self.real), int(hidden), int(channels)
            ),
            "jump": lower(GatedCell(int(features), int(hidden)).to(self.real), int(hidden), int(features)),
        }
        present = {name: rng.random() < 0.8 for name in self.programs}
        values = {name: [p.detach().contiguous() for p in made.parameters] for name, made in self.programs.items()}
        saved = [np.sort(rng.integers(0, n + 1, rng.integers(0, 4))) for n in steps]
        every, registers = int(rng.integers(0, 4)), int(rng.integers(0, 3))
        self.tableau = {
            "a": torch.rand(stages, stages, dtype=torch.float64).tril(-1),
            "b": torch.rand(stages, dtype=torch.float64),
            "c": torch.rand(stages, dtype=torch.float64),
        }
        self.events = {
            "offsets": torch.from_numpy(events),
            "piece": torch.from_numpy(np.where(last, -1, rng.integers(-1, pieces, total))) if listed else None,
            "start": torch.rand(total, dtype=torch.float64) if listed else None,
            "length": torch.rand(total, dtype=torch.float64) if listed else None,
            "duration": torch.rand(total, dtype=torch.float64) if listed else None,
            "jump_row": torch.from_numpy(rng.integers(-1, rows, total)) if present["jump"] else None,
            "time": None if listed else torch.rand(total, dtype=torch.float64),
        }
        self.saved = {
            "offsets": torch.from_numpy(np.concatenate([[0], np.cumsum([len(s) for s in saved])]).astype(np.int64)),
            "event": torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *saved])),
        }
        self.solve = {
            "flow": self.program("flow") if present["flow"] else None,
            "flow_values": values["flow"] if present["flow"] else [],
            "drive": kernels.Drive.increment if rng.random() < 0.5 else kernels.Drive.value,
            "jump": self.program("jump") if present["jump"] else None,
            "jump_values": values["jump"] if present["jump"] else [],
            "initial": self.randn(series, hidden),
            "coefficients": self.randn(pieces, int(rng.integers(2, 5)), channels),
            "row_inputs": self.randn(rows, features),
            "every": every,
            "registers": registers,
            "threads": int(rng.choice([-5, 0, 1, 2, 100])),
        }
        width = kernels.lanes(4 if self.real == torch.float32 else 8) * self.made().registers
        order = np.argsort(-steps, kind="stable")
        kept = sum(-(-int(n + 1) // every) for n in steps[order][::width]) if every else 0
        count = len(self.saved["event"])
        self.forward = {
            "states": torch.zeros(count, hidden, dtype=self.real),
            "failed_event": torch.full((int(series),), -1, dtype=torch.int64),
            "checkpoints": torch.empty(kept * width * int(hidden), dtype=self.real),
        }
        self.backward = {
            "checkpoints": self.forward["checkpoints"],
            "states_gradient": self.randn(count, hidden),
            "flow_gradients": [torch.zeros_like(p) for p in self.solve["flow_values"]],
            "jump_gradients": [torch.zeros_like(p) for p in self.solve["jump_values"]],
            "initial_gradient": torch.zeros(int(series), hidden, dtype=self.real),
            "coefficient_gradient": torch.zeros_like(self.solve["coefficients"]) if rng.random() < 0.5 else None,
            "row_gradient": torch.zeros_like(self.solve["row_inputs"]) if rng.random() < 0.5 else None,
        }

    def randn(self, *shape):
        return torch.from_numpy(self.rng.standard_normal([int(n) for n in shape])).to(self.real)

    def program(self, name, **changes):
        made = self.programs[name]
        parts = {
            "ops": made.ops,
            "numbers": made.numbers,
            "features": made.features,
            "input": made.input,
            "output": made.output,
        }
        return kernels.Program(*{**parts, **changes}.values())

    def made(self):
        """The compiled solve object for these arguments."""
        kind = kernels.Solve32 if self.real == torch.float32 else kernels.Solve64
        tableau, events = kernels.Tableau(**self.tableau), kernels.Events(**self.events)
        return kind(**self.solve, tableau=tableau, events=events, saved=kernels.Saved(**self.saved))

    def __call__(self):
        call = self.made()
        call.forward(**self.forward)
        if isinstance(self.solve["every"], int) and self.solve["every"] > 0:
            call.backward(**self.backward)


def whole_call():
    """A valid call with several series, a flow, a jump and gradients."""
    seed = 0
    while True:
        call = EngineCall(np.random.default_rng(seed))
        parts = call.solve["flow"], call.solve["jump"], call.solve["every"], len(call.saved["event"]) > 2
        listed = call.events["piece"] is not None
        if all(parts) and listed and len(call.solve["initial"]) > 2:
            return call
        seed += 1


def wrong_tensor(rng, x):
    """A tensor of another dtype, shape, layout or device, or no tensor at all."""
    choices = [
        x.to(torch.float16 if x.dtype.is_floating_point else torch.int32),
        x.to({torch.float32: torch.float64, torch.float64: torch.float32, torch.int64: torch.float64}[x.dtype]),
        torch.cat([x, x[:1]]) if len(x) else x.new_zeros(1, *x.shape[1:]),
        x[:-1],
        x[None],
        x.sum(),
        x.new_zeros(0),
        x.new_zeros(*x.shape[:-1], x.shape[-1] + 1),
        torch.empty_like(x, device="meta"),
        x.repeat_interleave(2, dim=0)[::2],
        x.new_zeros(1).expand(x.shape),
        None,
        x.tolist(),
        "tensor",
        object(),
    ]
    return choices[rng.integers(len(choices))]


def wrong_integers(rng, x):
    """Integers of the right dtype and shape, some of them invalid."""
    changed = x.clone()
    if len(changed):
        changed[rng.integers(len(changed))] = int(rng.choice(NUMBERS))
    return changed.flip(0) if rng.random() < 0.3 else changed


def wrong_program(rng, call, name):
    """A program with other operands, which may be valid or invalid."""
    made = call.programs[name]
    ops, numbers = made.ops.clone(), made.numbers.clone()
    for _ in range(rng.integers(1, 4)):
        row, column = rng.integers(len(ops)), rng.integers(10)
        near = int(rng.integers(-2, made.features + 3))
        ops[row, column] = near if rng.random() < 0.7 else int(rng.choice(NUMBERS))
    numbers[0, 0] = float(rng.choice([np.nan, np.inf, -1e300, 0.5]))
    changes = {"ops": ops, "numbers": numbers}
    part = str(rng.choice(["features", "input", "output", "ops", "numbers", "none of them"]))
    if part in ("ops", "numbers"):
        changes[part] = wrong_tensor(rng, changes[part])
    elif part != "none of them" and rng.random() < 0.5:
        near = getattr(made, part) + int(rng.integers(-3, 4))
        changes[part] = near if rng.random() < 0.5 else int(rng.choice([-(2**31), -1, 0, 1, 2**20, 2**31 - 1, 2**31]))
    return call.program(name, **changes)


def break_one(rng, call):
    """Replace one argument by something that is probably invalid."""
    parts = (call.solve, call.solve, call.tableau, call.events, call.events, call.saved, call.forward, call.backward)
    where = parts[rng.integers(len(parts))]
    name = str(rng.choice(list(where)))
    old = where[name]
    if name in ("flow", "jump"):
        where[name] = wrong_program(rng, call, name) if rng.random() < 0.8 else None
    elif name == "drive":
        where[name] = [2, "increment", None, kernels.Drive.value][rng.integers(4)]
    elif name in ("every", "registers", "threads"):
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
        where[name] = wrong_tensor(rng, call.solve["initial"])
    elif old.dtype == torch.int64 and rng.random() < 0.7:
        where[name] = wrong_integers(rng, old)
    else:
        where[name] = wrong_tensor(rng, old)
    return name


def attempt(seed):
    """Make a valid call, then an altered one, which may raise. Returns what was altered, and whether it raised."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    EngineCall(rng)()
    call = EngineCall(rng)
    name = "program"
    try:
        name = break_one(rng, call)
        call()
    except (TypeError, ValueError):
        return name, True
    return name, False


def few_checkpoints():
    """With more events between checkpoints than any series has, one checkpoint per series is enough."""
    call = whole_call()
    width = kernels.lanes(4 if call.real == torch.float32 else 8) * call.made().registers
    tiles = -(-len(call.solve["initial"]) // width)
    room = torch.empty(tiles * width * call.solve["initial"].shape[1], dtype=call.real)
    call.forward["checkpoints"] = call.backward["checkpoints"] = room
    for every in (2**40, 2**62, 2**63 - 1):
        call.solve["every"] = every
        call()
