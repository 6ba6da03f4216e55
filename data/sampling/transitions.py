"""Uniform transitions from a dataset, with n-step returns, as batches for one seed or a stack of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..batch import Batch
from ..random import fold, integers, root_key
from ..scalers import ActionScaler, ObservationScaler, RewardScaler
from .gather import Gather, as_tensors
from .source import BLOCK
from .windows import Windows

if TYPE_CHECKING:
    from ..dataset import Dataset

_BLOCK_BYTES = 1 << 23  # what the observations of a block may take


class TransitionSampler:
    """Uniform draws of transitions from a dataset, with replacement, for one seed or several.

    Args:
        dataset: Where from.
        batch_size: Transitions in a batch, B.
        seed: One seed: tensors of a batch are [B, ...]. A sequence of S seeds: [S, B, ...], each row drawn by its own seed.
        gamma: Discount of one step; a tensor of shape () or (S,) is read at every draw.
        td_steps: n of the n-step return. Windows stop at an episode's end and never reach over it.
        observation_scaler, action_scaler, reward_scaler: Fitted scalers, applied to what is drawn.
        bootstrap: See `Windows`.
        next_action, extra, dtype: See `Gather`.
        device: Where the columns are copied to and the batch lies.

    Raises:
        DataError: nothing can be drawn, or a column is missing.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        gamma: float | Tensor = 0.99,
        td_steps: int = 1,
        observation_scaler: ObservationScaler | None = None,
        action_scaler: ActionScaler | None = None,
        reward_scaler: RewardScaler | None = None,
        bootstrap: bool = True,
        next_action: bool = True,
        extra: Sequence[str] = (),
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.batch_size = batch_size
        self.windows = Windows(dataset, td_steps, bootstrap=bootstrap, device=device)
        keys = root_key(seed, device) if isinstance(seed, int) else torch.stack([root_key(s, device) for s in seed])
        self._key = fold(keys, "sample")
        self._seeds = 1 if isinstance(seed, int) else len(seed)
        needed = {
            n: c
            for n, c in dataset.columns.items()
            if n in ("action", "reward", "terminated", *extra) or n.startswith("observation")
        }
        self._gather = Gather(
            as_tensors(needed, device),
            gamma=gamma if isinstance(gamma, Tensor) else torch.tensor(gamma, dtype=dtype, device=device),
            td_steps=td_steps,
            observation_scaler=observation_scaler,
            action_scaler=action_scaler,
            reward_scaler=reward_scaler,
            dtype=dtype,
            next_action=next_action,
            extra=extra,
        )
        row = sum(column[:1].nbytes for name, column in needed.items() if name.startswith("observation"))
        fits = _BLOCK_BYTES // max(1, 2 * row * batch_size * self._seeds)
        self._block_steps = 1 << min(BLOCK, max(1, fits)).bit_length() - 1
        self._block: tuple[int, int] | None = None
        self._drawn: Batch
        self._next = 0

    @property
    def n_windows(self) -> int:
        """How many transitions may be drawn."""
        return self.windows.n

    def sample(self, step: int | None = None) -> Batch:
        """The batch of a step; without one, of the step after the last call without one."""
        if step is None:
            step, self._next = self._next, self._next + 1
        block, at = divmod(step, self._block_steps)
        gamma = self._gather.gamma
        wanted = (block, gamma._version)  # a γ that was written in place since counts at once
        if wanted != self._block:
            steps = torch.arange(block * self._block_steps, (block + 1) * self._block_steps, device=self._key.device)
            keys = fold(self._key, steps if self._key.ndim == 0 else steps[:, None])
            index = integers(keys, self.batch_size, self.windows.n)
            self._block, self._drawn = wanted, self._gather(index, *self.windows.locate(index))
        return self._drawn[at]

    def between_epochs(self, epoch: int) -> None:
        """A dataset does not change."""
