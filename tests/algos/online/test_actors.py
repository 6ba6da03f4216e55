"""Environments that actors step: what is learned from is what they did, in order, and a run goes on bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from d3ray import A2C, ACER, DQN, PPO, REINFORCE, SAC
from d3ray.algos.environments.explorers import PolicyDraws
from d3ray.algos.environments.make import make
from d3ray.algos.environments.rollout import Rollout
from d3ray.algos.online.actors import LocalActors, Weights
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import ReplayBuffer

from .test_resume import Dot, assert_same_run, told

SMALL = {"hidden_units": [8]}
DQN_: dict[str, Any] = {"encoder": SMALL, "batch_size": 8, "learning_rate": 0.1, "seed": 3}
PPO_: dict[str, Any] = {"policy_encoder": SMALL, "value_encoder": SMALL, "update_interval": 40, "batch_size": 10, "n_passes": 2}
RUNNING = {"observation_scaler": "running", "reward_scaler": "running"}


def dqn(**settings: Any) -> DQN:
    return DQN(**{**DQN_, **settings})


def ppo(**settings: Any) -> PPO:
    return PPO(**{**PPO_, "learning_rate": 0.1, "seed": 3, **settings})


def sac() -> SAC:
    return SAC(action_scaler="min_max", actor_encoder=SMALL, critic_encoder=SMALL, batch_size=8, seed=3)


def test_the_buffer_holds_what_each_actor_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform actions depend on no weights: two rollouts beside each other are the two actors."""
    actors = LocalActors(2, steps=7)
    run = OnlineRun(dqn(), "CartPole-v1", n_envs=4, capacity=400, random_steps=10**6, actors=actors)
    for _ in range(60):
        run.act()
    parts: list[Any] = []
    monkeypatch.setattr(LocalActors, "open", lambda self, given: parts.extend(given))
    run.rollout._open_group()  # pyright: ignore
    for k, part in enumerate(parts):
        vector = make("CartPole-v1", 2, part.seed)
        alone = Rollout(vector, ReplayBuffer(200, vector.spec, 2), PolicyDraws(), seed=part.seed, random_steps=10**6)
        for _ in range(60):
            alone.step(None)
        for name, column in alone.buffer.columns.items():
            theirs = run.buffer.columns[name].reshape(4, 100, *column.shape[1:])[2 * k : 2 * k + 2]
            np.testing.assert_array_equal(theirs, column.reshape(2, 100, *column.shape[1:]), err_msg=name)
        shown = run.rollout.observation[2 * k : 2 * k + 2]
        np.testing.assert_array_equal(shown, alone.observation)
    assert run.buffer.columns["terminated"].sum() > 4  # episodes ended on the way
    assert parts[0].seed != parts[1].seed
    run.close()


@pytest.mark.parametrize(
    ("make_one", "env", "settings"),
    [
        (dqn, "CartPole-v1", {"capacity": 60}),
        (lambda: dqn(encoder={"name": "gru", "units": 4}), "CartPole-v1", {}),
        (sac, "Pendulum-v1", {"update_interval": 2, "n_updates": 3}),
        (lambda: dqn(encoder={"name": "vector", "hidden_units": [8]}, sampler={"name": "uniform", "frames": 2}), Dot, {}),
        (lambda: dqn(sampler="prioritized"), "CartPole-v1", {}),
        (ppo, "CartPole-v1", {}),
        (lambda: ppo(**RUNNING), "CartPole-v1", {}),
        (lambda: ppo(policy_encoder={"name": "gru", "units": 4}, sequence_length=4), "CartPole-v1", {}),
        (lambda: ACER(policy_encoder=SMALL, update_interval=12, replay_start_size=40, n_times_replay=2, seed=3), "CartPole-v1", {}),
    ],
    ids=["dqn", "gru", "sac", "frames", "prioritized", "ppo", "running", "ppo-gru", "acer"],
)
@pytest.mark.parametrize("done", [7, 8, 30])
def test_it_goes_on_bit_for_bit(make_one: Any, env: Any, settings: dict[str, Any], done: int, tmp_path: Path) -> None:
    """In the middle of a round, whose rest and successor the old weights made, and at its end."""
    told_of: Any = {"capacity": 300, "n_envs": 4, "actors": LocalActors(2, steps=8), **settings}
    with OnlineRun(make_one(), env, **told_of) as whole, OnlineRun(make_one(), env, **told_of) as first:
        after = [told(metrics) for _, metrics in whole.epochs(44, 4)][-1]
        list(first.epochs(done, 4))
        first.save(tmp_path / "run")
        with OnlineRun.load(tmp_path / "run", env, actors=LocalActors(2, steps=8)) as second:
            last = [told(metrics) for _, metrics in second.epochs(44 - done, 4)][-1]
            assert_same_run(second, whole)
            assert {**last, "rollout/age": 0} == {**after, "rollout/age": 0}
        list(first.epochs(44 - done, 4))  # looking at where it stands has changed nothing
        assert_same_run(first, whole)


def test_what_acts_is_never_older_than_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an algorithm that learns from its own policy alone it is never older at all."""
    asked: list[int] = []
    of = Weights.of
    monkeypatch.setattr(Weights, "of", lambda fit: asked.append(fit.learner.step) or of(fit))
    with OnlineRun(dqn(), "CartPole-v1", n_envs=4, capacity=300, actors=LocalActors(2, steps=8)) as run:
        ages = [metrics["rollout/age"] for _, metrics in run.epochs(40, 8)]
    assert asked[:3] == [0, 0, 6]  # a batch of 8 is there after three steps, so six updates follow in the first round
    assert asked[3:] == [14, 22, 30, 38]
    assert ages[-1] == 8
    asked.clear()
    with OnlineRun(ppo(), "CartPole-v1", n_envs=4, actors=LocalActors(2)) as run:
        list(run.epochs(24, 8))
    assert asked == [0, 8, 16]


def test_with_one_actor_an_on_policy_algorithm_learns_as_without() -> None:
    """Two rollouts of the same seeds: but for which seed that is, an actor is nothing else than acting here."""
    with OnlineRun(A2C(seed=3), "CartPole-v1", n_envs=2, actors=LocalActors(1)) as run:
        metrics = [told(metrics) for _, metrics in run.epochs(20, 10)]
        (actor,) = run.rollout.group.actors  # pyright: ignore
        seed = actor._vector.seed
    with OnlineRun(A2C(seed=3), make("CartPole-v1", 2, seed)) as alone:
        alone.rollout.seed = seed
        expected = [told(metrics) for _, metrics in alone.epochs(20, 10)]
    assert [{n: v for n, v in one.items() if n not in ("rollout/age", "rollout/replaced")} for one in metrics] == expected


class Wandering(gymnasium.Env[Any, Any]):
    """A place that no seed brings back."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        return np.random.default_rng().normal(size=1).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        return np.random.default_rng().normal(size=1).astype(np.float32), 1.0, False, False, {}


def test_an_episode_that_cannot_be_taken_up_again_is_cut_where_it_stood(tmp_path: Path) -> None:
    with OnlineRun(dqn(), Wandering, n_envs=2, capacity=200, actors=LocalActors(2, steps=8)) as run:
        list(run.epochs(8, 4))
        run.save(tmp_path / "run")
        made = run.rollout.group.actors[0]._rollout.steps  # pyright: ignore
    with OnlineRun.load(tmp_path / "run", Wandering, actors=LocalActors(2, steps=8)) as run:
        with pytest.warns(UserWarning, match="could not be taken up again"):
            list(run.epochs(40, 4))
        columns = run.buffer.columns
        for ring in np.split(np.arange(len(columns["reward"])), 2):
            (closing,) = np.flatnonzero(columns["closing"][ring])
            assert closing == made  # of the round that was made when it was saved: the one after it began elsewhere
            assert columns["truncated"][ring][closing - 1]
            assert not columns["terminated"].any()


class Breaking(Wandering):
    """One that raises, or pays what is no number."""

    def __init__(self, pays: float | None = None) -> None:
        self.pays, self.steps = pays, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 5 and self.pays is None:
            raise DataError("The fifth step is one too many.")
        return np.zeros(1, np.float32), self.pays if self.steps == 5 and self.pays else 1.0, False, False, {}


@pytest.mark.parametrize(("pays", "said"), [(None, "The fifth step is one too many"), (float("nan"), "paid nan")])
def test_what_an_environment_raises_arrives(pays: float | None, said: str) -> None:
    with (
        OnlineRun(dqn(), lambda: Breaking(pays), capacity=100, actors=LocalActors(1, steps=8)) as run,
        pytest.raises(DataError, match=said),
    ):
        list(run.epochs(20, 10))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_envs": 3, "actors": LocalActors(2)}, "3 environments cannot be shared out evenly among 2 actors"),
        ({"actors": LocalActors(0)}, "0 actors"),
        ({"actors": LocalActors(1), "record": lambda *_: {}}, "leave one of the two out"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        OnlineRun(dqn(), "CartPole-v1", **given)


def test_an_object_and_whole_episodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give an id, a config or a factory"):
        OnlineRun(dqn(), gymnasium.make("CartPole-v1"), actors=LocalActors(1))
    with pytest.raises(ConfigError, match="REINFORCE learns from whole episodes"):
        OnlineRun(REINFORCE(seed=0), "CartPole-v1", actors=LocalActors(1))
    with OnlineRun(dqn(), "CartPole-v1", n_envs=2, capacity=100, actors=LocalActors(2, steps=8)) as run:
        list(run.epochs(4, 4))
        run.save(tmp_path / "run")
    for actors in (None, LocalActors(1, steps=8), LocalActors(2, steps=4)):
        with pytest.raises(ConfigError, match="was begun with actor"):
            OnlineRun.load(tmp_path / "run", "CartPole-v1", actors=actors)
