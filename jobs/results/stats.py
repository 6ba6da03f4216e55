"""`d3ray stats RUN ...`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import DataError
from ..command.base import Result, option
from ..command.console import say
from ..views.columns import NONE, aligned, interval_text, mean_text, number
from .named_runs import RunsConfig, read

if TYPE_CHECKING:
    from ...platform.record.results import ConfigurationResult, Results
    from ...platform.results.summary import MetricSummary


class StatsConfig(RunsConfig):
    """Metrics to report."""

    metrics: str | tuple[str, ...] | None = option(None, "those that are told; null: all", also="metric")
    last: int = option(10, "points that the mean of the last is over, or as many as there are", gt=0)
    format: Literal["text", "json"] = option("text", "json: a list of one object for each configuration, numbers unrounded")


@dataclass(frozen=True, kw_only=True)
class StatsResult(Result):
    """The numbers, by configuration in the order of the runs, and by metric; None where no seed counts."""

    numbers: list[dict[str, MetricSummary | None]]


def run(config: StatsConfig) -> StatsResult:
    """Prints the numbers. Raises ConfigError: there is no such run or metric; DataError: nothing was measured; StorageError."""
    from ...platform.report.tasks import check_metrics, group
    from ...platform.results.summary import summarise_metric

    results = read(config)
    asked = (config.metrics,) if isinstance(config.metrics, str) else config.metrics
    check_metrics(results, asked or ())
    by_name = {one.name: one for one in results}
    labelled = [(by_name[c.experiment], c) for task in group(results) for c in task.configurations]
    if not any(c.metrics() for _, c in labelled):
        raise DataError(f"{', '.join(config.names)}: nothing has been measured yet.")
    shown = [(one, c, [m for m in c.metrics() if asked is None or m in asked]) for one, c in labelled]
    shown = [entry for entry in shown if entry[2]]  # others have none of those asked for
    found = [{m: summarise_metric(c, m, config.last) for m in metrics} for _, c, metrics in shown]
    told = list(zip(shown, found, strict=True))
    if config.format == "json":
        say(json.dumps([_as_json(one, c, numbers) for (one, c, _), numbers in told], allow_nan=False))
    else:
        for k, ((one, c, _), numbers) in enumerate(told):
            for line in ([""] if k else []) + list(_lines(one, c, numbers, config.last)):
                say(line)
    return StatsResult(made="", numbers=found)


def _lines(results: Results, one: ConfigurationResult, numbers: dict[str, MetricSummary | None], last: int) -> Iterator[str]:
    from ...platform.statistics import interval_name, why_below

    counted = [found for found in numbers.values() if found is not None]
    last, seeds = max((found.n_recent for found in counted), default=last), [found.final.n for found in counted]
    yield f"{one.label} of {results.name}: {', '.join(_facts(results, one))}"
    single = len(one.seeds) == 1
    head = ["metric", "final", *([] if single else [interval_name(*seeds)]), "best", *(["at step"] if single else [])]
    rows = [[*head, f"mean of last {last}", "smallest", "largest"]]
    left_out: dict[str, list[str]] = {}
    for metric, found in numbers.items():
        for seed, why in one.score(metric).left_out.items():
            left_out.setdefault(f"seed {seed} {why}", []).append(metric)
        if found is None:
            rows.append([metric, *[NONE] * (len(rows[0]) - 1)])
            continue
        best = [mean_text(found.best), *([f"{next(iter(found.best_steps.values())):,}"] if single else [])]
        interval = [] if single else [interval_text(found.final.interval)]
        ends = [number(found.low), number(found.high)]
        rows.append([metric, mean_text(found.final), *interval, *best, mean_text(found.recent), *ends])
    yield from aligned(rows, "  ")
    if below := why_below(*seeds):
        yield f"  {below}"
    for why, metrics in left_out.items():
        where = "" if len(metrics) == len(numbers) else f" in {', '.join(metrics)}"
        yield f"  Not counted{where}: {why.rstrip('.')}."


def _facts(results: Results, one: ConfigurationResult) -> list[str]:
    from ...platform.words import count, time_text

    done = sorted({run.reached for run in one.seeds})
    steps = f"{done[0]:,}" if len(done) == 1 else f"{done[0]:,} to {done[-1]:,}"
    facts = [count(len(one.seeds), "seed"), f"{steps} of {one.n_steps:,} steps" if done[0] < one.n_steps else f"{steps} steps"]
    if results.last_sign > results.created:
        facts.append(f"{time_text(results.last_sign - results.created)} in all")
    if speeds := [run.speed for run in one.seeds if run.speed is not None]:
        facts.append(f"{number(float(f'{sum(speeds) / len(speeds):.3g}'))} updates/s a seed")
    return facts


def _as_json(results: Results, one: ConfigurationResult, numbers: dict[str, MetricSummary | None]) -> dict[str, Any]:
    speeds = [run.speed for run in one.seeds if run.speed is not None]
    return {
        "run": results.name,
        "configuration": one.label,
        "algorithm": one.algorithm,
        "dataset": one.data.get("name"),
        "seeds": {str(run.seed): {"status": run.status, "step": run.reached, "n_steps": run.n_steps} for run in one.seeds},
        "seconds": results.last_sign - results.created if results.last_sign > results.created else None,
        "updates_per_second": sum(speeds) / len(speeds) if speeds else None,
        "metrics": {
            metric: {**({} if found is None else asdict(found)), "left_out": one.score(metric).left_out}
            for metric, found in numbers.items()
        },
    }
