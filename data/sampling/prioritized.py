"""Prioritised draws: what was learned from with a large error is drawn more often (Schaul et al. 2016, proportional)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch, Sequences
from ..episodes import Episode
from ..errors import ConfigError
from ..random import uniform
from .base import Experience, Sampler
from .priorities import Normalization, Priorities
from .sequences import EpisodeSampler
from .transitions import TransitionSampler


class Prioritized(Sampler):
    """Adds priorities, importance weights and feedback of errors to samplers that draw uniformly."""

    priorities: Priorities
    wait: bool
    _waiting = False

    def along(self, steps: Tensor) -> None:
        """Return None: priorities are the host's, and follow from the errors of the step before."""
        return

    def update(self, index: Tensor, error: Tensor) -> None:
        """Set the errors, of any sign, with which what a batch calls `index` was learned from, both [(S,) B]."""
        items, errors = (part.detach().cpu().numpy().reshape(self.n_seeds, -1) for part in (index, error))
        self.priorities.follow()
        self.priorities.update(items, errors.astype(np.float64))
        self._waiting = False

    def state(self) -> dict[str, np.ndarray]:
        """Return priorities, the largest so far, and the step that `sample()` without one comes to next."""
        self.priorities.follow()
        return {**self.priorities.state(), "next": np.array(self._next)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave; a buffer's own state is loaded before. Raises DataError when it is another's."""
        self.priorities.follow()
        self.priorities.load_state(state)
        self._next, self._waiting = int(state["next"]), False

    def _items(self, step: int, size: int | None) -> tuple[Tensor, Tensor]:
        """Draw names of a step, and their importance weights, [(S,) B] each. Raises ConfigError where errors are awaited.

        `size` draws are made from `size` parts of the sum: the first so many of B parts would be the front of the source alone.
        """
        if self.wait and self._waiting:
            raise ConfigError("The errors of the last batch are awaited: call update before the next draw.")
        self._waiting = True
        self._size()
        self.priorities.follow()
        hashes = self._drawn_at(step).numpy().reshape(self.n_seeds, -1)
        share, choice = hashes[:, : self.batch_size], hashes[:, self.batch_size :]
        items = self.priorities.draw(share[:, :size], choice[:, :size])
        weights = self.priorities.weights(items, step)
        shape = self._key.shape + items.shape[1:]
        index, weight = (torch.from_numpy(part.reshape(shape)).to(self.columns_device) for part in (items, weights))
        return index, weight

    def _draw(self, steps: Tensor) -> Tensor:
        numbers = self.batch_size * (2 if self.priorities.uniform_ratio else 1)
        return uniform(self._keys(steps), (numbers,), torch.float64).cpu()


class PrioritizedSampler(Prioritized, TransitionSampler):
    """Transitions in proportion to the errors that they were learned from with; see `Priorities`.

    `weight` of a batch has the importance weights. Each of S seeds has priorities of its own. A batch is a function of (what the
    source holds, priorities, seed, step): `state` has the priorities, and beta follows from the step.

    Args:
        source: A dataset, or a replay buffer, whose new transitions have the largest priority until they are learned from.
        batch_size: B.
        seed: One, or a sequence of S seeds.
        alpha, beta0, betasteps, eps, normalize_by_max, error_min, error_max, stratified: See `Priorities`. Defaults are PFRL's.
        wait_priority_after_sampling: Whether drawing again before `update` is refused.
        **options: As `TransitionSampler`'s.
    """

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        alpha: float = 0.6,
        beta0: float = 0.4,
        betasteps: float = 2e5,
        eps: float = 0.01,
        normalize_by_max: Normalization = True,
        error_min: float | None = 0.0,
        error_max: float | None = 1.0,
        stratified: bool = True,
        wait_priority_after_sampling: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(source, batch_size, seed, **options)
        if self.unique:
            raise ConfigError("A prioritised batch may hold a transition twice: unique goes with uniform draws.")
        self.wait = wait_priority_after_sampling
        self.priorities = Priorities(
            self.windows,
            self.n_seeds,
            alpha=alpha,
            beta0=beta0,
            betasteps=betasteps,
            eps=eps,
            normalize_by_max=normalize_by_max,
            error_min=error_min,
            error_max=error_max,
            stratified=stratified,
        )

    def sample(self, step: int | None = None, size: int | None = None) -> Batch:
        """Draw the batch of a step with importance weights; one of `size` is a draw of its own."""
        items, weight = self._items(step := self._step(step), size)
        return self._moved(self._gathered(self.windows.at(items, before=self._looks_back), weight.to(self._gather.dtype)))


class PrioritizedEpisodeSampler(Prioritized, EpisodeSampler):
    """Episodes, or subsequences of them, in proportion to the errors that they were learned from with; see `Priorities`.

    Args:
        source: A dataset, or a replay buffer: of it, the finished episodes that are all there.
        batch_size: B, episodes.
        seed: One, or a sequence of S seeds.
        max_length: As `EpisodeSampler`'s.
        alpha, beta0, betasteps, eps, normalize_by_max, error_min, error_max, uniform_ratio, stratified: See `Priorities`. Defaults
            are PFRL's, which bounds no errors here.
        default_priority_func: The priority of an episode that is new; None: the largest so far.
        wait_priority_after_sampling: Whether drawing again before `update` is refused.
        return_sample_weights: Whether to give importance weights.
        **options: As `StretchSampler`'s.
    """

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        max_length: int | None = None,
        alpha: float = 0.6,
        beta0: float = 0.4,
        betasteps: float = 2e5,
        eps: float = 1e-8,
        normalize_by_max: Normalization = True,
        error_min: float | None = None,
        error_max: float | None = None,
        uniform_ratio: float = 0.0,
        stratified: bool = True,
        default_priority_func: Callable[[Episode], float] | None = None,
        wait_priority_after_sampling: bool = True,
        return_sample_weights: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(source, batch_size, seed, max_length=max_length, **options)
        self.wait, self.return_sample_weights = wait_priority_after_sampling, return_sample_weights
        self._default = default_priority_func
        self.priorities = Priorities(
            self.windows,
            self.n_seeds,
            alpha=alpha,
            beta0=beta0,
            betasteps=betasteps,
            eps=eps,
            normalize_by_max=normalize_by_max,
            error_min=error_min,
            error_max=error_max,
            uniform_ratio=uniform_ratio,
            stratified=stratified,
            initial=self._initial if default_priority_func else None,
        )

    def sample(self, step: int | None = None, size: int | None = None) -> Sequences:
        """Draw the batch of a step with importance weights; one of `size` is a draw of its own."""
        items, weight = self._items(step := self._step(step), size)
        drawn = self._cut(self.windows.at(items), step)
        return self._moved(replace(drawn, weight=weight.to(drawn.reward.dtype)) if self.return_sample_weights else drawn)

    def _initial(self, items: np.ndarray) -> np.ndarray:
        """Return priorities of new episodes, as the user's function has them."""
        assert self._default is not None
        episode = self.source.episode if self.grows else self.source.episodes.__getitem__
        return np.array([self._default(episode(int(item))) for item in items], np.float64)
