"""Environments from what a person writes: a gymnasium id, a config, a factory, or an environment object."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Callable
from typing import Any, cast

import gymnasium

from ...data.errors import ConfigError
from ...data.spec import Environment
from .atari import AtariGame
from .classic import ClassicEnvironment, is_environment
from .display import seen
from .goals import GoalObservation
from .ogbench import known_names
from .packages import extra_of, missing_extra, register, wrapped
from .spaces import spec_of
from .vector import VectorEnvironment

__all__ = ["AnyEnvironment", "environment_of", "is_given", "make", "spec_of"]

AnyEnvironment = Environment | str | gymnasium.Env[Any, Any] | Callable[[], Any]


def make(
    environment: AnyEnvironment | VectorEnvironment, n: int = 1, seed: int | None = None, *, evaluating: bool = False
) -> VectorEnvironment:
    """Environments, to be stepped as one.

    Args:
        environment: A gymnasium id; an `Environment` with keyword arguments; a factory without arguments; or an environment object
            of gymnasium or of classic gym (adapted by its shape, see `ClassicEnvironment`). A `VectorEnvironment` comes back as it
            is, whatever n and seed say.
        n: How many. An object can only be one.
        seed: See `VectorEnvironment`.
        evaluating: Whether policies are to be scored there: an Atari game then ends when it is over, not with a life.

    Raises:
        ConfigError: the id is unknown (the nearest known one is named), its package is missing, the keyword arguments do not fit,
            or n copies are asked of one object.
    """
    if isinstance(environment, VectorEnvironment):
        return environment
    if isinstance(environment, str):
        environment = Environment(id=environment)
    if isinstance(environment, Environment):
        config = environment
        return VectorEnvironment([_by_id(config, evaluating=evaluating) for _ in range(n)], seed)
    if is_environment(environment):
        if n != 1:
            raise ConfigError(f"{n} environments were asked for and one object was given: give an id or a factory.")
        return VectorEnvironment([_adapted(environment)], seed)
    if not callable(environment):
        raise ConfigError(f"{environment!r} is no environment: give a gymnasium id, a config, a factory or an environment object.")
    made = [environment() for _ in range(n)]
    if not all(map(is_environment, made)):
        raise ConfigError(
            f"The factory {getattr(environment, '__name__', environment)!r} made no environment: it has no reset, step or spaces."
        )
    return VectorEnvironment(list(map(_adapted, made)), seed)


def is_given(environment: Any) -> bool:
    """Tell whether `make` makes nothing of it, so that it stays open, being the caller's."""
    return isinstance(environment, VectorEnvironment) or is_environment(environment)


def environment_of(environment: Any) -> Environment | None:
    """The config that makes an environment again, or None where an id does not: the user's own class or wrappers, classic gym.

    Args:
        environment: As for `make`, or one environment of a `VectorEnvironment`.
    """
    if isinstance(environment, str):
        return Environment(id=environment)
    if isinstance(environment, Environment):
        return environment
    if isinstance(environment, AtariGame | GoalObservation):
        return environment.config
    spec = environment.spec if isinstance(environment, gymnasium.Env) else None  # classic gym's CartPole is not gymnasium's
    if spec is None or spec.id not in gymnasium.registry or spec.additional_wrappers:
        return None
    registered = gymnasium.registry[spec.id]
    kwargs = {k: v for k, v in spec.kwargs.items() if k != "render_mode"}
    if spec.max_episode_steps != registered.max_episode_steps:
        kwargs["max_episode_steps"] = spec.max_episode_steps
    try:
        json.dumps(kwargs)
    except TypeError:  # an object among the arguments: a config cannot hold it
        return None
    known = registered.kwargs
    return Environment(id=spec.id, kwargs={k: v for k, v in kwargs.items() if k not in known or known[k] != v})


def _adapted(environment: Any) -> Any:
    return environment if isinstance(environment, gymnasium.Env) else ClassicEnvironment(environment)


def _by_id(environment: Environment, *, evaluating: bool) -> Any:
    name = environment.id
    if ":" in name:  # gymnasium would import the module; ids come out of dataset files, which must not choose what is imported
        raise ConfigError(
            f"{name!r} names a module: import it first (or list it under plugins) and write {name.split(':', 1)[1]!r}."
        )
    try:
        name = register(name)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*out of date")  # v4 is what the literature's scores are compared with
            warnings.filterwarnings("ignore", message=".*(precision lowered|DISPLAY)")  # OGBench's float64 bounds, and glfw
            if environment.atari is not None:
                return AtariGame(environment, evaluating=evaluating)
            with seen(name):
                made = wrapped(name, gymnasium.make(name, disable_env_checker=True, **cast("dict[str, Any]", environment.kwargs)))
                made.observation_space  # noqa: B018 - which an arm draws, to know it
            return GoalObservation(made, environment) if environment.goals else made
    except gymnasium.error.UnregisteredEnv as error:
        if extra := missing_extra(name):
            raise ConfigError(f"{name} needs a package that is missing: pip install 'd3ray[{extra}]' brings it.") from error
        raise ConfigError(f"gymnasium knows no environment {name!r}{_nearest(name)}") from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        extra, why = extra_of(name), str(error).rstrip(".")
        if extra and "moved" not in why:  # else the advice is gymnasium's own, as to what was taken out of it
            why = f"{why.partition(',')[0]}; pip install 'd3ray[{extra}]' brings it"
        raise ConfigError(f"{name} needs a package that is missing: {why}.") from error
    except gymnasium.error.DeprecatedEnv as error:
        raise ConfigError(f"gymnasium has {name!r} no longer{_nearest(name)}") from error
    except gymnasium.error.Error as error:  # such as an id that is none
        raise ConfigError(f"gymnasium cannot make {name!r}: {str(error).splitlines()[0].rstrip('.')}.") from error
    except TypeError as error:
        raise ConfigError(f"{name} does not take {environment.kwargs}: {error}.") from error


def _nearest(name: str) -> str:
    known_names(name)
    known = {spec.lower(): spec for spec in gymnasium.registry}
    if near := difflib.get_close_matches(name.lower(), sorted(known, reverse=True), n=1, cutoff=0.5):
        return f"; did you mean {known[near[0]]!r}?"
    return "; gymnasium.pprint_registry() shows those that are there."
