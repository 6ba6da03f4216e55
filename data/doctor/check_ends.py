"""Checks of how episodes end: time limits taken for terminals, lost ends, cuts, missing final observations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .findings import Finding, found
from .survey import Survey

_FAR, _NEAR = 6, 2  # a reset is a step of so many times the median's length, to so many of it from what an episode began with
_SPIKE = 5  # a length is a limit when so many times as many episodes have it as the lengths below it, on average


def timeouts_as_terminals(survey: Survey, limit: int | None = None) -> Iterator[Finding]:
    """Find terminated episodes that pile up at the longest length, or at `limit`, the environment's time limit."""
    steps, terminated = (np.asarray(a) for a in (survey.dataset.episodes.steps, survey.dataset.episodes.terminated))
    lengths = steps[terminated]
    if not len(lengths):
        return
    if limit is not None and (known := int(np.count_nonzero(lengths == limit))):
        truncated = int(np.count_nonzero((steps == limit) & ~terminated))
        if known > truncated and (known > 1 or len(steps) == 1):
            yield _piled_up(limit, known, len(lengths), "the environment's time limit")
            return
    longest = int(lengths.max())
    count = int(np.count_nonzero(lengths == longest))
    alike = count == len(steps) and count > 1
    below = range(max(1, int(0.8 * longest)), longest)
    usual = np.count_nonzero(np.isin(lengths, below)) / max(len(below), 1)
    if longest == steps.max() > 1 and (alike or (count >= 3 and count > _SPIKE * usual)):
        yield _piled_up(longest, count, len(lengths), "and none is longer")


def _piled_up(limit: int, count: int, n: int, what: str) -> Finding:
    sentence = f"{count:,} of {n:,} terminated episodes end after exactly {limit:,} steps, {what}."
    remedy = f"Ingest with `timeout_at={limit}` if that is a time limit: those ends become truncated."
    return found("timeouts_as_terminals", sentence, remedy=remedy, timeout_at=limit, episodes=count)


def longer_than_limit(survey: Survey, limit: int | None = None) -> Iterator[Finding]:
    steps = np.asarray(survey.dataset.episodes.steps)
    if limit is not None and (count := int(np.count_nonzero(steps > limit))):
        sentence = f"{count:,} of {len(steps):,} episodes are longer than the environment's {limit:,} steps, up to {steps.max():,}."
        remedy = f"Ingest with `timeout_at={limit}` if ends were lost, or name the environment that has no such limit."
        yield found("longer_than_limit", sentence, remedy=remedy, limit=limit, episodes=count)


def next_observations_differ(survey: Survey) -> Iterator[Finding]:
    cuts, n = survey.dataset.cuts, survey.dataset.n_episodes
    if cuts:
        bag = bool((np.asarray(survey.dataset.episodes.steps) == 1).all())
        sentence = f"{cuts:,} of {n:,} episodes were cut because the next observation is not the next row."
        yield found("next_observations_differ", sentence, severity="note" if bag else None, cuts=cuts)


def observations_jump(survey: Survey) -> Iterator[Finding]:
    """Find steps far longer than others that end where an episode began: episodes that were joined."""
    sample = survey.sample
    spread = sample.state.std(0)
    if not len(moving := np.flatnonzero(spread > 0)):
        return
    state, after, first = (part[:, moving] / spread[moving] for part in (sample.state, sample.after, sample.first))
    length = np.sqrt(np.square(after - state).mean(1))
    usual = float(np.median(length))
    far = np.flatnonzero(length > _FAR * usual)
    near = [k for k in far if np.sqrt(np.square(first - after[k]).mean(1)).min() < min(_NEAR * usual, length[k] / 2)]
    if len(near) > len(far) / 2:  # else the task has long steps of its own
        sentence = (
            f"{len(near):,} of {len(sample):,} transitions looked at go {_FAR} times as far as the median one and end where an "
            f"episode began; the first is in episode {sample.episode[near[0]]:,}."
        )
        yield found("observations_jump", sentence, transitions=len(near), episode=int(sample.episode[near[0]]))


def final_missing(survey: Survey) -> Iterator[Finding]:
    episodes, n = survey.dataset.episodes, survey.dataset.n_transitions
    count = int(np.count_nonzero(~np.asarray(episodes.terminated) & ~np.asarray(episodes.final_recorded)))
    if count and not survey.of_decisions:
        sentence = (
            f"{count:,} of {len(episodes):,} episodes are truncated without a final observation: {count / n:.1%} of transitions "
            "cannot be bootstrapped from."
        )
        yield found("final_missing", sentence, severity="note" if count < 0.05 * n else None, episodes=count, share=count / n)


def single_steps(survey: Survey) -> Iterator[Finding]:
    steps, terminated = (np.asarray(a) for a in (survey.dataset.episodes.steps, survey.dataset.episodes.terminated))
    single = steps == 1
    count, n = int(single.sum()), len(steps)
    if not count or count < 0.01 * n:
        return
    if survey.of_decisions:
        yield found("one_step_log", f"All {n:,} episodes have a single step, and none goes on from the one before.", episodes=n)
        if cut := int(np.count_nonzero(~terminated)):
            yield found("decisions_cut", f"{cut:,} of {n:,} steps are truncated, and nothing follows on them.", episodes=cut)
        return
    ended = int(np.count_nonzero(single & terminated))
    sentence = f"{count:,} of {n:,} episodes have a single transition, {ended:,} of them terminated."
    grave = ended > 0.5 * n if count == n else count > 0.1 * n
    yield found("single_steps", sentence, severity=None if grave else "note", episodes=count, terminated=ended)


def no_terminals(survey: Survey) -> Iterator[Finding]:
    """Find data in which nothing terminates, though lengths are not those of a time limit."""
    steps, terminated = (np.asarray(a) for a in (survey.dataset.episodes.steps, survey.dataset.episodes.terminated))
    if terminated.any() or len(steps) < 5 or (steps == 1).all():
        return
    short = int(np.count_nonzero(steps < steps.max()))
    if short > 0.5 * len(steps):
        sentence = (
            f"None of {len(steps):,} episodes ends terminated, and {short:,} are shorter than the longest ({steps.max():,} steps)."
        )
        yield found("no_terminals", sentence, shorter=short)


def few_episodes(survey: Survey) -> Iterator[Finding]:
    if survey.dataset.n_episodes < 2:
        yield found("few_episodes", f"There is one episode of {survey.dataset.n_transitions:,} transitions.")
