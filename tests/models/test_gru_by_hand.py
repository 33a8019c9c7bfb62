"""GRU-dt and GRU-D compared with a loop of torch.nn.GRUCell over inputs that are written out here."""

import pytest
import torch
from model_cases import make
from torch import nn

import neuralcde as nc
from ragged_cases import NAN
from solve_cases import ran_on

TIMES = [2.0, 3.0, 3.5, 6.0]
VALUES = [[1.0, NAN], [NAN, NAN], [NAN, 2.0], [3.0, NAN]]
JUMPS = [0, 2, 3]  # nothing was observed at the second row
GAPS = [[0.0], [1.5], [2.5]]
OWN_GAPS = [[0.0, 0.0], [1.5, 1.5], [4.0, 2.5]]  # since the start, if a channel was not observed before
MASK = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
FILLED = [[1.0, 0.0], [1.0, 2.0], [3.0, 2.0]]
ON_THE_PATH = [[1.0, 2.0], [1.75, 2.0], [3.0, 2.0]]
MEANS = [0.5, -0.25]


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def inputs_of(variant, intensity, values):
    """The inputs of the cell at every row, from rows of values."""
    if variant == "paper" and not intensity:
        return torch.stack([values[:, 0] + tensor(GAPS)[:, 0], values[:, 1]], 1)
    return torch.cat([tensor(GAPS), *([tensor(MASK)] if intensity else []), values], 1)


def stepped(model, inputs, decay):
    """Outputs at the four rows."""
    cell = nn.GRUCell(inputs.shape[1], model.hidden).double()
    cell.load_state_dict(model.cell.gru.state_dict())
    z, outputs = torch.zeros(1, model.hidden, dtype=torch.float64), []
    for row in range(4):
        if row in JUMPS:
            at = JUMPS.index(row)
            z = cell(inputs[at : at + 1], z * decay[at])
        outputs.append(model.readout.linear(z)[0])
    return torch.stack(outputs)


def compare(model, intensity, inputs, decay, engine):
    series = nc.IrregularSeries.from_list([(TIMES, VALUES)], dtype=torch.float64)
    path = nc.linear(series.with_channels(counts="per_channel" if intensity else None))
    assert ran_on(model.solve(path), engine)
    torch.testing.assert_close(model(path, at="knots"), stepped(model, inputs, decay), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("intensity", [False, True], ids=["values", "intensity"])
@pytest.mark.parametrize("variant", ["standard", "paper"])
def test_gru_delta_t(variant, intensity, engine):
    model = make(f"GRUDeltaT {variant}", 5 if intensity else 3, intensity=intensity)
    inputs = inputs_of(variant, intensity, tensor(FILLED if variant == "standard" else ON_THE_PATH))
    compare(model, intensity, inputs, [1.0, 1.0, 1.0], engine)


@pytest.mark.parametrize("intensity", [False, True], ids=["values", "intensity"])
@pytest.mark.parametrize("variant", ["standard", "paper"])
def test_gru_d(variant, intensity, engine):
    """A channel decays from its last value to its mean, and is at its mean before the first observation."""
    model = make(f"GRUD {variant}", 5 if intensity else 3, intensity=intensity, means=MEANS)
    values = tensor(ON_THE_PATH)
    if variant == "standard":
        with torch.no_grad():
            model.fade["weight"].copy_(tensor([0.3, 0.7]))
            model.fade["bias"].copy_(tensor([0.1, -0.2]))
        first, second = torch.exp(tensor([-(0.3 * 1.5 + 0.1), -(0.7 * 2.5 - 0.2)])).tolist()
        values = tensor([[1.0, -0.25], [first + (1 - first) * 0.5, 2.0], [3.0, second * 2.0 - (1 - second) * 0.25]])
    decay = torch.exp(-torch.relu(model.cell.decay(tensor(GAPS if variant == "paper" else OWN_GAPS))))
    compare(model, intensity, inputs_of(variant, intensity, values), decay, engine)


def test_a_negative_decay_rate_is_clamped(engine):
    """With a negative decay rate the last value is kept unchanged."""
    model = make("GRUD standard", 3, means=MEANS)
    with torch.no_grad():
        model.fade["weight"].fill_(-0.4)
        model.cell.decay.weight.fill_(-1.0)
        model.cell.decay.bias.fill_(-0.1)
    values = tensor([[1.0, -0.25], [1.0, 2.0], [3.0, 2.0]])
    compare(model, False, inputs_of("standard", False, values), [1.0, 1.0, 1.0], engine)


def test_means_need_one_value_per_data_channel():
    assert nc.GRUD(3, 1, means=MEANS).means.tolist() == MEANS
    assert nc.GRUD(3, 1).means.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match=r"means must be 2 values, one per data channel, got shape \(3,\)"):
        nc.GRUD(3, 1, means=torch.zeros(3))
