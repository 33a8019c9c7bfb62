"""The step of streams as torch modules without state, for torch.export and ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import ArgumentError
from ..models import Stepper
from .ensembles import average
from .fitted_estimator import FittedEstimator

STREAMS = 3  # of the example that is traced; the number of streams is free


class StreamUpdate(nn.Module):
    """The states after one more row: (real, double, t, x) -> (real, double).

    `t` (streams,) and `x` (streams, channels) are float64, in the units of the training table, with NaN where nothing
    was observed. Times must increase; that is not checked.
    """

    def __init__(self, stepper: Stepper):
        super().__init__()
        self.models, self.stepper = nn.ModuleList(stepper.models), stepper

    def forward(
        self,
        real: Float[Tensor, "streams numbers"],
        double: Float[Tensor, "streams doubles"],
        t: Float[Tensor, " streams"],
        x: Float[Tensor, "streams channels"],
    ) -> tuple[Float[Tensor, "streams numbers"], Float[Tensor, "streams doubles"]]:
        """The next states."""
        return self.stepper.step(real, double, t, x)


class StreamOutput(nn.Module):
    """The raw outputs at the last row: (real, double) -> outputs."""

    def __init__(self, stepper: Stepper):
        super().__init__()
        self.models, self.stepper = nn.ModuleList(stepper.models), stepper

    def forward(
        self, real: Float[Tensor, "streams numbers"], double: Float[Tensor, "streams doubles"]
    ) -> Float[Tensor, "streams outputs"]:
        """The mean of the outputs of the models."""
        return average(self.stepper.read(real, double), boosted=False)


class StreamModules(NamedTuple):
    """The two modules, and the state of one stream without rows, whose static features are unknown."""

    update: StreamUpdate
    output: StreamOutput
    real: Float[Tensor, "1 numbers"]
    double: Float[Tensor, "1 doubles"]

    @torch.enable_grad()  # without gradients, layers would run on the native engine, which cannot be traced
    def exported(self) -> tuple[torch.export.ExportedProgram, torch.export.ExportedProgram]:
        """Both as programs of `torch.export`, for any number of streams."""
        streams = torch.export.Dim("streams", min=1)
        real, double = self.real.repeat(STREAMS, 1), self.double.repeat(STREAMS, 1)
        t = torch.zeros(STREAMS, dtype=torch.float64)
        x = torch.zeros(STREAMS, self.update.stepper.data, dtype=torch.float64)
        free = {0: streams}
        return (
            torch.export.export(self.update, (real, double, t, x), dynamic_shapes=(free,) * 4),
            torch.export.export(self.output, (real, double), dynamic_shapes=(free,) * 2),
        )


def stream_modules(estimator: FittedEstimator) -> StreamModules:
    """The step of an estimator's streams as modules without state."""
    if estimator.trees_ is not None:
        raise ArgumentError(
            "boosting=True: the trees of gradient boosting cannot be exported; fit again with boosting=False.",
            argument="boosting",
        )
    streams = estimator.stream()
    empty = streams.start()
    stepper = empty.stepper
    assert isinstance(stepper, Stepper)
    return StreamModules(StreamUpdate(stepper).eval(), StreamOutput(stepper).eval(), empty.real, empty.double)


def write_onnx(estimator: FittedEstimator, folder: Path) -> None:
    """Write `update.onnx` and `output.onnx`."""
    try:
        import onnx
        import onnxscript
    except ImportError as reason:
        raise ImportError(f"the export needs more packages: pip install 'neuralcde[onnx]' ({reason}).") from reason
    assert onnx.__name__ and onnxscript.__name__
    update, output = stream_modules(estimator).exported()
    folder.mkdir(parents=True, exist_ok=True)
    names = ["real", "double"]
    for name, program, inputs, outputs in (
        ("update", update, [*names, "t", "x"], ["next_real", "next_double"]),
        ("output", output, names, ["outputs"]),
    ):
        made = torch.onnx.export(program, dynamo=True, input_names=inputs, output_names=outputs, verbose=False)
        assert made is not None
        made.save(folder / f"{name}.onnx")
