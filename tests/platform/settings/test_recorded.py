"""What is recorded of settings, by which an experiment that goes on is known."""

from __future__ import annotations

import pytest

from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import identity


@pytest.mark.parametrize(
    ("algorithm", "before"),
    [
        ({"name": "DQN", "q_function": "qr"}, "DQN-73c0ea3643-seed-0"),  # of d3ray 0.1, which had no dueling and no noisy layers
    ],
)
def test_settings_that_came_later_change_no_trials_name(algorithm, before):
    plain = ExperimentConfig.checked(
        {"dataset": "d3ray/cartpole-replay", "algorithm": algorithm, "n_steps": 60_000, "n_steps_per_epoch": 1_000}
    )
    assert identity(plain.configuration(), [0]) == before
    assert "dueling" not in plain.configuration()["algorithm"]["q_function"]
    noisy = ExperimentConfig.checked(
        {"dataset": "d3ray/cartpole-replay", "algorithm": {**algorithm, "q_function": {"name": "qr", "noisy": 0.5}}}
    )
    assert noisy.configuration()["algorithm"]["q_function"]["noisy"] == 0.5
