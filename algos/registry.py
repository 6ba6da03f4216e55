"""Algorithms by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..data.errors import ConfigError, did_you_mean
from . import pages
from .pages import PAGES

if TYPE_CHECKING:
    from .base import Algorithm

_registered: dict[str, type[Algorithm]] = {}


def register_algorithm(algorithm: type[Algorithm]) -> type[Algorithm]:
    """Makes a user's own algorithm known under its class name; also a class decorator.

    Raises:
        ConfigError: the name is taken.
    """
    name = algorithm.__name__
    if name in PAGES or _registered.get(name, algorithm) is not algorithm:
        raise ConfigError(f"There is an algorithm {name!r} already: give yours another name.")
    _registered[name] = algorithm
    return algorithm


def algorithm_names() -> list[str]:
    """Every algorithm that there is, sorted."""
    return sorted([*PAGES, *_registered])


def algorithm_class(name: str) -> type[Algorithm]:
    """The class of a name. Raises ConfigError, naming the nearest."""
    if name in _registered:
        return _registered[name]
    if name not in PAGES:
        raise ConfigError(f"There is no algorithm {name!r}{did_you_mean(name, algorithm_names())}")
    return getattr(pages, name)


def make_algorithm(choice: Mapping[str, Any] | str, **run: Any) -> Algorithm:
    """An algorithm as a config names it: `{"name": "TD3PlusBC", "preset": "paper", "alpha": 2.5}`, settings checked at once.

    Args:
        choice: `name`, perhaps `preset`, and settings.
        **run: `seed`, `device`, `dtype`.

    Raises:
        ConfigError: the name, preset or a setting is unknown, or a value is out of range.
    """
    settings = {"name": choice} if isinstance(choice, str) else dict(choice)
    if "name" not in settings:
        raise ConfigError(f"An algorithm needs a name; choose from {', '.join(algorithm_names())}.")
    cls, preset = algorithm_class(settings.pop("name")), settings.pop("preset", None)
    algorithm = cls(**settings, **run) if preset is None else cls.from_preset(preset, **settings, **run)
    algorithm.check_settings()
    return algorithm
