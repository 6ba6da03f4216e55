"""Checks of rewards: constant, sparse, of outlying returns, and in the wrong row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .findings import Finding, found
from .measures import blocks, errors
from .survey import Survey

_FEW = 200  # transitions with one before and one after, below which rewards are not regressed
# Another row's rewards are explained better when errors of the row's own are so many times as large, in the mean and in the median
# (a few odd rows decide a mean), by so much of the variance, which is so many standard errors, and little of theirs is left.
# Seen on eight environments of MuJoCo and classic control: clean data at most 1.3 times, shifted ones 1.8 to a million.
_TIMES, _MARGIN, _SURE, _EXPLAINED = 1.5, 1e-4, 5.0, 0.5
_FAR, _VERY_FAR = 6.0, 20.0  # interquartile ranges below the first quartile; Tukey calls 3 far out, which skewed returns often are


def rewards_constant(survey: Survey) -> Iterator[Finding]:
    """Find rewards that are all equal, all zero, or nearly all zero."""
    moments, n = survey.columns["reward"].moments, survey.dataset.n_transitions
    if moments is None or n < 2:
        return
    low, high, zeros = float(moments.low), float(moments.high), survey.n_zero_rewards / n
    if low == high == 0:
        yield found("rewards_zero", f"All {n:,} rewards are zero.")
    elif low == high:
        ends = bool(np.asarray(survey.dataset.episodes.terminated).any())
        sentence = f"All {n:,} rewards are {low:g}" + ("." if ends else ", and no episode ends terminated.")
        yield found("rewards_constant", sentence, severity="note" if ends else None, reward=low)
    elif zeros > 0.95 and not survey.of_decisions:
        yield found("rewards_sparse", f"{zeros:.2%} of the rewards are zero.", zero=zeros)


def return_outliers(survey: Survey) -> Iterator[Finding]:
    """Find returns far below the others, by quartiles."""
    returns = np.asarray(survey.dataset.episodes.returns, np.float64)
    returns = returns[np.isfinite(returns)]
    if len(returns) < 20:
        return
    first, middle, third = np.quantile(returns, [0.25, 0.5, 0.75])
    unit = max(third - first, 0.1 * abs(middle))
    far = returns < first - _FAR * unit
    if unit > 0 and far.any():
        lowest = float(returns.min())
        sentence = (
            f"{far.sum():,} of {len(returns):,} episodes return far less than the others: down to {lowest:,.5g}, where the middle "
            f"half returns {first:,.5g} to {third:,.5g}."
        )
        severity = None if lowest < first - _VERY_FAR * unit else "note"
        yield found("return_outliers", sentence, severity=severity, episodes=int(far.sum()), lowest=lowest)


def rewards_shifted(survey: Survey) -> Iterator[Finding]:
    """Rewards that another row explains.

    A reward is a function of state, action and next state. The reward in the row itself, in the one before and in the one after are
    regressed on these, out of sample. Where rewards stand in their own row none of the others is explained better; where they stand
    one row late, the one after is explained better by far. The next state must be among what they are regressed on: it tells much
    of the reward after, and a comparison without it would find faults where there is none.
    """
    sample, episodes = survey.sample, survey.dataset.episodes
    inner = sample.inner & np.isfinite(sample.reward).all(1) & np.isfinite(sample.state).all(1) & np.isfinite(sample.after).all(1)
    inner &= np.isfinite(sample.action).all(1)
    reward = sample.reward[inner]
    first, later = survey.first_rewards, survey.dataset.n_transitions - len(episodes)
    only_first = len(first) >= 5 and not first.any() and survey.n_zero_rewards - len(first) < 0.01 * later
    if len(reward) >= _FEW and (reward.std(0) > 0).all():
        x = np.concatenate([sample.state, sample.action, sample.after], 1)[inner]
        missed = errors(x, reward, blocks(sample)[inner])
        before, own, after = missed.mean(0).tolist()
        left = {"row before": before, "own row": own, "row after": after}
        for name, column, where in (("rewards_late", 2, "after"), ("rewards_early", 0, "before")):
            more, other = missed[:, 1] - missed[:, column], left[f"row {where}"]
            usual, other_usual = np.median(missed[:, [1, column]], axis=0)
            clear = own > _TIMES * other and usual > _TIMES * other_usual and own - other > _MARGIN
            if clear and other < _EXPLAINED and more.mean() > _SURE * more.std() / np.sqrt(len(more)):
                sentence = (
                    f"State, action and next state leave {own:.2%} of the variance of the reward in their own row unexplained, "
                    f"and {other:.2%} of that in the row {where}."
                )
                yield found(name, sentence, unexplained=left)
                return
    if only_first and later > len(first):
        sentence = f"The first reward of all {len(first):,} episodes is zero, and hardly another one is."
        yield found("rewards_late", sentence, first_rewards_zero=len(first))
