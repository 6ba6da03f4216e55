"""`d3ray compare A B ...`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError
from ...data.spec import Environment
from ..command.base import Result, option
from ..command.console import say
from ..views.columns import NONE, aligned, cell, interval_text, mean_text
from .named_runs import RunsConfig, read

if TYPE_CHECKING:
    from ...platform.record.results import ConfigurationResult
    from ...platform.results.summary import Comparison

_NAMED = 5  # settings and metrics of one side alone


class CompareConfig(RunsConfig):
    """Settings of a comparison."""

    metric: str | None = option(None, "the metric that is tested; null: the return, or what was measured in its place")
    episodes: int | None = option(
        None, "episodes that each plays, as a policy, all beginning alike; null: what RUNS measured in training counts", gt=0
    )
    environment: Environment | str | None = option(
        None, "where they play; null: where the first one's experiment or package says", also="env_id"
    )
    seed: int = option(0, "decides how every episode is reset")
    format: Literal["text", "json"] = option("text", "json: one object, numbers unrounded")


@dataclass(frozen=True, kw_only=True)
class CompareResult(Result):
    """The numbers."""

    comparison: Comparison


def run(config: CompareConfig) -> CompareResult:
    """Prints the comparison: of several runs the best configuration of each, of a single one its configurations; or of policies.

    Raises ConfigError: there is no such run, policy or metric, or nothing to compare with, or policies cannot act where they are to
    play; DataError: nothing was measured; StorageError.
    """
    from ...platform.record.results import RETURNED
    from ...platform.report.verdicts import compared, sentences
    from ...platform.results.summary import compare

    if config.episodes is not None:
        if config.metric is not None:
            raise ConfigError(f"What policies return is compared where they play episodes: leave metric={config.metric} out.")
        found, of = compare(_played(config), RETURNED, paired=True), dict[str, int]()
    else:
        if config.environment is not None:
            raise ConfigError("environment is where policies play: say episodes=N too, or leave it out to compare runs.")
        results = read(config)
        sizes = {one.name: len(one.sweep) or len(one.configurations) for one in results}
        found, of = compared(results, config.metric), sizes if len(results) > 1 else {}
    said = list(sentences(found))
    if config.format == "json":
        say(json.dumps(_as_json(found, said), allow_nan=False))
        return CompareResult(made="", comparison=found)
    for line in [*said, "", *_lines(found, of)]:
        say(line)
    return CompareResult(made="", comparison=found)


def _played(config: CompareConfig) -> list[ConfigurationResult]:
    """Each policy's episodes, the same for all."""
    from ...algos.environments.evaluate import evaluate
    from ...algos.environments.make import make
    from ...platform.results.histories import as_configuration
    from ..policies.acting import check_fits, opened

    if len(config.names) == 1:
        raise ConfigError(f"{config.names[0]} is one policy: name another one to compare it with.")
    sides: list[ConfigurationResult] = []
    environment = config.environment
    for name in config.names:
        with opened(name, environment, tracking=config.tracking, storage=config.storage) as one:
            environment = one.environment
            with make(environment, n=min(config.episodes or 1, 10), evaluating=True) as vector:
                check_fits(one.policy, vector, environment.id)
                played = evaluate(one.policy, vector, episodes=config.episodes or 1, seed=config.seed)
            sides.append(as_configuration(name, one.algorithm, one.settings, environment.id, played))
    return sides


def _rows(found: Comparison) -> tuple[list[list[str]], list[str]]:
    """Rows of the table, and the names of what one side has and no other, which stands in none."""
    from ...platform.report.verdicts import unit
    from ...platform.results.summary import MISSING
    from ...platform.statistics import interval_name

    sides, alone = found.configurations, list[str]()
    rows = [["", *(one.label for one in sides)]]
    if not found.paired:
        rows.append(["run", *(one.experiment for one in sides)])
    rows.append([f"{unit(found)}s", *(str(len(one.seeds)) for one in sides)])
    for name, values in found.settings.items():
        if sum(value is not MISSING for value in values) < 2:
            alone.append(name)
        else:
            rows.append([{"name": "algorithm"}.get(name, name), *map(_value, values)])
    for metric, scores in found.scores.items():
        summaries = [None if score is None else score.summary for score in scores]
        if metric != found.metric and sum(one is not None for one in summaries) < 2:
            alone.append(metric)
            continue
        rows.append([metric, *(NONE if one is None else mean_text(one) for one in summaries)])
        if metric == found.metric and any(one is not None and one.interval for one in summaries):
            seeds = [one.n for one in summaries if one is not None]
            rows.append(
                [f"  {interval_name(*seeds)}", *(NONE if one is None else interval_text(one.interval) for one in summaries)]
            )
    return rows, alone


def _lines(found: Comparison, of: Mapping[str, int]) -> Iterator[str]:
    """Rows, and what must be said below; `of` says how many configurations there are in each run of several."""
    sides, (rows, alone) = found.configurations, _rows(found)
    yield from aligned(rows)
    if alone:
        shown = ", ".join(alone[:_NAMED]) + (f" and {len(alone) - _NAMED} more" if len(alone) > _NAMED else "")
        yield f"Of one side alone, and left out: {shown}; format=json has all."
    for one in sides:
        if (n := of.get(one.experiment, 1)) > 1:
            yield f"{one.label} is the best of {n} configurations of {one.experiment}, which flatters it."
    for one in sides:
        if found.metric is None or found.metric not in one.metrics():
            continue
        score = one.score(found.metric)
        if score.values and not score.is_final:
            yield f"{one.label} has not ended: its {found.metric} is that at step {score.step:,} of {one.n_steps:,}."
        for seed, why in score.left_out.items():
            yield f"Not counted: seed {seed} of {one.label} {why.rstrip('.')}."


def _value(value: Any) -> str:
    from ...platform.results.summary import MISSING

    if value is MISSING:
        return NONE
    return cell(value if isinstance(value, str) else json.dumps(value))


def _as_json(found: Comparison, said: list[str]) -> dict[str, Any]:
    from ...platform.results.summary import MISSING

    return {
        "configurations": [{"label": c.label, "run": c.experiment, "seeds": len(c.seeds)} for c in found.configurations],
        "settings": {name: [None if v is MISSING else v for v in values] for name, values in found.settings.items()},
        "metrics": {
            metric: [
                None if s is None else {"step": s.step, "values": s.values, "summary": s.summary and asdict(s.summary)}
                for s in scores
            ]
            for metric, scores in found.scores.items()
        },
        "metric": found.metric,
        "verdicts": [
            {**({} if v.difference is None else asdict(v.difference)), "corrected_p": v.p, "is_shown": v.is_shown}
            for v in found.verdicts
        ],
        "says": said,
    }
