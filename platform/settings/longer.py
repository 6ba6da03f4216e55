"""Whether training that was begun for some steps may go on to more: where it comes to what those come to from the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ...algos.base import Algorithm
from ...algos.definition import COMPILED_FROM
from ...data.config import Config
from ..rllib.names import EXACT, PREFIX, is_rllib


class Experiment(Protocol):
    """The settings of an experiment, as far as they matter here."""

    @property
    def algorithm(self) -> Any: ...
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
    def make_algorithm(self, seed: int) -> Algorithm: ...


def why_not_longer(config: Experiment, first: int) -> str:
    """Why training that was begun for `first` steps cannot go on to the config's, bit for bit: a clause; empty: it can."""
    name = config.algorithm.name
    if is_rllib(name):
        goes_on = name.removeprefix(PREFIX) in EXACT and not config.resources.gpu
        return "" if goes_on else f"{name} does not go on from a checkpoint bit for bit"
    algorithm = config.make_algorithm(config.seeds[0])
    return _why_not_compiled(config, algorithm, first) or _why_not_scheduled(algorithm, first) or _why_not_measured(config, first)


def _why_not_compiled(config: Experiment, algorithm: Algorithm, first: int) -> str:
    """Compiled steps round otherwise than steps that are not; whether they are compiled follows from how many there are in all."""
    least = COMPILED_FROM if config.resources.gpu else algorithm.compiled_from
    if algorithm.compile_graph is None and least is not None and first < least <= config.n_steps:
        return (
            f"training of {least:,} steps and more is compiled, which rounds otherwise; with algorithm.compile_graph=false it goes "
            "on as it began"
        )
    compiled = algorithm.compile_graph or (algorithm.compile_graph is None and least is not None and first >= least)
    if compiled and first % config.n_steps_per_epoch:
        return f"step {first:,} is not the end of an epoch, within which compiled steps are done in groups"
    return ""


def _why_not_scheduled(algorithm: Algorithm, first: int) -> str:
    """A schedule has a length of its own, so more steps change nothing of it; but past its end nothing may be learned any more."""
    for name, schedule in _schedules(algorithm.check_settings()):
        if (end := schedule.spent()) is not None and end <= first:
            return f"the learning rate is 0 from step {end:,} on, where the {schedule.name} schedule of algorithm.{name} ends"
    return ""


def _schedules(settings: Config, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings:
        if isinstance(value, Config):
            if (schedule := getattr(value, "schedule", None)) is not None:
                yield f"{above}{name}", schedule
            yield from _schedules(value, f"{above}{name}.")


def _why_not_measured(config: Experiment, first: int) -> str:
    """The last step is measured wherever it lies; a run of more steps does not stop there, and cannot take it for the best."""
    every = config.evaluation and config.evaluation.every
    name, every = ("evaluation.every", every) if every else ("n_steps_per_epoch", config.n_steps_per_epoch)
    if config.checkpoint.best is None or first % every == 0:
        return ""
    return f"checkpoint.best has looked at step {first:,} too, which is no multiple of {name}, {every:,}"
