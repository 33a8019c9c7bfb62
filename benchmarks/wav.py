"""Reader of Speech Commands as it is published: a folder of .wav files per word."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 16_000  # samples per second


def wav_folder(folder: Path, words: Sequence[str]) -> Path | None:
    """The folder that has a folder of each word: this one, or one directly in it; None if there is none."""
    places = [folder, *sorted(place for place in folder.glob("*") if place.is_dir())]
    return next((place for place in places if all((place / word).is_dir() for word in words)), None)


def read_wavs(folder: Path, words: Sequence[str], *, samples: int = RATE) -> tuple[NDArray[np.int16], list[str]]:
    """The clips of these words that have exactly so many samples, and their names "word/file.wav".

    The paper leaves out shorter clips, too. Clips are in the order of the words, then of the file names.

    Raises
    ------
    ValueError
        If a file is not mono, 16 bits and 16 kHz.
    """
    clips, names = [], []
    for word in words:
        for file in sorted((folder / word).glob("*.wav")):
            with wave.open(str(file), "rb") as clip:
                found = (clip.getnchannels(), clip.getsampwidth(), clip.getframerate())
                if found != (1, 2, RATE):
                    raise ValueError(
                        f"{file} has {found[0]} channels of {8 * found[1]} bits at {found[2]} Hz; expected one channel "
                        f"of 16 bits at {RATE} Hz."
                    )
                if clip.getnframes() == samples:
                    clips.append(np.frombuffer(clip.readframes(samples), dtype="<i2"))
                    names.append(f"{word}/{file.name}")
    audio = np.stack(clips) if clips else np.zeros((0, samples), dtype=np.int16)
    return audio, names
