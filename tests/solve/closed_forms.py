"""Controlled equations with a closed-form solution in terms of z0 and the increment of X."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClosedForm:
    """A field on `channels` channels, initial states, and z(T) as a function of z0 and X(T) - X(0)."""

    channels: int
    field: Callable[[Tensor, Tensor], Tensor]
    z0: Callable[[int], Tensor]
    end: Callable[[Tensor, Tensor], Tensor]


ROTATION = torch.tensor([[0.1, -0.5, 0.0], [0.5, 0.1, 0.2], [0.0, -0.2, -0.3]], dtype=torch.float64)
COMMUTING = torch.stack([0.7 * ROTATION, ROTATION @ ROTATION - torch.eye(3, dtype=torch.float64)])


def spread(low, high, hidden=1):
    """Initial states between two numbers, different for every series."""
    return lambda count: torch.linspace(low, high, count * hidden, dtype=torch.float64).reshape(count, hidden)


CLOSED_FORMS = {
    # dz = A z dX
    "linear": ClosedForm(
        channels=1,
        field=lambda t, z: (z @ ROTATION.T)[..., None],
        z0=spread(-1.0, 1.0, hidden=3),
        end=lambda z0, dx: torch.einsum("bij,bj->bi", torch.linalg.matrix_exp(ROTATION * dx[:, :, None]), z0),
    ),
    # dz = A z dX_1 + B z dX_2 with AB = BA
    "commuting": ClosedForm(
        channels=2,
        field=lambda t, z: torch.einsum("cij,bj->bic", COMMUTING, z),
        z0=spread(-1.0, 1.0, hidden=3),
        end=lambda z0, dx: torch.einsum(
            "bij,bj->bi", torch.linalg.matrix_exp(torch.einsum("cij,bc->bij", COMMUTING, dx)), z0
        ),
    ),
    # dz = z (1 - z) dX
    "logistic": ClosedForm(
        channels=1,
        field=lambda t, z: (z * (1 - z))[..., None],
        z0=spread(0.2, 0.9),
        end=lambda z0, dx: torch.sigmoid(torch.logit(z0) + dx),
    ),
    # dz = (1 + z^2) dX
    "tangent": ClosedForm(
        channels=1,
        field=lambda t, z: (0.2 * (1 + z**2))[..., None],
        z0=spread(-0.3, 0.3),
        end=lambda z0, dx: torch.tan(torch.atan(z0) + 0.2 * dx),
    ),
    # dz_1 = dX, dz_2 = z_1 dX, dz_3 = z_2 dX: the iterated integrals of one channel
    "powers": ClosedForm(
        channels=1,
        field=lambda t, z: torch.stack([torch.ones_like(z[:, 0]), z[:, 0], z[:, 1]], 1)[..., None],
        z0=lambda count: torch.zeros(count, 3, dtype=torch.float64),
        end=lambda z0, dx: torch.cat([dx, dx**2 / 2, dx**3 / 6], 1),
    ),
}
