"""Checks of numbers: NaN, flags, observations that are constant, scaled, clipped or copied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..spec import Box, space_columns
from .findings import Finding, found
from .measures import Coverage
from .survey import Column, Survey

FEW_STATES = 0.2  # share of distinct observations below which a task has few states, and copies are natural
_NORMAL = 0.1  # how far a mean may lie from 0 and a spread from 1 and yet look normalised;
_NEARLY = 0.3  # a spread where a running filter normalised, which began elsewhere
_SPIKE = 5  # an extreme value is a clip's when it is so many times as frequent as the hundredth of the range beside it
_MANY = 100  # steps below which nothing is said about distributions


def not_finite(survey: Survey) -> Iterator[Finding]:
    for name, column in survey.columns.items():
        if column.first_bad is not None:
            where = survey.place(column.first_bad)
            sentence = f"{column.bad:,} rows of {name!r} hold NaN or infinite numbers; the first is {where}."
            yield found("not_finite", sentence, column=name, rows=column.bad, first_row=column.first_bad)


def rows_disagree(survey: Survey) -> Iterator[Finding]:
    """Compare the flags of rows with the table of episodes."""
    if survey.first_wrong is not None:
        where = survey.place(survey.first_wrong)
        sentence = f"{survey.flags_wrong:,} rows have flags that the table of episodes does not know; the first is {where}."
        yield found("rows_disagree", sentence, rows=survey.flags_wrong, first_row=survey.first_wrong)


def observations_constant(survey: Survey) -> Iterator[Finding]:
    constant: list[str] = []
    total = 0
    for name, column in survey.observations.items():
        if column.moments is None:
            continue
        same = np.atleast_1d(column.moments.low == column.moments.high)
        total += len(same)
        entries = survey.entries(name, len(same))
        constant += [entries[k] for k in np.flatnonzero(same)]
    if not constant or survey.dataset.n_transitions < 2:
        return
    if len(constant) == total:
        sentence = "Observations are the same in every step."
        remedy = "Check that the right column was read as observations."
        yield found("observations_constant", sentence, severity="warning", remedy=remedy, entries=constant)
    else:
        sentence = f"{len(constant):,} of {total:,} entries of observations never change: {listed(constant)}."
        yield found("observations_constant", sentence, entries=constant)


def observations_normalised(survey: Survey) -> Iterator[Finding]:
    """Find mean 0 and spread 1 in every entry that varies."""
    means, spreads = _vectors(survey)
    moving = spreads > 0
    if survey.dataset.n_transitions < _MANY or moving.sum() < 2:
        return
    mean, spread = np.abs(means[moving]).max(), np.abs(spreads[moving] - 1).max()
    if mean < _NORMAL and spread < _NEARLY:
        sentence = (
            f"All {moving.sum():,} entries of observations that vary have mean 0 (to {mean:.2g}) and standard deviation 1 "
            f"(to {spread:.2g})."
        )
        severity = None if spread < _NORMAL else "note"
        yield found("observations_normalised", sentence, severity=severity, mean=float(mean), std=float(spread))


def scales_differ(survey: Survey) -> Iterator[Finding]:
    _, spreads = _vectors(survey)
    spreads = spreads[spreads > 0]
    if len(spreads) > 1 and (ratio := float(spreads.max() / spreads.min())) > 100:
        sentence = f"Standard deviations of entries of observations reach from {spreads.min():.3g} to {spreads.max():.3g}."
        yield found("scales_differ", sentence, ratio=ratio)


def observations_outside(survey: Survey) -> Iterator[Finding]:
    for name, space, column in _boxes(survey):
        bounds = space.bounds()
        if bounds is None or column.moments is None or not column.is_vector:
            continue
        low, high = (bound.reshape(-1) for bound in bounds)
        slack = 1e-3 * np.where(np.isfinite(high - low), high - low, 1)
        seen_low, seen_high = (np.atleast_1d(v).astype(np.float64) for v in (column.moments.low, column.moments.high))
        wrong = np.flatnonzero((seen_low < low - slack) | (seen_high > high + slack)) if len(seen_low) == len(low) else []
        if len(wrong):
            k = int(wrong[0])
            entry = survey.entries(name, len(low))[k]
            sentence = (
                f"{len(wrong):,} of {len(low):,} entries of {name!r} leave their space: {entry} goes from "
                f"{seen_low[k]:.4g} to {seen_high[k]:.4g}, its space from {low[k]:.4g} to {high[k]:.4g}."
            )
            yield found("observations_outside", sentence, column=name, entries=[int(k) for k in wrong])


def observations_clipped(survey: Survey) -> Iterator[Finding]:
    """Find extreme values that many rows share, in entries that are otherwise continuous."""
    clipped: dict[str, float] = {}
    for name, values in survey.sample.raw.items():
        column = survey.columns[name]
        if column.moments is None or values.dtype.kind != "f" or len(values) < _MANY:
            continue
        flat = values.reshape(len(values), -1)
        entries = survey.entries(name, flat.shape[1])
        for k in range(flat.shape[1]):
            entry, n = flat[:, k], column.moments.count
            if len(np.unique(entry)) < 0.2 * len(entry):
                continue
            low, high = (float(np.atleast_1d(v)[k]) for v in (column.moments.low, column.moments.high))
            for extreme, count in ((low, column.at_low[k]), (high, column.at_high[k])):
                beside = np.mean((np.abs(entry - extreme) < 0.01 * (high - low)) & (entry != extreme))
                if count >= max(10, 1e-3 * n) and count / n > _SPIKE * beside:
                    clipped[f"{entries[k]} at {extreme:.5g}"] = float(count / n)
    if clipped:
        sentence = (
            "Many rows hold exactly an extreme value: " + listed([f"{at} ({share:.1%})" for at, share in clipped.items()]) + "."
        )
        yield found("observations_clipped", sentence, shares=clipped)


def states_low_rank(survey: Survey, coverage: Coverage) -> Iterator[Finding]:
    if len(survey.sample) >= _MANY and coverage.entries >= 6 and coverage.effective_rank < coverage.entries / 4:
        sentence = f"{coverage.entries} entries of observations vary like {coverage.effective_rank:.1f} independent ones."
        yield found("states_low_rank", sentence, entries=coverage.entries, effective_rank=coverage.effective_rank)


def duplicates(survey: Survey, coverage: Coverage) -> Iterator[Finding]:
    steps = np.asarray(survey.dataset.episodes.steps)
    natural = coverage.distinct < FEW_STATES
    long = np.flatnonzero(steps > 1)
    values, first, inverse = np.unique(survey.episode_hashes[long], return_index=True, return_inverse=True)
    again = np.flatnonzero(first[inverse] != np.arange(len(long)))
    if len(again):
        one, other = int(long[again[0]]), int(long[first[inverse[again[0]]]])
        sentence = (
            f"{len(again):,} of {len(steps):,} episodes are copies of others: the first is episode {one:,}, the same as {other:,}."
        )
        severity = "note" if natural else None
        yield found("duplicate_episodes", sentence, severity=severity, copies=len(again), distinct=len(values))
    hashes = survey.transition_hashes
    repeated = int(np.count_nonzero(hashes[1:] == hashes[:-1])) * survey.thinned
    repeated -= int(steps[long[again]].sum())  # said already
    n = survey.dataset.n_transitions
    if repeated > max(1e-3 * n, 1):
        about = "About " if survey.thinned > 1 else ""
        sentence = f"{about}{repeated:,} of {n:,} transitions ({repeated / n:.1%}) are copies of others."
        severity = "note" if natural or repeated < 0.01 * n else None
        yield found("duplicate_transitions", sentence, severity=severity, copies=repeated)


def _vectors(survey: Survey) -> tuple[np.ndarray, np.ndarray]:
    """Return means and spreads of all entries of observations that are vectors of floats."""
    columns = [c for c in survey.observations.values() if c.is_vector and c.dtype.startswith("float") and c.moments is not None]
    means = [np.atleast_1d(c.moments.mean) for c in columns if c.moments is not None]
    spreads = [np.where(np.atleast_1d(c.moments.low == c.moments.high), 0, c.std) for c in columns if c.moments is not None]
    return (np.concatenate(means), np.concatenate(spreads)) if columns else (np.zeros(0), np.zeros(0))


def _boxes(survey: Survey) -> Iterator[tuple[str, Box, Column]]:
    leaves = space_columns(survey.dataset.spec.observation)
    for name, column in survey.observations.items():
        if isinstance(leaf := leaves.get(name), Box):
            yield name, leaf, column


def listed(words: list[str], most: int = 6) -> str:
    """Join words: a, b, c and 4 more."""
    return ", ".join(words[:most]) + (f" and {len(words) - most:,} more" if len(words) > most else "")
