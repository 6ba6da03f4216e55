"""Uniform transitions from a dataset, with n-step returns, as batches for one seed or a stack of seeds.

A sampler keeps no state: the batch of a step is a function of (seed, step). Drawing is index arithmetic over the rows of a
dataset, so it costs the same however large the dataset is.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .batch import Batch
from .errors import DataError
from .random import fold, integers, root_key
from .scalers import Scaler

if TYPE_CHECKING:
    from .dataset import Dataset

BLOCK = 64  # steps that are drawn at once, at most; changes no value, and makes the cost of a call vanish
_BLOCK_BYTES = 1 << 23  # and what their observations may take


class Source(Protocol):
    """What training reads from."""

    def sample(self, step: int) -> Batch:
        """The batch of a gradient step."""
        ...

    def between_epochs(self, epoch: int) -> None:
        """A source may renew itself here (a model-based generator does)."""
        ...


def as_tensors(columns: Mapping[str, np.ndarray], device: torch.device | str) -> dict[str, Tensor]:
    """Columns as tensors: views on a CPU, copies on an accelerator."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to them
        return {name: torch.from_numpy(column).to(device) for name, column in columns.items()}


def observations(columns: Mapping[str, Tensor]) -> Any:
    """The observation column, or a dict of the columns `observation/KEY`."""
    if "observation" in columns:
        return columns["observation"]
    return {name.removeprefix("observation/"): c for name, c in columns.items() if name.startswith("observation/")}


class Gather:
    """Turns rows into a batch: the n-step sum, the discount, the scalers.

    Args:
        columns: Tensors whose rows are steps, with a closing row after each episode (or a ring of them).
        gamma: Discount of one step, shape () or (S,): one a seed. Read at every call, so it may be written in place.
        td_steps: n of the n-step return.
        observation_scaler, action_scaler: Fitted scalers, or None.
        dtype: Type of all floats in a batch.
        next_action: Whether the batch carries the next action.
        extra: Names of further columns that the batch carries in `extra`.
    """

    def __init__(
        self,
        columns: Mapping[str, Tensor],
        *,
        gamma: Tensor,
        td_steps: int = 1,
        observation_scaler: Scaler | None = None,
        action_scaler: Scaler | None = None,
        dtype: torch.dtype = torch.float32,
        next_action: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        self.columns, self.gamma, self.td_steps, self.dtype = columns, gamma, td_steps, dtype
        self.device = columns["reward"].device
        self.observation_affine = observation_scaler.affine(dtype, self.device) if observation_scaler else None
        self.action_affine = action_scaler.affine(dtype, self.device) if action_scaler else None
        self.next_action, self.extra = next_action, tuple(extra)
        for name in self.extra:
            if name not in columns:
                raise DataError(f"This algorithm needs the column {name!r}, which the data do not have.")

    def __call__(self, index: Tensor, rows: Tensor, steps_left: Tensor, wrap: tuple[Tensor, int] | None = None) -> Batch:
        """The batch at `rows`.

        Args:
            index: [..., B] int64, the transitions' numbers.
            rows: [..., B] int64, their rows.
            steps_left: [..., B] int64, transitions until the episode ends, this one included; at least 1.
            wrap: for rings: the first row of each transition's ring [..., B], and the ring's size; None: rows never wrap.
        """
        count = steps_left.clamp(max=self.td_steps) if self.td_steps > 1 else None  # m of γᵐ; None: 1 for all
        reach = self._step(rows, 1 if count is None else count, wrap)
        last = rows if count is None else self._step(rows, count - 1, wrap)
        gamma = self.gamma if self.gamma.ndim == 0 else self.gamma[:, None]  # rows are [..., S, B]
        alive = (~self._take("terminated", last)).to(self.dtype)
        if count is None:
            reward, discount = self._take("reward", rows).to(self.dtype), alive * gamma
        else:
            reward, discount = self._n_step_sum(rows, count, gamma, wrap), alive * gamma**count
        both = observations(
            {n: self._observation(n, torch.stack((rows, reach))) for n in self.columns if n.startswith("observation")}
        )
        here, there = ({k: v[i] for k, v in both.items()} if isinstance(both, dict) else both[i] for i in (0, 1))
        return Batch(
            observation=here,
            action=self._action(rows),
            reward=reward,
            next_observation=there,
            discount=discount,
            index=index,
            next_action=self._action(reach) if self.next_action else None,
            extra={name: self._take(name, rows) for name in self.extra},
        )

    def _n_step_sum(self, rows: Tensor, count: Tensor, gamma: Tensor, wrap: tuple[Tensor, int] | None) -> Tensor:
        """Σ γᵏ r over k < count, [..., B]."""
        k = torch.arange(self.td_steps, device=self.device).reshape(-1, *[1] * rows.ndim)
        inside = k < count
        reward = self._take("reward", self._step(rows, k * inside, wrap)).to(self.dtype)  # outside: the first, and no weight
        return (reward * (gamma**k * inside)).sum(0)

    @staticmethod
    def _step(rows: Tensor, by: Tensor | int, wrap: tuple[Tensor, int] | None) -> Tensor:
        if wrap is None:
            return rows + by
        first, size = wrap
        return first + (rows - first + by) % size

    def _take(self, name: str, rows: Tensor) -> Tensor:
        column = self.columns[name]
        return column.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *column.shape[1:])

    def _observation(self, name: str, rows: Tensor) -> Tensor:
        raw = self._take(name, rows)
        return self.observation_affine.transform(raw) if self.observation_affine else raw.to(self.dtype)

    def _action(self, rows: Tensor) -> Tensor:
        raw = self._take("action", rows)
        if not raw.is_floating_point():
            return raw.to(torch.int64)
        return self.action_affine.transform(raw) if self.action_affine else raw.to(self.dtype)


class Windows:
    """Which transitions of a dataset may be drawn, and where they lie: O(episodes) memory, whatever the number of steps.

    Args:
        dataset: Where episodes lie.
        td_steps: n of the n-step return.
        bootstrap: Whether what is drawn looks at the next observation. Windows that end at a truncation whose final observation
            is missing are then left out, for there is nothing to bootstrap from.
        device: Where the arithmetic runs.
    """

    def __init__(self, dataset: Dataset, td_steps: int = 1, *, bootstrap: bool = True, device: torch.device | str = "cpu") -> None:
        episodes = dataset.episodes
        steps = np.asarray(episodes.steps, np.int64)
        blind = ~(np.asarray(episodes.terminated) | np.asarray(episodes.final_recorded)) & bootstrap
        drawable = np.where(blind, np.maximum(steps - td_steps, 0), steps)
        ends = np.cumsum(drawable)
        self.n = int(ends[-1]) if len(ends) else 0
        if self.n == 0:
            raise DataError(f"The dataset {dataset.name!r} has no transition that can be drawn with td_steps={td_steps}.")
        first = np.asarray(episodes.first_row, np.int64)
        closing = first + steps
        self._ends, self._offset, self._closing = (
            torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (ends, first - (ends - drawable), closing)
        )

    def locate(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Window numbers [...] to their rows [...] and the steps left in their episodes [...]."""
        episode = torch.searchsorted(self._ends, index, right=True)
        rows = index + self._offset[episode]
        return rows, self._closing[episode] - rows


class TransitionSampler:
    """Uniform draws of transitions from a dataset, with replacement, for one seed or several.

    Args:
        dataset: Where from.
        batch_size: Transitions in a batch, B.
        seed: One seed: tensors of a batch are [B, ...]. A sequence of S seeds: [S, B, ...], each row drawn by its own seed.
        gamma: Discount of one step; a tensor of shape () or (S,) is read at every draw.
        td_steps: n of the n-step return. Windows stop at an episode's end and never reach over it.
        observation_scaler, action_scaler: Fitted scalers, applied to what is drawn.
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
        observation_scaler: Scaler | None = None,
        action_scaler: Scaler | None = None,
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
