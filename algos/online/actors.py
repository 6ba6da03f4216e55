"""Actors: environments that are stepped elsewhere, with a copy of the policy, while the learner learns.

Actors make rounds, of so many steps of each of their environments, by the weights that came with the asking. A round is asked for
before anything is learned from the one before it, so acting and learning overlap, and what acts is never older than two rounds;
an algorithm that learns from what its own policy just did asks once it has learned, and waits.

Who is asked, when, and with which weights follows from counts alone, never from who was faster. So a run with actors is as
repeatable as one without: each round comes with where its environments stand then, and an actor that died is made anew there and
asked for the same round, which is the same where the environments follow from their seeds and actions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from ...data.errors import ConfigError
from ...data.replay import ReplayBuffer
from ...data.spec import Environment, Spec, value_columns
from ..acting.fitted import policy as policy_of
from ..environments.explorers import Explorer
from ..environments.make import is_given, make
from ..environments.rollout import Rollout
from ..learning.estimator import Estimator
from ..learning.fit import Fit

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Weights:
    """All that an actor's copy of the policy lacks, at a gradient step.

    `tensors` are parameters and buffers by network and name, on the CPU; `observation_scaler` is as it is by then, for it may
    follow what was seen.
    """

    step: int
    tensors: dict[str, dict[str, torch.Tensor]]
    coefficients: dict[str, float]
    observation_scaler: Any

    @classmethod
    def of(cls, fit: Fit) -> Weights:
        learner = fit.learner
        tensors = {
            name: {key: tensor.detach().cpu().clone() for key, tensor in own.items()}
            for name, own in learner.acting_tensors().items()
        }
        coefficients = {name: row for name, (row,) in learner.values.items()}
        return cls(learner.step, tensors, coefficients, fit.config.observation_scaler)

    def into(self, fit: Fit) -> None:
        """Make a fit of the same algorithm act by them."""
        learner = fit.learner
        with torch.no_grad():
            mine = learner.acting_tensors()
            for name, tensors in self.tensors.items():
                for key, tensor in tensors.items():
                    mine[name][key].copy_(tensor)
        for name, value in self.coefficients.items():
            learner.set_hyper(name, [value])
        if self.observation_scaler is not None and self.observation_scaler.is_running:
            fit.scaling.follow(self.observation_scaler)


@dataclass(frozen=True)
class Standing:
    """The state of an actor's environments, as `Rollout.state` gives it."""

    arrays: Arrays
    told: dict[str, Any]


@dataclass(frozen=True)
class Round:
    """T steps of each of an actor's n environments.

    Attributes:
        columns: `observation` (or `observation/KEY`, and `action_mask`), `action`, `reward`, `terminated` and `truncated`,
            [T, n, ...].
        finals: What followed the actions with which episodes ended, in the order of steps, then of environments, by column.
        after: What the environments show at the end, [n, ...] by column.
        standing: Where they stand at the end.
        step: The gradient step of the weights that acted.
        lost: Environments whose episode could not be taken up again before this round, for an actor was replaced or a run resumed.
    """

    columns: Arrays
    finals: Arrays
    after: Arrays
    standing: Standing
    step: int
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Part:
    """An actor's share of the environments, and the unfitted algorithm on the CPU that acts there.

    `seed` is that of resets, the explorer and random actions; `explorer` and `random_steps` are `Rollout`'s; `steps` are T, of a
    round.
    """

    environment: str | Environment | Callable[[], Any]
    n_envs: int
    seed: int
    algorithm: Estimator
    config: Any
    spec: Spec
    explorer: Explorer
    random_steps: int
    steps: int


class Actor:
    """Acts in its share of the environments, in whichever process."""

    def __init__(self, part: Part) -> None:
        self.steps = part.steps
        self._fit = Fit(part.algorithm, part.config, part.spec, (part.seed,))
        self._vector = make(part.environment, part.n_envs, part.seed)
        shown = self._vector.spec
        self._policy = policy_of(self._fit).facing(shown)
        self._steps = _Noted(2 * part.n_envs * (part.steps + 1), shown, part.n_envs)
        self._rollout = Rollout(self._vector, self._steps, part.explorer, seed=part.seed, random_steps=part.random_steps)
        self._lost: tuple[int, ...] = ()

    def begin(self, standing: Standing | None) -> None:
        """Go on from where another stood; None: from the beginning."""
        if standing is not None:
            self._rollout.load_buffer(standing.arrays)
            with warnings.catch_warnings():  # whoever learns from it says so, where it is heard
                warnings.simplefilter("ignore")
                self._lost = tuple(self._rollout.load_state(standing.arrays, standing.told, self._policy))

    def act(self, weights: Weights) -> Round:
        """Make a round. Raises DataError as `Rollout.step`."""
        weights.into(self._fit)
        lost, self._lost = self._lost, ()
        self._steps.noted.clear()
        for _ in range(self.steps):
            self._rollout.step(self._policy)
        noted = self._steps.noted
        ended = [np.flatnonzero(step["terminated"] | step["truncated"]) for step in noted]
        finals = [value_columns(step.pop("final")) for step in noted]
        seen = [{**value_columns(step.pop("observation")), **step} for step in noted]
        self._rollout.metrics()  # the learner counts episodes itself
        return Round(
            {name: np.stack([step[name] for step in seen]) for name in seen[0]},
            {name: np.concatenate([f[name][rows] for f, rows in zip(finals, ended, strict=True)]) for name in finals[0]},
            value_columns(self._rollout.observation),
            Standing(*self._rollout.state()),
            weights.step,
            lost,
        )

    def close(self) -> None:
        self._vector.close()


class _Noted(ReplayBuffer):
    def __init__(self, capacity: int, spec: Spec, n_envs: int) -> None:
        super().__init__(capacity, spec, n_envs)
        self.noted: list[dict[str, Any]] = []

    def append(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        final_observation: Any | None = None,
        **extra: Any,
    ) -> None:
        super().append(observation, action, reward, terminated, truncated, final_observation, **extra)
        flat: Any = {"action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
        self.noted.append({"observation": observation, "final": final_observation, **flat})


class Group(Protocol):
    """Actors at work, by their places."""

    replaced: int
    """Actors that were made anew so far."""

    def begin(self, standings: Sequence[Standing | None]) -> None:
        """Let each go on from where it stood, before anything is asked."""
        ...

    def ask(self, weights: Weights) -> None:
        """Ask each for its next round, and do not wait."""
        ...

    def take(self) -> list[Round]:
        """Wait for the rounds that were asked for. Raises what an environment raised."""
        ...

    def close(self) -> None: ...


class Actors(Protocol):
    """A place of actors: what `fit_online` is given.

    Attributes:
        n: How many.
        steps: Of each environment in a round, where the algorithm leaves the choice.
    """

    n: int
    steps: int

    def open(self, parts: Sequence[Part]) -> Group: ...


@dataclass
class LocalActors:
    """Actors in this very process, one after another: what others must be equal to, and handy where something is looked for."""

    n: int = 1
    steps: int = 32

    def open(self, parts: Sequence[Part]) -> Group:
        return _LocalGroup([Actor(part) for part in parts])


@dataclass
class _LocalGroup:
    actors: list[Actor]
    replaced: int = 0
    _weights: Weights | None = field(default=None, init=False)

    def begin(self, standings: Sequence[Standing | None]) -> None:
        for actor, standing in zip(self.actors, standings, strict=True):
            actor.begin(standing)

    def ask(self, weights: Weights) -> None:
        self._weights = weights

    def take(self) -> list[Round]:
        assert self._weights is not None
        return [actor.act(self._weights) for actor in self.actors]

    def close(self) -> None:
        for actor in self.actors:
            actor.close()


def check_actors(actors: Actors, n_envs: int, environment: Any, record: Any) -> None:
    if record is not None:
        raise ConfigError("record looks at the environments before each step, and actors have them: leave one of the two out.")
    if actors.n < 1 or actors.steps < 1:
        raise ConfigError(f"There are {actors.n} actors with rounds of {actors.steps} steps; both must be positive.")
    if n_envs % actors.n:
        raise ConfigError(
            f"{n_envs} environments cannot be shared out evenly among {actors.n} actors: choose n_envs as a multiple of {actors.n}."
        )
    if is_given(environment):
        raise ConfigError("Actors make environments of their own: give an id, a config or a factory, not an object.")
