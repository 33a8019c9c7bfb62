"""A second loss in training: targets at the rows, predicted from the states by a temporary linear map."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor, nn

from ..models import PathModel
from ..paths import ControlPath, PathDataset
from ..series import IrregularSeries
from ..tasks import Task


class AuxiliaryHead(nn.Module):
    """A linear map from the readout's input at a row to the outputs of the auxiliary task.

    Parameters
    ----------
    features
        Size of the readout's input at a row.
    task
        The auxiliary task.
    """

    def __init__(self, features: int, task: Task):
        super().__init__()
        self.task, self.layer = task, nn.Linear(features, task.outputs)

    def loss(
        self,
        features: Float[Tensor, "rows features"],
        targets: Float[Tensor, "rows ..."],
        weights: Float[Tensor, " rows"] | None = None,
    ) -> Float[Tensor, ""]:
        """The mean loss over the known targets, with a weight per row; 0 if none is known."""
        outputs = self.layer(features)
        if weights is not None:
            return self.task.weighted_loss(outputs, targets, weights)[0]
        return self.task.loss(outputs, targets) if self.task.weight(targets) else 0.0 * outputs.sum()


@contextlib.contextmanager
def auxiliary_head(model: PathModel, task: Task | None, data: PathDataset) -> Iterator[None]:
    """Give the model a head for the auxiliary targets while it is trained; none without an auxiliary task."""
    if task is None or data.auxiliary is None:
        yield
        return
    parameter = next(model.readout.parameters())
    head = AuxiliaryHead(model.readout_features, task).to(parameter)
    # Weights of 0 need no random numbers: the gradient of the layer itself is not 0, so that it learns at once.
    nn.init.zeros_(head.layer.weight)
    head.layer.bias.data.copy_(task.weighted_prior(data.auxiliary, data.row_weights))
    model.auxiliary_head = head
    try:
        yield
    finally:
        del model.auxiliary_head


def outputs_and_second_loss(
    model: PathModel, inputs: ControlPath | IrregularSeries, data: PathDataset
) -> tuple[Float[Tensor, "cases outputs"], Float[Tensor, ""] | float]:
    """The outputs for a batch, and the loss on its auxiliary targets; 0 without an auxiliary head."""
    head = getattr(model, "auxiliary_head", None)
    if head is None:
        return model(inputs, at="knots" if data.per_row else None), 0.0
    assert data.auxiliary is not None
    outputs, features = model.with_features(inputs, per_row=data.per_row)
    return outputs, head.loss(features, data.auxiliary, data.row_weights)
