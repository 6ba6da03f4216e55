"""Algorithms by name. What stands above fills it: `d3ray.algos` with d3ray's own pages, a user with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..data.errors import ConfigError, DataError
from .spellings import did_you_mean_algorithm

Kind = TypeVar("Kind", bound=type[Any])
_ours: dict[str, Callable[[str], type[Any]]] = {}
_registered: dict[str, type[Any]] = {}
_foreign: list[Callable[[Path, Any], Any]] = []  # what reads other programs' files
_online = set[str]()  # of ours, those that learn from what they do alone


def offer(names: Iterable[str], load: Callable[[str], type[Any]], online: Iterable[str] = ()) -> None:
    """Makes d3ray's own algorithms known by their names, which `load` brings once they are asked for.

    Those that `online` names learn from what they do alone, so that data are of no use to them.
    """
    _ours.update(dict.fromkeys(names, load))
    _online.update(online)


def register_algorithm(algorithm: Kind) -> Kind:
    """Makes a user's own algorithm known under its class name; also a class decorator.

    Raises:
        ConfigError: the name is taken.
    """
    name = algorithm.__name__
    if name in _ours or _registered.get(name, algorithm) is not algorithm:
        raise ConfigError(f"There is an algorithm {name!r} already: give yours another name.")
    _registered[name] = algorithm
    return algorithm


def read_foreign_by(read: Callable[[Path, Any], Any]) -> None:
    """Has files that another program saved be read as algorithms by a function of (path, device)."""
    _foreign[:] = [read]


def read_foreign(path: Path, device: Any) -> Any:
    """The algorithm that another program saved as one file. Raises DataError where none can be read."""
    if not _foreign:
        raise DataError(f"{path} is no folder that d3ray saved.")
    return _foreign[0](path, device)


def algorithm_names() -> list[str]:
    """Every algorithm that learns from data, sorted: what experiments train."""
    return sorted([*(_ours.keys() - _online), *_registered])


def online_names() -> list[str]:
    """Every algorithm that learns from what it does alone, sorted: what `fit_online` trains."""
    return sorted(_online)


def algorithm_class(name: str) -> type[Any]:
    """The class of a name, a `base.Algorithm`. Raises ConfigError, naming the nearest."""
    if name in _registered:
        return _registered[name]
    if name not in _ours:
        raise ConfigError(f"There is no algorithm {name!r}{did_you_mean_algorithm(name, [*algorithm_names(), *_online])}")
    return _ours[name](name)


def make_algorithm(choice: Mapping[str, Any] | str, **run: Any) -> Any:
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
