"""Readers of data sets on small made-up files, and the made-up data sets."""

import numpy as np
import polars as pl
import pytest
import torch
from benchmarks import data as readers
from benchmarks.speech import WINDOW, cosines, mel_filters, mfcc
from benchmarks.training import wide_stays, wide_table
from scipy.fft import dct

from experiments import defaults_data


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURALCDE_DATA", str(tmp_path))
    return tmp_path


def test_absent_files_give_none_and_the_data_sets_say_which_file(data_folder):
    assert readers.read_sepsis() is readers.read_pbc2() is readers.read_speech() is None
    for make, name in ((defaults_data.cirrhosis, "pbc2.csv"), (defaults_data.speech, "speech_commands")):
        with pytest.raises(FileNotFoundError, match=rf"there is no {name}.*NEURALCDE_DATA"):
            make()


def test_sepsis_is_cut_at_the_hour(sepsis_pack):
    whole, cut = readers.read_sepsis(), readers.read_sepsis(72)
    assert whole.series.static_names == ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime")
    assert whole.series.channel_names == ("HR", "O2Sat", "Temp")
    assert cut.series.times.max() == 72 < whole.series.times.max()
    long, cut_long = whole.series[0], cut.series[0]
    torch.testing.assert_close(cut_long.values, long.values[: len(cut_long.times)], equal_nan=True)
    torch.testing.assert_close(cut.series[1].values, whole.series[1].values, equal_nan=True)


def test_cirrhosis_has_no_outcome_and_no_visit_after_the_landmark(data_folder):
    patients = [("1", 1.1, "dead"), ("2", 9.0, "dead"), ("3", 5.0, "alive"), ("4", 3.0, "transplanted")]
    visits = [
        {"sno.": str(k), "id": id, "years": years, "status": status, "drug": drug, "age": 50.0 + k, "sex": "female"}
        | {"year": year, "ascites": "Yes" if year else "No", "serBilir": None if year == 1.5 else 2.0 + year}
        | {"status2": int(status == "dead")}
        for k, (id, years, status) in enumerate(patients)
        for drug in [("placebo", "D-penicil")[k % 2]]
        for year in (0.0, 0.5, 1.5, 2.5)
        if year < years
    ]
    pl.DataFrame(visits).write_csv(data_folder / "pbc2.csv", null_value="NA")
    series, died = readers.read_pbc2()
    assert [str(id) for id in series.ids] == ["2", "3", "4"]
    assert died.tolist() == [1, 0, 0]
    assert series.lengths.tolist() == [3, 3, 3]
    assert set(series.channel_names) == {"ascites=No", "ascites=Yes", "serBilir"}
    assert set(series.static_names) >= {"age"}
    assert series.values.isnan().any()
    assert defaults_data.cirrhosis().folds == 5


def test_speech_knows_the_speakers(data_folder):
    names = ["yes/aa_nohash_0.wav", "no/bb_nohash_1.wav", "yes/bb_nohash_0.wav"]
    audio = np.random.default_rng(0).integers(-(2**15), 2**15, (3, 16000)).astype(np.int16)
    np.savez(data_folder / readers.SPEECH, audio=audio, y=[0, 1, 0], name=names, classes=["yes", "no"])
    data = defaults_data.speech()
    assert data.labels.tolist() == ["yes", "no", "yes"]
    assert data.groups.tolist() == ["aa", "bb", "bb"]
    assert data.series.lengths.tolist() == [49] * 3  # 1 + (16000 - 400) // 320
    assert data.series.values.shape[1] == 20
    torch.testing.assert_close(data.series[0].times[:2], torch.tensor([0.0, 0.02], dtype=torch.float64))


def test_mfcc_is_the_cosine_transform_of_logarithmic_mel_energies():
    audio = np.random.default_rng(0).integers(-(2**15), 2**15, (2, 1360)).astype(np.int16)
    found = mfcc(torch.from_numpy(audio)).numpy()
    assert found.shape == (2, 4, 20)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    energies = np.abs(np.fft.rfft(audio[1, 320:720] / 2**15 * window)) ** 2
    expected = dct(np.log(energies @ mel_filters(40, 201).numpy() + 1e-6), norm="ortho")[:20]
    np.testing.assert_allclose(found[1, 1], expected, rtol=1e-3, atol=1e-4)


def test_cosines_are_those_of_scipy():
    np.testing.assert_allclose(cosines(40, 20).numpy(), dct(np.eye(40), norm="ortho")[:, :20], atol=1e-6)


def test_mel_filters_are_triangles_between_equally_spaced_mel():
    filters, frequency = mel_filters(40, 8001).numpy(), np.arange(8001)
    centres = frequency[filters.argmax(0)]
    np.testing.assert_allclose(np.diff(2595 * np.log10(1 + centres / 700)), 2840.0230 / 41, rtol=0.05)
    between = (frequency > centres[0]) & (frequency < centres[-1])
    np.testing.assert_allclose(filters[between].sum(1), 1, atol=1e-5)
    assert filters.min() == 0
    np.testing.assert_allclose(filters[[0, -1]], 0, atol=1e-6)


def test_short_series_are_reproducible_and_of_ten_classes():
    first, second = defaults_data.short_series(60), defaults_data.short_series(60)
    torch.testing.assert_close(first.series.values, second.series.values, equal_nan=True)
    assert np.bincount(first.labels).tolist() == [6] * 10
    assert 8 <= first.series.lengths.min() <= first.series.lengths.max() <= 20
    assert 0.05 < first.series.values.isnan().double().mean() < 0.2
    assert len(set(defaults_data.CENTRES)) == 10


def test_wide_stays_are_mostly_missing():
    series, labels = wide_stays(20)
    assert series.values.shape == (20 * 75, 37)
    assert 0.75 < series.values.isnan().double().mean() < 0.85
    assert set(labels) == {0, 1}


def test_wide_table_compares_the_old_and_the_new_default(capsys):
    few = {"hidden": 4, "width": 4, "max_epochs": 2}
    rows = wide_table(stays=60, rounds=1, predictions=2, options=few)
    assert [row["estimator"] for row in rows] == ["old default", "new default"]
    assert all(row["s per epoch"] > 0 and row["s to it"] > 0 and row["predict one, ms"] > 0 for row in rows)
