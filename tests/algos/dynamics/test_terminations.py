"""When MDPs end, beside the environments themselves, as random play meets them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from d3ray.algos.dynamics.terminations import TERMINATIONS, termination_of

STEPS = 1500
ENDLESS = {"Pendulum-v1", "HalfCheetah-v5", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"}  # for random play


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "Pendulum-v1",
        "MountainCar-v0",
        "MountainCarContinuous-v0",
        "Acrobot-v1",
        "Hopper-v5",
        "Walker2d-v5",
        "HalfCheetah-v5",
        "Humanoid-v5",
        "InvertedPendulum-v5",
        "InvertedDoublePendulum-v5",
    ],
)
def test_an_environment_ends_where_its_function_says(name: str) -> None:
    try:
        environment = gymnasium.make(name)
    except (gymnasium.error.DependencyNotInstalled, ImportError, AttributeError) as error:
        pytest.skip(f"{name} cannot be made here: {error}")
    environment.action_space.seed(0)
    seen, ended = [], []
    environment.reset(seed=0)
    for _ in range(STEPS):
        observation, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        seen.append(observation)
        ended.append(terminated)
        if terminated or truncated:
            environment.reset()
    found = TERMINATIONS[termination_of(name) or ""](torch.as_tensor(np.array(seen)))
    np.testing.assert_array_equal(found.numpy(), ended)
    assert any(ended) or name in ENDLESS


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [  # goals that random play does not reach, and torsos; from gymnasium's sources
        ("mountain_car", [0.49, 0.1], [0.5, 0.0]),
        ("mountain_car_continuous", [0.46, -0.1], [0.45, 0.0]),
        ("acrobot", [1.0, 0.0, 1.0, 0.0], [-1.0, 0.0, 1.0, 0.0]),
        ("ant", [0.2, 5.0], [1.01, 0.0]),
        ("hopper", [0.8, 0.1, 99.0], [0.8, 0.1, 101.0]),
    ],
)
def test_ends_that_random_play_does_not_meet(name: str, inside: list[float], outside: list[float]) -> None:
    assert TERMINATIONS[name](torch.tensor([inside, outside])).tolist() == [False, True]


def test_ids_of_any_version_are_known_and_others_are_not() -> None:
    assert [termination_of(name) for name in ("Hopper-v2", "d/Hopper-v0", "CartPole-v0", "Nothing-v1", None)] == [
        "hopper",
        "hopper",
        "cart_pole",
        None,
        None,
    ]
