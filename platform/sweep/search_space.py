"""What a sweep searches, by dotted name, and how one configuration of it becomes a checked experiment.

    algorithm.alpha: {uniform: [1, 5]}            a setting of every algorithm that is trained
    algorithm.name: {choice: [TD3PlusBC, IQL]}    the algorithm itself; also algorithm.preset
    IQL.expectile: {uniform: [0.6, 0.95]}         a setting that is there where the algorithm is IQL
    dataset: {grid: [one, other]}                 also n_steps

A *configuration* is a dict of such names and values. `d3ray.platform.sweep.spaces` has the kinds of spaces.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from ...algos.spellings import known_as
from ...data.config import recorded
from ...data.errors import ConfigError, D3rayError, did_you_mean
from ..settings.config import AlgorithmChoice, ExperimentConfig
from ..subjects.kind import check_name, kind_of, subject_names
from .spaces import KINDS, Space, read_space

Configuration = dict[str, Any]
ALGORITHM, PRESET, DATASET = "algorithm.name", "algorithm.preset", "dataset"
_PLAIN = (DATASET, "n_steps")  # of an experiment, beside its algorithm's settings, that may be searched
_INSIDE = 0.381966  # somewhere within a range: what is right at both ends may be wrong there, as a fraction for a whole number


class SearchSpace:
    """The spaces of a sweep.

    Args:
        search: Spaces as they are written, by dotted name.
        algorithm: The experiment's, which counts where `algorithm.name` is not searched.

    Raises:
        ConfigError: there is none, or one is no space.
    """

    def __init__(self, search: Mapping[str, Any], algorithm: str) -> None:
        if not search:
            raise ConfigError("search names nothing; name a setting and its space, as algorithm.gamma: {uniform: [0.9, 0.999]}.")
        if isinstance(written := search.get("algorithm"), Mapping):
            raise ConfigError(
                f"search: names are dotted; write algorithm.{next(iter(written), 'gamma')}: … in place of algorithm: {{…}}."
            )
        found = {name: read_space(name, written) for name, written in search.items()}
        first = {ALGORITHM: found[ALGORITHM]} if ALGORITHM in found else {}
        self.spaces: dict[str, Space] = first | found  # the algorithm decides what else there is to draw
        self._algorithm = algorithm

    @property
    def algorithms(self) -> tuple[str, ...]:
        return (self._algorithm,) if ALGORITHM not in self.spaces else tuple(map(str, self.spaces[ALGORITHM].values or ()))

    @property
    def datasets(self) -> tuple[str, ...] | None:
        """Every dataset that may be drawn; None where they are not searched."""
        return None if DATASET not in self.spaces else tuple(map(str, self.spaces[DATASET].values or ()))

    @property
    def is_conditional(self) -> bool:
        """True if some configurations have names that others lack."""
        return len(self.algorithms) > 1 and not all(map(_is_for_all, self.spaces))

    def of(self, algorithm: str | None) -> list[str]:
        """The names that configurations of an algorithm have; None: of the experiment's own."""
        return [name for name in self.spaces if _is_for_all(name) or name.partition(".")[0] == (algorithm or self._algorithm)]

    def configuration(self, pick: Callable[[str, Space], Any], fixed: Mapping[str, Any] | None = None) -> Configuration:
        """One configuration: what is `fixed`, and `pick(name, space)` for all else that its algorithm has."""
        drawn: Configuration = {}
        for name, space in self.spaces.items():
            if name in self.of(drawn.get(ALGORITHM)):
                drawn[name] = fixed[name] if fixed and name in fixed else pick(name, space)
        return drawn

    def encoded(self, configuration: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, int | float] | None:
        """Encode the values that are not fixed for search libraries; None if one lies outside the space, as a preset may."""
        codes = {name: self.spaces[name].encoded(value) for name, value in configuration.items() if name not in fixed}
        return None if None in codes.values() else {name: code for name, code in codes.items() if code is not None}

    def grid_points(self) -> list[Configuration]:
        """Return the fixed values at each point of the grid; one empty configuration where nothing is a grid."""
        return list(self._combinations(lambda space: space.kind == "grid", {}))

    def combinations(self, fixed: Mapping[str, Any]) -> Iterator[Configuration]:
        """Every configuration at a point of the grid where `size` is finite; the last name changes fastest."""
        return self._combinations(lambda space: True, fixed)

    def _combinations(self, counts: Callable[[Space], bool], fixed: Mapping[str, Any]) -> Iterator[Configuration]:
        is_searched = ALGORITHM in self.spaces and counts(self.spaces[ALGORITHM]) and ALGORITHM not in fixed
        for algorithm in self.algorithms if is_searched else (fixed.get(ALGORITHM),):
            chosen = {} if algorithm is None else {ALGORITHM: algorithm}
            here = [name for name in self.of(algorithm) if name != ALGORITHM and counts(self.spaces[name])]
            for values in product(*((fixed[name],) if name in fixed else self.spaces[name].values or () for name in here)):
                yield chosen | dict(zip(here, values, strict=True))

    def size(self, fixed: Mapping[str, Any] | None = None) -> int | None:
        """How many configurations there are (at a point of the grid); None: no end of them."""
        fixed, total = fixed or {}, 0
        for algorithm in (fixed[ALGORITHM],) if ALGORITHM in fixed else self.algorithms:
            free = [self.spaces[name].values for name in self.of(algorithm) if name != ALGORITHM and name not in fixed]
            if None in free:
                return None
            total += math.prod(len(values or ()) for values in free)
        return total

    # ---- checks

    def check(self, config: ExperimentConfig) -> None:
        """Raises ConfigError for the first name that nothing has, and for the first value that cannot be used."""
        for name, space in self.spaces.items():
            if name in (DATASET, ALGORITHM) or name.endswith(".preset"):
                _check_words(name, space)
        for name in self.spaces:
            self._check_name(name)
        self._check_grids()
        for algorithm in self.algorithms:
            base = self.configuration(lambda _, space: space.at(0.0), {ALGORITHM: algorithm})
            applied(config, base)
            for name in base.keys() - {ALGORITHM, DATASET}:
                space = self.spaces[name]
                ends = (space.at(_INSIDE), space.values[-1] if space.values else space.high)
                for value in (space.values or ()) if space.is_choice else ends:
                    applied(config, {**base, name: value})

    def _check_name(self, name: str) -> None:
        head, dot, rest = name.partition(".")
        if name in (*_PLAIN, ALGORITHM, PRESET):
            return
        if head != "algorithm":
            meant = known_as(head, subject_names())
            near = [meant] if meant else difflib.get_close_matches(head, subject_names(), n=1)
            if dot and near and near[0] != head:
                raise ConfigError(f"search: {name}: there is no algorithm {head!r}; did you mean {near[0]!r}?")
            if not dot or not near:
                known = [*_PLAIN, ALGORITHM, PRESET, *(f"algorithm.{field}" for field in _fields(self.algorithms[0]))]
                raise ConfigError(f"search: there is nothing called {name!r} to search{_nearest(name, known)}")
            if head not in self.algorithms:
                searched = "has other values" if ALGORITHM in self.spaces else "is not searched"
                raise ConfigError(f"search: {name} is for {head}, which this sweep does not train: algorithm.name {searched}.")
            if f"algorithm.{rest}" in self.spaces:
                raise ConfigError(f"search: algorithm.{rest} and {name} are one setting of {head}; say one of them.")
        field, trained = rest.partition(".")[0], self.algorithms if head == "algorithm" else (head,)
        if lacking := next((one for one in trained if field not in _fields(one)), None):
            other = next((one for one in self.algorithms if field in _fields(one)), None)
            near = f"; for {other} alone write {other}.{rest}." if other else _nearest(field, _fields(lacking))
            raise ConfigError(f"search: {name}: {lacking} has no setting {field!r}{near}")

    def _check_grids(self) -> None:
        """Raises ConfigError for a grid below an algorithm that is drawn: whether its points exist would hang on the draw."""
        if ALGORITHM in self.spaces and self.spaces[ALGORITHM].kind == "choice" and len(self.algorithms) > 1:
            for name, other in self.spaces.items():
                if other.kind == "grid" and not _is_for_all(name):
                    raise ConfigError(f"search: {name} is a grid and algorithm.name a choice; make both a grid, or both a choice.")


def _is_for_all(name: str) -> bool:
    return name in _PLAIN or name.startswith("algorithm.")


def _check_words(name: str, space: Space) -> None:
    if not space.is_choice:
        raise ConfigError(f"search: {name} is a range of numbers; it needs choice or grid.")
    for value in space.values or ():
        if not isinstance(value, str) and not (value is None and name.endswith(".preset")):
            raise ConfigError(f"search: {name} has {value!r}, which is no name.")
        if name == ALGORITHM:
            try:
                check_name(str(value))
            except ConfigError as error:
                raise ConfigError(f"search: {name}: {error}") from None


def _fields(algorithm: str) -> list[str]:
    return kind_of(algorithm).settings_of(algorithm)


def _nearest(word: str, known: Iterable[str]) -> str:
    """Do as `did_you_mean`, without a list of fifty names."""
    return did_you_mean(word, difflib.get_close_matches(word, list(known), n=1))


def applied(config: ExperimentConfig, configuration: Mapping[str, Any]) -> ExperimentConfig:
    """The experiment with the values of a configuration.

    Raises:
        ConfigError: a value cannot be used; the sentence names it.
    """
    try:
        return _applied(config, configuration)
    except D3rayError as error:
        said = f"search: {error}"
        lists = [n for n, value in configuration.items() if isinstance(value, list | tuple) and n.rpartition(".")[2] in str(error)]
        meant = f" To choose among these, write {lists[0]}: {{choice: {list(configuration[lists[0]])}}}." if lists else ""
        raise ConfigError(said + meant) from None


def _applied(config: ExperimentConfig, configuration: Mapping[str, Any]) -> ExperimentConfig:
    document = {name: getattr(config, name) for name in ExperimentConfig.model_fields}
    algorithm = {"name": config.algorithm.name, "preset": config.algorithm.preset, **config.algorithm.settings}
    parts: Configuration = {}
    for name, value in configuration.items():
        if name in _PLAIN:
            document[name] = value
        elif "." in (rest := name.partition(".")[2]):
            parts[rest] = value
        else:
            algorithm[rest] = value
    chosen = config.model_copy(update={"algorithm": AlgorithmChoice.checked(algorithm, title="algorithm")})
    settings = chosen.make_algorithm(config.seeds[0]).check_settings().model_dump(mode="json")
    if parts:  # of settings: what is around them is what the algorithm would have
        for rest, value in parts.items():
            _put(settings, rest, value)
        algorithm |= {name: settings[name] for name in (rest.partition(".")[0] for rest in parts)}
    return ExperimentConfig.checked({**document, "algorithm": algorithm}, title="experiment")


def _put(settings: dict[str, Any], name: str, value: Any) -> None:
    *above, last = name.split(".")
    here: Any = settings
    for depth, part in enumerate(above):
        here = here.get(part)
        if not isinstance(here, dict):
            whole = ".".join(above[: depth + 1])
            meant = f"; write algorithm.{whole}: {{{last}: …}}." if last in KINDS else "."
            raise ConfigError(f"algorithm.{name}: {whole} is {here!r} and has no parts{meant}")
    if last not in here:
        raise ConfigError(f"algorithm.{name}: {'.'.join(above)} has no setting {last!r}{did_you_mean(last, here)}")
    here[last] = value


def current(config: ExperimentConfig, names: Iterable[str]) -> Configuration:
    """Return an experiment's values for a configuration's names."""
    checked = config.sample.check_settings()
    settings = {**recorded(checked), **checked.model_dump(mode="json")}  # also by the names that settings had once
    found: Configuration = {}
    for name in names:
        rest = name.partition(".")[2]
        if name in _PLAIN:
            found[name] = getattr(config, name)
        elif rest in ("name", "preset"):
            found[name] = getattr(config.algorithm, rest)
        else:
            here: Any = settings
            for part in rest.split("."):
                here = here[part]
            found[name] = here
    return found
