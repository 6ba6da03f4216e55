"""Priorities on a sum tree, as prioritised experience replay has them (Schaul et al. 2016, proportional)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError, DataError
from .sum_tree import SumTree, Tree

_LEAST = 1e-100  # 0 is what is not there; and where all errors were 0, all are drawn alike
Normalization = bool | Literal["batch", "memory"]


class Priorities:
    """Priorities of what may be drawn for each of S seeds, on a sum tree, with importance weights.

    The priority of an item whose error is δ is p = (clip(|δ|, error_min, error_max) + eps)^alpha. An item is drawn with the
    probability P = (1 - uniform_ratio) p / Σp + uniform_ratio / N, and its weight is (N P)^-β, where β rises from beta0 to 1 within
    betasteps. New items have the largest priority that there was so far, and 1 in the beginning. Errors that are not finite change
    no priority.

    Args:
        windows: What may be drawn: a dataset's `Windows` or `Runs`, or a buffer's `Starts`, which is followed as it changes.
        n_seeds: S.
        alpha: How strongly errors count; 0 draws uniformly.
        beta0: β at step 0.
        betasteps: Gradient steps until β is 1.
        eps: Added to errors, so that an item without one is drawn again.
        normalize_by_max: True or "batch" divides weights by the largest of their batch, "memory" by the largest that any item would
            have; False leaves them.
        error_min, error_max: Bounds of errors; None: no bound.
        uniform_ratio: Share of draws that are uniform.
        stratified: Whether the B draws of a batch come from B equal parts of the sum, one each, as in the paper's section 3.3 and
            appendix B.2.1. Otherwise they are independent.
        initial: Priorities [K] of items [K] that are new; None: the largest so far.
    """

    def __init__(
        self,
        windows: Any,
        n_seeds: int,
        *,
        alpha: float,
        beta0: float,
        betasteps: float,
        eps: float,
        normalize_by_max: Normalization,
        error_min: float | None,
        error_max: float | None,
        uniform_ratio: float = 0.0,
        stratified: bool = True,
        initial: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        if alpha < 0 or eps < 0 or not 0 <= beta0 <= 1 or betasteps <= 0 or not 0 <= uniform_ratio <= 1:
            raise ConfigError(
                f"alpha {alpha} and eps {eps} must not be negative, beta0 {beta0} and uniform_ratio {uniform_ratio} lie on [0, 1], "
                f"and betasteps {betasteps} must be positive."
            )
        if normalize_by_max not in (True, False, "batch", "memory"):
            raise ConfigError(f"normalize_by_max is {normalize_by_max!r}; it is true, false, 'batch' or 'memory'.")
        self.alpha, self.beta0, self.betasteps, self.eps = alpha, beta0, betasteps, eps
        self.normalize_by_max = normalize_by_max
        self.bounds = 0.0 if error_min is None else error_min, np.inf if error_max is None else error_max
        self.uniform_ratio, self.stratified = uniform_ratio, stratified
        self.windows, self._initial = windows, initial
        self.tree = SumTree(windows.size, n_seeds)
        self._least = Tree(windows.size, n_seeds, least=True) if normalize_by_max == "memory" else None
        self.maximum = np.ones(n_seeds)
        self._mark: Any = None
        self.follow()

    def follow(self) -> None:
        """Take over what a buffer has lost and gained since it was last looked at."""
        if not hasattr(self.windows, "since"):  # of a dataset, which does not change
            if self._mark is None:
                self._reset()
                self._mark = True
            return
        mark = self.windows.mark()
        changed = None if self._mark is None else self.windows.since(self._mark)
        if changed is None:
            self._reset()
        else:
            gone, new = changed
            if len(gone):
                self._set(gone, np.zeros(len(gone)))
            if len(new):
                self._set(new, self._first(new))
        self._mark = mark

    def _reset(self) -> None:
        """Forget all, and take everything for new."""
        items = self.windows.all()
        values = np.zeros((len(self.maximum), self.tree.n))
        values[:, items] = self._first(items)
        self._fill(values)

    def _first(self, items: np.ndarray) -> np.ndarray:
        """Return priorities of new items, [K] or [S, 1]."""
        return self.maximum[:, None] if self._initial is None else np.maximum(self._initial(items), _LEAST)

    def _set(self, items: np.ndarray, values: np.ndarray) -> None:
        shape = (len(self.maximum), len(items))
        self._put(np.broadcast_to(items, shape), np.broadcast_to(values, shape))

    def _put(self, items: np.ndarray, values: np.ndarray) -> None:
        self.tree.set(items, values)
        if self._least is not None:
            self._least.set(items, np.where(values > 0, values, np.inf))

    def _fill(self, values: np.ndarray) -> None:
        self.tree.fill(values)
        if self._least is not None:
            self._least.fill(np.where(values > 0, values, np.inf))

    def update(self, items: np.ndarray, errors: np.ndarray) -> None:
        """Set the errors [S, B] with which items [S, B] were learned from; those that are no longer there are passed over."""
        priorities, errors = self.tree.at(items), np.abs(np.asarray(errors, np.float64))
        learned = (priorities > 0) & np.isfinite(errors)
        new = np.where(learned, np.maximum((errors.clip(*self.bounds) + self.eps) ** self.alpha, _LEAST), priorities)
        self.maximum = np.maximum(self.maximum, new.max(-1, where=learned, initial=0.0))
        self._put(items, new)

    def draw(self, share: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """Find items [S, B] by uniform numbers [S, B] on (0, 1); `choice` has as many more where a part of the draws is uniform."""
        if self.stratified:
            share = (np.arange(share.shape[-1]) + share) / share.shape[-1]
        items = self.tree.find(share)
        if not self.uniform_ratio:
            return items
        there = self.windows.all()
        evenly = there[(choice / self.uniform_ratio * len(there)).astype(np.int64).clip(max=len(there) - 1)]
        return np.where(choice < self.uniform_ratio, evenly, items)

    def weights(self, items: np.ndarray, step: int) -> np.ndarray:
        """Return importance weights [S, B] of drawn items."""
        n, drawn = self.windows.n, self.tree.at(items)
        beta = min(1.0, self.beta0 + (1 - self.beta0) * step / self.betasteps)
        if not self.normalize_by_max:
            return self._weight(drawn, n) ** -beta
        least = drawn.min(-1, keepdims=True) if self._least is None else self._least.total[:, None]  # it weighs most
        if not self.uniform_ratio:  # the number of items and the sum of their priorities cancel
            return (drawn / least) ** -beta
        return (self._weight(drawn, n) / self._weight(least, n)) ** -beta

    def _weight(self, priorities: np.ndarray, n: int) -> np.ndarray:
        """Return how much more often than uniformly items of some priorities are drawn."""
        return n * (1 - self.uniform_ratio) * priorities / self.tree.total[:, None] + self.uniform_ratio

    def state(self) -> dict[str, np.ndarray]:
        """Return the priorities [S, n] and the largest so far [S]."""
        return {"priorities": self.tree.values.copy(), "maximum": self.maximum.copy()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave. Raises DataError when it is of another number of items or seeds."""
        needed = (len(self.maximum), self.tree.n)
        if {"priorities", "maximum"} - state.keys() or state["priorities"].shape != needed:
            raise DataError(f"This is no state of a sampler with priorities of shape {list(needed)}.")
        self._fill(state["priorities"])
        self.maximum = np.array(state["maximum"], np.float64)
