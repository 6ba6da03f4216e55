"""Draws by weights of episodes: by their returns, the best of them only, or as the user says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError, DataError
from ..random import bits, fold, shift_right, uniform
from ..recording import Recording
from ..storage.episode_table import best_episodes
from .transitions import TransitionSampler


class WeightedSampler(TransitionSampler):
    """Transitions of a dataset, with replacement, those of some episodes more often. What it keeps is O(episodes).

    Args:
        dataset: Where from; a replay buffer is not.
        batch_size: B.
        seed: One, or a sequence of S seeds.
        weights: [E], not negative: how often each transition of an episode is drawn, relative to those of others.
        by_episode: The weights are the episodes' own: each is drawn in proportion, whatever its length, and then one of its
            transitions.
        **options: As `TransitionSampler`'s.

    Raises:
        DataError: a weight is negative, NaN or infinite, there is not one an episode, or nothing with a weight can be drawn.
    """

    def __init__(
        self,
        dataset: Recording,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        weights: Any,
        by_episode: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dataset, batch_size, seed, **options)
        if self.grows:
            raise ConfigError("Weights are those of a dataset's episodes: a replay buffer has none.")
        given = np.asarray(weights, np.float64)
        if given.shape != (dataset.n_episodes,):
            raise DataError(f"There are {dataset.n_episodes} episodes, and weights of shape {list(given.shape)}.")
        if not (np.isfinite(given) & (given >= 0)).all():
            k = int((~(np.isfinite(given) & (given >= 0))).argmax())
            raise DataError(f"The weight of episode {k} is {given[k]}; it must be a number that is not negative.")
        drawable = self.windows.drawable
        given = given / given.max(initial=1e-300)  # so that no sum overflows
        shares = np.where(drawable > 0, given if by_episode else given * drawable, 0.0)
        chosen = np.flatnonzero(shares)  # only those, so that rounding can reach no other
        if not len(chosen):
            raise DataError(f"No episode of {dataset.name!r} that has a weight has a transition that can be drawn.")
        starts = np.cumsum(drawable) - drawable
        self._ends, self._starts, self._lengths = (
            torch.from_numpy(part).to(self.columns_device) for part in (np.cumsum(shares[chosen]), starts[chosen], drawable[chosen])
        )

    def _draw(self, steps: Tensor) -> Tensor:
        keys = self._keys(steps)
        share = uniform(keys, (self.batch_size,), torch.float64) * self._ends[-1]
        episode = torch.searchsorted(self._ends, share, right=True).clamp(max=len(self._ends) - 1)
        within = shift_right(bits(fold(keys, "within"), self.batch_size), 1) % self._lengths[episode]
        return self._starts[episode] + within


def exponential_weights(returns: Any, temperature: float) -> np.ndarray:
    """Weigh episodes by their returns [E]: exp((R - max R) / temperature); a small temperature draws the best only."""
    if not temperature > 0:
        raise ConfigError(f"temperature is {temperature}; it must be positive.")
    values = np.asarray(returns, np.float64)
    return np.exp((values - values.max()) / temperature)


def top_weights(returns: Any, share: float, steps: Any | None = None) -> np.ndarray:
    """Weigh the best `share` of the episodes with 1 and the others with 0, by returns [E]; see `best_episodes`.

    With `steps` [E] it is a share of the transitions: a tenth makes imitation the "10 % BC" of Chen et al. 2021 (Decision
    Transformer, section 5).
    """
    if not 0 < share <= 1:
        raise ConfigError(f"The share of the best episodes is {share}; it must be above 0, and at most 1.")
    values = np.asarray(returns, np.float64)
    of = np.ones(len(values)) if steps is None else np.asarray(steps)
    weights = np.zeros(len(values))
    weights[best_episodes(values, of, share, "episodes" if steps is None else "transitions")] = 1.0
    return weights
