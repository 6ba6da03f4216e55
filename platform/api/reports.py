"""Pages about experiments, and whether their differences are shown."""

from __future__ import annotations

from collections.abc import Sequence

from ...data.errors import ConfigError
from ..record.results import Report


def report(names: Sequence[str], *, storage: str = "./d3ray_results", out: str | None = None, metric: str | None = None) -> Report:
    """Writes a page about an experiment, several compared, or a benchmark: scores, curves, conditions.

    Args:
        names: Of experiments; of a suite: its newest benchmark.
        storage: Folder or URI of all results.
        out: Folder of the page and its figures, or the page itself as NAME.html; None: a folder `report` in the experiment's own.
        metric: The score; None: evaluation/return, or what was measured on held-out episodes instead.

    Raises:
        ConfigError: there is no such experiment or benchmark, or the metric was not measured; the nearest name is said.
        DataError: an experiment has no trials yet.
        StorageError: something cannot be read or written.
    """
    from ..benchmark.report import is_benchmark, write
    from ..benchmark.suite import suite_of
    from ..report.experiment import report as compare
    from ..settings.config import absolute
    from ..storage.folders import Folder

    place, to = absolute(storage), None if out is None else absolute(out)
    suite = suite_of(names[0])  # of another name of a suite, the suite; an experiment's own name comes first
    if len(names) == 1 and suite != names[0] and (Folder(place) / names[0]).read_json("experiment.json") is None:
        names = (suite,) if is_benchmark(place, suite) else names
    if len(names) == 1 and is_benchmark(place, names[0]):
        if metric is not None:
            raise ConfigError(f"{names[0]} is a benchmark, whose score is the return: leave metric={metric} out.")
        return write(place, names[0], out=to)
    return compare(place, names, out=to, metric=metric)


def verdicts(names: Sequence[str], *, storage: str = "./d3ray_results", metric: str | None = None) -> list[str]:
    """Say whether seeds show a difference, as `d3ray compare` does: one sentence for each but the first.

    Of several experiments the best configuration of each counts, of a single one its configurations are compared. Arguments and
    errors as `report`'s; ConfigError too where there is nothing to compare with.
    """
    from ..report.verdicts import compared, sentences
    from ..results.experiment import read_results
    from ..settings.config import absolute

    return [*sentences(compared([read_results(absolute(storage), name) for name in names], metric))]
