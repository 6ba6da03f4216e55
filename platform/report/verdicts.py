"""Whether seeds show that configurations differ, in a sentence each: as `d3ray compare`, a sweep's end and pages say it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...data.errors import ConfigError, DataError
from ..record.results import ConfigurationResult, Results
from ..results.configurations import objective_of
from ..results.summary import Comparison, Verdict, compare
from ..words import interval_text, number
from . import sweep_text
from .plot import metrics_of
from .tasks import group, ranked

_MOST = 6  # configurations side by side


def compared(results: Sequence[Results], metric: str | None = None) -> Comparison:
    """Of several experiments the best configuration of each beside the first one's, of a single one its configurations.

    Raises ConfigError: there is one configuration alone, or nothing measured the metric; DataError: nothing has been measured yet.
    """
    metrics = metrics_of(results, None if metric is None else [metric])
    if not metrics:
        raise DataError(f"{', '.join(one.name for one in results)}: nothing has been measured yet.")
    labelled = [one for task in group(results) for one in task.configurations]
    own = [best_first(one, [c for c in labelled if c.experiment == one.name], metrics[0]) for one in results]
    sides = own[0] if len(own) == 1 else [best[0] for best in own]
    if len(sides) < 2:
        raise ConfigError(f"{results[0].name} has one configuration: name another run to compare it with.")
    return compare(sides, metrics[0])


def best_and_next(results: Results) -> list[str]:
    """Compare a sweep's best configuration with the next: a sentence for each dataset with two that finished."""
    metric, said = objective_of(results.settings).metric, list[str]()
    finished = [one.number for one in results.sweep if one.ended == "finished"]
    for task in group([results]):
        found = best_first(results, [one for one in task.configurations if one.number in finished], metric)
        if len(found) > 1 and all(metric in one.metrics() for one in found[:2]):
            said.append(next(sentences(compare(found, metric))))
    return said


def best_first(results: Results, configurations: Sequence[ConfigurationResult], metric: str) -> list[ConfigurationResult]:
    """The configurations of an experiment that are compared, the best of them: by the objective of a sweep, else by their means."""
    objective = objective_of(results.settings)
    if not results.sweep or metric != objective.metric:
        return ranked(configurations, metric)[:_MOST]
    places = {one.number: place for place, one in enumerate(sweep_text.best_first(results.sweep, objective))}
    return sorted(configurations, key=lambda one: places[one.number])[:_MOST]


def sentences(found: Comparison) -> Iterator[str]:
    """Yield one sentence about the metric for each configuration but the first, and any caveats."""
    first = found.configurations[0]
    if len({one.environment for one in found.configurations} - {None}) > 1:
        where = ", ".join(f"{one.label} in {one.environment}" for one in found.configurations if one.environment)
        yield f"They were scored in different environments ({where}), whose numbers say nothing of each other."
        return
    if len({one.data.get("fingerprint") for one in found.configurations} - {None}) > 1:
        yield "They learned from different data, which may be what makes the difference."
    for other, verdict in zip(found.configurations[1:], found.verdicts, strict=True):
        yield _sentence(found, first, other, verdict)


def _sentence(found: Comparison, first: ConfigurationResult, other: ConfigurationResult, verdict: Verdict) -> str:
    names = f"{other.label} and {first.label}"
    if (apart := verdict.difference) is None:
        return f"{names}: no seed of one of them has a final {found.metric}, so they cannot be compared."
    n, m = (len(one.score(found.metric or "").values) for one in (other, first))
    if apart.mean == 0:
        how = f"{other.label} has the same {found.metric} as {first.label}"
    else:
        better = (apart.mean > 0) != found.is_cost
        how = (
            f"{other.label} is {'better' if better else 'worse'} than {first.label} by {number(abs(apart.mean))} in {found.metric}"
        )
    what = unit(found)
    if apart.interval is None or verdict.p is None:
        return f"{how}; whether they differ is not shown: that needs two {what}s of each, and there are {n} and {m}."
    corrected = ", corrected by Holm" if len(found.verdicts) > 1 else ""
    interval = f"95 % interval of the difference {interval_text(apart.interval)}"
    kind, of = ("paired t-test's", f"{n} {what}s") if found.paired else ("Welch's", f"{n} and {m} {what}s")
    test = f"{interval}, {kind} p = {verdict.p:.2g}{corrected}, {of}"
    return f"{how} ({test}): the difference is {'shown' if verdict.is_shown else 'not shown'}."


def unit(found: Comparison) -> str:
    return "episode" if found.paired else "seed"
