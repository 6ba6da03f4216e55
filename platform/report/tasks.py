"""What is shown together: configurations by task, with labels that tell them apart, the best ones as lines of a panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.errors import ConfigError, did_you_mean
from ..record.results import RETURN, ConfigurationResult, Results
from ..results.configurations import differences, objective_of
from ..settings.objective import is_cost
from ..words import value_text
from .series import MOST, Panel, Series
from .sweep_text import best_first

SHOWN = 20  # configurations of a sweep that have a row of scores, the best; the rest is in a figure and in `configurations.csv`


@dataclass(frozen=True)
class Task:
    """Configurations that may be compared: the same data, scored in the same place."""

    experiments: tuple[Results, ...]
    configurations: tuple[ConfigurationResult, ...]  # labelled

    @property
    def title(self) -> str:
        return str(self.results.data["name"] or "")

    @property
    def results(self) -> Results:
        """The first experiment: what the data are is the same in all of them."""
        return self.experiments[0]


def group(results: Sequence[Results]) -> list[Task]:
    """Configurations by task, in order, with labels that tell them apart."""
    found: dict[tuple[Any, Any], list[tuple[Results, ConfigurationResult]]] = {}
    for one in results:
        for c in one.configurations:
            of_task = one.model_copy(update={"data": c.data, "environment": c.environment})
            found.setdefault((c.data.get("fingerprint"), c.environment), []).append((of_task, c))
    return [Task(tuple({one.name: one for one, _ in members}.values()), tuple(label(members))) for members in found.values()]


def label(members: Sequence[tuple[Results, ConfigurationResult]]) -> list[ConfigurationResult]:
    """Names of a task's configurations: the algorithm, the experiment where that has several, and the settings that differ."""
    labelled: list[ConfigurationResult] = []
    for results, configuration in members:
        alike = [c for _, c in members if c.algorithm == configuration.algorithm]
        mine = [c for c in results.configurations if c.algorithm == configuration.algorithm]
        words = [configuration.algorithm] if configuration.number is None else [f"{configuration.number}:", configuration.algorithm]
        if len({c.experiment for c in alike}) > 1:
            words.append(f"({results.name})")
        if configuration.number is None:
            telling = differences([c.settings for c in mine])[[c is configuration for c in mine].index(True)]
        else:
            telling = {
                name.rpartition(".")[2]: _rounded(value) for name, value in configuration.choice.items() if name not in _SAID
            }
        shown = [f"{name} {value_text(value)}" for name, value in telling.items()]
        words.append(", ".join([*shown[:3], *(["…"] if len(shown) > 3 else [])]))
        labelled.append(configuration.model_copy(update={"label": " ".join(filter(None, words))}))
    return labelled


_SAID = ("algorithm.name", "dataset")  # of what a sweep searched: labels and headings name them already


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def ranked(configurations: Sequence[ConfigurationResult], metric: str | None) -> list[ConfigurationResult]:
    """The best mean first, those without one last."""
    if metric is None:
        return list(configurations)
    sign = 1 if is_cost(metric) else -1

    def rank(one: ConfigurationResult) -> float:
        summary = one.score(metric).summary
        return np.inf if summary is None else sign * summary.mean

    return sorted(configurations, key=rank)


def panels(tasks: Sequence[Task], metric: str | None) -> tuple[list[Panel], int]:
    """A panel a task, and how many configurations were left out because figures hold `MOST` lines, the best ones."""
    styles: dict[str, int] = {}
    found: list[Panel] = []
    left_out = 0
    for task in tasks:
        best = ranked(task.configurations, metric)[:MOST]
        left_out += len(task.configurations) - len(best)
        kept = [one for one in task.configurations if any(one is other for other in best)]
        for one in kept:
            styles.setdefault(one.label, len(styles))
        of_return = metric == RETURN
        found.append(
            Panel(
                task.title,
                [Series(one.label, styles[one.label], one) for one in kept],
                task.results.data_return if of_return else None,
                task.results.reference if of_return else None,
            )
        )
    return found, left_out


def metric_names(drawn: Sequence[Panel]) -> list[str]:
    """Names of everything that the configurations of some panels measured; losses first."""
    names = list({name: None for panel in drawn for series in panel.series for name in series.configuration.metrics()})
    return sorted(names, key=lambda name: not name.endswith("_loss"))


def axis_name(results: Sequence[Results], metric: str) -> str:
    if metric != RETURN:
        return metric
    episodes = {one.episodes for one in results}
    return f"return (mean of {episodes.pop()} episodes)" if len(episodes) == 1 and None not in episodes else "return"


def measured(results: Sequence[Results]) -> list[str]:
    """The metrics that any seed has measured, in the order of their first appearance."""
    return list({name: None for one in results for c in one.configurations for name in c.metrics()})


def check_metrics(results: Sequence[Results], names: Sequence[str]) -> None:
    """Raises ConfigError for a metric that nothing measured; the nearest is named."""
    known = measured(results)
    for name in names:
        if name not in known:
            whose = " and ".join(dict.fromkeys(one.name for one in results))
            raise ConfigError(f"{whose} did not measure {name!r}{did_you_mean(name, known)}")


def choose_metric(results: Sequence[Results], metric: str | None) -> str | None:
    """The metric that is the score; None where nothing was scored. Raises ConfigError for one that nothing measured."""
    if metric is not None:
        check_metrics(results, [metric])
        return metric
    known = measured(results)
    objectives = {objective_of(one.settings).metric for one in results if one.sweep}
    if len(objectives) == 1 and (found := objectives.pop()) in known:
        return found
    held_out = [name for name in known if name.startswith("holdout/")]
    return RETURN if RETURN in known else next(iter(held_out), None)


def shown(results: Results) -> Results:
    """The results with the best `SHOWN` configurations of a sweep; those of other experiments as they are."""
    if not results.sweep:
        return results
    numbers = [one.number for one in best_first(results.sweep, objective_of(results.settings))[:SHOWN]]
    best = [one for one in results.sweep if one.number in numbers]
    others = [one for one in results.sweep if one.number not in numbers]
    return results.model_copy(update={"configurations": best, "left_out": others})
