"""PathDataset in a DataLoader: paths built once or per batch, sliced by index, never padded."""

import pytest
import torch
from torch.utils.data import DataLoader

import neuralcde as nc
from ragged_cases import random_series

SERIES = random_series(7, count=23, channels=3).with_channels()
TARGETS = torch.arange(23)


def same(a, b):
    return torch.equal(a.coefficients, b.coefficients) and a.series == b.series


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_slices_of_the_whole(workers):
    path = nc.natural_cubic(SERIES)
    torch.manual_seed(0)
    batches = list(nc.PathDataset(path, TARGETS).loader(batch_size=5, shuffle=True, num_workers=workers))
    assert [len(part) for part, _ in batches] == [5, 5, 5, 5, 3]
    seen = torch.cat([y for _, y in batches])
    assert sorted(seen.tolist()) == TARGETS.tolist()
    assert seen.tolist() != TARGETS.tolist()
    for part, y in batches:
        assert same(part, path[y])


def test_paths_built_per_batch_equal_paths_built_once():
    once = nc.PathDataset(nc.linear(SERIES)).loader(batch_size=4)
    each = nc.PathDataset(SERIES, build=nc.linear).loader(batch_size=4)
    assert all(same(a, b) for a, b in zip(once, each, strict=True))


def test_slicing_recomputes_nothing():
    path = nc.natural_cubic(SERIES)
    batch, _ = nc.PathDataset(path, TARGETS)[2:5]
    assert batch.coefficients.data_ptr() == path[2:5].coefficients.data_ptr()  # a view


def test_a_plain_dataloader_works_too():
    data = nc.PathDataset(nc.linear(SERIES), TARGETS)
    path, y = next(iter(DataLoader(data, batch_size=6, collate_fn=lambda batch: batch)))
    assert len(path) == len(y) == 6


def test_a_batch_goes_to_another_dtype_and_device():
    path, _ = nc.PathDataset(nc.linear(SERIES), TARGETS)[[1, 3]]
    assert path.to(torch.float32).dtype == torch.float32
    assert path.to("meta").device.type == "meta"


def test_series_without_build_stay_series():
    batch, targets = nc.PathDataset(SERIES, TARGETS)[[3, 1]]
    assert batch == SERIES[[3, 1]]
    assert torch.equal(targets, torch.as_tensor(TARGETS)[[3, 1]])


def test_wrong_targets_and_an_unneeded_build_are_named():
    with pytest.raises(ValueError, match="targets must be one per series: 23, got shape"):
        nc.PathDataset(nc.linear(SERIES), torch.zeros(22))
    with pytest.raises(ValueError, match=r"build= .* these paths are built already"):
        nc.PathDataset(nc.linear(SERIES), build=nc.linear)
