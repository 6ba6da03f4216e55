"""`d3ray report NAME ...`: one page about an experiment, several compared, or a benchmark: scores, curves, conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option

if TYPE_CHECKING:
    from ...platform.benchmark.report import SuiteReport
    from ...platform.report.experiment import Report


class ReportConfig(JobConfig):
    """Which experiments, and where the page goes."""

    experiments: str | tuple[str, ...] = option(
        ...,
        "name of an experiment, or several to be compared on one page; of a suite: its newest benchmark",
        operand="several",
        example="TD3PlusBC-hopper",
    )
    storage: str = option("./d3ray_results", "folder or URI of all results")
    out: str | None = option(
        None, "folder of the page and its figures, or the page itself as NAME.html; null: a folder `report` in the experiment's own"
    )
    metric: str | None = option(None, "the score; null: evaluation/return, or what was measured on held-out episodes instead")


@dataclass(frozen=True, kw_only=True)
class ReportResult(Result):
    """The page, and the results that it is made from."""

    report: Report | SuiteReport


def run(config: ReportConfig) -> ReportResult:
    """Writes the page, its figures and `scores.csv`; of a benchmark Markdown, LaTeX and `statistics.csv` too.

    Raises:
        ConfigError: there is no such experiment or benchmark, or the metric was not measured; the nearest name is said.
        DataError: an experiment has no trials yet.
        StorageError: something cannot be read or written.
    """
    from ...platform.benchmark.report import is_benchmark, write
    from ...platform.benchmark.suite import suite_of
    from ...platform.report.experiment import report
    from ...platform.settings.config import absolute
    from ...platform.storage.folders import Folder

    out, storage = None if config.out is None else absolute(config.out), absolute(config.storage)
    names = (config.experiments,) if isinstance(config.experiments, str) else config.experiments
    suite = suite_of(names[0])  # of another name of a suite, the suite; an experiment's own name comes first
    if len(names) == 1 and suite != names[0] and (Folder(storage) / names[0]).read_json("experiment.json") is None:
        names = (suite,) if is_benchmark(storage, suite) else names
    if len(names) == 1 and is_benchmark(storage, names[0]):
        if config.metric is not None:
            raise ConfigError(f"{names[0]} is a benchmark, whose score is the return: leave metric={config.metric} out.")
        made = write(storage, names[0], out=out)
    else:
        made = report(storage, names, out=out, metric=config.metric)
    whose = ", ".join(names)
    others = ", ".join(file.rpartition("/")[2] for file in made.files)
    look = {"page": made.page, "beside it": others}
    return ReportResult(made=f"There is a report on {whose}.", look=look, failed=made.remark, report=made)
