"""`d3ray algorithms [NAME]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...algos.spellings import did_you_mean_algorithm
from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option
from ..command.console import say
from ..command.describe import algorithm_text
from ..views.columns import aligned


class AlgorithmsConfig(JobConfig):
    """Which of them."""

    name: str | None = option(
        None, "of one algorithm: its presets, and its settings with their sources", operand=True, example="IQL"
    )
    actions: Literal["continuous", "discrete"] | None = option(None, "only those for actions of that kind; null: all")


@dataclass(frozen=True, kw_only=True)
class AlgorithmsResult(Result):
    """Their names."""

    names: list[str]


def run(config: AlgorithmsConfig) -> AlgorithmsResult:
    """Prints them. Raises ConfigError: there is no such algorithm of d3ray's own."""
    from ...platform import api

    every = api.algorithms()
    if config.name is not None:
        if config.name not in every:
            raise ConfigError(f"There is no algorithm {config.name!r}{did_you_mean_algorithm(config.name, every)}")
        if "/" in config.name:
            raise ConfigError(f"{config.name} is RLlib's own: its settings are those of RLlib's config for it.")
        for line in algorithm_text(config.name):
            say(line)
        online = f"d3ray train algorithm={config.name} evaluation=ENVIRONMENT"
        train = online if api.algorithm(config.name).online else f"d3ray train DATASET algorithm={config.name}"
        return AlgorithmsResult(made="", look={"train": train}, names=[config.name])
    known = [api.algorithm(name) for name in every if "/" not in name]
    shown = [one for one in known if config.actions in (None, one.actions) or one.actions == "both"]
    for line in aligned([[one.name, one.actions, "online" * one.online, one.about] for one in shown], right=()):
        say(line)
    if config.actions is None and (others := [name for name in every if "/" in name]):
        say(f"RLlib's own: {', '.join(others)}")
    say("")
    return AlgorithmsResult(
        made=f"{len(shown)} algorithms.", look={"settings": "d3ray algorithms NAME"}, names=[one.name for one in shown]
    )
