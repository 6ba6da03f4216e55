"""Kinds of algorithms that trials train, by the prefix of their names: d3ray's own have none, RLlib's are `rllib/PPO`.

Another package adds a kind by an entry point of the group `d3ray.subjects`: its name is the prefix, its value a `Kind` without
arguments. It is imported when a config names one of its algorithms, or when all names are listed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from ...algos.spellings import did_you_mean_algorithm
from ...data.errors import ConfigError

if TYPE_CHECKING:
    from ...algos.base import Algorithm
    from ...data.spec import Environment
    from ..places import Data

GROUP = "d3ray.subjects"
_OURS = {"": "own:Own", "rllib": "..rllib.kind:Rllib"}


class Experiment(Protocol):
    """The settings of an experiment that a kind looks at."""

    @property
    def algorithm(self) -> Any: ...
    @property
    def online(self) -> Any: ...
    @property
    def seeds(self) -> tuple[int, ...]: ...
    @property
    def n_steps(self) -> int: ...
    @property
    def n_steps_per_epoch(self) -> int: ...
    @property
    def resources(self) -> Any: ...
    @property
    def evaluation(self) -> Any: ...
    @property
    def checkpoint(self) -> Any: ...
    @property
    def sample(self) -> Any: ...


class Kind(Protocol):
    """Algorithms of one maker. What `make` gives has the attributes and methods of `algos.base.Algorithm` that trials use.

    Attributes:
        is_timed: Updates can be timed before training, by `--plan` and `resources.gpu=auto`.
        has_coefficients: Coefficients can change while a trial trains, as population based training asks.
        one_gpu: Why a trial uses one GPU at most, a clause; empty: it may use several.
    """

    is_timed: ClassVar[bool]
    has_coefficients: ClassVar[bool]
    one_gpu: ClassVar[str]

    def names(self) -> Collection[str]:
        """All its algorithms, with the prefix."""
        ...

    def online_names(self) -> Collection[str]:
        """Those that learn from what they do alone, so that a dataset is not needed."""
        ...

    def check_name(self, name: str) -> None:
        """Raises ConfigError where an algorithm of `names` cannot be had."""
        ...

    def settings_of(self, name: str) -> list[str]:
        """List the settings that a search may vary."""
        ...

    def make(self, settings: Mapping[str, Any], *, seed: int, device: str | None) -> Algorithm:
        """The algorithm, unfitted. Raises ConfigError."""
        ...

    def check(self, experiment: Experiment) -> None:
        """Raises ConfigError where an experiment asks for something that the kind does not do."""
        ...

    def check_data(self, algorithm: Algorithm, dataset: Data, place: str | Environment | None) -> None:
        """Raises ConfigError or DataError where an algorithm cannot learn from a dataset, or in an environment."""
        ...

    def why_not_longer(self, experiment: Experiment, first: int) -> str:
        """Why training begun for `first` steps cannot go on to the experiment's bit for bit, a clause; empty: it can."""
        ...

    def members(
        self, algorithm: Algorithm, seeds: Sequence[int], dataset: Data, place: str | Environment | None
    ) -> list[Any] | None:
        """Make what trains each seed, see `worker.in_turn.Member`; None: d3ray's own learner trains them as a stack."""
        ...

    def write_package(
        self, algorithm: Algorithm, folder: Path, dataset: Data, environment: str | Environment | None, run: str, holdout: float
    ) -> None:
        """Writes what a trained algorithm leaves. Raises ConfigError, StorageError."""
        ...

    def load(self, reached: Algorithm, folder: Path, device: str | None) -> Algorithm:
        """The algorithm of a kept checkpoint, where `reached` is what its trial has come to. Raises StorageError."""
        ...


@cache
def _kind(prefix: str) -> Kind | None:
    if prefix in _OURS:
        module, _, name = _OURS[prefix].partition(":")
        return cast("Kind", getattr(import_module(module if module[0] == "." else f".{module}", __package__), name)())
    found = next(iter(entry_points(group=GROUP, name=prefix)), None)
    try:
        return None if found is None else cast("Kind", found.load()())
    except Exception as error:
        raise ConfigError(f"The algorithms {prefix}/… cannot be imported: {type(error).__name__}: {error}.") from error


def kind_of(name: object) -> Kind:
    """The kind of an algorithm by its name; d3ray's own where there is no such prefix."""
    prefix = name.rpartition("/")[0] if isinstance(name, str) else ""
    found = _kind(prefix) or _kind("")
    assert found is not None
    return found


def subject_names() -> list[str]:
    """Every algorithm that a config may name, sorted; those of a package that cannot be imported are left out."""
    names: list[str] = []
    for prefix in dict.fromkeys([*_OURS, *(one.name for one in entry_points(group=GROUP))]):
        with suppress(ConfigError):
            names += kind_of(f"{prefix}/" if prefix else None).names()
    return sorted(names)


def is_online(name: object) -> bool:
    """Tells of an algorithm's name whether it learns from what it does alone, so that a dataset is not needed."""
    return name in kind_of(name).online_names()


def check_name(name: str) -> None:
    """Raises ConfigError for a name that there is not, naming the nearest."""
    kind = kind_of(name)
    if name not in kind.names():
        known = subject_names()
        prefixed = next((one for one in known if one.endswith(f"/{name}")), None)
        meant = f"; did you mean {prefixed!r}?" if prefixed else did_you_mean_algorithm(name, known)
        own = "" if "did you mean" in meant else " One of your own is named under plugins=[FILE]."
        raise ConfigError(f"There is no algorithm {name!r}{meant}{own}")
    kind.check_name(name)


def streams(settings: Mapping[str, Any]) -> bool:
    """Tells of an algorithm's settings whether it reads its data as a stream, so that nodes need no map of them."""
    sampler = settings.get("sampler")
    return (sampler.get("name") if isinstance(sampler, Mapping) else sampler) == "stream"


def make_algorithm(choice: Mapping[str, Any], *, seed: int, device: str | None = None) -> Algorithm:
    """The algorithm that a config names, unfitted.

    Raises:
        ConfigError: the name, preset or a setting is unknown, or a value is out of range.
    """
    if "name" in choice:
        check_name(choice["name"])
    return kind_of(choice.get("name")).make(choice, seed=seed, device=device)
