"""An agent that is told what it sees, and answers what to do: PFRL's way of training, over the same run as `fit_online`."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from d3ray.algos.acting.fitted import policy as policy_of
from d3ray.algos.environments.collect import restarted
from d3ray.algos.environments.explorers import Explorer
from d3ray.algos.environments.vector import VectorEnvironment
from d3ray.algos.learning.estimator import Estimator
from d3ray.algos.online.run import OnlineRun
from d3ray.algos.saving.saving import load, save
from d3ray.data.errors import ConfigError, DataError, did_you_mean
from d3ray.data.replay import ReplayBuffer
from d3ray.data.storage.checks import as_array

_STATISTICS = {  # PFRL's names of what d3ray measures under others
    "average_q": "train/q_value",
    "average_loss": "train/critic_loss",
    "average_value": "train/value",
    "average_entropy": "train/entropy",
    "average_kl": "train/kl",
    "average_policy_loss": "train/policy_loss",
    "average_value_loss": "train/value_loss",
}


class _Told:
    """An environment in the caller's hands: it shows what the caller has seen there."""

    def __init__(self, spaces: Any) -> None:
        self.observation_space, self.action_space = spaces.observation_space, spaces.action_space
        self.shown: Any = None
        self.came: tuple[float, bool, bool] = (0.0, False, False)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        shown = self.observation_space.sample() if self.shown is None else self.shown
        return shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.shown, *self.came, {}

    def close(self) -> None:
        """The caller's own is the caller's to close."""


class Agent:
    """PFRL's `Agent` over an algorithm of d3ray's: whoever has the environment asks `act`, and tells `observe` what came of it.

    What it learns is bit for bit what `fit_online` learns where that steps the same environments. In `eval_mode` it acts greedily,
    and observes without learning.

    Args:
        algorithm: What learns; its settings and the seed are its own.
        spaces: Whatever has `observation_space` and `action_space` of one environment.
        n_envs: Environments, for the calls that begin with `batch_`.
        explorer: As `OnlineRun`'s, and so are `replay_buffer`, there called buffer, and the settings.
        **settings: `update_interval`, `n_updates`, `random_steps`, `update_start_step`, `capacity`.

    Attributes:
        algorithm: What learns.
        training: Whether it does.
        t: Steps of each environment so far.

    Raises:
        ConfigError, DataError: as `OnlineRun`.
    """

    def __init__(
        self,
        algorithm: Estimator,
        spaces: Any,
        n_envs: int = 1,
        explorer: Explorer | Mapping[str, Any] | str | None = None,
        replay_buffer: ReplayBuffer | None = None,
        **settings: Any,
    ) -> None:
        if not (hasattr(spaces, "observation_space") and hasattr(spaces, "action_space")):
            raise ConfigError(f"{type(spaces).__name__} has no observation_space and action_space: give an environment.")
        self._told = [_Told(spaces) for _ in range(n_envs)]
        vector = VectorEnvironment(self._told)
        self._run = OnlineRun(algorithm, vector, replay_buffer, explorer, **settings)
        self.algorithm, self.training = algorithm, True
        self._action: np.ndarray | None = None  # that was given and not observed yet
        self._ended = np.ones(n_envs, bool)  # whose next observation begins an episode
        self._greedy: Any = None
        self._greedy_memory: Any = None

    @property
    def n_envs(self) -> int:
        """Environments that it acts in."""
        return len(self._told)

    @property
    def t(self) -> int:
        """Steps of each environment so far."""
        return self._run.rollout.steps

    def set(self, **coefficients: float) -> None:
        """Changes settings that are coefficients, as a learning rate, from the next gradient step on; a rate may be 0 then.

        Raises:
            ConfigError: there is no such coefficient, or a value is not finite.
        """
        learner = self.algorithm.fit_.learner
        for name, value in coefficients.items():
            if name not in learner.values:
                raise ConfigError(f"{self.algorithm.name} has no coefficient {name!r}{did_you_mean(name, learner.values)}")
            if not math.isfinite(value):
                raise ConfigError(f"{name} is {value}; it must be finite.")
            learner.set_hyper(name, [value])

    # ---- one environment

    def act(self, obs: Any) -> Any:
        """What to do where this is seen: an integer, or an array as the space has it."""
        return self.batch_act([obs])[0]

    def observe(self, obs: Any, reward: float, done: bool, reset: bool) -> None:
        """What the action led to.

        Args:
            obs: What is seen now.
            reward: What it was paid.
            done: Whether the MDP has ended.
            reset: Whether the episode is cut here without having ended, by a time limit say. The next `act` begins another one.

        Raises:
            DataError: no action was asked for, or something is not finite.
        """
        self.batch_observe([obs], [reward], [done], [reset])

    # ---- several

    def batch_act(self, batch_obs: Any) -> list[Any]:
        """What to do in each environment. Raises DataError: there is another number of observations than of environments."""
        if not self.training:
            return self._act_greedily(batch_obs)
        self._check("observations", batch_obs)
        if self._action is not None:
            raise DataError("act was called twice: tell observe first what the last action led to.")
        self._show(batch_obs)
        self._action = self._run.rollout.decide(self._run.policy)
        return self._as_taken(self._action)

    def batch_observe(self, batch_obs: Any, batch_reward: Any, batch_done: Any, batch_reset: Any) -> None:
        """What each action led to; arguments and errors as `observe`'s, an entry an environment."""
        if not self.training:
            self._forget(np.asarray(batch_done, bool) | np.asarray(batch_reset, bool))
            return
        if self._action is None:
            raise DataError("observe was called before act: there is no action that this could have come of.")
        for what, given in (
            ("observations", batch_obs),
            ("rewards", batch_reward),
            ("values of done", batch_done),
            ("values of reset", batch_reset),
        ):
            self._check(what, given)
        if not np.isfinite(rewards := np.asarray(batch_reward, np.float64)).all():
            raise DataError(f"The reward of environment {int((~np.isfinite(rewards)).argmax())} is {rewards.min()}.")
        for told, obs, reward, done, reset in zip(self._told, batch_obs, rewards, batch_done, batch_reset, strict=True):
            _check_finite(obs)
            told.shown, told.came = obs, (float(reward), bool(done), bool(reset) and not done)
        action, self._action = self._action, None
        self._run.rollout.take(self._run.policy, action)
        self._ended = np.asarray(batch_done, bool) | np.asarray(batch_reset, bool)
        self._run.ask()
        self._run.learn()

    def _check(self, what: str, given: Any) -> None:
        if len(given) != len(self._told):
            raise DataError(f"{len(given)} {what} were given, and the agent acts in {len(self._told)} environments.")

    def _show(self, batch_obs: Any) -> None:
        """Lets new episodes begin where their first observation has it; elsewhere what is seen is what was observed last."""
        rollout, first = self._run.rollout, self._run.rollout.observation is None
        for i, (told, obs) in enumerate(zip(self._told, batch_obs, strict=True)):
            _check_finite(obs)
            told.shown = obs
            if not first and self._ended[i]:
                rollout.observation = self._run.vector.reset([i])
        self._ended[:] = False

    def _as_taken(self, action: np.ndarray) -> list[Any]:
        return list(self._run.vector._raw_actions(action))  # pyright: ignore[reportPrivateUsage] - what it would hand to each

    # ---- evaluation

    @contextmanager
    def eval_mode(self) -> Generator[None]:
        """Within it the agent acts greedily and learns nothing."""
        before, self.training = self.training, False
        self._greedy = self._greedy_memory = None
        try:
            yield
        finally:
            self.training = before

    def _act_greedily(self, batch_obs: Any) -> list[Any]:
        n = len(batch_obs)
        shown = VectorEnvironment([_Told(self._told[0]) for _ in range(n)])
        for told, obs in zip(shown.environments, batch_obs, strict=True):
            _check_finite(obs)
            told.shown = obs
        if self._greedy is None or self._greedy[1] != n:
            self._greedy = policy_of(self.algorithm.fitted).facing(shown.spec), n
            self._greedy_memory = self._greedy[0].start(n)
        self._greedy_memory, action = self._greedy[0].step(self._greedy_memory, shown.reset())
        return list(shown._raw_actions(np.asarray(action).reshape(n, *shown.spec.action.shape)))  # pyright: ignore[reportPrivateUsage]

    def _forget(self, ended: np.ndarray) -> None:
        """Lets a policy with a memory begin anew where an episode has ended."""
        if self._greedy_memory is not None and ended.any():
            policy, n = self._greedy
            self._greedy_memory = restarted(self._greedy_memory, policy.start(n), np.flatnonzero(ended).tolist())

    def stop_episode(self) -> None:
        """Ends what goes on: in `eval_mode` for a policy with a memory; else the episodes of training, which are cut."""
        if not self.training:
            self._greedy = self._greedy_memory = None
            return
        self._action = None
        self._run.rollout.cut(self._run.policy)
        self._ended[:] = True

    # ---- what is known, and kept

    def get_statistics(self) -> list[tuple[str, Any]]:
        """What was learned since the last call: PFRL's names where d3ray has the same, and then d3ray's own; and counts."""
        found = self._run.metrics()
        counts = [("n_updates", self.algorithm.step), ("t", self.t)]
        theirs = [(name, found[ours]) for name, ours in _STATISTICS.items() if ours in found]
        return [*theirs, *counts, *sorted(found.items())]

    def save(self, dirname: str | Path) -> None:
        """Keeps the algorithm, optimisers included; `d3ray.load` opens it too. Raises StorageError."""
        save(self.algorithm, dirname, overwrite=True)

    def load(self, dirname: str | Path) -> None:
        """Goes on with the weights that `save` kept. Raises StorageError, and ConfigError where they are another algorithm's."""
        kept = load(dirname, self.algorithm.device)
        if kept.name != self.algorithm.name:
            raise ConfigError(f"{dirname} holds a {kept.name}, and the agent is a {self.algorithm.name}.")
        learner = self.algorithm.fit_.learner
        try:
            learner.load_state(kept.state()[0], learner.step)
        except (KeyError, RuntimeError) as error:
            raise ConfigError(f"{dirname} holds a {kept.name} with other networks than the agent has.") from error


def _check_finite(obs: Any) -> None:
    parts = obs.values() if isinstance(obs, Mapping) else obs if isinstance(obs, tuple) else (obs,)
    for part in parts:
        if isinstance(part, Mapping | tuple):
            _check_finite(part)
        elif (array := as_array("An observation", part)).dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError("An observation is NaN or infinite: look at the environment's step.")
