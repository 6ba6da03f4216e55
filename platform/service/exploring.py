"""Exploration with a known probability: what acts in a service departs from its policy so that its logs can be learned from.

    epsilon    P(a) = ε / |legal| + (1 - ε) 1[a = π(s)]                        discrete
    softmax    P(a) = exp(q(s, a) / T) / Σ_legal exp(q(s, b) / T)              discrete, of policies that know values
    gaussian   a_i ~ N(π_i(s), σ_i²) cut to [low_i, high_i], independent       continuous, bounded
               log p(a) = Σ_i [-z_i²/2 - log(2π)/2 - log σ_i - log(Φ(β_i) - Φ(α_i))],  z = (a - π)/σ, α and β those of the bounds

Every number is addressed by (seed, version, episode, step), so who asks again gets the same action with the same probability.
"""

from __future__ import annotations

import hashlib
import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field
from scipy.special import log_softmax, ndtr, ndtri

from ...data.config import Config, by_name, setting
from ...data.errors import ConfigError
from ...data.seeds import fold, integers, root_key
from ...data.spec import Box, Discrete, Spec

_FINE = 2**53  # numbers that a uniform draw is one of


class Exploration(Config):
    """Base of all: `propensities` are log probabilities, or log densities in units of raw actions; NaN where there is none."""

    name: Any
    title: ClassVar[str] = "explore"
    needs_values: ClassVar[bool] = False

    def check(self, spec: Spec, who: str, *, draws: bool) -> None:
        """Raises ConfigError where a policy's actions are of another kind, or it draws them itself (`draws`)."""

    def explore(
        self, proposed: np.ndarray, keys: list[int], spec: Spec, legal: np.ndarray | None, values: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions [n, ...], and the log probability of each [n], of proposed ones.

        Args:
            proposed: What the policy would do.
            keys: Of each row's numbers.
            spec: Of the policy.
            legal: Bool [n, actions], or None: all are.
            values: [n, actions], where `needs_values`.
        """
        raise NotImplementedError


class Greedy(Exploration):
    """The policy's own actions."""

    name: Literal["none"] = "none"

    def explore(
        self, proposed: np.ndarray, keys: list[int], spec: Spec, legal: np.ndarray | None, values: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        certain = not isinstance(spec.action, Box)  # one of finitely many, with probability 1; of continuous ones no density
        return proposed, np.full(len(proposed), 0.0 if certain else np.nan)


class EpsilonGreedy(Exploration):
    """A share of decisions is uniform among the legal actions."""

    name: Literal["epsilon"] = "epsilon"
    epsilon: float = setting(0.05, "ε: share of decisions that are uniform among legal actions", ge=0, le=1)

    def check(self, spec: Spec, who: str, *, draws: bool) -> None:
        _check_discrete(self.name, spec, who)
        _check_certain(self.name, who, draws=draws)

    def explore(
        self, proposed: np.ndarray, keys: list[int], spec: Spec, legal: np.ndarray | None, values: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        start, allowed = _allowed(spec, len(proposed), legal)
        u, which = np.array([uniforms(key, 2) for key in keys]).T
        count = allowed.sum(1)
        at = np.minimum((which * count).astype(np.int64), count - 1)
        random = start + (np.cumsum(allowed, 1) <= at[:, None]).sum(1)
        action = np.where(u < self.epsilon, random, proposed)
        return action, np.log(self.epsilon / count + (1 - self.epsilon) * (action == proposed))


class SoftmaxExploration(Exploration):
    """Actions drawn by their values."""

    name: Literal["softmax"] = "softmax"
    needs_values: ClassVar[bool] = True
    temperature: float = setting(1.0, "T, in units of values: the smaller, the greedier", gt=0)

    def check(self, spec: Spec, who: str, *, draws: bool) -> None:
        _check_discrete(self.name, spec, who)

    def explore(
        self, proposed: np.ndarray, keys: list[int], spec: Spec, legal: np.ndarray | None, values: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        assert values is not None
        start, allowed = _allowed(spec, len(proposed), legal)
        scores = np.where(allowed, values.astype(np.float64) / self.temperature, -np.inf)
        each = log_softmax(scores, 1)
        u = np.array([uniforms(key, 1) for key in keys])
        below = np.cumsum(np.exp(each), 1)
        last = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(1)  # where rounding leaves the sum below u
        chosen = np.minimum((below <= u * below[:, -1:]).sum(1), last)
        return start + chosen, each[np.arange(len(chosen)), chosen]


class GaussianExploration(Exploration):
    """Continuous actions with noise that keeps within the bounds."""

    name: Literal["gaussian"] = "gaussian"
    deviation: float = setting(0.1, "σ, in halves of each entry's range", gt=0)

    def check(self, spec: Spec, who: str, *, draws: bool) -> None:
        space, bounds = spec.action, spec.action.bounds()
        if not isinstance(space, Box):
            raise ConfigError(f"explore=gaussian is for continuous actions, and those of {who} are {spec.action_kind}.")
        if np.dtype(space.dtype).kind != "f" or bounds is None or not np.isfinite(bounds).all() or (bounds[0] >= bounds[1]).any():
            raise ConfigError(
                f"explore=gaussian draws within the bounds of actions, and those of {who} have none that enclose some."
            )
        _check_certain(self.name, who, draws=draws)

    def explore(
        self, proposed: np.ndarray, keys: list[int], spec: Spec, legal: np.ndarray | None, values: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        bounds = spec.action.bounds()
        assert bounds is not None
        dtype = np.dtype(proposed.dtype)
        low, high = (bound.reshape(-1) for bound in bounds)
        mean = np.clip(proposed.reshape(len(proposed), -1).astype(np.float64), low, high)
        sigma = self.deviation * (high - low) / 2
        first, last = ndtr((low - mean) / sigma), ndtr((high - mean) / sigma)
        u = np.array([uniforms(key, low.size) for key in keys])
        action = np.clip((mean + sigma * ndtri(first + u * (last - first))).astype(dtype), low.astype(dtype), high.astype(dtype))
        z = (action.astype(np.float64) - mean) / sigma
        density = -0.5 * z**2 - 0.5 * math.log(2 * math.pi) - np.log(sigma) - np.log(last - first)
        return action.reshape(proposed.shape), density.sum(1)


ExploreSetting = Annotated[
    Greedy | EpsilonGreedy | SoftmaxExploration | GaussianExploration,
    BeforeValidator(by_name("exploration", (Greedy, EpsilonGreedy, SoftmaxExploration, GaussianExploration))),
    Field(discriminator="name"),
]


def key_of(seed: int, version: str, episode: str, step: int) -> int:
    """Make the key of one decision's random numbers."""
    key = root_key(seed)
    for part in (version, episode):
        key = fold(key, int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest()))
    return fold(key, step)


def uniforms(key: int, count: int) -> list[float]:
    """Draw uniformly from (0, 1), open at both ends."""
    return [(number + 0.5) / _FINE for number in integers(key, count, _FINE)]


def share_of(episode: str) -> float:
    """Place an episode in [0, 1) by a hash of its key: the same wherever and whenever it is asked."""
    return int.from_bytes(hashlib.blake2b(episode.encode(), digest_size=8, person=b"canary").digest()) / 2**64


def _allowed(spec: Spec, n: int, legal: np.ndarray | None) -> tuple[int, np.ndarray]:
    assert isinstance(spec.action, Discrete)
    return spec.action.start, np.ones((n, spec.action.n), bool) if legal is None else legal


def _check_discrete(name: str, spec: Spec, who: str) -> None:
    if not spec.discrete:
        raise ConfigError(f"explore={name} is for discrete actions, and those of {who} are {spec.action_kind}.")


def _check_certain(name: str, who: str, *, draws: bool) -> None:
    if draws:
        raise ConfigError(f"{who} draws its actions with probabilities that nobody knows, so explore={name} could not say its own.")
