"""How many steps are enough, and how accurate each gradient method is: measured, not guessed.

    python examples/by_feature/choosing_steps_and_gradients.py

`error=True` solves once more with half the step size and estimates the error of the last state. The first table
compares this estimate with the true error. The second compares gradients: those of the continuous adjoint ("backsolve")
approximate the exact gradients of the discrete steps ("checkpoint", "backprop"). The gaps between observations are
uneven, from 0.01 to about 5.
"""

import numpy as np
import torch

import neuralcde as nc


def main() -> None:
    """Print errors per path and steps, and gradient differences per number of steps."""
    rng, _ = np.random.default_rng(0), torch.manual_seed(0)
    pairs = []
    for _ in range(20):
        times = (0.01 + rng.exponential(1.0, 20)).cumsum()
        pairs.append((times, rng.normal(size=(20, 2)).cumsum(0)))
    raw = nc.IrregularSeries.from_list(pairs, dtype=torch.float64)
    series = nc.SeriesScaler().fit_transform(raw).with_channels()
    field = nc.MLPField(series.channels, hidden=8, width=32, depth=1, activation="tanh").double()
    z0 = torch.zeros(len(series), 8, dtype=torch.float64)

    print(f"{'path':<14}{'steps':<30}{'evaluations':>12}{'estimate':>10}{'true error':>11}")
    for scheme in (nc.linear, nc.hermite, nc.natural_cubic):
        path = scheme(series)
        truth = nc.solve_cde(path, field, z0, solver="dopri5", steps=nc.AtKnots(substeps=64)).last
        for solver, steps in (
            ("rk4", nc.AtKnots()),
            ("rk4", nc.AtKnots(substeps=4)),
            ("tsit5", nc.Adaptive(rtol=1e-4, atol=1e-6)),
        ):
            found = nc.solve_cde(path, field, z0, solver=solver, steps=steps, error=True)
            name = f"{solver}, {type(steps).__name__}" + (f"({steps.substeps})" if solver == "rk4" else "(rtol=1e-4)")
            evaluations = found.stats.evaluations.double().mean()
            estimate, error = found.stats.error.mean(), (found.last - truth).abs().amax(1).mean()
            print(f"{scheme.__name__:<14}{name:<30}{evaluations:>12.0f}{estimate:>10.0e}{error:>11.0e}")

    def gradient(method: str, substeps: int) -> torch.Tensor:
        steps = nc.AtKnots(substeps)
        loss = nc.solve_cde(nc.linear(series), field, z0, steps=steps, gradient=method).last.square().sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(field.parameters()))])

    for substeps in (1, 2, 4):
        exact = gradient("checkpoint", substeps)
        off = [float((gradient(m, substeps) - exact).norm() / exact.norm()) for m in ("backprop", "backsolve")]
        print(f"{substeps} steps per gap, difference to checkpoint: backprop {off[0]:.0e}, backsolve {off[1]:.0e}")


if __name__ == "__main__":
    main()
