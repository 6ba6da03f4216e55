"""Algorithms by the name that a config gives: d3ray's own, a user's, and RLlib's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ...algos.base import Algorithm
from ...algos.registry import algorithm_class, algorithm_names, online_names
from ...algos.registry import make_algorithm as make_own
from ...algos.spellings import did_you_mean_algorithm
from ...data.errors import ConfigError
from ..rllib.names import PREFIX, is_rllib, rllib_names


def subject_names() -> list[str]:
    """Every algorithm that a config may name, sorted."""
    return sorted([*algorithm_names(), *online_names(), *rllib_names()])


def check_name(name: str) -> None:
    """Raises ConfigError for a name that there is not, naming the nearest."""
    if name not in subject_names():
        of_rllib = PREFIX + name in rllib_names()
        meant = f"; did you mean {PREFIX + name!r}?" if of_rllib else did_you_mean_algorithm(name, subject_names())
        own = "" if "did you mean" in meant else " One of your own is named under plugins=[FILE]."
        raise ConfigError(f"There is no algorithm {name!r}{meant}{own}")
    if not is_rllib(name):
        algorithm_class(name)


def streams(settings: Mapping[str, Any]) -> bool:
    """Whether an algorithm with such settings reads its data as a stream, so that nodes need no map of them."""
    sampler = settings.get("sampler")
    return (sampler.get("name") if isinstance(sampler, Mapping) else sampler) == "stream"


def make_algorithm(choice: Mapping[str, Any], *, seed: int, device: str | None = None) -> Algorithm:
    """The algorithm that a config names, unfitted: RLlib's are shaped as d3ray's where trials use them.

    Raises:
        ConfigError: the name, preset or a setting is unknown, or a value is out of range.
    """
    settings = dict(choice)
    if "name" in settings:
        check_name(settings["name"])
    if not is_rllib(settings.get("name")):
        return make_own(settings, seed=seed, device=device)
    from ..rllib.algorithm import RllibAlgorithm  # who trains none of them does without gymnasium too

    return cast("Algorithm", RllibAlgorithm(settings.pop("name"), settings, seed=seed, device=device))
