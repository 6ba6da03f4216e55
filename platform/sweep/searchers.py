"""Who proposes configurations. A searcher keeps nothing: what it says follows from seed, number and what became of earlier ones.

So a sweep that was killed asks the same questions again, and gets the same answers:

    random   number n follows from (seed, n) alone
    qmc      number n is the n-th point of a scrambled Sobol sequence
    grid     number n is the n-th combination, the last name changing fastest
    optuna   a sampler of Optuna's, seeded by (seed, n), told all of the history; settings that are there for one algorithm only are
             drawn after the algorithm (define by run)
    others   Ray's, by its name there or a dotted path: made anew for each question and led through the history first

Values that are a grid take turns: with G points of the grid, number n belongs to point n mod G, which is searched by itself: it is
told nothing of other points, and its first configurations are the same as theirs, so that points compare.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import torch
from pydantic import ConfigDict, model_validator

from ...data.config import Config, setting
from ...data.errors import ConfigError, did_you_mean, reason
from ...data.random import bits, fold, root_key, uniform
from ..settings.config import ExperimentConfig
from ..settings.objective import Mode
from .search_space import ALGORITHM, PRESET, Configuration, SearchSpace, applied, current
from .spaces import Space

BLIND = ("random", "qmc", "grid")
_OF_RAY = ("ax", "bayesopt", "bohb", "hebo", "hyperopt", "nevergrad", "zoopt")
_SAMPLERS = ("TPE", "GP")  # of Optuna's those that decide by results alone; others keep notes in a study of their own
_SEED_NAMES = ("random_state_seed", "random_state", "seed")  # what searchers call theirs
_SHUFFLED = 100_000  # combinations that are put in a random order; of more, draws hardly meet


class SearcherConfig(Config):
    """A searcher by name, and its own settings beside it. `searcher: optuna` is short for its name."""

    model_config = ConfigDict(extra="allow")
    title: ClassVar[str] = "searcher"
    shorthand: ClassVar[str] = "name"

    name: str = setting(
        "random",
        f"who proposes configurations: {', '.join(BLIND)}, optuna, or one of Ray Tune's by name or dotted path, as hyperopt",
    )
    seed: int = setting(0, "of what it draws", ge=0)
    max_concurrent: int | None = setting(
        None, "most trials at a time, for a searcher that is to learn from each; null: as many as fit", gt=0
    )
    start: tuple[str, ...] = setting((), "presets tried first, as [paper]; config stands for the settings of this file")

    @model_validator(mode="after")
    def _check(self) -> SearcherConfig:
        if self.is_blind:
            _check_settings(self.name, self.settings, ("seed", "start", "max_concurrent"))
        elif "." not in self.name and self.name not in ("optuna", *_OF_RAY):  # nothing is imported before it is to search
            near = did_you_mean(self.name, (*BLIND, "optuna", *_OF_RAY))
            raise ConfigError(f"searcher: there is no searcher {self.name!r}{near}")
        return self

    @property
    def is_blind(self) -> bool:
        """True if proposals depend on the number alone, not on results of earlier configurations."""
        return self.name in BLIND

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


@dataclass(frozen=True)
class Past:
    """A configuration that was proposed before."""

    number: int
    configuration: Mapping[str, Any]
    ended: Literal["finished", "stopped", "failed"] | None = None  # None: still to come
    value: float | None = None  # its objective
    step: int = 0  # at which it was measured

    def is_of(self, other: Past) -> bool:
        return (self.number, self.configuration) == (other.number, other.configuration)


class Searcher(Protocol):
    """Interface of searchers. `end` is the number from which on there is nothing to propose; None: there is no end."""

    end: int | None

    def suggest(self, n: int, history: Sequence[Past]) -> Configuration | None:
        """Configuration `n`, from 0, after all that was proposed before, in order; None: this number has none, a later one may."""
        ...


class Listed:
    """Configurations that are known, in order."""

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        self._all = configurations
        self.end: int | None = len(configurations)

    def suggest(self, n: int, history: Sequence[Past]) -> Configuration | None:
        return dict(self._all[n]) if n < len(self._all) else None


class Drawn:
    """Values at numbers in [0, 1), which `number` gives by name and number of the configuration."""

    def __init__(
        self, space: SearchSpace, fixed: Mapping[str, Any], number: Callable[[str, int], float], *, end: int | None
    ) -> None:
        self._space, self._fixed, self._number, self.end = space, fixed, number, end

    def suggest(self, n: int, history: Sequence[Past]) -> Configuration | None:
        return self._space.configuration(lambda name, space: space.at(self._number(name, n)), self._fixed)


def _grid(space: SearchSpace) -> Searcher:
    if endless := next((name for name, one in space.spaces.items() if one.values is None), None):
        raise ConfigError(f"searcher grid: {endless} has no end of values; give it a step, choice or grid, or say searcher=random.")
    return Listed(list(space.combinations({})))


def _random(space: SearchSpace, seed: int, fixed: Mapping[str, Any]) -> Searcher:
    """Independent draws; where everything has an end, all combinations in a random order, so that none comes twice."""
    key, size = _key(seed), space.size(fixed)
    if size is not None and size <= _SHUFFLED:
        listed = list(space.combinations(fixed))
        return Listed([listed[i] for i in torch.argsort(bits(fold(key, "order"), size)).tolist()])
    return Drawn(space, fixed, lambda name, n: float(uniform(fold(fold(key, name), n), (1,), torch.float64)), end=size)


def _qmc(space: SearchSpace, seed: int, fixed: Mapping[str, Any]) -> Searcher:
    from scipy.stats.qmc import Sobol

    names = [name for name in space.spaces if name not in fixed]

    def number(name: str, n: int) -> float:
        sequence = Sobol(len(names), rng=_seed(seed, 0))
        return float((sequence.fast_forward(n) if n else sequence).random(1)[0, names.index(name)])

    return Drawn(space, fixed, number, end=None)  # of few combinations points come twice, and are left out


class Optuna:
    """A sampler of Optuna's. `settings` are its name, as `sampler: GP`, and those of its class in `optuna.samplers`."""

    end: int | None = None

    def __init__(self, space: SearchSpace, seed: int, mode: Mode, settings: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        try:
            import optuna
        except ImportError:
            raise ConfigError("The searcher optuna needs Optuna: pip install 'd3ray[search]'.") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._space, self._fixed, self._seed, self._mode = optuna, space, fixed, seed, mode
        self._settings = dict(settings)
        if (sampler := self._settings.pop("sampler", "TPE")) not in _SAMPLERS:
            raise ConfigError(
                f"searcher optuna: sampler is {sampler!r}; choose from {', '.join(_SAMPLERS)}: these follow from results alone."
            )
        self._class = getattr(optuna.samplers, f"{sampler}Sampler")
        _check_settings("optuna", self._settings, ["sampler", *_settings_of(self._class)])
        if "constant_liar" in _settings_of(self._class):  # what still runs is avoided
            self._settings = {"constant_liar": True, **self._settings}
        self._begin()

    def _sampler(self, n: int) -> Any:
        try:
            with warnings.catch_warnings(action="ignore", category=self._optuna.exceptions.ExperimentalWarning):
                return self._class(seed=_seed(self._seed, n), **self._settings)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"searcher optuna: {reason(error)}.") from None

    def suggest(self, n: int, history: Sequence[Past]) -> Configuration | None:
        self._hear(history)
        self._study.sampler = self._sampler(n)
        trial = self._study.ask()

        def pick(name: str, space: Space) -> Any:
            kind = self._distribution(space)
            if space.values is None:
                return trial.suggest_float(name, kind.low, kind.high, log=kind.log)
            if space.is_choice:
                return space.decoded(trial.suggest_categorical(name, kind.choices))
            return space.decoded(trial.suggest_int(name, kind.low, kind.high))

        found = self._space.configuration(pick, self._fixed)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # nothing is learned of it, nor of that it was asked
        return found

    def _distribution(self, space: Space) -> Any:
        kinds = self._optuna.distributions
        if space.values is None:
            return kinds.FloatDistribution(space.low, space.high, log=space.kind == "loguniform")
        n = len(space.values)
        return kinds.CategoricalDistribution(range(n)) if space.is_choice else kinds.IntDistribution(0, n - 1)

    def _begin(self) -> None:
        self._storage = self._optuna.storages.InMemoryStorage()
        self._study = self._optuna.create_study(direction=f"{self._mode}imize", storage=self._storage, sampler=self._sampler(0))
        self._heard: list[tuple[Past, int | None]] = []  # the history that it was told, each with its trial there

    def _hear(self, history: Sequence[Past]) -> None:
        """Tells the study what is new: a question that told it thousands again would take a second.

        It has trials in the order of the history, as if all were told at once; of those it has only what ran may change.
        """
        both = zip(self._heard, history, strict=False)
        if len(self._heard) > len(history) or any(was != now and (was.ended or not was.is_of(now)) for (was, _), now in both):
            self._begin()  # in a sweep never: what has ended stays as it is
        for k, past in enumerate(history):
            if k == len(self._heard):
                self._heard.append((replace(past, ended=None), self._running(past)))
            was, trial = self._heard[k]
            if trial is not None and past.ended and not was.ended:
                self._end(trial, past)
            self._heard[k] = past, trial

    def _running(self, past: Past) -> int | None:
        """A trial that has begun; None where it lies outside the spaces, as a preset may."""
        if (codes := self._space.encoded(past.configuration, self._fixed)) is None:
            return None
        distributions = {name: self._distribution(self._space.spaces[name]) for name in codes}
        state = self._optuna.trial.TrialState.RUNNING
        trial = self._optuna.trial.create_trial(params=codes, distributions=distributions, state=state)
        return self._storage.create_new_trial(self._storage.get_study_id_from_name(self._study.study_name), trial)

    def _end(self, trial: int, past: Past) -> None:
        states, value = self._optuna.trial.TrialState, past.value
        if past.ended == "stopped" and value is not None:
            self._storage.set_trial_intermediate_value(trial, past.step, value)
        if past.ended == "finished" and value is not None:
            self._storage.set_trial_state_values(trial, states.COMPLETE, [value])
        else:
            self._storage.set_trial_state_values(trial, states.PRUNED if past.ended == "stopped" else states.FAIL)


class FromRay:
    """A searcher of Ray Tune's, or one written for it. `settings` are those of its class."""

    end: int | None = None

    def __init__(
        self, name: str, space: SearchSpace, seed: int, mode: Mode, settings: Mapping[str, Any], fixed: Mapping[str, Any]
    ) -> None:
        from ray import tune

        self._name, self._space, self._seed, self._mode, self._settings, self._fixed = name, space, seed, mode, settings, fixed
        if space.is_conditional and ALGORITHM not in fixed:
            raise ConfigError(
                f"searcher {name}: settings of one algorithm only are for {', '.join(BLIND)} and optuna; choose of those."
            )
        self._class = _class_of_ray(name)
        _check_settings(name, settings, _settings_of(self._class))
        self._domains: dict[str, Any] = {}
        for key in space.configuration(lambda _, one: one.at(0.0), fixed):  # in the order of the search, which libraries keep
            if key in fixed:
                continue
            one = space.spaces[key]
            if one.values is None:
                self._domains[key] = (tune.loguniform if one.kind == "loguniform" else tune.uniform)(one.low, one.high)
            else:
                self._domains[key] = (
                    tune.choice(list(range(len(one.values)))) if one.is_choice else tune.randint(0, len(one.values))
                )
        self._made(0, [])

    def _made(self, n: int, points: list[dict[str, Any]]) -> Any:
        try:
            seeds = {name: _seed(self._seed, n) for name in inspect.signature(self._class).parameters if name in _SEED_NAMES}
            told = {"points_to_evaluate": points} if points else {}
            searcher = self._class(**told, **seeds, **self._settings)
            searcher.set_search_properties("objective", self._mode, dict(self._domains))
            return searcher
        except Exception as error:  # whatever a library says of a space or a setting, or of not being there
            raise ConfigError(f"searcher {self._name}: {reason(error)}.") from None

    def suggest(self, n: int, history: Sequence[Past]) -> Configuration | None:
        """Propose after replaying the history: the first questions are answered with what was proposed then."""
        encoded = [(past, self._space.encoded(past.configuration, self._fixed)) for past in history]
        told = [(past, point) for past, point in encoded if point is not None]
        searcher = self._made(n, [point for _, point in told])
        for past, _ in told:
            searcher.suggest(str(past.number))
        for past, _ in told:
            if past.ended is not None:
                result = None if past.value is None else {"objective": past.value}
                searcher.on_trial_complete(str(past.number), result=result, error=result is None)
        answer = searcher.suggest("new")
        if not isinstance(answer, dict):
            raise ConfigError(f"searcher {self._name}: it has nothing to propose after {len(told)} configurations.")
        return self._space.configuration(lambda name, space: space.decoded(answer[name]), self._fixed)


class TurnByTurn:
    """The points of a grid in turn: presets first, then what a searcher of the point's own says."""

    def __init__(
        self, points: Sequence[Configuration], starts: Sequence[Sequence[Configuration]], searchers: Sequence[Searcher]
    ) -> None:
        self._points, self._starts, self._searchers = points, starts, searchers
        ends = [None if one.end is None else one.end + len(start) for one, start in zip(searchers, starts, strict=True)]
        known = [end for end in ends if end is not None]
        self.end: int | None = len(points) * max(known) if len(known) == len(ends) else None

    def suggest(self, n: int, history: Sequence[Past]) -> Configuration | None:
        """Configuration n // G of point n mod G."""
        which, k = n % len(self._points), n // len(self._points)
        start, point = self._starts[which], self._points[which]
        if k < len(start):
            return dict(start[k])
        own = [past for past in history if all(past.configuration.get(name) == value for name, value in point.items())]
        return self._searchers[which].suggest(k - len(start), own)


def make_searcher(asked: SearcherConfig, space: SearchSpace, config: ExperimentConfig, mode: Mode) -> Searcher:
    """The searcher of a sweep.

    Raises:
        ConfigError: it is not installed, it cannot search these spaces, or no algorithm has a preset that it is to start with.
    """

    def make(point: Configuration) -> Searcher:
        match asked.name:
            case "grid":
                return _grid(space)
            case "random":
                return _random(space, asked.seed, point)
            case "qmc":
                return _qmc(space, asked.seed, point)
            case "optuna":
                return Optuna(space, asked.seed, mode, asked.settings, point)
            case name:
                return FromRay(name, space, asked.seed, mode, asked.settings, point)

    points = [{}] if asked.name == "grid" else space.grid_points()
    return TurnByTurn(points, [_starts(asked.start, space, config, point) for point in points], [make(point) for point in points])


def _starts(names: Sequence[str], space: SearchSpace, config: ExperimentConfig, point: Configuration) -> list[Configuration]:
    """The configurations of presets, one for each algorithm that has it; what is searched may lie outside its space there."""
    known = {algorithm: list(applied(config, {ALGORITHM: algorithm}).sample.presets) for algorithm in space.algorithms}
    found: list[Configuration] = []
    for name in names:
        if name != "config" and not any(name in presets for presets in known.values()):
            there = ["config", *dict.fromkeys(preset for presets in known.values() for preset in presets)]
            raise ConfigError(f"searcher.start: no algorithm of this sweep has a preset {name!r}{did_you_mean(name, there)}")
        for algorithm in space.algorithms:
            if point.get(ALGORITHM, algorithm) == algorithm and (name == "config" or name in known[algorithm]):
                chosen = {ALGORITHM: algorithm} if name == "config" else {ALGORITHM: algorithm, PRESET: name}
                there = applied(config, chosen)
                fixed = {**point, **{key: value for key, value in chosen.items() if key in space.spaces}}
                found.append(space.configuration(lambda key, _, there=there: current(there, [key])[key], fixed))
    return found


def _key(seed: int) -> torch.Tensor:
    return fold(root_key(seed), "search")


def _seed(seed: int, n: int) -> int:
    """A seed for question n of a library that wants one below 2³¹."""
    return int(bits(fold(_key(seed), n), 1)) & 0x7FFFFFFF


def _class_of_ray(name: str) -> Any:
    """The class of a searcher by Ray's name for it, or by its dotted path. Raises ConfigError."""
    from ray.tune.search import SEARCH_ALG_IMPORT, Searcher

    try:
        module, _, last = name.rpartition(".")
        found = getattr(importlib.import_module(module), last) if module else SEARCH_ALG_IMPORT[name]()
    except (ImportError, AttributeError, KeyError) as error:
        raise ConfigError(f"searcher: {name!r} cannot be imported: {reason(error)}.") from None
    if not (isinstance(found, type) and issubclass(found, Searcher)):
        raise ConfigError(f"searcher: {name!r} is no ray.tune.search.Searcher.")
    return found


def _settings_of(cls: Callable[..., Any]) -> list[str]:
    ours = ("space", "metric", "mode", "points_to_evaluate", *_SEED_NAMES)
    return [name for name in inspect.signature(cls).parameters if name not in ours]


def _check_settings(name: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    if strange := next((one for one in settings if one not in known), None):
        raise ConfigError(f"searcher {name} has no setting {strange!r}{did_you_mean(strange, known)}")
