"""What `inspect` says in a terminal: tables of numbers, small histograms, and the doctor's findings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from ...data.doctor import Finding, Histogram, Report
from ...data.doctor.report import BATCH, N_STEPS
from ...data.errors import in_words
from ...data.spec import Discrete
from ...data.storage.statistics import Moments, Statistics
from ...platform.words import listed, space_text

if TYPE_CHECKING:
    from ...data.dataset import Dataset
    from ...data.spec import Spec

PROPENSITIES = "log_prob"  # the column by which judging weighs
_NAMES = 12  # names of a column's numbers that are listed
_ENTRIES = 20  # entries of a vector that are shown
_LETTERS = 500  # of a provenance in no form known here
_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 40  # of a histogram
_STYLES = {"error": "bold red", "warning": "yellow", "note": "blue"}


def lines(dataset: Dataset, description: dict[str, Any], report: Report | None) -> Iterator[str | Text]:
    statistics, ends = dataset.statistics, description["ends"]
    yield f"{dataset.name}: {dataset.n_transitions:,} transitions in {dataset.n_episodes:,} episodes"
    yield f"  environment   {dataset.environment.id if dataset.environment else 'not known'}"
    yield f"  observation   {space_text(dataset.spec.observation)}"
    yield f"  action        {space_text(dataset.spec.action)}"
    yield f"  ends          {', '.join(f'{count:,} {end}' for end, count in ends.items() if count)}"
    yield from columns(description["columns"])
    if files := description["files"]:
        yield f"  files         {files['shards']:,} of {files['bytes'] / 1e6:,.1f} MB in all"
    yield f"  fingerprint   {dataset.fingerprint}"
    yield ""
    rows = list(moments(statistics, dataset.spec))
    width = max(24, *(len(label) + 1 for label, values in rows if values))
    yield f"{'':{width}}{'mean':>12}{'std':>12}{'min':>12}{'max':>12}"
    for label, values in rows:
        yield label if not values else f"{label:{width}}" + "".join(f"{value:>12}" for value in values)
    if (counts := statistics.action_counts) is not None:
        numbered = enumerate(counts, dataset.spec.action.start if isinstance(dataset.spec.action, Discrete) else 0)
        yield ""
        yield "actions taken: " + ", ".join(f"{k}: {n:,} ({n / dataset.n_transitions:.1%})" for k, n in numbered)
    if n := statistics.action_outside:
        yield ""
        yield f"{n:,} actions ({n / dataset.n_transitions:.2%}) lie outside the action space; they are kept as they are."
    yield ""
    yield "returns by share of episodes: " + ", ".join(f"{s}: {v:,.5g}" for s, v in description["return_quantiles"].items())
    if (cost := description["costs"]) is not None:
        shares = ", ".join(f"{s}: {v:,.5g}" for s, v in cost["quantiles"].items())
        yield f"costs of an episode: {cost['mean']:,.5g} in the mean; by share of episodes: {shares}"
    if report is not None:
        yield ""
        yield from small_histograms(report)
        yield ""
        yield from (f"{term.lower():14}{words}" for term, words in estimates(report))
        yield ""
        yield from findings(report)
    yield ""
    yield from provenance(dataset.provenance)


def columns(found: list[dict[str, Any]]) -> Iterator[str]:
    """All that is stored, with type and shape of a row's entry; first the behaviour's propensities, or that there are none."""
    recorded = "recorded" if found[0]["name"] == PROPENSITIES else "not recorded"
    yield f"  propensities  {recorded} (their logarithms are the column {PROPENSITIES}, by which judging weighs)"
    for k, one in enumerate(found):
        shape = f" [{', '.join(map(str, one['shape']))}]" if one["shape"] else ""
        names = f": {listed(one['names'], _NAMES)}" if one["names"] else ""
        yield f"  {'columns' if k == 0 else '':12}  {one['name']} {one['dtype']}{shape}{names}"


def moments(statistics: Statistics, spec: Spec) -> Iterator[tuple[str, list[str]]]:
    """A label and mean, std, min and max of each quantity; a label alone says what is left out."""
    for label, found in statistics.quantities().items():
        yield from _rows(label, found, spec.entry_names(label, np.size(found.mean)))


def _rows(label: str, found: Moments, entries: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    columns = [np.atleast_1d(np.asarray(getattr(found, name))) for name in ("mean", "std", "min", "max")]
    n = len(columns[0])
    for k in range(min(n, _ENTRIES)):
        yield f"{label} {entries[k]}".strip(), [number(column[k]) for column in columns]
    if n > _ENTRIES:
        yield f"{label} {_ENTRIES} to {n - 1}: format=json shows them", []


def number(value: float) -> str:
    """Five digits."""
    return f"{value:,.5g}" if abs(value) < 1e5 else f"{value:.4g}"


# ---- the doctor


def small_histograms(report: Report) -> Iterator[str]:
    """A line for each of the main distributions."""
    shown = [report.returns, report.steps, report.rewards, *report.actions[:4]]
    for one in shown:
        if one.counts:
            half = 0.5 if one.whole else 0.0  # bins of whole numbers end half a unit beyond them
            yield f"{one.title[:23]:24}{_end(one.edges[0] + half):>10} {bars(one)} {_end(one.edges[-1] - half)}"


def bars(one: Histogram) -> str:
    """A histogram in one line, at most `_COLUMNS` wide; a bin that holds anything is never blank."""
    counts = np.asarray(one.counts)
    most = max(int(counts.max()), 1)
    each = max(1, _COLUMNS // len(counts)) if len(counts) < _COLUMNS // 2 else 1
    marks = [" " if count == 0 else _BARS[min(int(count / most * len(_BARS)), len(_BARS) - 1)] for count in counts]
    return "".join(mark * min(each, 4) for mark in marks)


def _end(edge: float) -> str:
    return number(edge) if abs(edge) < 1e4 else f"{edge:,.0f}"


def estimates(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what is estimated, not counted: randomness of behaviour, spread of observations, cost of training."""
    yield "Behaviour", _behaviour(report)
    yield "Coverage", _coverage(report)
    takes = report.estimate
    yield "Memory", f"{in_words(takes.total_bytes)} mapped or on the device, {in_words(takes.batch_bytes)} a batch of {BATCH}"
    for name, hours in takes.hours.items():
        yield "Time", f"{N_STEPS:,} updates of {name} took {hours:.2g} hours on {takes.machine}"


def _behaviour(report: Report) -> str:
    seen = report.behaviour
    if seen is None:
        return "too few steps to say"
    most = "" if seen.largest is None else f" of at most {seen.largest:.3g}"
    open_ = "actions that neighbouring states do not settle" if report.actions[0].labels else "variance that the state leaves open"
    return f"entropy about {seen.entropy:.3g} nats{most}; {open_}: {seen.unexplained:.1%}"


def _coverage(report: Report) -> str:
    seen = report.coverage
    return (
        f"{seen['entries']:g} entries of observations vary like {seen['effective_rank']:.2g} independent ones; "
        f"{seen['distinct']:.0%} of those sampled are distinct"
    )


def findings(report: Report) -> Iterator[str | Text]:
    yield f"the doctor: {report.verdict}"
    for one in report.findings:
        yield from _finding(one)


def _finding(one: Finding) -> Iterator[str | Text]:
    yield Text.assemble("  ", (f"{one.severity:8}", _STYLES[one.severity]), (one.title, "bold"), f"  [{one.name}]")
    yield f"          {one.sentence}"
    if one.severity != "note":
        yield f"          {one.meaning}"
    yield f"          → {one.remedy}"


def provenance(found: dict[str, Any]) -> Iterator[str]:
    files: list[dict[str, Any]] = found.get("ingested", {}).get("files", [])
    if "derived" in found:
        yield "provenance: derived by d3ray"
        yield from _derived(found["derived"], "  ")
        return
    if not files:
        text = json.dumps(found) if found else "not recorded"
        yield "provenance: " + (text if len(text) <= _LETTERS else f"{text[:_LETTERS]}… (format=json shows the rest)")
        return
    yield f"provenance: {len(files):,} file{'s' if len(files) > 1 else ''} read by {found['ingested']['by']}"
    for file in files[:5]:
        counts = f"{file['n_transitions']:,} transitions in {file['n_episodes']:,} episodes"
        size = f"{file['bytes']:,} bytes, SHA-256 {file['sha256'][:16]}…"
        yield f"  {file['source']}: {counts}, {file.get('format', 'own')} format, {size}"
        yield from (f"    {sentence}" for sentence in file["notes"])
    if len(files) > 5:
        yield f"  and {len(files) - 5:,} more: format=json shows them"


def _derived(found: dict[str, Any], indent: str) -> Iterator[str]:
    """An operation, and what it was done to, one below the other."""
    about = ", ".join(f"{name} {value}" for name, value in found["parameters"].items())
    yield f"{indent}{found['operation']}{about and f' ({about})'} of"
    for parent in found["parents"]:
        if "derived" in parent:
            yield from _derived(parent["derived"], f"{indent}  ")
        else:
            yield f"{indent}  {parent['name']}, fingerprint {parent['fingerprint'][:16]}…"
