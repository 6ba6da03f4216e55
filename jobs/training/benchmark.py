"""`d3ray benchmark SUITE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...platform.benchmark.suite import SuiteConfig, is_file, read_suite
from ...platform.words import count, resume_command
from ...platform.yaml_text import Key
from ..command.base import Result, option
from ..command.planning import PlannableConfig, PlanResult, planned
from ..views.live_view import live_experiment

if TYPE_CHECKING:
    from ...platform.benchmark.bands import Bands
    from ...platform.benchmark.data import Obtained
    from ...platform.benchmark.run import BenchmarkResult as Ran


class BenchmarkConfig(PlannableConfig, SuiteConfig):
    """A suite, what of it is otherwise now, and whether to go on with an earlier run of it."""

    check: str | None = option(
        None, "file of bands, or the name of some that come with d3ray, as gate; exit status 1 where a number is not in its band"
    )
    write_bands: str | None = option(None, "file for bands around this run's numbers, which later runs are held against")

    @classmethod
    def below(cls, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[Key, str]]:
        """Return the suite's settings; none if a setting is unknown, which is to be reported first."""
        suite = given.get("suite")
        return read_suite(suite)[1:] if isinstance(suite, str) and set(given) <= set(cls.model_fields) else ({}, {})

    def implied(self) -> Mapping[str, tuple[Any, str]]:
        """The name, where it was not given."""
        return {"name": (self.experiment, "suite")} if self.name is None else {}

    def files(self) -> tuple[str, ...]:
        """The suite and the bands, where they are files of this machine."""
        named = (name for name in (self.suite, self.check) if name is not None)
        return tuple(name for name in named if is_file(name) and not name.startswith("d3ray:"))


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult(Result):
    """Outcome of each cell."""

    benchmark: Ran


def run(config: BenchmarkConfig) -> BenchmarkResult | PlanResult:
    """Trains what is unfinished and writes the report, or plans it.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used, and where no dataset can be had.
    """
    from ...platform.benchmark.gate import protocol, read_bands
    from ...platform.benchmark.run import run_benchmark

    trusted = None if config.check is None else read_bands(config.check)
    if trusted is not None:
        trusted.check_protocol(protocol(config))
    if config.plan:
        return _planned(config)
    with live_experiment(config.storage_place, config.experiment) as on_progress:
        ran = run_benchmark(config, resume=config.resume, replace=config.replace, trial=config.trial, on_progress=on_progress)
    return gated(describe(ran, config), config, trusted)


def gated(result: BenchmarkResult, config: BenchmarkConfig, trusted: Bands | None) -> BenchmarkResult:
    """The result with what its numbers say of bands. Raises as `gate.write_bands` where there are to be new ones."""
    from ...platform.benchmark.gate import values, write_bands

    ran, lines, problems = result.benchmark, [result.made], [result.failed]
    if trusted is not None:
        verdicts = trusted.judge(values(ran))
        lines += [f"  {verdict}" for verdict in verdicts]
        out = [verdict for verdict in verdicts if not verdict.passes]
        lines.append(f"  {len(verdicts) - len(out)} of {len(verdicts)} numbers are in their bands ({config.check}).")
        problems += [f"{one.metric} of {one.label} on {one.dataset} {one.reason}." for one in out]
    if config.write_bands is not None:
        write_bands(ran, config, config.write_bands)
        result = replace(result, look={**result.look, "bands": config.write_bands})
    return replace(result, made="\n".join(lines), failed=" ".join(filter(None, problems)))


def _planned(config: BenchmarkConfig) -> PlanResult:
    """The plan, measured on what is on this machine, and on random experience in place of what is not; that is said."""
    from ...platform.benchmark.data import obtain, stood_in
    from ...platform.benchmark.run import benchmark_work
    from ...platform.storage.resuming import check_name

    check_name(config.experiment)
    with stood_in(config, obtain(config, only_here=True)) as data:
        n_cells = len(data.cells(config))
        sample = n_cells * len(config.seeds)  # stacks may be split
        found = planned(benchmark_work(config, data), config, n_configurations=n_cells, sample=sample).plan
    plan = found.model_copy(update={"notes": [*found.notes, *_not_here(data)]})
    return PlanResult(made=plan.model_dump_json(indent=1) if config.format == "json" else str(plan), plan=plan)


def _not_here(data: Obtained) -> list[str]:
    """Note which datasets of a plan are not on this machine."""
    from ...platform.benchmark.data import STAND_IN_STEPS

    notes: list[str] = []
    if data.stand_ins:
        measured = f"their cells were measured on {STAND_IN_STEPS:,} steps of random actions in their environments"
        notes.append(f"{_several(data.stand_ins)} not here; {measured}.")
    if data.missing:
        notes.append(f"{_several(data.missing)} not here, and not counted: nothing says in which environment to measure instead.")
    return notes


def _several(labels: Iterable[str]) -> str:
    """The first of them and how many more, with the verb."""
    first, *others = labels
    return f"{first} and {count(len(others), 'other dataset')} are" if others else f"{first} is"


def describe(ran: Ran, config: SuiteConfig) -> BenchmarkResult:
    """Summarise a benchmark for printing."""
    from ...platform.storage.folders import Folder

    experiment = ran.experiment
    finished = sum(seed.status == "FINISHED" for seed in experiment.seeds)
    cells = count(len({seed.number for seed in experiment.seeds}), "cell")
    lines = [f"{experiment.name}: {cells}, {finished} of {count(len(experiment.seeds), 'seed')} trained."]
    lines += [f"  missing: {dataset}: {why}" for dataset, why in ran.missing.items()]
    look = {"report": ran.report.page, "scores": Folder(ran.report.folder).address("scores.csv")} if ran.report else {}
    look |= {"folder": experiment.folder, "runs": experiment.look, **experiment.views}
    return BenchmarkResult(made="\n".join(lines), look=look, failed=_problems(ran), benchmark=ran)


def _problems(ran: Ran) -> str:
    """Describe failures that can be mended; divergence is an outcome."""
    seeds, experiment = ran.experiment.seeds, ran.experiment
    problems: list[str] = []
    if failed := [seed for seed in seeds if seed.status == "FAILED" and not seed.reason.startswith("diverged")]:
        first = failed[0]
        problems.append(
            f"{len(failed)} of {count(len(seeds), 'seed')} failed; configuration {first.number}, seed {first.seed}: "
            f"{first.reason.rstrip('.?')}."
        )
    if left := sum(seed.status == "KILLED" and not seed.is_final for seed in seeds):
        problems.append(f"{left} of {count(len(seeds), 'seed')} are left.")
    if ran.missing:
        problems.append(f"{count(len(ran.missing), 'dataset')} could not be had: {', '.join(ran.missing)}.")
    if left or ran.missing or not all(seed.is_final for seed in failed):
        problems.append(f"Once that is mended, {resume_command(experiment.folder)} goes on.")
    problems += filter(None, [experiment.undelivered, ran.unwritten and f"The report was not written: {ran.unwritten}"])
    return " ".join(problems)
