"""A doctor's report: findings, and the distributions that a page or a terminal draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .findings import Finding, Severity
from .measures import Behaviour, Coverage
from .survey import Column, Survey, first_action

BATCH = 256
N_STEPS = 500_000
# Updates a second of whole `fit` calls, medians of benchmarks/results/speed.md: two threads of an AMD EPYC, no accelerator.
MEASURED = {  # by kind of action
    "continuous": {"TD3+BC, batch 256, 256x256": 253.0},
    "discrete": {"DQN, batch 32, 256x256": 920.0},
}
MACHINE = "two CPU threads (AMD EPYC)"


@dataclass(frozen=True)
class Estimate:
    """Bytes and hours."""

    column_bytes: Mapping[str, int]  # of the node map, which trials of a machine share; of a GPU, when it holds the columns
    total_bytes: int
    batch_bytes: int  # of 256 transitions with their next observations
    hours: Mapping[str, float]  # of 500,000 updates, by what was measured
    machine: str = MACHINE

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def estimate(columns: Mapping[str, Column], n_rows: int, action_kind: str) -> Estimate:
    row = {name: np.dtype(c.dtype).itemsize * int(np.prod(c.shape, dtype=np.int64)) for name, c in columns.items()}
    row |= dict.fromkeys(("terminated", "truncated", "closing"), 1)
    whole = {name: size * n_rows for name, size in row.items()}
    seen = sum(size for name, size in row.items() if name.split("/")[0] == "observation")
    hours = {name: N_STEPS / speed / 3600 for name, speed in MEASURED.get(action_kind, {}).items()}
    return Estimate(whole, sum(whole.values()), BATCH * (2 * seen + row["action"] + row["reward"]), hours)


_BINS = 40
_ENTRIES = 24  # of vectors, whose distributions are shown
_CELLS = 48  # of a map of states, in each direction
_POINTS = 240  # of the returns in the order of episodes


@dataclass(frozen=True)
class Histogram:
    """Counts of values between edges; of a few whole numbers, one bin each with `labels`."""

    title: str
    edges: tuple[float, ...]  # bins + 1
    counts: tuple[int, ...]
    second: tuple[int, ...] = ()  # a part of counts, drawn in another colour
    second_title: str = ""
    labels: tuple[str, ...] = ()
    whole: bool = False  # each bin holds one whole number, in its middle


@dataclass(frozen=True)
class Report:
    """Findings of the doctor on a dataset."""

    findings: tuple[Finding, ...]  # the gravest first
    returns: Histogram
    steps: Histogram
    rewards: Histogram
    actions: tuple[Histogram, ...]
    observations: tuple[Histogram, ...]
    n_entries: int  # of observations; more than there are histograms of
    order: tuple[float, ...]  # mean returns of stretches of episodes, in the order of the data
    states: tuple[tuple[int, ...], ...]  # counts of sampled states over their two widest directions
    behaviour: Behaviour | None
    coverage: dict[str, float]
    estimate: Estimate
    sampled: int  # transitions that distributions of rewards, actions and observations are of

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == severity]

    @property
    def verdict(self) -> str:
        """The numbers of errors, warnings and notes, in words."""
        parts = [
            f"{n:,} {word}{'s' * (n != 1)}"
            for word in ("error", "warning", "note")
            if (n := sum(f.severity == word for f in self.findings))
        ]
        return "nothing found" if not parts else parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("n_entries", "order", "states", "coverage", "sampled")},
            **{name: asdict(getattr(self, name)) for name in ("returns", "steps", "rewards")},
            **{name: [asdict(one) for one in getattr(self, name)] for name in ("actions", "observations")},
            "behaviour": None if self.behaviour is None else asdict(self.behaviour),
            "estimate": self.estimate.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def histogram(title: str, values: np.ndarray, second: np.ndarray | None = None, second_title: str = "") -> Histogram:
    """Count the finite ones of [N] numbers; `second` [N] bool marks a part of them. Few whole numbers get a bin each."""
    good = np.isfinite(values)
    values, second = values[good].astype(np.float64), None if second is None else second[good]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    whole = bool(len(values)) and high - low <= _BINS and bool((values == np.rint(values)).all())
    if whole:
        edges = np.arange(low, high + 2) - 0.5
    elif high > low:
        edges = np.linspace(low, high, _BINS + 1)
    else:
        edges = np.array([low - 0.5, low + 0.5])
    counts = np.histogram(values, edges)[0]
    part = () if second is None else tuple(map(int, np.histogram(values[second], edges)[0]))
    return Histogram(title, tuple(map(float, edges)), tuple(map(int, counts)), part, second_title, whole=whole)


def bars(title: str, counts: np.ndarray, first: int = 0) -> Histogram:
    """Draw counts of things that have numbers from `first` on."""
    edges, labels = np.arange(first, first + len(counts) + 1) - 0.5, map(str, range(first, first + len(counts)))
    return Histogram(title, tuple(map(float, edges)), tuple(map(int, counts)), labels=tuple(labels), whole=True)


def draw(
    survey: Survey, findings: Sequence[Finding], behaviour: Behaviour | None, coverage: Coverage, estimate: Estimate
) -> Report:
    episodes, sample = survey.dataset.episodes, survey.sample
    terminated = np.asarray(episodes.terminated)
    returns = np.asarray(episodes.returns, np.float64)
    if sample.label is not None and survey.action_counts is not None:
        actions: tuple[Histogram, ...] = (bars("action", survey.action_counts, first_action(survey.dataset.spec)),)
    else:
        width = min(sample.action.shape[1], _ENTRIES)
        named = survey.entries("action", sample.action.shape[1])
        actions = tuple(histogram(named[k], sample.action[:, k]) for k in range(width))
    entries = [
        (label, flat[:, k])
        for name, values in sample.raw.items()
        for flat in [values.reshape(len(values), -1)]
        for k, label in enumerate(survey.entries(name, flat.shape[1]))
    ]
    axes = coverage.axes
    states = np.histogram2d(axes[:, 1], axes[:, 0], bins=_CELLS)[0] if len(axes) and np.isfinite(axes).all() else np.zeros((1, 1))
    return Report(
        tuple(findings),
        histogram("return of an episode", returns),
        histogram("steps of an episode", np.asarray(episodes.steps), terminated, "terminated"),
        histogram("reward", sample.reward[:, 1]),
        actions,
        tuple(histogram(title, values) for title, values in entries[:_ENTRIES]),
        len(entries),
        tuple(float(part.mean()) for part in np.array_split(returns, min(_POINTS, len(returns)))),
        tuple(tuple(map(int, row)) for row in states),
        behaviour,
        {"entries": coverage.entries, "effective_rank": coverage.effective_rank, "distinct": coverage.distinct},
        estimate,
        len(sample),
    )
