"""Data of the experiment: both sources, published counts, and the same drops and splits for every model and run."""

import itertools

import numpy as np
import pytest
import torch
from benchmarks.data import Letters, folder, read_letters
from experiments.character_trajectories.run import digest, drop, pad
from experiments.experiment import Experiment, Run, merged
from experiments.models import make_model, matched, parameters
from experiments.runs import ablation_runs, changed
from experiments.splits import FOLDS, split_positions

from neuralcde.train import TrainingSettings, train

NAME = "character_trajectories"
MODELS = ("gru_ode", "gru_dt", "gru_d", "ode_rnn", "neural_cde")
PUBLISHED = {"series": 80, "classes": 4, "longest": 20}


def test_both_sources_are_the_same_data(pack, archive, strokes):
    first, second = read_letters(pack, PUBLISHED), read_letters(archive, PUBLISHED)
    assert first.labels.tolist() == second.labels.tolist() == strokes[1]
    for a, b, c in zip(first.strokes, second.strokes, strokes[0], strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize("count", ["series", "classes", "longest"])
def test_other_data_are_refused(pack, count):
    with pytest.raises(ValueError, match=rf"are not CharacterTrajectories: found .*'{count}': {PUBLISHED[count]}"):
        read_letters(pack, PUBLISHED | {count: 7})


def test_the_order_of_the_letters_tells_sources_apart(pack):
    letters = read_letters(pack, PUBLISHED)
    other = Letters(letters.strokes[::-1], letters.labels[::-1])
    assert digest(letters) == digest(read_letters(pack, PUBLISHED)) != digest(other)


def test_where_there_are_no_data_it_says_what_to_download(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"timeseriesclassification\.com.*unpack.*_TRAIN\.ts.*--data DIR"):
        read_letters(tmp_path, PUBLISHED)


def test_drops_take_their_share_of_every_series_and_all_channels(strokes):
    values = strokes[0]
    kept = {share: drop(values, share, seed=1) for share in (0.0, 0.3, 0.5, 0.7)}
    for share, series in kept.items():
        assert series.lengths.tolist() == [len(v) - round(share * len(v)) for v in values]
        assert not series.values.isnan().any()
        for one, stroke in zip(series, values, strict=True):
            np.testing.assert_array_equal(one.values.numpy(), stroke[one.times.long().numpy()])
    for few, more in itertools.pairwise([0.7, 0.5, 0.3, 0.0]):
        for a, b in zip(kept[few], kept[more], strict=True):
            assert set(a.times.tolist()) < set(b.times.tolist())
    assert drop(values, 0.3, seed=1) == kept[0.3]
    assert drop(values, 0.3, seed=2) != kept[0.3]


def test_the_split_is_70_15_15_of_every_letter(strokes):
    labels = np.array(strokes[1])
    parts = split_positions(labels, {"split_seeds": [0, 1]})
    assert [len(part) for part in parts] == [56, 12, 12]
    assert sorted(np.concatenate(parts).tolist()) == list(range(80))
    for part, each in zip(parts, (14, 3, 3), strict=True):
        assert np.unique(labels[part], return_counts=True)[1].tolist() == [each] * 4
    again = split_positions(labels, {"split_seeds": [0, 1]})
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not np.array_equal(parts.training, split_positions(labels, {"split_seeds": [2, 1]}).training)


def test_folds_cover_all_but_the_test_series(strokes):
    labels = np.array(strokes[1])
    whole = split_positions(labels, {"split_seeds": [0, 1]})
    folds = [split_positions(labels, {"split_seeds": [0, 1], "fold": k}) for k in range(FOLDS)]
    pool = sorted([*whole.training, *whole.validation])
    assert sorted(np.concatenate([fold.test for fold in folds])) == pool
    for fold in folds:
        assert sorted(np.concatenate(fold)) == pool
        assert len(fold.validation) == pytest.approx(0.15 * (len(pool) - len(fold.test)), abs=1)


def test_every_model_and_run_sees_the_same_data(pack, config):
    experiment = Experiment.find(NAME, config)
    first = experiment.prepare(pack, Run("neural_cde", 0.5, 0, experiment.settings("neural_cde")))
    for model, seed in itertools.product(MODELS, (0, 3)):
        parts = experiment.prepare(pack, Run(model, 0.5, seed, experiment.settings(model)))
        for name in ("training", "validation", "test"):
            mine, other = getattr(parts, name), getattr(first, name)
            assert mine.source.series == other.source.series
            assert torch.equal(mine.source.coefficients, other.source.coefficients)
            assert torch.equal(mine.targets, other.targets)
    assert (len(first.training), len(first.validation), len(first.test)) == (56, 12, 12)


def test_padding_repeats_the_last_row_before_rows_are_dropped(pack, config, strokes):
    experiment = Experiment.find(NAME, config)
    settings = experiment.settings("neural_cde", variant="published")
    series = experiment.prepare(pack, Run("neural_cde", 0.5, 0, settings)).test.source.series
    assert series.lengths.unique().tolist() == [10]
    padded = pad(strokes[0], 20)
    assert all(
        len(stroke) == 20 and (stroke[len(own) :] == own[-1]).all()
        for stroke, own in zip(padded, strokes[0], strict=True)
    )


def test_scaling_is_learnt_from_training_series_alone(pack, config):
    experiment = Experiment.find(NAME, config)
    parts = experiment.prepare(pack, Run("neural_cde", 0.3, 0, experiment.settings("neural_cde")))
    series = parts.training.source.series
    assert series.roles == ("time", "data", "data", "data")
    torch.testing.assert_close(series.values[:, 1:].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(series.values[:, 1:].std(0, correction=0), torch.ones(3), atol=1e-4, rtol=0)
    assert torch.equal(series.values[:, 0].double(), series.times)  # raw: 0, 1, 2, ...
    assert parts.test.source.series.values[:, 1:].mean(0).abs().max() > 1e-3


def test_proper_inputs_take_a_few_more_parameters():
    experiment = Experiment.find(NAME)
    for model in MODELS:
        made = make_model(model, experiment.settings(model), **experiment.config["shape"])
        assert 0 <= parameters(made) - experiment.config["paper"][model]["parameters"] <= 250


def test_sizes_are_the_papers():
    experiment = Experiment.find(NAME)
    for model in MODELS:
        made = make_model(model, experiment.settings(model, variant="published"), **experiment.config["shape"])
        assert parameters(made) == experiment.config["paper"][model]["parameters"]


@pytest.mark.parametrize(
    ("model", "sizes"),
    [("neural_cde", (32, 32, 3)), ("gru_ode", (47,)), ("gru_dt", (47,)), ("gru_d", (46,))],
)
def test_matching_the_chosen_ode_rnn_gives_the_papers_sizes_but_for_the_proper_gru_d(model, sizes):
    experiment = Experiment.find(NAME)
    found = matched(experiment, model, experiment.settings("ode_rnn"))
    assert tuple(found["model"][name] for name in ("hidden", "width", "depth") if name in found["model"]) == sizes


def test_matching_keeps_the_shape_of_the_field_and_the_cap_on_epochs():
    experiment = Experiment.find(NAME)
    changes = {"model": {"hidden": 16, "width": 64, "depth": 1}, "training": {"max_epochs": 7}}
    like = experiment.settings("ode_rnn", changes)
    found = matched(experiment, "neural_cde", like)
    hidden = found["model"]["hidden"]
    assert found["model"]["width"] == hidden * 4
    assert found["model"]["depth"] == 1
    assert found["training"]["max_epochs"] == 7
    count = parameters(make_model("ode_rnn", like, **experiment.config["shape"]))
    larger = merged(found, {"model": {"hidden": hidden + 1, "width": hidden * 4 + 4}})
    sizes = [parameters(make_model("neural_cde", s, **experiment.config["shape"])) for s in (found, larger)]
    assert sizes[0] <= count < sizes[1]


def test_the_real_data_are_those_of_the_paper():
    if not (folder() / "character_trajectories.npz").exists():
        pytest.skip("character_trajectories.npz is not there; set NEURALCDE_DATA to the folder that has it")
    letters = read_letters(folder(), Experiment.find(NAME).config["published"])
    assert [len(part) for part in split_positions(letters.labels, {"split_seeds": [0, 1]})] == [2000, 429, 429]
    assert min(len(stroke) for stroke in letters.strokes) == 60


@pytest.mark.parametrize("change", Experiment.find(NAME).config["ablations"]["changes"])
def test_every_ablation_is_a_model_that_can_be_trained(change, pack, config):
    experiment = Experiment.find(NAME, config)
    run = Run("neural_cde", 0.7, 0, changed(experiment, "neural_cde", change, 0, 1))
    parts = experiment.prepare(pack, run)
    settings = TrainingSettings(**run.settings["training"], verbose=0)
    model = make_model(run.model, run.settings, **experiment.config["shape"])
    before = [p.clone() for p in model.parameters()]
    result = train(model, parts.task, parts.training, parts.validation, settings)
    assert len(result.history) == 1
    assert result.skipped_batches == 0
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_ablations_are_of_what_a_model_has(model):
    experiment = Experiment.find(NAME)
    runs = ablation_runs(experiment, [model], 1, None)
    changes = experiment.config["ablations"]["changes"].values()
    of_the_field = sum("initial_scale" in change.get("model", {}) for change in changes)
    assert len(runs) == len(changes) - (0 if model == "neural_cde" else of_the_field)
    for run in runs:
        make_model(model, run.settings, **experiment.config["shape"])
