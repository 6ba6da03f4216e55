"""A dataset as RLlib's offline algorithms read it: batches drawn in the trial's process, each addressed by (seed, gradient step).

It stands in the place of RLlib's `OfflineData`, which reads through Ray Data: that needs CPUs which trials hold, draws in an order
that depends on its workers, and runs MARWIL's value network as it was before training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...data.random import fold, integers, root_key
from ...data.scalers import MinMaxActionScaler
from ...data.spec import Box

if TYPE_CHECKING:
    from ray.rllib.policy.sample_batch import MultiAgentBatch

MODULE = "default_policy"


class Transitions:
    """Sampler of a dataset's transitions.

    Args:
        dataset: Arrays of numbers as observations; continuous or discrete actions.
        seed: Of the draws.
        scaler: Fitted; brings continuous actions to [-1, 1], as RLlib's networks give them.

    Attributes:
        step: Batches drawn so far; decides the next draw.
    """

    def __init__(self, dataset: Dataset, seed: int, scaler: MinMaxActionScaler | None) -> None:
        self.columns, self.key, self.step = dataset.columns, fold(root_key(seed), "rllib batch"), 0
        episodes = dataset.episodes
        self._terminated = np.asarray(episodes.terminated)
        first, steps = np.asarray(episodes.first_row, np.int64), np.asarray(episodes.steps, np.int64)
        blind = ~(self._terminated | np.asarray(episodes.final_recorded))  # the last step's next observation is not known
        self._last = first + np.where(blind, steps - 2, steps - 1)  # last row of each episode that may be drawn
        counts = np.maximum(self._last - first + 1, 0)
        self._first, self._counts, self._ends = first, counts, np.cumsum(counts)
        self._affine = None if scaler is None else scaler.numbers()

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows [count] int64, uniform with replacement, and the numbers of their episodes; one step further each time."""
        drawn = integers(fold(self.key, self.step), count, int(self._ends[-1])).numpy()
        self.step += 1
        episode = np.searchsorted(self._ends, drawn, side="right")
        return self._first[episode] + drawn - (self._ends[episode] - self._counts[episode]), episode

    def batch(self, count: int) -> dict[str, Tensor]:
        """Single transitions, in RLlib's names."""
        rows, episode = self.draw(count)
        at_end = rows == self._last[episode]
        terminated = at_end & self._terminated[episode]
        arrays = {
            "obs": self.observations(rows),
            "new_obs": self.observations(rows + 1),
            "actions": self.actions(rows),
            "rewards": self.columns["reward"][rows].astype(np.float32),
            "terminateds": terminated,
            "truncateds": at_end & ~terminated,
        }
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def fragments(self, count: int, longest: int) -> list[Any]:
        """Pieces of episodes, as RLlib's episodes, with `count` observations altogether, the one after each piece included."""
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode

        rows, episodes = self.draw(count // 2)  # a piece has two observations at least
        found, left = list[Any](), count
        for row, episode in zip(rows, episodes, strict=True):
            length = min(longest, int(self._last[episode] - row) + 1, left - 1)
            if left - length - 1 == 1:  # a single observation would be left over, which is no piece
                length += 1 if row + length <= self._last[episode] else -1
            if length < 1:
                continue
            end = row + length
            at_end = end - 1 == self._last[episode]
            terminated = bool(at_end and self._terminated[episode])
            piece = SingleAgentEpisode(
                observations=list(self.observations(np.arange(row, end + 1))),
                actions=list(self.actions(np.arange(row, end))),
                rewards=self.columns["reward"][row:end].astype(np.float64).tolist(),
                terminated=terminated,
                truncated=bool(at_end and not terminated),
                len_lookback_buffer=0,
            )
            piece.to_numpy()
            found.append(piece)
            left -= length + 1
            if left == 0:
                break
        return found

    def observations(self, rows: np.ndarray) -> np.ndarray:
        """float32."""
        return self.columns["observation"][rows].astype(np.float32)

    def actions(self, rows: np.ndarray) -> np.ndarray:
        """int64, or float32 in [-1, 1]."""
        raw = self.columns["action"][rows]
        if self._affine is None:
            return raw.astype(np.int64)
        scale, shift = self._affine
        return np.clip(raw.astype(np.float64) * scale + shift, -1, 1).astype(np.float32)


def offline_data_class(transitions: Transitions, fragment_length: int | None, returns_iterator: bool) -> type:
    """Return RLlib's class of offline data.

    Args:
        transitions: Where batches come from.
        fragment_length: None: single transitions; else pieces of episodes of at most so many steps, for advantages.
        returns_iterator: Whether the algorithm hands data on as iterators (CQL), and not as batches (the family of MARWIL).
    """
    from ray.rllib.offline.offline_data import OfflineData
    from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

    class DatasetBatches(OfflineData):
        """The part of OfflineData's interface that training uses; RLlib insists on a subclass."""

        def __init__(self, config: Any) -> None:
            self.spaces: Any = None
            self.module_spec: Any = None
            self.learner_handles: list[Any] = []
            self.iter_batches_kwargs: dict[str, Any] = {}

        def sample(self, num_samples: int, *ignored: Any, **also_ignored: Any) -> Any:
            return [self] if returns_iterator else self._batch(num_samples)

        def iter_torch_batches(self, *, batch_size: int, device: Any = None, **ignored: Any) -> Iterator[dict[str, Any]]:
            while True:
                yield {MODULE: {name: tensor.to(device) for name, tensor in transitions.batch(batch_size).items()}}

        def _batch(self, count: int) -> MultiAgentBatch:
            learner = self.learner_handles[0]
            if fragment_length is None:
                parts = {name: tensor.to(learner.device) for name, tensor in transitions.batch(count).items()}
                return MultiAgentBatch({MODULE: SampleBatch(parts)}, env_steps=count)
            pieces, shared = transitions.fragments(count, fragment_length), dict[str, Any]()
            found = learner._learner_connector(  # with the value network as it is now
                rl_module=learner.module, batch={}, episodes=pieces, shared_data=shared, metrics=learner.metrics
            )
            return MultiAgentBatch({name: SampleBatch(part) for name, part in found.items()}, env_steps=count)

    return DatasetBatches


def fitted_scaler(dataset: Dataset) -> MinMaxActionScaler | None:
    """Fit a scaler of actions to [-1, 1]; None if they are discrete. Raises DataError: nothing is known to scale by."""
    return MinMaxActionScaler().fit(dataset) if isinstance(dataset.spec.action, Box) else None
