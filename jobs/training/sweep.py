"""`d3ray sweep --config FILE`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ...data.errors import DataError, StorageError
from ...platform.sweep.config import SweepConfig as Settings
from ...platform.words import count, resume_command, value_text
from ...platform.yaml_text import to_text
from ..command.base import Result
from ..command.planning import PlannableConfig, PlanResult, planned
from ..data.of_file import with_dataset_of_file
from ..views.columns import NONE, aligned, cell, interval_text, number
from ..views.live_view import live_experiment

if TYPE_CHECKING:
    from ...platform.record.results import ConfigurationResult, Results

_SHOWN = 10  # configurations in the table


class SweepConfig(PlannableConfig, Settings):
    """A sweep, and whether to go on with an earlier one."""

    def implied(self) -> Mapping[str, tuple[Any, str]]:
        """The name, the limit of configurations and the mode, where they were not given."""
        found: dict[str, tuple[Any, str]] = {"name": (self.experiment, "algorithm and dataset")} if self.name is None else {}
        if self.budget.configurations is None and (most := self.max_configurations(self.space.size())) is not None:
            found["budget.configurations"] = (most, "searcher")
        if self.objective.mode is None:
            found["objective.mode"] = (self.objective.direction, "metric")
        return found


@dataclass(frozen=True, kw_only=True)
class SweepResult(Result):
    """Outcome of each configuration."""

    sweep: Results


def run(config: SweepConfig) -> SweepResult | PlanResult:
    """Searches what is left of the budget, or plans it.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used.
    """
    from ...platform.sweep.run import run_sweep, sweep_work

    config = with_dataset_of_file(config)
    if config.plan:
        work = sweep_work(config)
        at_most = "" if config.scheduler.name in ("none", "pbt") else f"{config.scheduler.name} stops configurations early"
        return planned(work, config, n_configurations=work.configuration["budget"]["configurations"], at_most=at_most)
    with live_experiment(config.storage_place, config.experiment) as on_progress:
        result = run_sweep(config, resume=config.resume, replace=config.replace, trial=config.trial, on_progress=on_progress)
    return describe(result, _verdicts(config))


def _verdicts(config: SweepConfig) -> list[str]:
    """Say whether the best configurations differ from the next, or why that cannot be told."""
    from ...platform.report.verdicts import best_and_next
    from ...platform.results.experiment import read_results

    try:
        return best_and_next(read_results(config.storage_place, config.experiment))
    except DataError:  # no configuration was begun
        return []
    except StorageError as error:
        return [f"Whether the best configuration differs from the next one cannot be told: {error}"]


def describe(result: Results, verdicts: Sequence[str] = ()) -> SweepResult:
    """Summarise a sweep for printing, with verdicts on whether the best configurations differ from the next."""
    objective = result.objective
    assert objective is not None  # a sweep has one
    ended = [one.ended for one in result.configurations]
    counts = ", ".join(f"{ended.count(how)} {how}" for how in ("finished", "stopped", "failed") if how in ended)
    lines = [f"{result.name}: {count(len(result.configurations), 'configuration')}{': ' if counts else ''}{counts}."]
    lines += _table(result)
    bests = {dataset: result.configurations[place] for dataset, place in result.best.items()}
    for dataset, best in bests.items():
        where = f" on {dataset}" if len(result.best) > 1 else ""
        lines += [f"  best{where}: configuration {best.number}, {_score(best, objective.metric, objective.seeds)}"]
        lines += [f"    {name}: {to_text(value)}" for name, value in best.choice.items()]
    if not bests:
        lines.append(f"  No configuration has both finished and measured {objective.metric}: there is no best one.")
    lines += [f"  {one}" for one in (*verdicts, objective.caution if bests else "") if one]
    look = {"folder": result.folder, "runs": result.look, **result.views}
    if bests:
        place, mark, options = result.folder.partition("?")  # of a URI
        trial = next(iter(bests.values())).seeds[0].trial
        look["best policies"] = f"{place}/trials/{trial}/policy{mark}{options}"
    for model in result.models:
        which = "" if len(result.models) == 1 else f" {model}"
        look |= {
            f"model{which}": f"models:/{model}@candidate",
            f"make {which.strip() or 'it'} the champion": f"d3ray promote {model}",
        }
    return SweepResult(made="\n".join(lines), look=look, failed=_problems(result), sweep=result)


def _table(result: Results) -> Iterator[str]:
    from ...platform.report.sweep_text import best_first
    from ...platform.statistics import interval_name

    assert result.objective is not None
    ranked = best_first(result.configurations, result.objective)
    if len(ranked) < 2:
        return
    shown = ranked[:_SHOWN]
    names = list({name: None for one in shown for name in one.choice})
    seeds = [len(one.scores) for one in shown]
    metric = result.objective.metric
    rows = [["", *(name.removeprefix("algorithm.") for name in names), metric, interval_name(*seeds), "seeds", ""]]
    for one in shown:
        rows.append(
            [
                f"configuration {one.number}",
                *(_value(one.choice[name]) if name in one.choice else NONE for name in names),
                NONE if one.value is None else number(one.value),
                interval_text(one.interval),
                str(len(one.scores)),
                {"finished": "", None: "not ended"}.get(one.ended, one.ended or ""),
            ]
        )
    yield from aligned(rows, "  ")
    if more := len(ranked) - len(shown):
        yield f"  and {count(more, 'configuration')} more"


def _value(value: Any) -> str:
    """A value in a cell: numbers to four figures, of a place its last part."""
    text = f"{value:.4g}" if isinstance(value, float) else value_text(value)
    text = text.rstrip("/").rpartition("/")[2] if isinstance(value, str) else text
    return cell(text)


def _score(best: ConfigurationResult, metric: str, seeds: str) -> str:
    """The objective, the interval of the mean, and how many seeds they are of."""
    from ...platform.statistics import interval_name

    found = f"{metric} {best.value:.6g}"
    if seeds != "mean":
        found += f" ({seeds.replace('_', ' ')}; mean {fmean(best.scores.values()):.6g})"
    if best.interval is not None:
        found += f", {interval_name(len(best.scores))} {best.interval[0]:.6g} to {best.interval[1]:.6g}"
    return f"{found}, {count(len(best.scores), 'seed')}"


def _problems(result: Results) -> str:
    """Describe failures that can be mended; divergence, and what a scheduler stopped, are outcomes."""
    failed = [seed for seed in result.seeds if seed.status == "FAILED"]
    problems: list[str] = []
    if result.state == "FAILED" and failed:
        first = next((seed for seed in failed if not seed.is_final), failed[0])
        problems.append(
            f"{len(failed)} of {count(len(result.seeds), 'seed')} failed; configuration {first.number}, "
            f"seed {first.seed}: {first.reason.rstrip('.?')}."
        )
        if not all(seed.is_final for seed in failed):
            problems.append(f"Once that is mended, {resume_command(result.folder)} goes on.")
    if result.undelivered:
        problems.append(result.undelivered)
    return " ".join(problems)
