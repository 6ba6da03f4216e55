"""Rows to batches: the n-step sum, the discount, the scalers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch
from ..errors import DataError
from ..scalers import ActionScaler, ObservationScaler, RewardScaler


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
        observation_scaler, action_scaler, reward_scaler: Fitted scalers, or None. Rewards are scaled one by one, before the sum.
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
        observation_scaler: ObservationScaler | None = None,
        action_scaler: ActionScaler | None = None,
        reward_scaler: RewardScaler | None = None,
        dtype: torch.dtype = torch.float32,
        next_action: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        self.columns, self.gamma, self.td_steps, self.dtype = columns, gamma, td_steps, dtype
        self.device = columns["reward"].device
        self.observation_affines = observation_scaler.affines(dtype, self.device) if observation_scaler else {}
        self.action_affine = action_scaler.affine(dtype, self.device) if action_scaler else None
        self.reward_transform = reward_scaler.reward_transform() if reward_scaler else None
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
            reward, discount = self._reward(rows), alive * gamma
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
        reward = self._reward(self._step(rows, k * inside, wrap))  # outside: the first, and no weight
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
        raw, affine = self._take(name, rows), self.observation_affines.get(name)
        return affine.transform(raw) if affine else raw.to(self.dtype)

    def _reward(self, rows: Tensor) -> Tensor:
        raw = self._take("reward", rows).to(self.dtype)
        return self.reward_transform.transform(raw) if self.reward_transform else raw

    def _action(self, rows: Tensor) -> Tensor:
        raw = self._take("action", rows)
        if not raw.is_floating_point():
            return raw.to(torch.int64)
        return self.action_affine.transform(raw) if self.action_affine else raw.to(self.dtype)
