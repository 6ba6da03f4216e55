"""How acting departs from what a policy proposes, for n environments side by side.

Every draw is addressed by (seed, step), so an explorer keeps no state: a resumed run draws what an uninterrupted one would have
drawn. An explorer is a config with a name; `register_explorer` makes a user's own known under its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import AliasChoices, BeforeValidator, Field, SerializeAsAny

from ...data.config import Config, setting
from ...data.errors import ConfigError, did_you_mean
from ...data.masks import mask_of
from ...data.random import fold, normal, root_key, uniform
from ...data.spec import Box, Discrete, Leaf, as_recorded

BLOCK = 64  # steps whose numbers are drawn at once; changes no value, and makes the cost of a draw vanish
Deviation = Annotated[float, Field(ge=0)] | tuple[Annotated[float, Field(ge=0)], ...]
_DQN = "DQN (Mnih et al. 2015), extended data table 1"
_PFRL = "PFRL 0.4.0, explorers/"
_HALVES = "in halves of each entry's range; one number, or one an entry"


def _also(name: str, other: str) -> AliasChoices:
    """A setting that is also understood by the name that it has elsewhere."""
    return AliasChoices(name, other)


def random_actions(space: Leaf, n: int, *, step: int, seed: int, action_mask: np.ndarray | None = None) -> np.ndarray:
    """Uniform actions for n environments, of the types that datasets have; standard normal where a box has no bounds.

    int64 [n] for discrete, int64 [n, K] for multi-discrete, uint8 [n, N] for binary and float32 [n, *shape] for continuous ones.
    Discrete ones are among those that `action_mask`, bool [n, actions], says are legal; None: all.
    """
    if isinstance(space, Discrete) and action_mask is not None:
        at = (_uniform(seed, "random action", step, n) * action_mask.sum(1)).astype(np.int64)
        return space.start + (np.cumsum(action_mask, 1) <= at[:, None]).sum(1)  # the number `at` of those that are legal
    if isinstance(space, Discrete):
        return space.start + (_uniform(seed, "random action", step, n) * space.n).astype(np.int64)
    if not isinstance(space, Box):
        low, high = space.bounds()
        drawn = _uniform(seed, "random action", step, n * space.size).reshape(n, -1) * (high - low + 1)
        return (low + np.floor(drawn)).astype(space.dtype)
    shape, bounds = (n, *space.shape), _bounds(space)  # pyright: ignore[reportArgumentType]
    if bounds is None:
        return _normal(seed, "random action", step, n * space.size).reshape(shape).astype(np.float32)
    return (bounds.low + _uniform(seed, "random action", step, n * space.size).reshape(shape) * bounds.range).astype(np.float32)


class Explorer(Config):
    """Base of all.

    Attributes:
        name: What settings call it.
        departs_from: What `explore` is given: "action", the policy's own; "values", those of every discrete action, [n, A]; or
            "draw", a draw from a stochastic policy.
    """

    name: Any  # narrowed to a Literal by each
    departs_from: ClassVar[Literal["action", "values", "draw"]] = "action"

    def explore(
        self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Raw actions [n, ...].

        Args:
            proposed: Row i is environment i's, see `departs_from`. It is not written to.
            space: Of the actions.
            step: How many steps each environment has made.
            seed: Of the run.
            action_mask: Bool [n, actions]: which are legal, where the environment tells; what is not drawn among them must not be
                given. It is named in no call where there is none.

        Raises:
            ConfigError: it does not suit such actions.
        """
        raise NotImplementedError

    def explore_at(self, observation: Any, proposed: np.ndarray, space: Leaf, *, step: int, seed: int) -> np.ndarray:
        """Explore at observations, which may tell what is legal, from actions as a policy gives them."""
        proposed = as_recorded(space, proposed)
        if (mask := mask_of(observation)) is None:
            return self.explore(proposed, space, step=step, seed=seed)
        return self.explore(proposed, space, step=step, seed=seed, action_mask=mask)


class Greedy(Explorer):
    """The policy's own actions."""

    name: Literal["greedy"] = "greedy"

    def explore(
        self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        return proposed


class PolicyDraws(Explorer):
    """Draws from the policy itself, which has to be stochastic: how SAC explores."""

    name: Literal["policy"] = "policy"
    departs_from: ClassVar = "draw"

    def explore(
        self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        return proposed


# ---- some actions are replaced


class _EpsilonGreedy(Explorer):
    def compute_epsilon(self, step: int) -> float:
        raise NotImplementedError

    def explore(
        self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        wander = _uniform(seed, "epsilon greedy", step, len(proposed)) < self.compute_epsilon(step)
        if not wander.any():
            return proposed
        random = random_actions(space, len(proposed), step=step, seed=seed, action_mask=action_mask)
        return np.where(wander.reshape(-1, *[1] * (proposed.ndim - 1)), random, proposed)


class EpsilonGreedy(_EpsilonGreedy):
    """With probability ε a uniform action; ε falls linearly from `start` to `end` over `duration` steps and stays there.

    d3rlpy's `LinearDecayEpsilonGreedy`, with its defaults; `start_epsilon`, `end_epsilon` and PFRL's `decay_steps` are understood.
    """

    name: Literal["epsilon_greedy"] = "epsilon_greedy"
    start: float = setting(1.0, "ε of the first step", source=_DQN, ge=0, le=1, validation_alias=_also("start", "start_epsilon"))
    end: float = setting(0.1, "ε from `duration` on", source=_DQN, ge=0, le=1, validation_alias=_also("end", "end_epsilon"))
    duration: int = setting(
        1_000_000,
        "steps of each environment until `end`",
        source=_DQN,
        gt=0,
        validation_alias=_also("duration", "decay_steps"),
    )

    def compute_epsilon(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(step / self.duration, 1.0)


class ConstantEpsilonGreedy(_EpsilonGreedy):
    """With probability ε a uniform action."""

    name: Literal["constant_epsilon_greedy"] = "constant_epsilon_greedy"
    epsilon: float = setting(0.1, "ε", source="DQN's last one", ge=0, le=1)

    def compute_epsilon(self, step: int) -> float:
        return self.epsilon


class ExponentialEpsilonGreedy(_EpsilonGreedy):
    """With probability ε a uniform action; ε is start · decay^step, but not below `end`. PFRL's `ExponentialDecayEpsilonGreedy`."""

    name: Literal["exponential_epsilon_greedy"] = "exponential_epsilon_greedy"
    start: float = setting(1.0, "ε of the first step", source=_DQN, ge=0, le=1, validation_alias=_also("start", "start_epsilon"))
    end: float = setting(0.1, "ε does not fall below", source=_DQN, ge=0, le=1, validation_alias=_also("end", "end_epsilon"))
    decay: float = setting(0.99999, "factor of a step: ε halves in 69,000 steps, is 0.1 after 230,000", gt=0, lt=1)

    def compute_epsilon(self, step: int) -> float:
        return max(self.start * self.decay**step, self.end)


class Boltzmann(Explorer):
    """Discrete actions in proportion to exp(Q / T)."""

    name: Literal["boltzmann"] = "boltzmann"
    departs_from: ClassVar = "values"
    temperature: float = setting(
        1.0,
        "T, in units of scaled rewards: the smaller, the greedier",
        source=f"{_PFRL}boltzmann.py",
        gt=0,
        validation_alias=_also("temperature", "T"),
    )

    def explore(
        self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        if not isinstance(space, Discrete):
            raise ConfigError("The explorer 'boltzmann' needs discrete actions; did you mean 'gaussian'?")
        u = _uniform(seed, "boltzmann", step, proposed.size).reshape(proposed.shape)
        gumbel = proposed / self.temperature - np.log(-np.log(u))  # whose largest is a draw from a softmax
        return space.start + (gumbel if action_mask is None else np.where(action_mask, gumbel, -np.inf)).argmax(1)


# ---- noise is added


class _Additive(Explorer):
    """Continuous actions plus noise in halves of each entry's range, clipped to it.

    Where a range has no bounds, the unit of the noise is the action's own, and nothing is clipped.
    """

    def noise(self, shape: tuple[int, ...], *, step: int, seed: int) -> np.ndarray:
        raise NotImplementedError

    def explore(
        self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        if not isinstance(space, Box):
            raise ConfigError(f"The explorer {self.name!r} needs continuous actions; did you mean 'epsilon_greedy'?")
        noise = self.noise(proposed.shape, step=step, seed=seed)
        if (bounds := _bounds(space)) is None:  # pyright: ignore[reportArgumentType]
            return (proposed + noise).astype(proposed.dtype)
        return np.clip(proposed + noise * (bounds.range / 2), bounds.low, bounds.high).astype(proposed.dtype)


class GaussianNoise(_Additive):
    """Normal noise; its deviation may go in a straight line to `final_std` over `duration` steps.

    d3rlpy's `NormalNoise` and PFRL's `AdditiveGaussian`, whose `scale` is understood.
    """

    name: Literal["gaussian"] = "gaussian"
    std: Deviation = setting(
        0.1,
        f"standard deviation, {_HALVES}",
        source="TD3 (Fujimoto et al. 2018), appendix C",
        validation_alias=_also("std", "scale"),
    )
    mean: float = setting(0.0, "mean, in halves of each entry's range", source="d3rlpy 2.8.1, explorers.py")
    final_std: Deviation | None = setting(None, "deviation from `duration` on; None: `std` throughout")
    duration: int = setting(1_000_000, "steps of each environment until `final_std`", gt=0)

    def noise(self, shape: tuple[int, ...], *, step: int, seed: int) -> np.ndarray:
        std = np.asarray(self.std)
        if self.final_std is not None:
            std = std + (np.asarray(self.final_std) - std) * min(step / self.duration, 1.0)
        return self.mean + std * _normal(seed, "gaussian noise", step, math.prod(shape)).reshape(shape)


class OrnsteinUhlenbeck(_Additive):
    """Noise that is pulled back to μ: x ← x + θ (μ - x) + σ ε with ε ~ N(0, 1). PFRL's `AdditiveOU`.

    The process goes on through the ends of episodes, as in PFRL. It is a function of (seed, step): x is the sum of the ε so far,
    each weighted with (1 - θ)^age, of which those below 1e-12 are left out.
    """

    name: Literal["ornstein_uhlenbeck"] = "ornstein_uhlenbeck"
    mu: float = setting(0.0, "μ: what noise is pulled to, in halves of each entry's range", source=f"{_PFRL}additive_ou.py")
    theta: float = setting(0.15, "θ: how strongly", source=f"{_PFRL}additive_ou.py; DDPG (Lillicrap et al. 2016)", ge=1e-3, le=1)
    sigma: Deviation = setting(0.3, f"σ, {_HALVES}", source=f"{_PFRL}additive_ou.py; 0.2 in DDPG's paper")
    start_with_mu: bool = setting(
        False, "whether it starts at μ; else it is stationary throughout", source=f"{_PFRL}additive_ou.py"
    )

    def noise(self, shape: tuple[int, ...], *, step: int, seed: int) -> np.ndarray:
        block, at = divmod(step, BLOCK)
        return self.mu + np.asarray(self.sigma) * self._process(block, math.prod(shape), seed)[at].reshape(shape)

    @functools.lru_cache(maxsize=8)  # noqa: B019 - of a frozen config
    def _process(self, block: int, count: int, seed: int) -> np.ndarray:
        """[BLOCK, count] float64: the process of a block's steps with μ = 0 and σ = 1."""
        keep, first = 1 - self.theta, block * BLOCK
        reach = math.ceil(math.log(1e-12) / math.log(keep)) if keep else 0
        steps = torch.arange(first - reach, first + BLOCK)
        draws = normal(fold(fold(root_key(seed), "ornstein uhlenbeck"), steps), (count,), torch.float64).numpy()
        if self.start_with_mu:
            draws = np.where(steps.numpy()[:, None] > 0, draws, 0.0)
        x = (keep ** np.arange(reach, -1, -1.0)[:, None] * draws[: reach + 1]).sum(0)
        found = [x]
        for draw in draws[reach + 1 :]:
            found.append(keep * found[-1] + draw)
        return np.stack(found)


LinearDecayEpsilonGreedy, NormalNoise = EpsilonGreedy, GaussianNoise  # d3rlpy's names

_KNOWN: dict[str, type[Explorer]] = {
    str(known.model_fields["name"].default): known
    for known in (
        Greedy,
        PolicyDraws,
        EpsilonGreedy,
        ConstantEpsilonGreedy,
        ExponentialEpsilonGreedy,
        Boltzmann,
        GaussianNoise,
        OrnsteinUhlenbeck,
    )
}
E = TypeVar("E", bound=Explorer)


def register_explorer(explorer: type[E]) -> type[E]:
    """Makes a user's own explorer known under the default of its field `name`; also a class decorator.

    Raises:
        ConfigError: the name is taken.
    """
    name = str(explorer.model_fields["name"].default)
    if _KNOWN.get(name, explorer) is not explorer:
        raise ConfigError(f"There is an explorer {name!r} already: give yours another name.")
    _KNOWN[name] = explorer
    return explorer


def read_explorer(value: Any) -> Explorer:
    """An explorer from what settings say: itself, its name, or `{"name": "gaussian", "std": 0.2}`.

    Raises:
        ConfigError: there is no such explorer, or it has no such setting.
    """
    if isinstance(value, Explorer):
        return value
    settings = {"name": value} if isinstance(value, str) else value
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{type(value).__name__} is no explorer: give one of {', '.join(_KNOWN)}.")
    name = str(settings.get("name"))
    if name not in _KNOWN:
        raise ConfigError(f"There is no explorer {name!r}{did_you_mean(name, _KNOWN)}")
    return _KNOWN[name].checked(settings, title=f"The explorer {name!r}")


ExplorerSetting = Annotated[SerializeAsAny[Explorer], BeforeValidator(read_explorer)]


class _Bounds(NamedTuple):
    low: np.ndarray
    high: np.ndarray
    range: np.ndarray


@functools.lru_cache(maxsize=32)
def _bounds(space: Box) -> _Bounds | None:
    bounds = space.bounds()
    return None if bounds is None else _Bounds(*bounds, bounds[1] - bounds[0])


def _uniform(seed: int, purpose: str, step: int, count: int) -> np.ndarray:
    return _block(seed, purpose, step // BLOCK, count, gaussian=False)[step % BLOCK]


def _normal(seed: int, purpose: str, step: int, count: int) -> np.ndarray:
    return _block(seed, purpose, step // BLOCK, count, gaussian=True)[step % BLOCK]


@functools.lru_cache(maxsize=64)
def _block(seed: int, purpose: str, block: int, count: int, *, gaussian: bool) -> np.ndarray:
    """[BLOCK, count] float64 numbers of the block's steps; float64 so that floor(u · n) stays below n."""
    keys = fold(fold(root_key(seed), purpose), torch.arange(block * BLOCK, (block + 1) * BLOCK))
    return (normal if gaussian else uniform)(keys, (count,), torch.float64).numpy()
