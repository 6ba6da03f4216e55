"""What a report says of a sweep as a whole: what was searched, what became of it, why configurations failed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..record.results import ConfigurationResult, Results
from ..results.configurations import objective_of
from ..settings.objective import Objective
from ..words import csv_text, value_text

_AGGREGATE = {
    "mean": "the mean over seeds",
    "iqm": "the interquartile mean over seeds",
    "lower_bound": "the 95 % lower bound over seeds",
}
_NAMED = 8  # numbers of configurations in a sentence
_REASONS = 12


def best_first(configurations: Iterable[ConfigurationResult], objective: Objective) -> list[ConfigurationResult]:
    """Configurations by objective, those that went to their end before those that were stopped, those without a value last."""
    sign = 1 if objective.direction == "min" else -1

    def rank(one: ConfigurationResult) -> tuple[int, float, int]:
        if one.value is None or one.ended is None:
            return 2, 0.0, one.number or 0
        return int(one.ended != "finished"), sign * one.value, one.number or 0

    return sorted(configurations, key=rank)


def sweep_words(results: Results) -> dict[str, Any]:
    """Name, a paragraph on the search, and a line for each reason why seeds failed."""
    settings, objective = results.settings, objective_of(results.settings)
    ended = [one.ended for one in results.sweep if one.ended]
    parts = [
        f"{ended.count(how)} {words}"
        for how, words in (("finished", "finished"), ("stopped", "were stopped early"), ("failed", "failed"))
        if how in ended
    ]
    if going := len(results.sweep) - len(ended):
        parts.append(f"{going} have not ended")
    n = len(results.sweep)
    said = [f"{n:,} configuration{'s' * (n != 1)}: {', '.join(parts)}."]
    searched = "; ".join(f"{name}: {_space(space)}" for name, space in settings["search"].items())
    said.append(f"Searched: {searched}.")
    scheduler = settings.get("scheduler", {}).get("name", "none")
    by = f", stopped or changed by the scheduler {scheduler}" if scheduler != "none" else ""
    said.append(f"{_proposed(settings)}{by}.")
    best = "smallest" if objective.direction == "min" else "largest"
    said.append(f"The objective is {_AGGREGATE[objective.seeds]} of {objective.metric} at the end; the {best} is best.")
    return {"name": results.name, "said": " ".join(said), "failures": failures(results.sweep)}


def _proposed(settings: Mapping[str, Any]) -> str:
    """Where configurations come from: a searcher has no say in what is a grid."""
    searcher = f"the searcher {settings.get('searcher', {}).get('name', '?')}"
    grids = [isinstance(space, Mapping) and "grid" in space for space in settings["search"].values()]
    if grids and all(grids):
        return "Taken from the grid, point by point"
    if any(grids):
        return f"Proposed by {searcher} at each point of the grid"
    return f"Proposed by {searcher}"


def _space(space: Any) -> str:
    """In words: choice of relu or gelu; loguniform [0.0001, 0.01]."""
    if not isinstance(space, Mapping) or len(space) != 1:
        return value_text(space)
    ((kind, values),) = space.items()
    if kind in ("choice", "grid") and isinstance(values, list):
        return f"{kind} of {_either([value_text(value) for value in values])}"
    return f"{kind} {value_text(values)}"


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)


def failures(configurations: Sequence[ConfigurationResult]) -> list[str]:
    """Reasons by how often they came, numbers in them left out, with the configurations that they stopped."""
    found: dict[str, list[int]] = {}
    for one in configurations:
        for why in one.failed.values():
            found.setdefault(re.sub(r"\d[\d.,]*", "…", why.strip().rstrip(".")) or "nobody knows why", []).append(one.number or 0)
    lines: list[str] = []
    for why, numbers in sorted(found.items(), key=lambda entry: -len(entry[1]))[:_REASONS]:
        which = list(dict.fromkeys(numbers))
        named = ", ".join(map(str, which[:_NAMED])) + (f" and {len(which) - _NAMED} more" if len(which) > _NAMED else "")
        lines.append(f"{why}: {len(numbers)} seed{'s' * (len(numbers) != 1)}, of configuration{'s' * (len(which) != 1)} {named}.")
    if len(found) > _REASONS:
        lines.append(f"{len(found) - _REASONS} other reasons are in configurations.csv.")
    return lines


def configurations_csv(results: Sequence[Results]) -> str:
    """CSV, a line a configuration: its number, what was chosen for it, what became of it, and the objective with its interval.

    `level` is what the interval has; empty where fewer than five seeds are too few for 95 %.
    """
    names = list({name: None for one in results for c in one.sweep for name in c.choice})
    lines: list[list[Any]] = []
    head = [
        "experiment",
        "configuration",
        "dataset",
        "ended",
        "objective",
        "low",
        "high",
        "level",
        "step",
        "seeds",
        "failed",
        "reasons",
    ]
    for one in results:
        for c in one.sweep:
            outcome = ["", "", *("", "", ""), ""]
            if c.ended is not None:
                ends = ["", "", ""] if c.interval is None else [*c.interval, c.level or ""]
                outcome = [c.ended, "" if c.value is None else c.value, *ends, c.step]
            reasons = "; ".join(f"seed {seed}: {why}" for seed, why in c.failed.items())
            chosen = [json.dumps(c.choice[name]) if name in c.choice else "" for name in names]
            lines.append([one.name, c.number, c.dataset, *outcome, len(c.scores), len(c.failed), reasons, *chosen])
    return csv_text([*head, *names], lines)
