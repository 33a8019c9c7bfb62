"""Models beside those of the paper: a Neural CDE, a GRU and a convolutional network with the same augmentation."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

import neuralcde as nc
from neuralcde.models import PathModel, RowEncoder, Trajectory
from neuralcde.models.dropout import Dropout
from neuralcde.series import IrregularSeries


class Augmentation(Dropout):
    """Shift clips in time, and hide frames and coefficients of them (SpecAugment, Park et al. 2019), in training.

    Like `Dropout`, it draws from the generator of the training, so that a training is resumed exactly.

    Parameters
    ----------
    shift
        Largest number of frames by which a clip is shifted, to either side; frames at the end are repeated.
    frame_masks, frames
        How many stretches of frames are set to 0, the mean, and the largest length of one.
    band_masks, bands
        The same for neighbouring coefficients, and their slopes.
    coefficients
        Number of coefficients; further channels are their slopes.
    """

    def __init__(self, *, shift: int, frame_masks: int, frames: int, band_masks: int, bands: int, coefficients: int):
        super().__init__(0.0)
        self.shift, self.frame_masks, self.frames = shift, frame_masks, frames
        self.band_masks, self.bands, self.coefficients = band_masks, bands, coefficients

    def extra_repr(self) -> str:
        """The sizes, for the repr."""
        return f"shift={self.shift}, frames={self.frame_masks}x{self.frames}, bands={self.band_masks}x{self.bands}"

    def forward(self, values: Float[Tensor, "clips steps channels"]) -> Float[Tensor, "clips steps channels"]:
        """The clips, changed in training."""
        if not self.training:
            return values
        clips, steps, channels = values.shape
        if self.shift:
            by = self._draw(clips, 2 * self.shift + 1) - self.shift
            place = (torch.arange(steps) - by[:, None]).clamp(0, steps - 1)
            values = values.gather(1, place[..., None].expand(-1, -1, channels))
        hidden = torch.zeros(clips, steps, channels, dtype=torch.bool)
        for _ in range(self.frame_masks):
            hidden |= self._stretch(clips, steps, self.frames)[:, :, None]
        coefficient = torch.arange(channels) % self.coefficients
        for _ in range(self.band_masks):
            hidden |= self._stretch(clips, self.coefficients, self.bands)[:, coefficient][:, None, :]
        return values.masked_fill(hidden, 0.0)

    def _draw(self, count: int, below: int) -> Tensor:
        """Whole numbers from 0 to below - 1."""
        return torch.randint(below, (count,), generator=self.generator)

    def _stretch(self, clips: int, size: int, longest: int) -> Tensor:
        """A stretch of neighbours in each clip, of length 0 to `longest`, anywhere."""
        length = self._draw(clips, longest + 1)
        start = (torch.rand(clips, generator=self.generator) * (size - length + 1)).long()
        place = torch.arange(size)
        return (place >= start[:, None]) & (place < (start + length)[:, None])


class Spoken(PathModel):
    """A model that gets series of equal length, and in training changes them before it builds their paths.

    Parameters
    ----------
    channels, outputs
        As in `PathModel`.
    coefficients
        Number of MFCC among the channels.
    shift, frame_masks, frames, band_masks, bands
        As in `Augmentation`.
    options
        As in the model that this is mixed with.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        coefficients: int = 20,
        shift: int = 0,
        frame_masks: int = 0,
        frames: int = 0,
        band_masks: int = 0,
        bands: int = 0,
        **options: Any,
    ):
        super().__init__(channels, outputs, **options)
        self.augmentation = Augmentation(
            shift=shift,
            frame_masks=frame_masks,
            frames=frames,
            band_masks=band_masks,
            bands=bands,
            coefficients=coefficients,
        )

    def path(self, given: nc.ControlPath | nc.IrregularSeries) -> nc.ControlPath:
        """The path of the series; in training that of changed series."""
        if self.training and isinstance(given, nc.IrregularSeries):
            values = given.values.clone()
            data = [k for k, role in enumerate(given.roles) if role == "data"]
            clips = values[:, data].reshape(len(given), -1, len(data))
            values[:, data] = self.augmentation(clips).flatten(0, 1)
            given = nc.IrregularSeries(**{**vars(given), "values": values})
        return super().path(given)


def frames_of(series: IrregularSeries) -> Float[Tensor, "clips channels steps"]:
    """The data channels of clips of equal length, without time."""
    data = [k for k, role in enumerate(series.roles) if role == "data"]
    return series.values[:, data].reshape(len(series), -1, len(data)).transpose(1, 2)


class FrameConvolutions(RowEncoder, name="frame_convolutions"):
    """Features of each frame and its neighbours, by convolutions over time: the path then runs through these.

    Parameters
    ----------
    channels
        Channels of the series, time included.
    outputs
        Number of features.
    hidden, layers, kernel
        Number of features within, number of layers, length of a filter.
    groups
        Groups of features that are normalised together.
    dropout
        Probability with which a feature within is set to 0 in training.
    """

    def __init__(
        self,
        channels: int,
        *,
        outputs: int = 16,
        hidden: int = 48,
        layers: int = 2,
        kernel: int = 5,
        groups: int = 4,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.outputs = outputs
        parts: list[nn.Module] = []
        size = channels - 1
        for _ in range(layers):
            parts += [nn.Conv1d(size, hidden, kernel, padding=kernel // 2), nn.GroupNorm(groups, hidden)]
            parts += [nn.ReLU(), Dropout(dropout)]
            size = hidden
        self.layers = nn.Sequential(*parts, nn.Conv1d(size, outputs, 1))

    def forward(self, series: IrregularSeries) -> Float[Tensor, "rows outputs"]:
        """The features of every row."""
        found: Tensor = self.layers(frames_of(series))
        return found.transpose(1, 2).flatten(0, 1)


class SpokenCDE(Spoken, nc.NeuralCDE, name="spoken_cde"):
    """A Neural CDE that is trained on augmented clips."""

    title = "Neural CDE"


class SpokenGRU(Spoken, name="spoken_gru"):
    """`torch.nn.GRU` over the frames.

    Parameters
    ----------
    channels, outputs, hidden, pool, options
        As in `Spoken` and `PathModel`.
    layers
        Number of layers.
    dropout
        Probability with which an input of the second and further layers is set to 0 in training.
    """

    title = "nn.GRU"

    def __init__(
        self, channels: int, outputs: int, *, hidden: int, layers: int = 1, dropout: float = 0.0, **options: Any
    ):
        super().__init__(channels, outputs, hidden=hidden, **options)
        sizes = [channels - 1, *[hidden] * (layers - 1)]  # without time
        self.layers = nn.ModuleList(nn.GRU(size, hidden, batch_first=True) for size in sizes)
        self.dropout = Dropout(dropout)

    def trajectory(self, path: nc.ControlPath, *, rows: bool = False, times: Tensor | None = None) -> Trajectory:
        """The states at all frames."""
        states = frames_of(path.series).transpose(1, 2)
        for number, layer in enumerate(self.layers):
            states, _ = layer(self.dropout(states) if number else states)
        return Trajectory(states[:, -1], states.flatten(0, 1))


class SpokenConvolutions(Spoken, name="spoken_convolutions"):
    """Convolutions over time, then the mean over time: the small network that people would use.

    Parameters
    ----------
    channels, outputs, hidden, options
        As in `Spoken`; `hidden` is the number of features of each layer.
    layers, kernel
        Number of layers and length of a filter; every second layer halves the number of frames.
    groups
        Groups of features that are normalised together.
    dropout
        Probability with which a feature of the mean is set to 0 in training.
    """

    title = "convolutions"

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int,
        layers: int = 4,
        kernel: int = 5,
        groups: int = 4,
        dropout: float = 0.3,
        **options: Any,
    ):
        super().__init__(channels, outputs, hidden=hidden, **options)
        parts: list[nn.Module] = []
        size = channels - 1
        for number in range(layers):
            stride = 1 + number % 2
            parts += [nn.Conv1d(size, hidden, kernel, stride=stride, padding=kernel // 2)]
            parts += [nn.GroupNorm(groups, hidden), nn.ReLU()]
            size = hidden
        self.layers, self.dropout = nn.Sequential(*parts), Dropout(dropout)

    def trajectory(self, path: nc.ControlPath, *, rows: bool = False, times: Tensor | None = None) -> Trajectory:
        """The mean of the last layer over time, in place of the last state."""
        return Trajectory(self.dropout(self.layers(frames_of(path.series)).mean(2)))
