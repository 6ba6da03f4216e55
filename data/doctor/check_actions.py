"""Checks of actions: outside their space, in another unit, constant, at their bounds, settled by the state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .check_values import listed
from .findings import Finding, found
from .measures import Behaviour
from .survey import Survey, first_action

_FAR = 10.0  # ranges beyond a bound, from which on these cannot be actions that an environment clipped
_HUGE = 100.0
_SATURATED = 0.2  # share of steps at a bound
_NARROW = 0.1  # share of the space's range
_SETTLED = 0.02  # share of actions, or of their variance, that the state leaves open


def actions_outside(survey: Survey) -> Iterator[Finding]:
    """Find continuous actions out of finite bounds, or very large ones where bounds are not known."""
    moments, n = survey.columns["action"].moments, survey.dataset.n_transitions
    if moments is None or survey.action_counts is not None:
        return
    low, high = (np.atleast_1d(v).astype(np.float64) for v in (moments.low, moments.high))
    reach = f"from {low.min():,.5g} to {high.max():,.5g}"
    if survey.outside:
        bounds = survey.bounds
        assert bounds is not None
        space = f"from {bounds[0].min():g} to {bounds[1].max():g}"
        sentence = f"{survey.outside:,} actions ({survey.outside / n:.1%}) lie outside their space: they reach {reach}, it {space}."
        name = "actions_far_outside" if survey.beyond > _FAR else "actions_outside"
        yield found(name, sentence, outside=survey.outside, ranges_beyond=survey.beyond)
    elif survey.bounds is None and max(-low.min(), high.max()) > _HUGE:
        yield found("actions_huge", f"Actions reach {reach}.", low=float(low.min()), high=float(high.max()))


def actions_illegal(survey: Survey) -> Iterator[Finding]:
    """Find actions that their row's mask forbids, which an ingest keeps only where it is told to."""
    if survey.first_illegal is not None:
        n, where = survey.n_illegal, survey.place(survey.first_illegal)
        share = n / survey.dataset.n_transitions
        sentence = f"{n:,} actions ({share:.1%}) were not legal by their action_mask, the first at {where}."
        yield found("actions_illegal", sentence, illegal=n, row=survey.first_illegal)


def actions_normalised(survey: Survey) -> Iterator[Finding]:
    """Find actions that fill [-1, 1] and no more in a wider space, or a small part of a wide one."""
    moments, bounds = survey.columns["action"].moments, survey.bounds
    if moments is None or bounds is None or survey.outside or survey.dataset.n_transitions < 100:
        return
    low, high = (np.atleast_1d(v).astype(np.float64).reshape(-1) for v in (moments.low, moments.high))
    largest, wide = np.maximum(-low, high), np.minimum(-bounds[0], bounds[1]) > 1.2
    if wide.any() and (largest < 1 + 1e-5).all() and (largest[wide] > 0.95).all():
        scale = np.maximum(bounds[1], -bounds[0])
        one = f"{scale[0]:g}" if np.all(scale == scale[0]) else f"[{', '.join(f'{s:g}' for s in scale)}]"
        sentence = f"All actions lie in [-1, 1] and reach {largest.max():.4g}, and the space reaches {one}."
        yield found("actions_normalised", sentence, remedy=f"Ingest with `action_scale={one}`.", action_scale=scale.tolist())
    elif (share := (high - low) / (bounds[1] - bounds[0])).min() < _NARROW and (high > low).any():
        k = int(share.argmin())
        sentence = (
            f"Of the entries of actions, {survey.entries('action', len(low))[k]} reaches from {low[k]:.4g} to {high[k]:.4g}, "
            f"{share[k]:.1%} of its space ({bounds[0][k]:g} to {bounds[1][k]:g})."
        )
        yield found("actions_narrow", sentence, share=float(share[k]))


def actions_constant(survey: Survey) -> Iterator[Finding]:
    """Find a single action, or discrete ones that were never taken."""
    moments, counts = survey.columns["action"].moments, survey.action_counts
    if moments is None or survey.dataset.n_transitions < 2:
        return
    if np.all(moments.low == moments.high):
        yield found("actions_constant", f"All {survey.dataset.n_transitions:,} actions are the same.")
    elif counts is not None and (unused := np.flatnonzero(counts == 0) + first_action(survey.dataset.spec)).size:
        sentence = f"{len(unused):,} of {len(counts):,} actions were never taken: {listed([str(a) for a in unused])}."
        yield found("actions_unused", sentence, actions=unused.tolist())


def actions_saturated(survey: Survey) -> Iterator[Finding]:
    """Find actions at a bound, or at their own extremes where bounds are not known."""
    column, n = survey.columns["action"], survey.dataset.n_transitions
    if column.moments is None or not column.dtype.startswith("float") or np.all(column.moments.low == column.moments.high):
        return
    at = survey.at_bounds if len(survey.at_bounds) else column.at_low + column.at_high
    if len(at) and (share := float(at.max() / n)) > _SATURATED and n >= 100:
        sentence = (
            f"{share:.1%} of the actions lie at a bound in {survey.entries('action', len(at))[int(at.argmax())]}, "
            f"{float(at.mean() / n):.1%} over all entries."
        )
        yield found("actions_saturated", sentence, shares=(at / n).tolist())


def behaviour_deterministic(survey: Survey, behaviour: Behaviour | None) -> Iterator[Finding]:
    del survey
    if behaviour is not None and behaviour.unexplained < _SETTLED and behaviour.baseline > 0.05:
        sentence = f"The state settles all but {behaviour.unexplained:.2%} of the action."
        yield found("behaviour_deterministic", sentence, unexplained=behaviour.unexplained, entropy=behaviour.entropy)
