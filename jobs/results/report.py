"""`d3ray report NAME ...`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..command.base import JobConfig, Result, option

if TYPE_CHECKING:
    from ...platform.record.results import Report


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
    """The page, and what lies beside it."""

    report: Report


def run(config: ReportConfig) -> ReportResult:
    """Writes the page, its figures and `scores.csv`; of a benchmark Markdown, LaTeX and `statistics.csv` too.

    Raises as the API's.
    """
    from ...platform.api.reports import report

    names = (config.experiments,) if isinstance(config.experiments, str) else config.experiments
    made = report(names, storage=config.storage, out=config.out, metric=config.metric)
    others = ", ".join(file.rpartition("/")[2] for file in made.files)
    look = {"page": made.page, "beside it": others}
    return ReportResult(made=f"There is a report on {', '.join(made.of)}.", look=look, failed=made.remark, report=made)
