"""A small version of CharacterTrajectories: 80 series of 4 letters, 12 to 20 rows, in both formats, with a config."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # experiments/ and benchmarks/ are not installed


@pytest.fixture(scope="session")
def strokes():
    """Values (rows, 3) and letters."""
    generator = np.random.default_rng(0)
    values, letters = [], []
    for k in range(80):
        t = np.linspace(0, 3, 20 if k == 0 else generator.integers(12, 20))
        wave = np.stack([np.sin(t * (1 + k % 4)), np.cos(t * (k % 4)), t], axis=1)
        values.append((wave + generator.normal(0, 0.05, wave.shape)).round(4).astype(np.float32))
        letters.append("aghz"[k % 4])
    return values, letters


@pytest.fixture(scope="session")
def pack(strokes, tmp_path_factory):
    """A folder with the .npz file."""
    folder = tmp_path_factory.mktemp("pack")
    values, letters = strokes
    block = np.full((80, 20, 3), np.nan, dtype=np.float32)
    for k, stroke in enumerate(values):
        block[k, : len(stroke)] = stroke
    classes, y = np.unique(letters, return_inverse=True)
    np.savez(folder / "character_trajectories.npz", X=block, y=y, length=[len(v) for v in values], classes=classes)
    return folder


@pytest.fixture(scope="session")
def archive(strokes, tmp_path_factory):
    """A folder with the two .ts files of the archive."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "CharacterTrajectories").mkdir()
    header = (
        "#letters\n@problemName CharacterTrajectories\n@timeStamps false\n@missing false\n@univariate false\n"
        "@dimensions 3\n@equalLength false\n@classLabel true a g h z\n@data\n"
    )
    lines = [
        ":".join([*(",".join(map(str, column)) for column in stroke.T), letter])
        for stroke, letter in zip(*strokes, strict=True)
    ]
    for name, part in (("TRAIN", lines[:40]), ("TEST", lines[40:])):
        file = folder / "CharacterTrajectories" / f"CharacterTrajectories_{name}.ts"
        file.write_text(header + "\n".join(part) + "\n")
    return folder


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """The configuration of the experiment, adapted to the small data."""
    text = (ROOT / "experiments" / "character_trajectories" / "config.toml").read_text()
    changes = {"series = 2858": "series = 80", "classes = 20": "classes = 4", "longest = 182": "longest = 20"}
    changes |= {"outputs = 20": "outputs = 4", "batch_size = 32": "batch_size = 8", "\nruns = 5": "\nruns = 2"}
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = tmp_path_factory.mktemp("config") / "config.toml"
    file.write_text(text)
    return file


@pytest.fixture
def sepsis_pack(tmp_path, monkeypatch):
    """A small file like that of the sepsis challenge, and the environment in which it is found."""
    rng, count = np.random.default_rng(0), 120
    lengths = rng.integers(4, 12, count)
    lengths[0] = 80
    label = (np.arange(count) % 3 == 0).astype(np.int8)
    hourly = np.zeros(lengths.sum(), dtype=np.int8)
    hourly[(np.cumsum(lengths) - np.where(np.arange(count) == 0, 20, 2))[label > 0]] = 1
    values = rng.normal(size=(lengths.sum(), 3)) + np.repeat(label, lengths)[:, None]
    values[rng.random(values.shape) < 0.5] = np.nan
    static = rng.normal(size=(count, 5))
    static[::2, 2:4] = np.nan
    np.savez(
        tmp_path / "sepsis2019.npz",
        values=values.astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        iculos=np.concatenate([np.arange(1, length + 1) for length in lengths]).astype(np.int16),
        static=static.astype(np.float32),
        patient_id=[f"p{k:03d}" for k in range(count)],
        feature_names=["HR", "O2Sat", "Temp"],
        static_names=["Age", "Gender", "Unit1", "Unit2", "HospAdmTime"],
        sepsis_label=hourly,
        y72=label,
        keep_paper=np.arange(count) != 5,
    )
    monkeypatch.setenv("NEURALCDE_DATA", str(tmp_path))
    return tmp_path
