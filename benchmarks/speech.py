"""Mel-frequency cepstral coefficients (MFCC) of audio: what a word looks like as a time series."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

RATE, WINDOW, HOP = 16_000, 400, 320  # samples per second; samples per frame; samples from frame to frame
FILTERS, COEFFICIENTS = 40, 20


def mfcc(audio: Tensor, *, hop: int = HOP, filters: int = FILTERS, coefficients: int = COEFFICIENTS) -> Tensor:
    r"""MFCC of clips at 16 kHz.

    Each frame of 400 samples is multiplied by a Hann window. The energies $|\text{FFT}|^2$ are summed by mel filters.
    The coefficients are the first of the orthonormal discrete cosine transform of the logarithms of these sums.

    Parameters
    ----------
    audio
        Shape (clips, samples), 16-bit integers.
    hop, filters, coefficients
        Samples from frame to frame, number of mel filters, number of coefficients.

    Returns
    -------
    Tensor
        Shape (clips, frames, coefficients), float32. Frame k starts at sample `k * hop`.
    """
    frames = (audio.float() / 2**15).unfold(1, WINDOW, hop)
    energies = torch.fft.rfft(frames * torch.hann_window(WINDOW)).abs().square()
    logarithms = (energies @ mel_filters(filters, energies.shape[-1]) + 1e-6).log()
    return logarithms @ cosines(filters, coefficients)


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
