"""Uniform draws of transitions from a replay buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils import _pytree  # pyright: ignore[reportPrivateUsage]

from ..batch import Batch
from ..errors import DataError
from ..random import bits, fold, root_key, shift_right
from ..sampling import BLOCK, Gather, as_tensors

if TYPE_CHECKING:
    from ..scalers import ActionScaler, ObservationScaler, RewardScaler
    from .buffer import ReplayBuffer


class ReplaySampler:
    """Uniform draws of transitions from a replay buffer, with replacement: what `TransitionSampler` is to a dataset.

    A batch is a function of (the buffer's contents, seed, step). `index` of a batch is the row in the buffer's flat columns; it
    names the same transition until that is overwritten. An n-step window is drawn only when it is complete: followed by the row
    of its next observation, or closed by the end of its episode.

    Args:
        buffer: Where from; it may grow between draws.
        batch_size: B.
        seed: One seed, or S of them for batches [S, B, ...].
        gamma: Discount of one step; a tensor of shape () or (S,) is read at every draw.
        td_steps: n of the n-step return.
        observation_scaler, action_scaler, reward_scaler: Fitted scalers.
        next_action, dtype: See `Gather`.
        device: Where a batch lies. Rows are gathered on the host and copied.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        gamma: float | Tensor = 0.99,
        td_steps: int = 1,
        observation_scaler: ObservationScaler | None = None,
        action_scaler: ActionScaler | None = None,
        reward_scaler: RewardScaler | None = None,
        next_action: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.buffer, self.batch_size, self.td_steps, self.device = buffer, batch_size, td_steps, torch.device(device)
        keys = root_key(seed) if isinstance(seed, int) else torch.stack([root_key(s) for s in seed])
        self._key = fold(keys, "sample")
        self._gamma = gamma if isinstance(gamma, Tensor) else torch.tensor(gamma, dtype=dtype)
        self._gather = Gather(
            as_tensors({name: column for name, column in buffer.columns.items() if name not in ("truncated", "closing")}, "cpu"),
            gamma=self._gamma.cpu(),
            td_steps=td_steps,
            observation_scaler=observation_scaler,
            action_scaler=action_scaler,
            reward_scaler=reward_scaler,
            dtype=dtype,
            next_action=next_action,
        )
        self._starts = buffer.starts(td_steps)
        self._block: int | None = None
        self._drawn: Tensor
        self._next = 0

    @property
    def n_windows(self) -> int:
        """How many transitions may be drawn now."""
        return self._starts.total

    def sample(self, step: int | None = None) -> Batch:
        """The batch of a step; without one, of the step after the last call without one.

        Raises:
            DataError: no window is complete yet.
        """
        if step is None:
            step, self._next = self._next, self._next + 1
        total = self.n_windows
        if total == 0:
            raise DataError(
                f"The replay buffer holds no window of {self.td_steps} steps that is complete: collect more before training."
            )
        block, at = divmod(step, BLOCK)
        if block != self._block:
            keys = fold(self._key[..., None], torch.arange(block * BLOCK, (block + 1) * BLOCK))
            self._block, self._drawn = block, shift_right(bits(keys, self.batch_size), 1)
        number = self._drawn[..., at, :] % total  # = integers(key of the step, batch_size, total)
        rows, steps_left, first = self._starts.locate(number)
        if self._gamma.device.type != "cpu":
            self._gather.gamma = self._gamma.cpu()
        batch = self._gather(rows, rows, steps_left, (first, self.buffer.rows))
        return batch if self.device.type == "cpu" else _pytree.tree_map(self._moved, batch)

    def between_epochs(self, epoch: int) -> None:
        """A buffer renews itself as steps are appended."""

    def _moved(self, part: Tensor) -> Tensor:
        return part.to(self.device)
