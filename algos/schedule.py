"""When the kinds of update of an algorithm are due."""

from __future__ import annotations


def due(step: int, **every: int) -> tuple[str, ...]:
    """The kinds that are due at gradient step `step` (from 0), in the order given: each at every so-manieth step.

    `due(step, critic=1, actor=2, targets=2)` is ("critic",) at step 0 and ("critic", "actor", "targets") at step 1.
    """
    return tuple(kind for kind, n in every.items() if (step + 1) % n == 0)
