"""Makes solve.json: states and gradients of solves by torchcde and diffrax, as reference for ours.

Run by hand in a separate environment, never by the tests:

    pip install torchcde==0.2.5 diffrax==0.7.2
    python tests/golden/make_solve.py

torchcde: cdeint with torchdiffeq's rk4 (the 3/8 rule), one step per gap on the grid 0, 1, 2, ..., and backpropagation
through the solver. With perturb=True torchdiffeq evaluates just inside each step, so that the derivative of X is that
of the piece of the step. Without it every step would start with the derivative of the piece before.

diffrax: Dopri5 at rtol = atol = 1e-10 on a Hermite path with uneven gaps, as the ODE z' = f(z) X'(t). Steps end at the
rows, where the states are saved; gradients are computed through the solver.

The field is the paper's: Linear, ReLU, Linear, tanh, reshaped to (hidden, channels). diffrax gets softplus in place of
ReLU, because an adaptive solver does not reach its tolerance at the corners of ReLU. The gradients are those of the sum
of all states times `weights`.
"""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np

HIDDEN, CHANNELS, WIDTH, SERIES = 3, 2, 5, 2
PARAMETERS = {
    "first.weight": (WIDTH, HIDDEN),
    "first.bias": (WIDTH,),
    "last.weight": (HIDDEN * CHANNELS, WIDTH),
    "last.bias": (HIDDEN * CHANNELS,),
}


def drawn(seed, rows, *, regular):
    """Random data, initial states, weights of the field, and weights of the loss."""
    rng = np.random.default_rng(seed)
    times = (
        np.arange(rows, dtype=np.float64)
        if regular
        else np.concatenate([[0.0], rng.uniform(0.3, 1.5, rows - 1).cumsum()])
    )
    return {
        "times": times,
        "values": 0.7 * rng.standard_normal((SERIES, rows, CHANNELS)),
        "z0": rng.standard_normal((SERIES, HIDDEN)),
        "weights": rng.standard_normal((SERIES, rows, HIDDEN)),
        **{name: rng.standard_normal(shape) / np.sqrt(shape[-1]) for name, shape in PARAMETERS.items()},
    }


def with_torchcde(case, scheme):
    import torch
    import torchcde

    leaves = {name: torch.from_numpy(x).requires_grad_(name not in ("times", "weights")) for name, x in case.items()}

    class Field(torch.nn.Module):
        def forward(self, t, z):
            inner = torch.relu(z @ leaves["first.weight"].T + leaves["first.bias"])
            outer = torch.tanh(inner @ leaves["last.weight"].T + leaves["last.bias"])
            return outer.reshape(*z.shape[:-1], HIDDEN, CHANNELS)

    if scheme == "natural_cubic":
        path = torchcde.CubicSpline(torchcde.natural_cubic_coeffs(leaves["values"]))
    else:
        path = torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(leaves["values"]))
    states = torchcde.cdeint(
        path,
        Field(),
        leaves["z0"],
        leaves["times"],
        adjoint=False,
        method="rk4",
        options={"step_size": 1.0, "perturb": True},
    )
    (states * leaves["weights"]).sum().backward()
    gradients = {name: x.grad.numpy() for name, x in leaves.items() if x.requires_grad}
    return states.detach().numpy(), gradients


def with_diffrax(case, scheme):
    import diffrax
    import jax
    import jax.numpy as jnp

    assert scheme == "hermite"
    jax.config.update("jax_enable_x64", True)
    times = jnp.asarray(case["times"])

    def one(leaves, values, z0):
        path = diffrax.CubicInterpolation(times, diffrax.backward_hermite_coefficients(times, values))

        def field(t, z, _):
            inner = jax.nn.softplus(leaves["first.weight"] @ z + leaves["first.bias"])
            outer = jnp.tanh(leaves["last.weight"] @ inner + leaves["last.bias"])
            return outer.reshape(HIDDEN, CHANNELS)

        controller = diffrax.ClipStepSizeController(diffrax.PIDController(rtol=1e-10, atol=1e-10), step_ts=times)
        solution = diffrax.diffeqsolve(
            diffrax.ControlTerm(field, path).to_ode(),
            diffrax.Dopri5(),
            times[0],
            times[-1],
            None,
            z0,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=controller,
            max_steps=2**14,
        )
        return solution.ys

    def all_states(leaves):
        return jnp.stack([one(leaves, x, z) for x, z in zip(leaves["values"], leaves["z0"], strict=True)])

    leaves = {name: jnp.asarray(x) for name, x in case.items() if name not in ("times", "weights")}
    gradients = jax.grad(lambda leaves: (all_states(leaves) * case["weights"]).sum())(leaves)
    return np.asarray(all_states(leaves)), {name: np.asarray(g) for name, g in gradients.items()}


def main():
    cases = []
    for peer, ask, scheme, regular in (
        ("torchcde", with_torchcde, "natural_cubic", True),
        ("torchcde", with_torchcde, "linear", True),
        ("diffrax", with_diffrax, "hermite", False),
    ):
        for seed, rows in enumerate((2, 6)):
            case = drawn(seed, rows, regular=regular)
            states, gradients = ask(case, scheme)
            lists = {name: x.tolist() for name, x in case.items()}
            cases.append(
                {
                    "peer": peer,
                    "scheme": scheme,
                    "activation": "relu" if peer == "torchcde" else "softplus",
                    **lists,
                    "states": states.tolist(),
                    "gradients": {name: g.tolist() for name, g in gradients.items()},
                }
            )
    origin = {
        "made by": "tests/golden/make_solve.py",
        "versions": {name: version(name) for name in ("torchcde", "torchdiffeq", "diffrax", "torch", "jax", "numpy")},
        "machine": platform.machine(),
        "precision": "float64",
        "layout": "values (series, rows, channels), states and weights (series, rows, hidden), "
        "gradients as what they belong to",
        "torchcde": "cdeint(method='rk4', options=dict(step_size=1.0, perturb=True), adjoint=False)",
        "diffrax": "Dopri5, rtol = atol = 1e-10, ControlTerm(...).to_ode(), steps that end at the rows",
    }
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = f'{{"origin": {json.dumps(origin, indent=1)},\n"cases": [\n{lines}\n]}}\n'
    Path(__file__).with_name("solve.json").write_text(text)


if __name__ == "__main__":
    main()
