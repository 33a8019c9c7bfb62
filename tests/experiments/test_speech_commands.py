"""The speech experiment on small files: readers, MFCC, splits by speaker, augmentation, models."""

import wave

import numpy as np
import pytest
import torch
from benchmarks.data import WORDS, folder, read_all_speech
from benchmarks.speech import deltas, mel_filters, mfcc
from experiments.__main__ import main
from experiments.experiment import Experiment, Run
from experiments.lines import read_lines
from experiments.models import make_model, parameters
from experiments.runs import outputs_file, table_runs
from experiments.speech_commands.models import Augmentation
from experiments.speech_commands.run import digest
from experiments.splits import FOLDS, split_positions
from experiments.tables import main_table
from scipy.fft import dct
from scipy.signal import ShortTimeFFT

from neuralcde.models import drawing_from
from neuralcde.tasks import classification_task
from neuralcde.train import TrainingSettings, train

NAME = "speech_commands"
SPEAKERS, CLIPS = 20, 100


def clips():
    """A tone per word, and who spoke it."""
    rng, audio, names = np.random.default_rng(0), [], []
    for k in range(CLIPS):
        word = WORDS[k % 10]
        tone = np.sin(np.arange(16000) * (0.05 + 0.02 * (k % 10))) * 8000 + rng.normal(0, 800, 16000)
        audio.append(tone.astype(np.int16))
        names.append(f"{word}/{k // 10 * 2 + k % 2:08x}_nohash_{k % 3}.wav")
    return np.stack(audio), names


def write_wav(file, samples, *, channels=1, rate=16000):
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The clips as the archive has them, with one that is too short, and a word that is not used."""
    place = tmp_path_factory.mktemp("archive")
    for samples, name in zip(*clips(), strict=True):
        write_wav(place / "speech_commands_v0.02" / name, samples)
    write_wav(place / "speech_commands_v0.02" / "yes" / "ffffffff_nohash_0.wav", np.zeros(15000))
    write_wav(place / "speech_commands_v0.02" / "bed" / "ffffffff_nohash_0.wav", np.zeros(16000))
    return place


@pytest.fixture(scope="module")
def packs(tmp_path_factory):
    """The same clips in two packs, in another order."""
    place = tmp_path_factory.mktemp("packs")
    audio, names = clips()
    for number, part in enumerate((np.arange(CLIPS)[::-2], np.arange(CLIPS)[::-2] - 1), 1):
        np.savez(
            place / f"speech_commands_v2test_part{number}.npz",
            audio=audio[part],
            name=np.array(names)[part],
            y=[WORDS.index(names[k].split("/")[0]) for k in part],
            classes=WORDS,
        )
    return place


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The experiment with the small data's number of clips, and small models."""
    text = Experiment.find(NAME).config_file.read_text()
    for old, new in {"clips = [34975, 4074]": "clips = [100]"}.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = tmp_path_factory.mktemp("config") / "config.toml"
    file.write_text(text)
    return Experiment.find(NAME, file)


def prepared(experiment, place, model, column, changes=None):
    return experiment.prepare(place, Run(model, column, 0, experiment.settings(model, changes, column=column)))


def test_archive_and_packs_are_the_same_clips(archive, packs):
    one, other = read_all_speech(archive), read_all_speech(packs)
    assert len(one.words) == CLIPS  # without the short clip and the other word
    np.testing.assert_array_equal(one.audio, other.audio)
    assert one.words.tolist() == other.words.tolist() == sorted(one.words.tolist(), key=WORDS.index)
    assert one.speakers.tolist() == other.speakers.tolist()
    assert len(set(one.speakers)) == SPEAKERS
    assert digest(one) == digest(other)
    inside = read_all_speech(archive / "speech_commands_v0.02")
    np.testing.assert_array_equal(one.audio, inside.audio)


def test_other_sound_is_refused(tmp_path):
    for word in WORDS:
        (tmp_path / word).mkdir()
    write_wav(tmp_path / "go" / "a_nohash_0.wav", np.zeros(16000), rate=8000)
    with pytest.raises(ValueError, match=r"a_nohash_0\.wav has 1 channels of 16 bits at 8000 Hz"):
        read_all_speech(tmp_path)


def test_without_data_it_says_what_to_download(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"speech_commands_v0\.02\.tar\.gz.*unpack.*folder of \.wav.*--data DIR"
    ):
        read_all_speech(tmp_path)


def test_other_clips_are_refused(packs):
    experiment = Experiment.find(NAME)
    with pytest.raises(ValueError, match="found 100 clips of 10 words, expected 34975 or 4074 of 10"):
        prepared(experiment, packs, "neural_cde", "random")


@pytest.mark.parametrize("filters", [128, 64])
def test_mfcc_of_the_paper_are_those_of_scipy(filters):
    """161 frames of 20 coefficients: reflected ends, periodic Hann window of 200, hop of 100, power, HTK mel, DCT."""
    audio = np.random.default_rng(0).integers(-(2**15), 2**15, (2, 16000)).astype(np.int16)
    found = mfcc(torch.from_numpy(audio), window=200, hop=100, filters=filters, centred=True).numpy()
    assert found.shape == (2, 161, 20)
    padded = np.pad(audio[1] / 2**15, 100, mode="reflect")
    window = np.hanning(201)[:-1]
    transform = ShortTimeFFT(window, hop=100, fs=16000, fft_mode="onesided", phase_shift=None)
    frames = transform.stft(padded)  # frame k is centred at sample 100 k of the padded clip
    power = np.abs(frames[:, 1 - transform.p_min :][:, :161]) ** 2
    mel = htk_filters(filters, 101)
    np.testing.assert_allclose(mel_filters(filters, 101).numpy(), mel, atol=1e-5)
    expected = dct(np.log(mel.T @ power + 1e-6), axis=0, norm="ortho")[:20].T
    np.testing.assert_allclose(found[1], expected, rtol=2e-3, atol=2e-3)


def htk_filters(filters, bins):
    """Triangular filters, as torchaudio and librosa (htk=True, norm=None) define them."""
    points = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), filters + 2) / 2595) - 1)
    frequency = np.linspace(0, 8000, bins)
    table = np.zeros((bins, filters))
    for k in range(filters):
        up = (frequency - points[k]) / (points[k + 1] - points[k])
        down = (points[k + 2] - frequency) / (points[k + 2] - points[k + 1])
        table[:, k] = np.maximum(0, np.minimum(up, down))
    return table


def test_empty_filters_add_a_constant():
    """With 128 filters on 101 frequencies some have none: they move every coefficient by the same number everywhere."""
    mel = mel_filters(128, 101)
    empty = mel.sum(0) == 0
    assert 10 < int(empty.sum()) < 64
    audio = torch.from_numpy(np.random.default_rng(0).integers(-3000, 3000, (1, 4000)).astype(np.int16))
    found = mfcc(audio, window=200, hop=100, filters=128, centred=True)[0]
    frames = torch.nn.functional.pad(audio / 2**15, (100, 100), mode="reflect").unfold(1, 200, 100)
    power = torch.fft.rfft(frames * torch.hann_window(200)).abs().square()
    logs = (power @ mel + 1e-6).log()[0]
    table = torch.from_numpy(dct(np.eye(128), norm="ortho")[:, :20]).float()
    without = (logs * ~empty) @ table
    torch.testing.assert_close((found - without).std(0), torch.zeros(20), atol=1e-3, rtol=0)
    assert not (mel_filters(40, 201).sum(0) == 0).any()


def test_slopes_are_those_of_a_line():
    line = torch.arange(10.0)[None, :, None] * torch.tensor([1.0, -2.0])
    assert torch.allclose(deltas(line)[0, 2:-2], torch.tensor([1.0, -2.0]).expand(6, 2))
    assert deltas(torch.ones(1, 5, 3)).abs().max() == 0


def test_no_speaker_is_in_two_parts(packs):
    speech = read_all_speech(packs)
    labels, groups = speech.words, speech.speakers
    data = {"split_seeds": [0, 1]}
    split = split_positions(labels, data, groups=groups)
    parts = [set(groups[part]) for part in split]
    assert sorted(np.concatenate(split).tolist()) == list(range(CLIPS))
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    assert abs(len(split.training) - 0.7 * CLIPS) <= 5
    assert min(len(part) for part in split) > 0
    random = split_positions(labels, data)
    assert {*groups[random.training]} & {*groups[random.test]}
    pool = {*split.training, *split.validation}
    held_out = []
    for fold in range(FOLDS):
        cut = split_positions(labels, {**data, "fold": fold}, groups=groups)
        assert {*np.concatenate(cut)} == pool
        assert not {*groups[cut.training]} & ({*groups[cut.test]} | {*groups[cut.validation]})
        held_out += cut.test.tolist()
    assert sorted(held_out) == sorted(pool)


def test_sizes_are_the_papers():
    experiment = Experiment.find(NAME)
    for model in experiment.config["models"]:
        made = make_model(model, experiment.settings(model, column="speaker"), **experiment.shape("speaker"))
        assert parameters(made) == experiment.config["paper"][model]["parameters"], model


def test_the_papers_models_see_161_frames(packs, small):
    parts = prepared(small, packs, "neural_cde", "speaker")
    assert parts.shape == small.shape("speaker")
    series = parts.training.series
    assert series.lengths.unique().tolist() == [161]
    assert series.times[:3].tolist() == [0, 1, 2]
    torch.testing.assert_close(series.values[:, 1:].mean(0), torch.zeros(20), atol=1e-3, rtol=0)
    path, _ = parts.training[:3]
    for model in small.config["models"]:
        made = make_model(model, small.settings(model, column="speaker"), **parts.shape)
        outputs = made(path)
        assert outputs.shape == (3, 10)
        assert torch.isfinite(outputs).all()


AUGMENTED = list(Experiment.find(NAME).config["more_models"])


@pytest.mark.parametrize("model", AUGMENTED)
def test_models_beside_them_learn_and_go_on_after_a_kill(model, packs, small, tmp_path):
    changes = {"model": {"hidden": 8}, "training": {"max_epochs": 3, "batch_size": 16}}
    if "width" in small.settings(model, column="speaker")["model"]:
        changes["model"] |= {"width": 8}
    parts = prepared(small, packs, model, "speaker", changes)
    settings = small.settings(model, changes, column="speaker")
    training = TrainingSettings(**settings["training"], seed=0, verbose=0)

    def trained(folder, callbacks=()):
        torch.manual_seed(0)
        made = make_model(model, settings, **parts.shape)
        result = train(
            made,
            parts.task,
            parts.training,
            parts.validation,
            training,
            folder=folder,
            resume=True,
            callbacks=callbacks,
        )
        return made, result

    trained(tmp_path / "stopped", [lambda row: row["epoch"] == 1])
    resumed, result = trained(tmp_path / "stopped")
    whole, _ = trained(tmp_path / "whole")
    assert len(result.history) == 3
    for one, other in zip(resumed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_the_convolutional_network_is_no_larger_than_the_neural_cde():
    experiment = Experiment.find(NAME)
    sizes = {}
    for model in AUGMENTED:
        settings = experiment.settings(model, column="speaker")
        channels = 1 + settings["data"]["coefficients"] * (2 if settings["data"].get("deltas") else 1)
        sizes[model] = parameters(make_model(model, settings, channels=channels, outputs=10, static=0))
    assert sizes["convolutions"] <= sizes["ours"]
    assert sizes["gru"] <= 1.05 * sizes["ours"]


def test_augmentation_shifts_and_hides():
    values = torch.arange(50.0).repeat(200, 1)[..., None] * torch.ones(6) + 1  # three coefficients and their slopes
    still = {"shift": 0, "frame_masks": 0, "frames": 0, "band_masks": 0, "bands": 0, "coefficients": 3}
    generator = torch.Generator().manual_seed(0)

    def changed(**options):
        made = Augmentation(**{**still, **options})
        with drawing_from(made, generator):
            return made(values), made

    assert torch.equal(changed()[0], values)
    shifted, made = changed(shift=4)
    by = shifted[:, 25, 0] - values[:, 25, 0]
    assert {abs(int(x)) for x in by.tolist()} == {0, 1, 2, 3, 4}
    assert shifted.min() == 1
    assert shifted.max() == 50
    made.eval()
    assert torch.equal(made(values), values)
    hidden = changed(frame_masks=1, frames=10)[0] == 0
    lengths = hidden[:, :, 0].sum(1)
    assert int(lengths.max()) == 10
    assert torch.equal(hidden, hidden[:, :, :1].expand_as(hidden))
    assert (hidden[:, :, 0].diff(dim=1) != 0).sum(1).max() <= 2  # a single stretch
    bands = changed(band_masks=1, bands=2)[0] == 0
    assert torch.equal(bands[..., :3], bands[..., 3:])  # a coefficient with its slope
    assert torch.equal(bands, bands[:, :1].expand_as(bands))
    assert {int(n) for n in bands[:, 0, :3].sum(1)} == {0, 1, 2}


def test_the_real_data():
    if not (folder() / "speech_commands_v2test_part2.npz").exists():
        pytest.skip("speech_commands_v2test_part2.npz is not there; set NEURALCDE_DATA to the folder that has it")
    speech = read_all_speech(folder())
    assert len(speech.words) == 4074
    split = split_positions(speech.words, {"split_seeds": [0, 1]}, groups=speech.speakers)
    assert abs(len(split.training) - 0.7 * 4074) < 100
    assert classification_task(speech.words).outputs == 10


def test_contestants_and_the_ensemble_of_our_runs(packs, small, tmp_path, capsys):
    text = (
        small.config_file.read_text().replace("max_epochs = 60", "max_epochs = 1").replace("hidden = 48", "hidden = 8")
    )
    text = text.replace("\nruns = 5", "\nruns = 2", 1)
    (tmp_path / "config.toml").write_text(text)
    some = [NAME, "--data", str(packs), "--config", str(tmp_path / "config.toml"), "--out", str(tmp_path / "out")]
    assert main([*some, "contestants"]) == 1
    assert "run: python -m experiments speech_commands --model ours" in capsys.readouterr().out
    assert main([*some, "--model", "ours", "--only", "split=speaker"]) == 0
    assert main([*some, "contestants"]) == 1  # those of the random split are missing
    lines = read_lines(tmp_path / "out" / "contestants.jsonl")
    assert sum(line["contestant"] == "boosting" for line in lines) == 2
    (averaged,) = [line for line in lines if line["contestant"] == "ensemble"]
    assert averaged["members"] == 2
    assert averaged["split"] == "speaker"
    runs = read_lines(tmp_path / "out" / "results.jsonl")
    assert averaged["test_series"] == runs[0]["test_series"]
    experiment = Experiment.find(NAME, tmp_path / "config.toml", tmp_path / "out")
    titles = [row[0] for row in main_table(experiment).rows]
    assert titles[5:] == [
        "Neural CDE on features of convolutions, our training",
        "ours, the five runs averaged",
        "gradient boosting on statistics of the coefficients",
    ]
    first = table_runs(experiment, ["ours"], None, None)[0]
    (line,) = [line for line in runs if line["seed"] == first.seed]  # runs are listed in the order in which they end
    with np.load(outputs_file(experiment, first)) as kept:
        parts = prepared(experiment, packs, "ours", "speaker")
        accuracy = (kept["test"].argmax(1) == parts.test.targets.numpy()).mean()
    assert accuracy == pytest.approx(line["test_accuracy"])
