"""What is recorded of settings, by which an experiment that goes on is known."""

from __future__ import annotations

import pytest

from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.trials import identity
from d3ray.platform.subjects.kind import make_algorithm
from d3ray.platform.sweep.search_space import SearchSpace, applied, current


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


@pytest.mark.parametrize(
    ("said", "before"),
    [
        ({}, "TD3PlusBC-308019e1a2-seed-0"),
        ({"mixed_precision": True}, "TD3PlusBC-ae6fabe994-seed-0"),
        ({"matmul_precision": "bfloat16"}, "TD3PlusBC-ae6fabe994-seed-0"),
        ({"matmul_precision": "tf32"}, None),  # which there was not
    ],
)
def test_a_setting_that_was_renamed_changes_no_trials_name(said, before):
    config = ExperimentConfig.checked(
        {
            "dataset": "d3ray/pendulum-replay",
            "algorithm": {"name": "TD3PlusBC", **said},
            "n_steps": 60_000,
            "n_steps_per_epoch": 1_000,
        }
    )
    named = identity(config.configuration(), [0])
    assert named == before if before else named not in ("TD3PlusBC-308019e1a2-seed-0", "TD3PlusBC-ae6fabe994-seed-0")
    told = config.configuration()["algorithm"]
    assert make_algorithm(told, seed=0).check_settings() == config.make_algorithm(0).check_settings()  # as a worker reads it


def test_a_sweep_over_a_setting_that_was_renamed_is_the_same():
    config = ExperimentConfig.checked({"dataset": "d3ray/pendulum-replay", "algorithm": "TD3PlusBC"})
    space = SearchSpace({"algorithm.mixed_precision": {"choice": [False, True]}}, "TD3PlusBC")
    space.check(config)
    assert current(config, space.spaces) == {"algorithm.mixed_precision": False}
    searched = applied(config, {"algorithm.mixed_precision": True})
    assert searched.make_algorithm(0).check_settings().matmul_precision == "bfloat16"
