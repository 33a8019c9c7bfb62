"""The experiment on calibration: its columns, and the mean over splits."""

import numpy as np
import pytest
from experiments.calibration import COLUMNS, losses, measured
from experiments.defaults_data import stays


def test_losses_are_those_of_the_definition():
    found = losses(np.array([0.25, 0.5]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(found, [[-np.log(0.25), 0.5625], [-np.log(0.5), 0.25]])


def test_the_numbers_of_two_splits_agree_with_each_other(capsys):
    found = dict(
        zip(COLUMNS, measured(stays(80), "temperature", splits=2, max_epochs=1, hidden=4, width=4), strict=True)
    )
    assert found["difference"] == pytest.approx(found["calibrated"] - found["log-loss"])
    assert found["standard error"] > 0
    assert 0 < found["Brier score"] < 1
    assert capsys.readouterr().out.count("the log-loss changes by") == 2
