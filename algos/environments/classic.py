"""Environments of classic gym (0.9 to 0.26), adapted by their shape: nothing here imports gym."""

from __future__ import annotations

import inspect
from typing import Any

from .spaces import kind_of


class ClassicEnvironment:
    """A classic gym environment that behaves as a gymnasium one.

    A step of four parts becomes one of five: done is truncated where the info says `TimeLimit.truncated`, else terminated.
    A reset that gives only an observation gets an empty info; where `reset` takes no seed, `seed()` is called first.

    gym 0.26 wraps every environment in a checker that asks for `np.bool8`, which NumPy 2 has not: the checker is taken out.
    """

    def __init__(self, environment: Any) -> None:
        self.environment = _without_checker(environment)
        self.observation_space, self.action_space = environment.observation_space, environment.action_space
        self.spec = getattr(environment, "spec", None)
        self._seeded_reset = _takes_seed(self.environment)

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Observation and info. Environments that can be seeded in neither way ignore the seed."""
        if seed is None or self._seeded_reset:
            shown = self.environment.reset() if seed is None else self.environment.reset(seed=seed)
        else:
            if hasattr(self.environment, "seed"):
                self.environment.seed(seed)
            shown = self.environment.reset()
        pair = isinstance(shown, tuple) and len(shown) == 2 and isinstance(shown[1], dict)
        # an observation may be a tuple of something and a dict itself, and then comes without an info
        return (
            shown
            if pair and not (kind_of(self.observation_space) == "Tuple" and self.observation_space.contains(shown))
            else (shown, {})
        )

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.environment.step(action)
        if len(result) == 5:
            observation, reward, terminated, truncated, info = result
            return observation, reward, bool(terminated), bool(truncated), info
        observation, reward, done, info = result
        truncated = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return observation, reward, bool(done) and not truncated, truncated, info

    def close(self) -> None:
        if hasattr(self.environment, "close"):
            self.environment.close()


def is_environment(thing: Any) -> bool:
    return not isinstance(thing, type) and all(hasattr(thing, n) for n in ("step", "reset", "observation_space", "action_space"))


def _without_checker(environment: Any) -> Any:
    if type(environment).__name__ == "PassiveEnvChecker":
        return _without_checker(environment.env)
    wrapper = environment
    while (inner := vars(wrapper).get("env")) is not None:
        if type(inner).__name__ == "PassiveEnvChecker":
            wrapper.env = inner.env
        else:
            wrapper = inner
    return environment


def _takes_seed(environment: Any) -> bool:
    """Tell whether `seed` can be handed to `reset` all the way down: a wrapper that takes **kwargs passes them on."""
    parameters = inspect.signature(environment.reset).parameters
    if "seed" in parameters:
        return True
    inner = getattr(environment, "env", None)
    return inner is not None and any(p.kind is p.VAR_KEYWORD for p in parameters.values()) and _takes_seed(inner)
