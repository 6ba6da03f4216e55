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
from .frames import FrameStack
from .windows import Place


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
        stacks: By observation column, how its frames are stacked; what is drawn must then say how many steps come `before` it.
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
        stacks: Mapping[str, FrameStack] | None = None,
    ) -> None:
        self.stacks = dict(stacks or {})
        self.columns, self.gamma, self.td_steps, self.dtype = columns, gamma, td_steps, dtype
        self.device = columns["reward"].device
        self.observation_affines = observation_scaler.affines(dtype, self.device) if observation_scaler else {}
        self.action_affine = action_scaler.affine(dtype, self.device) if action_scaler else None
        self.reward_transform = reward_scaler.reward_transform() if reward_scaler else None
        self.next_action, self.extra = next_action, tuple(extra)
        for name in self.extra:
            if name not in columns:
                raise DataError(f"This algorithm needs the column {name!r}, which the data do not have.")

    def __call__(self, place: Place, weight: Tensor | None = None) -> Batch:
        """The batch of the transitions that lie at `place`, with their importance weights."""
        return self.plain(place, weight).with_observations(*self.seen(place))

    def seen(self, place: Place) -> tuple[Any, Any]:
        """The observations at `place`, and those that the windows reach."""
        count = self._count(place)
        reach = step_rows(place.rows, 1 if count is None else count, place.wrap)
        pairs = {
            name: self._stacked(name, place, count) if name in self.stacks else self._pair(name, place.rows, reach)
            for name in self.columns
            if name.startswith("observation")
        }
        here, there = (observations({name: pair[i] for name, pair in pairs.items()}) for i in (0, 1))
        return here, there

    def plain(self, place: Place, weight: Tensor | None = None) -> Batch:
        """The batch of the transitions that lie at `place`, without observations, which take most of the memory and time."""
        rows, wrap, count = place.rows, place.wrap, self._count(place)
        reach = step_rows(rows, 1 if count is None else count, wrap)
        last = rows if count is None else step_rows(rows, count - 1, wrap)
        gamma = self.gamma if self.gamma.ndim == 0 else self.gamma[:, None]  # rows are [..., S, B]
        alive = (~self.take("terminated", last)).to(self.dtype)
        if count is None:
            reward, discount = self.reward(rows), alive * gamma
        else:
            reward, discount = self._n_step_sum(rows, count, gamma, wrap), alive * gamma**count
        return Batch(
            observation=None,
            action=self.action(rows),
            reward=reward,
            next_observation=None,
            discount=discount,
            index=place.index,
            next_action=self.action(reach) if self.next_action else None,
            weight=weight,
            extra={name: self.take(name, rows) for name in self.extra},
        )

    def _count(self, place: Place) -> Tensor | None:
        """Of each window its m of γᵐ, [..., B]; None: 1 for all."""
        return place.left.clamp(max=self.td_steps) if self.td_steps > 1 else None

    def _n_step_sum(self, rows: Tensor, count: Tensor, gamma: Tensor, wrap: tuple[Tensor, int] | None) -> Tensor:
        """Σ γᵏ r over k < count, [..., B]."""
        k = torch.arange(self.td_steps, device=self.device).reshape(-1, *[1] * rows.ndim)
        inside = k < count
        reward = self.reward(step_rows(rows, k * inside, wrap))  # outside: the first, and no weight
        return (reward * (gamma**k * inside)).sum(0)

    def _pair(self, name: str, rows: Tensor, reach: Tensor) -> Tensor:
        """[2, ..., B, *shape]: an observation and the one that the window reaches."""
        return self.observation(name, self.take(name, torch.stack((rows, reach))))

    def _stacked(self, name: str, place: Place, count: Tensor | None) -> tuple[Tensor, Tensor]:
        """The stacks of an observation and of the one that the window reaches, [..., B, *stacked shape] each."""
        stack, rows, before, wrap = self.stacks[name], place.rows, place.before, place.wrap
        assert before is not None, "Frame stacks need to know how many steps come before."
        k, lead = stack.frames, rows.ndim
        if count is None:  # the two share all frames but one: gathered and scaled once, and looked at twice
            strip = self._frames(name, stack, rows, before, wrap, 1)
            here, there = strip.narrow(lead, 0, k), strip.narrow(lead, 1, k)
        else:
            here = self._frames(name, stack, rows, before, wrap, 0)
            there = self._frames(name, stack, step_rows(rows, count, wrap), before + count, wrap, 0)
        return stack.join(here, lead), stack.join(there, lead)

    def _frames(
        self, name: str, stack: FrameStack, rows: Tensor, before: Tensor, wrap: tuple[Tensor, int] | None, ahead: int
    ) -> Tensor:
        """[..., B, k + ahead, *shape]: the frames that end `ahead` rows after `rows`."""
        offset = torch.arange(1 - stack.frames, 1 + ahead, device=self.device)
        least = -before[..., None]
        if wrap is not None and wrap[0].ndim:
            wrap = wrap[0][..., None], wrap[1]
        raw = self.take(name, step_rows(rows[..., None], torch.maximum(offset, least), wrap))
        return self.observation(name, raw if stack.padding == "repeat" else _blanked(raw, offset < least))

    def take(self, name: str, rows: Tensor) -> Tensor:
        """Raw rows [..., *shape] of a column."""
        column = self.columns[name]
        return column.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *column.shape[1:])

    def observation(self, name: str, raw: Tensor) -> Tensor:
        """Raw observations of a column as an algorithm sees them."""
        affine = self.observation_affines.get(name)
        return affine.transform(raw) if affine else raw.to(self.dtype)

    def reward(self, rows: Tensor) -> Tensor:
        """Rewards of rows as an algorithm sees them."""
        raw = self.take("reward", rows).to(self.dtype)
        return self.reward_transform.transform(raw) if self.reward_transform else raw

    def action(self, rows: Tensor) -> Tensor:
        """Actions of rows as an algorithm sees them."""
        raw = self.take("action", rows)
        if not raw.is_floating_point():
            return raw.to(torch.int64)
        return self.action_affine.transform(raw) if self.action_affine else raw.to(self.dtype)


def step_rows(rows: Tensor, by: Tensor | int, wrap: tuple[Tensor, int] | None) -> Tensor:
    """The rows `by` steps on, around the ring where there is one."""
    if wrap is None:
        return rows + by
    first, size = wrap
    return first + (rows - first + by) % size


def _blanked(frames: Tensor, missing: Tensor) -> Tensor:
    """The frames [..., k, *shape] with zeros where there never was one; `missing` is [..., k]."""
    if frames.device.type == "cpu":
        frames.numpy()[missing.numpy()] = 0  # few are, and NumPy clears whole frames: torch's own took 4 ms for 640 of them
        return frames
    return frames.masked_fill(missing.reshape(*missing.shape, *[1] * (frames.ndim - missing.ndim)), 0)
