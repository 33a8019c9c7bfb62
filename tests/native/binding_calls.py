"""Random calls of the compiled functions, valid and invalid."""

import numpy as np
import torch

from neuralcde._native import kernels


class Call:
    """A valid call: positional arguments by name."""

    def __init__(self, rng):
        lengths = rng.integers(1, 6, rng.integers(0, 4))
        self.rows, self.channels = int(lengths.sum()), int(rng.integers(0, 4))
        self.pieces = int(np.maximum(lengths - 1, 1).sum())
        real = torch.float32 if rng.random() < 0.5 else torch.float64
        self.name = str(rng.choice(["cubic", "cubic_backward", "linear", "smooth"]))
        values = torch.from_numpy(rng.standard_normal((self.rows, self.channels)))
        values[torch.from_numpy(rng.random(values.shape) < 0.4)] = torch.nan
        times = torch.from_numpy(rng.uniform(0.1, 1, self.rows)).cumsum(0)
        offsets = torch.from_numpy(np.concatenate([[0], lengths.cumsum()]).astype(np.int64))
        powers = 2 if self.name == "linear" else 4
        block, kind = (
            torch.zeros(self.pieces, powers, self.channels, dtype=real),
            str(rng.choice(["natural", "backward"])),
        )
        self.arguments = {"times": times, "values": values.to(real), "offsets": offsets}
        self.arguments |= {
            "cubic": {"slopes": kind, "coefficients": block},
            "cubic_backward": {
                "slopes": kind,
                "gradient": block,
                "gradient_values": torch.zeros_like(values, dtype=real),
                "gradient_times": torch.zeros_like(times) if rng.random() < 0.5 else None,
            },
            "linear": {"coefficients": block},
            "smooth": {"penalty": 0.5, "smoothed": torch.zeros_like(values, dtype=real)},
        }[self.name]
        self.arguments["threads"] = int(rng.choice([-(2**31), -1, 0, 1, 2, 1000, 2**31 - 1]))

    def __call__(self):
        getattr(kernels, self.name)(*self.arguments.values())

    def __repr__(self):
        shown = {
            name: (tuple(x.shape), x.dtype, type(x).__name__) if hasattr(x, "shape") else x
            for name, x in self.arguments.items()
        }
        return f"{self.name}({shown})"


def wrong_tensors(rng, x):
    """Tensors that must not be accepted in place of x."""
    other = [torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool, torch.complex64]
    swap = {torch.float32: torch.float64, torch.float64: torch.float32, torch.int64: torch.float64}[x.dtype]
    yield x.to(swap)
    yield x.to(other[rng.integers(len(other))]) if x.dtype != torch.int64 else x.to(torch.int32)
    yield torch.cat([x, x[:1]]) if len(x) else x.new_ones(1, *x.shape[1:])
    yield x[None]
    yield x.sum() if x.dtype != torch.bool else x
    yield torch.empty_like(x, device="meta")
    yield torch.empty((*x.shape[:-1], x.shape[-1] + 1), dtype=x.dtype)
    if len(x) > 1:
        yield x[:-1]
        yield x.repeat_interleave(2, dim=0)[::2]  # strided
        yield torch.zeros((1, *x.shape[1:]), dtype=x.dtype).expand(x.shape)  # one row, broadcast
        yield x.clone().to_sparse() if x.dtype.is_floating_point else x[::2]
    if x.ndim == 2 and min(x.shape) > 1:
        yield x.T.contiguous().T
        yield x.numpy().byteswap().view(x.numpy().dtype.newbyteorder())
    yield None
    yield x.tolist()
    yield "tensor"
    yield object()


def wrong_offsets(rng, x):
    """Offsets of the right dtype with invalid values."""
    last = int(x[-1])
    for bad in ([], [1, last], [0], [0, last + 1], [0, last - 1], [0, 2**62, last], [0, -1, last], [-(2**63), last]):
        yield torch.tensor(bad, dtype=torch.int64)
    yield torch.cat([x, x[-1:]])
    if len(x) > 2:
        changed = x.clone()
        changed[rng.integers(len(x))] += int(rng.choice([-(2**40), -7, 7, 2**40, 2**62]))
        yield changed


def break_one(rng, call):
    """Replace one argument by something invalid."""
    name = str(rng.choice(list(call.arguments)))
    old = call.arguments[name]
    if name == "threads":
        choices = [2**31, -(2**40), 10**30, 1.5, "2", None, [1]]
    elif name == "slopes":
        choices = ["", "Natural", "linear", None, 3, b"natural", "natural" * 1000]
    elif name == "penalty":
        choices = [-1.0, float("nan"), float("inf"), -float("inf"), "1", None, [0.5]]
    else:
        model = old if isinstance(old, torch.Tensor) else call.arguments["times"]
        choices = list(wrong_tensors(rng, model))
        if name == "offsets":
            choices += list(wrong_offsets(rng, old)) * 2
        if name == "gradient_times":
            choices = [choice for choice in choices if choice is not None]
    # a replacement that happens to be equal is valid
    choices = [choice for choice in choices if not _same(choice, old)]
    call.arguments[name] = choices[rng.integers(len(choices))]
    return name


def _same(a, b):
    tensors = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    if not tensors or a.device != b.device or a.layout != b.layout or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.is_contiguous() and (a.dtype != torch.int64 or torch.equal(a, b))


def attempt(seed):
    """A valid call works, and the same call with an invalid argument raises TypeError or ValueError."""
    rng = np.random.default_rng(seed)
    call = Call(rng)
    call()
    name = break_one(rng, call)
    try:
        call()
    except (TypeError, ValueError):
        return
    raise AssertionError(f"seed {seed}: wrong {name} was accepted by {call}")
