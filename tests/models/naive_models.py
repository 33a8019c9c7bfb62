"""Naive reference implementations of the models: one series and one row at a time, directly from the equations.

They use nothing of the package but the parameters of a model. Times, values and static features are tensors, so
everything is differentiable, except natural cubic paths, which scipy computes.
"""

import numpy as np
import torch
from scipy.interpolate import CubicSpline


def columns_of(times, values, intensity):
    """The channels of X as lists with None where nothing was observed: time, counts, data."""
    data = [[None if x.isnan() else x for x in channel] for channel in values.unbind(1)]
    counts = []
    for channel in data:
        seen = [sum(x is not None for x in channel[: row + 1]) for row in range(len(channel))]
        counts.append([torch.tensor(float(n), dtype=values.dtype) for n in seen])
    return [[t - times[0] for t in times], *(counts if intensity else []), *data]


def filled_forward(column):
    """The last observation so far; 0 before the first."""
    last, filled = torch.zeros((), dtype=torch.float64), []
    for x in column:
        last = last if x is None else x
        filled.append(last)
    return filled


def filled_between(times, column):
    """Linear interpolation between observations, constant outside; 0 without any observation."""
    seen = [row for row, x in enumerate(column) if x is not None]
    filled = []
    for row, t in enumerate(times):
        before, after = [s for s in seen if s <= row], [s for s in seen if s >= row]
        if not seen:
            filled.append(torch.zeros((), dtype=torch.float64))
        elif not before or not after or before[-1] == after[0]:
            filled.append(column[before[-1] if before else after[0]])
        else:
            i, j = before[-1], after[0]
            filled.append(column[i] + (t - times[i]) / (times[j] - times[i]) * (column[j] - column[i]))
    return filled


class Straight:
    """A linear piece from one value to another."""

    def __init__(self, duration, start, end):
        self.duration, self.start, self.end = duration, start, end

    def value(self, u):
        return self.start + u * (self.end - self.start)

    def slope(self, u):
        """In u."""
        return self.end - self.start


class Spline:
    """The natural cubic spline through the observations of a channel, constant outside; 0 without any."""

    def __init__(self, times, column):
        seen = [row for row, x in enumerate(column) if x is not None]
        self.times, self.values = times[seen], np.array([float(column[row].detach()) for row in seen])
        self.inside = CubicSpline(self.times, self.values, bc_type="natural") if len(seen) > 1 else None

    def __call__(self, t, order, middle):
        """X or its derivative at t, on the piece that contains `middle`."""
        if self.inside is not None and self.times[0] < middle < self.times[-1]:
            return float(self.inside(t, order))
        if order or not len(self.times):
            return 0.0
        return self.values[0] if middle <= self.times[0] else self.values[-1]


class Cubic:
    """A cubic piece between two times, from one spline per channel."""

    def __init__(self, splines, start, end):
        self.splines, self.start, self.duration, self.middle = splines, start, end - start, (start + end) / 2

    def value(self, u):
        return self._of_all(u, 0)

    def slope(self, u):
        """In u."""
        return self._of_all(u, 1) * self.duration

    def _of_all(self, u, order):
        t = self.start + float(u) * self.duration
        return torch.tensor([spline(t, order, self.middle) for spline in self.splines], dtype=torch.float64)


def pieces_of(times, columns, scheme):
    """For every gap between two rows its pieces, and X at every row."""
    gaps = range(len(times) - 1)
    if scheme == "natural_cubic":
        knots = times.detach().numpy()
        splines = [Spline(knots, column) for column in columns]
        pieces = [[Cubic(splines, knots[row], knots[row + 1])] for row in gaps]
        at_rows = [gap[0].value(0.0) for gap in pieces]
        end = pieces[-1][0] if pieces else Cubic(splines, knots[0], knots[0])
        return pieces, [*at_rows, end.value(1.0)]
    fill = (lambda column: filled_between(times, column)) if scheme == "linear" else filled_forward
    at_rows = list(torch.stack([torch.stack(fill(column)) for column in columns], 1))
    pieces = []
    for row in gaps:
        start, end, duration = at_rows[row], at_rows[row + 1], times[row + 1] - times[row]
        if scheme == "rectilinear":
            corner = torch.cat([end[:1], start[1:]])
            pieces.append([Straight(duration, start, corner), Straight(0.0, corner, end)])
        else:
            pieces.append([Straight(duration, start, end)])
    return pieces, at_rows


def three_eighths(change, z):
    """One step of the 3/8 rule for dz/du = change(u, z), from u = 0 to 1."""
    k1 = change(0.0, z)
    k2 = change(1 / 3, z + k1 / 3)
    k3 = change(2 / 3, z - k1 / 3 + k2)
    k4 = change(1.0, z + k1 - k2 + k3)
    return z + (k1 + 3 * k2 + 3 * k3 + k4) / 8


class Naive:
    """The computation of a model for one series."""

    def __init__(self, model, kind, *, initial, intensity=False):
        self.name, *variant = kind.split()
        self.paper, self.initial, self.intensity = variant == ["paper"], initial, intensity
        self.given = dict(model.named_parameters()) | dict(model.named_buffers())

    def linear(self, name, x):
        after = self.given[f"{name}.weight"] @ x
        return after + self.given[f"{name}.bias"] if f"{name}.bias" in self.given else after

    def network(self, name, x, activation):
        """Linear layers at the even positions of a Sequential, with the activation in between."""
        places = sorted(
            int(key.split(".")[-2]) for key in self.given if key.startswith(name) and key.endswith("weight")
        )
        for place in places[:-1]:
            x = activation(self.linear(f"{name}.{place}", x))
        return self.linear(f"{name}.{places[-1]}", x)

    def first_state(self, start, static):
        z = torch.zeros_like(self.given["readout.linear.weight"][0])[: self.hidden]
        if self.initial in ("linear", "both"):
            z = z + self.linear("initial.of_start", start)
        if self.initial in ("static", "both"):
            known = torch.stack([torch.zeros_like(s) if s.isnan() else s for s in static])
            z = z + self.network("initial.of_static", known, torch.relu)
        return z

    @property
    def hidden(self):
        if self.name == "GRUODE":
            return len(self.given["field.state_candidate.bias"])
        return self.given["readout.linear.weight"].shape[1]

    def flow(self, piece, z, share=1.0):
        """One step along a piece, or along a fraction of it."""

        def change(u, z):
            u = share * u
            if self.name == "NeuralCDE":
                matrix = torch.tanh(self.network("field.layers", z, torch.relu)).reshape(len(z), -1)
                return share * matrix @ piece.slope(u)
            if self.name == "ODERNN":
                return share * piece.duration * self.network("field.layers", z, torch.tanh)
            return share * piece.duration * self.gated(z, piece.value(u))

        return z if self.name in ("GRUDeltaT", "GRUD") else three_eighths(change, z)

    def gated(self, z, x):
        """(1 - s) (g - z) with gates r and s."""
        gates = self.linear("field.input_gates", x) + self.linear("field.state_gates", z)
        r, s = torch.sigmoid(gates[: len(z)]), torch.sigmoid(gates[len(z) :])
        g = torch.tanh(self.linear("field.input_candidate", x) + self.linear("field.state_candidate", r * z))
        return (1 - s) * (g - z)

    def gru(self, x, z):
        """(1 - s) n + s z with gates r and s."""
        size = len(z)
        of_x = self.given["cell.gru.weight_ih"] @ x + self.given["cell.gru.bias_ih"]
        of_z = self.given["cell.gru.weight_hh"] @ z + self.given["cell.gru.bias_hh"]
        r = torch.sigmoid(of_x[:size] + of_z[:size])
        s = torch.sigmoid(of_x[size : 2 * size] + of_z[size : 2 * size])
        n = torch.tanh(of_x[2 * size :] + r * of_z[2 * size :])
        return (1 - s) * n + s * z

    def jumps(self, times, values, at_rows):
        """For every row the inputs of the cell and the gaps of the decay; None if nothing was observed."""
        channels, start = range(values.shape[1]), times[0]
        value, when, before, jumps = {}, {}, start, []
        for row, t in enumerate(times):
            observed = [not x.isnan() for x in values[row]]
            gap = t - before
            own_gaps = torch.stack([t - when.get(c, start) for c in channels])
            x = []
            for c in channels:
                last = values[row, c] if observed[c] else value.get(c)
                if self.name == "GRUD" and not self.paper:
                    mean = self.given["means"][c]
                    kept = torch.exp(
                        -torch.relu(self.given["fade.weight"][c] * own_gaps[c] + self.given["fade.bias"][c])
                    )
                    last = mean if last is None else last
                    last = last if observed[c] else kept * last + (1 - kept) * mean
                x.append(torch.zeros_like(gap) if last is None else last)
            x = at_rows[row][-len(channels) :] if self.paper else torch.stack(x)
            mask = torch.tensor([float(seen) for seen in observed], dtype=x.dtype)
            if self.paper and not self.intensity:
                inputs = torch.cat([x[:1] + gap, x[1:]])
            else:
                inputs = torch.cat([gap[None], mask, x] if self.intensity else [gap[None], x])
            jumps.append((inputs, gap[None] if self.paper else own_gaps) if any(observed) else None)
            for c in channels:
                if observed[c]:
                    value[c], when[c], before = values[row, c], t, t
        return jumps

    def jump(self, seen, z):
        """The state after an observation."""
        if seen is None or self.name in ("NeuralCDE", "GRUODE"):
            return z
        inputs, gaps = seen
        if self.name == "GRUD":
            z = torch.exp(-torch.relu(self.linear("cell.decay", gaps))) * z
        return self.gru(inputs, z)

    def run(self, times, values, static, *, scheme, asked=()):
        """Outputs at the end, of the mean over time, at every row, and at the given times."""
        pieces, at_rows = pieces_of(times, columns_of(times, values, self.intensity), scheme)
        jumps = self.jumps(times, values, at_rows)
        states = [self.jump(jumps[0], self.first_state(at_rows[0], static))]
        for row, gap in enumerate(pieces):
            z = states[-1]
            for piece in gap:
                z = self.flow(piece, z)
            states.append(self.jump(jumps[row + 1], z))

        def features(z, x):
            return torch.cat([x, z]) if self.paper and self.name == "GRUODE" else z

        rows = [features(z, x) for z, x in zip(states, at_rows, strict=True)]
        between = []
        for t in asked:
            row = max(row for row, knot in enumerate(times) if knot <= t)
            if t == times[row]:
                between.append(rows[row])
                continue
            piece = pieces[row][0]
            share = (t - times[row]) / piece.duration
            between.append(features(self.flow(piece, states[row], share), piece.value(share)))
        mean = rows[0]
        if len(times) > 1:
            areas = [(times[i + 1] - times[i]) * (rows[i] + rows[i + 1]) / 2 for i in range(len(times) - 1)]
            mean = sum(areas) / (times[-1] - times[0])
        return {
            "last": self.linear("readout.linear", rows[-1]),
            "mean": self.linear("readout.linear", mean),
            "knots": torch.stack([self.linear("readout.linear", x) for x in rows]),
            "times": torch.stack([self.linear("readout.linear", x) for x in between]) if between else None,
        }
