"""Legal actions in environments: how they are told, random actions among them, and policies that take no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from d3ray import DQN, DiscreteBCQ, DiscreteSAC, ReplayBuffer
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.explorers import Boltzmann, ConstantEpsilonGreedy, Greedy, random_actions
from d3ray.algos.environments.make import make, spec_of
from d3ray.algos.environments.rollout import Rollout
from d3ray.algos.export.package import read_package
from d3ray.algos.testing import SMALL
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Discrete

SMALLER: dict[str, Any] = {"encoder": SMALL, "learning_rate": 1e-3, "target_update_interval": 20}


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the steps, and those whose action was illegal."""

    steps = illegal = 0

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        self.mask = info["action_mask"]
        return observation, info

    def step(self, action: Any) -> Any:
        Counted.steps += 1
        Counted.illegal += not self.mask[action]
        result = self.env.step(action)
        self.mask = result[4]["action_mask"]
        return result


def taxi() -> Any:
    Counted.steps = Counted.illegal = 0
    return Counted(gymnasium.make("Taxi-v3", max_episode_steps=30))


class Stones(gymnasium.Env[Any, Any]):
    """One, two or three of seven stones are taken until none is left; the mask is a key, and at the end nothing is legal."""

    action_space = spaces.Discrete(3)

    def __init__(self, **further: Any) -> None:
        mask = spaces.Box(0, 1, (3,), np.int8)
        self.observation_space = spaces.Dict({"action_mask": mask, "observation": spaces.Box(0, 7, (1,)), **further})
        self.further = {key: space.sample() for key, space in further.items()}

    def shown(self) -> dict[str, Any]:
        mask = (np.arange(1, 4) <= self.left).astype(np.int8)
        return {"observation": np.array([self.left], np.float32), "action_mask": mask, **self.further}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = 7
        return self.shown(), {}

    def step(self, action: Any) -> Any:
        assert action + 1 <= self.left
        self.left -= int(action) + 1
        return self.shown(), float(self.left == 0), self.left == 0, False, {}


def test_taxi_from_data_to_package_without_an_illegal_action(tmp_path: Path) -> None:
    dataset = collect(taxi, n_steps=600, n_envs=2, seed=1)
    assert dataset.spec.action_mask
    assert (Counted.steps, Counted.illegal) == (600, 0)
    for learner in (DQN(**SMALLER), DiscreteBCQ(**SMALLER)):
        learner.fit(dataset, 60, 60)
        unmasked = learner.predict(np.arange(500))
        masks = np.eye(6, dtype=bool)[np.arange(500) % 6]
        np.testing.assert_array_equal(learner.predict(np.arange(500), masks), np.arange(500) % 6)
        np.testing.assert_array_equal(
            learner.sample_action({"observation": np.arange(500), "action_mask": masks}), np.arange(500) % 6
        )
        assert len(np.unique(unmasked)) < 6, "without a mask it chooses by what it has learnt"
        played = [evaluate(learner.policy(), taxi, episodes=4).returns]
        assert (Counted.steps > 0, Counted.illegal) == (True, 0)
    learner.save_policy(tmp_path / "policy")
    package = read_package(tmp_path / "policy")
    played.append(evaluate(package, taxi, episodes=4).returns)
    assert (Counted.steps > 0, Counted.illegal) == (True, 0)
    np.testing.assert_array_equal(*played)
    assert [(port["name"], port["dtype"]) for port in package.about["inputs"]] == [
        ("observation", "int64"),
        ("action_mask", "bool"),
    ]
    np.testing.assert_array_equal(package.predict(np.arange(500), masks), np.arange(500) % 6)
    np.testing.assert_array_equal(package.predict(np.arange(500)), unmasked)
    value = learner.predict_value(np.arange(6), np.arange(6))
    np.testing.assert_array_equal(
        value, learner.predict_value({"observation": np.arange(6), "action_mask": masks[:6]}, np.arange(6))
    )


@pytest.mark.parametrize(
    ("learner", "explorer"),
    [(DQN(**SMALLER), "boltzmann"), (DQN(**SMALLER), {"name": "constant_epsilon_greedy", "epsilon": 0.5}), (DiscreteSAC(), None)],
)
def test_online_runs_explore_among_legal_actions_and_record_them(learner: Any, explorer: Any) -> None:
    environment = [taxi(), taxi()]
    buffer = ReplayBuffer(500, make(lambda: environment[0]).spec, 2)
    learner.fit_online(environment.pop, buffer, explorer, n_steps=40, n_envs=2, random_steps=10, update_start_step=20)
    dataset = buffer.to_dataset()
    assert (Counted.steps, Counted.illegal) == (dataset.n_transitions, 0)
    assert Counted.steps > 100
    mask, action = (dataset.columns[name][dataset.episodes.transition_rows()] for name in ("action_mask", "action"))
    assert np.take_along_axis(mask, action[:, None], 1).all()


def test_a_mask_that_is_a_key_is_taken_out_of_the_observation() -> None:
    vector = make(Stones)
    assert (vector.spec.observation.shape, vector.spec.action_mask) == ((1,), True)  # type: ignore[union-attr]
    dataset = collect(Stones, n_episodes=20, n_envs=2, seed=0)  # its own assertion holds that all actions are legal
    stones = dataset.columns["observation"][:, 0]
    np.testing.assert_array_equal(dataset.columns["action_mask"], (np.arange(1, 4) <= stones[:, None]) | (stones[:, None] == 0))
    assert evaluate(DQN(**SMALLER).fit(dataset, 20, 20).policy(), Stones, episodes=2, epsilon=0.5).mean == 1
    several = make(lambda: Stones(board=spaces.Box(0, 1, (2,))))
    assert several.spec.shown().keys() == {"observation/observation", "observation/board", "action_mask"}
    assert several.reset().observation["board"].shape == (1, 2)


def test_random_and_explored_actions_are_uniform_over_legal_ones() -> None:
    space, mask = Discrete(n=4), np.array([[True, False, True, True], [False, True, False, False]])
    drawn = np.stack([random_actions(space, 2, step=k, seed=0, action_mask=mask) for k in range(3000)])
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4) / 3000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.03)
    assert (drawn[:, 1] == 1).all()
    every = [random_actions(space, 2, step=5, seed=0, action_mask=legal) for legal in (None, np.ones((2, 4), bool))]
    np.testing.assert_array_equal(*every)
    for explorer, proposed in ((ConstantEpsilonGreedy(epsilon=1.0), np.zeros(2, int)), (Boltzmann(), np.full((2, 4), 3.0))):
        taken = [explorer.explore(proposed, space, step=k, seed=1, action_mask=mask) for k in range(300)]
        assert all(mask[[0, 1], action].all() for action in taken)
        assert len(np.unique(np.stack(taken)[:, 0])) == 3


def test_what_does_not_go_together_is_refused_in_a_sentence() -> None:
    dataset = collect(Stones, n_episodes=4)
    learner = DQN(**SMALLER).fit(dataset, 1, 1)
    for mask, message in (
        (np.ones((2, 2)), r"action_mask has the shape \(2, 2\); 2 observations go with \(2, 3\)"),
        ([[1, 0, 0], [0, 0, 0]], "action_mask has no legal action in row 1"),
    ):
        with pytest.raises(DataError, match=message):
            learner.predict(np.zeros((2, 1), np.float32), mask)
    plain = DQN(**SMALLER).fit(collect("CartPole-v1", n_steps=50), 1, 1)
    with pytest.raises(DataError, match="This policy takes no action_mask: the data that it was fitted on have none"):
        plain.predict(np.zeros((1, 4), np.float32), [[True, True]])
    with pytest.raises(ConfigError, match="The environment has an action_mask and the replay buffer none"):
        Rollout(make(taxi), ReplayBuffer(10, spec_of(taxi())), Greedy(), seed=0)
    stuck = Stones()
    stuck.shown = lambda: {"observation": np.zeros(1, np.float32), "action_mask": np.zeros(3)}  # type: ignore[method-assign]
    with pytest.raises(DataError, match="gives an action_mask by which no action is legal, and its episode goes on"):
        collect(stuck, n_steps=2)


def test_the_goal_of_dqn_is_over_legal_actions() -> None:
    """Beside a loop in NumPy over the transitions of a batch."""
    dataset = collect(Stones, n_episodes=30, seed=2)
    learner = DQN(**SMALLER, dtype="float64").fit(dataset, 5, 5)
    batch, look = learner.fit_.sampler(dataset).sample(7), learner.fit_.learner.look
    values = look(lambda nets, b, h: nets.target.critic(b.next_observation.observation), batch)[0].numpy()
    goal = look(lambda nets, b, h: learner.goal(nets, b, h).mean, batch).numpy()
    for b in range(len(goal)):
        legal = np.flatnonzero(batch.next_observation.action_mask[b].numpy())
        best = max(values[b, a] for a in legal)
        assert goal[b] == pytest.approx(float(batch.reward[b] + batch.discount[b] * best), abs=1e-12)
    legal_best = np.where(batch.next_observation.action_mask.numpy(), values, -np.inf).argmax(1)
    assert (values.argmax(1) != legal_best).any(), "some goals would be others without the mask"
