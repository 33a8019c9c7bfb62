"""Mel-frequency cepstral coefficients (MFCC) of audio: what a word looks like as a time series."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

RATE, WINDOW, HOP = 16_000, 400, 320  # samples per second; samples per frame; samples from frame to frame
FILTERS, COEFFICIENTS = 40, 20
CLIPS_AT_ONCE = 512  # frames overlap, so that they need several times the memory of the clips


def mfcc(
    audio: Tensor,
    *,
    window: int = WINDOW,
    hop: int = HOP,
    filters: int = FILTERS,
    coefficients: int = COEFFICIENTS,
    centred: bool = False,
) -> Tensor:
    r"""MFCC of clips at 16 kHz.

    Each frame of `window` samples is multiplied by a Hann window. The energies $|\text{FFT}|^2$ are summed by mel
    filters. The coefficients are the first of the orthonormal discrete cosine transform of the logarithms of these
    sums, each plus 1e-6.

    A filter that is narrower than the distance of two frequencies may have none. Its sum is 0 in every frame, and its
    logarithm a constant, which adds a constant to each coefficient.

    Parameters
    ----------
    audio
        Shape (clips, samples), 16-bit integers.
    window, hop, filters, coefficients
        Samples per frame, samples from frame to frame, number of mel filters, number of coefficients.
    centred
        Whether frame k has sample `k * hop` in its middle. The clip is then reflected at both ends, as torchaudio and
        librosa do it. Otherwise frame k starts there.

    Returns
    -------
    Tensor
        Shape (clips, frames, coefficients), float32.
    """
    bins = window // 2 + 1
    hann, mel, transform = torch.hann_window(window), mel_filters(filters, bins), cosines(filters, coefficients)
    found = []
    for clips in audio.split(CLIPS_AT_ONCE):
        waves = clips.float() / 2**15
        if centred:
            waves = torch.nn.functional.pad(waves, (window // 2, window // 2), mode="reflect")
        energies = torch.fft.rfft(waves.unfold(1, window, hop) * hann).abs().square()
        found.append((energies @ mel + 1e-6).log() @ transform)
    return torch.cat(found)


def deltas(values: Tensor, *, reach: int = 2) -> Tensor:
    r"""Slopes over time of series of shape (clips, frames, coefficients): of lines through 2 `reach` + 1 frames.

    $$d_t = \sum_{n=1}^{N} n (x_{t+n} - x_{t-n}) / (2 \sum_{n=1}^{N} n^2),$$

    with the first and the last frame repeated beyond the ends.
    """
    frames = values.shape[1]
    place = torch.arange(frames)
    slopes = torch.zeros_like(values)
    for n in range(1, reach + 1):
        ahead, behind = (place + n).clamp(max=frames - 1), (place - n).clamp(min=0)
        slopes += n * (values[:, ahead] - values[:, behind])
    return slopes / (2 * sum(n * n for n in range(1, reach + 1)))


def mel_filters(filters: int, bins: int) -> Float[Tensor, "bins filters"]:
    r"""Triangular filters with equally spaced centres in mel, $m = 2595 \log_{10}(1 + f / 700)$.

    Filter k rises from the centre of filter k - 1 to 1 at its own centre and falls to 0 at the next one. The first
    rises from 0 Hz, and the last falls to 8 kHz, half of the sampling rate.
    """
    highest = 2595 * math.log10(1 + RATE / 2 / 700)
    corners = 700 * (10 ** (torch.linspace(0, highest, filters + 2, dtype=torch.float64) / 2595) - 1)
    frequency = torch.linspace(0, RATE / 2, bins, dtype=torch.float64)[:, None]
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequency - left) / (centre - left), (right - frequency) / (right - centre)
    return torch.minimum(rising, falling).clamp(min=0).float()


def cosines(inputs: int, outputs: int) -> Float[Tensor, "inputs outputs"]:
    """The first columns of the orthonormal discrete cosine transform of type II."""
    place, order = torch.arange(inputs, dtype=torch.float64)[:, None] + 0.5, torch.arange(outputs)
    table = (math.pi / inputs * place * order).cos() * math.sqrt(2 / inputs)
    table[:, 0] /= math.sqrt(2)
    return table.float()
