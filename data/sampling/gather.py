"""Rows to batches: the n-step sum, the discount, the scalers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch
from ..errors import DataError
from ..frames import FrameStack
from ..masks import ACTION_MASK, Masked
from ..scalers import ActionScaler, ObservationScaler, RewardScaler, index_affines, observation_affines
from ..spec import Spec, is_shown
from ..storage.costs import COST
from ..tracing import host_may_look
from .returns import INITIAL, RETURNS, WINDOW, ReturnsToGo
from .windows import Place

_NARROW = 128  # bytes of a row: of wider ones, to look up two at once costs as much as one after the other
Where = Mapping[str, tuple[Tensor, Tensor | None]]  # by observation column, the rows to look up; see `Gather`


def as_tensors(columns: Mapping[str, np.ndarray], device: torch.device | str) -> dict[str, Tensor]:
    """Turn columns into tensors: views on a CPU, copies on an accelerator."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to them
        return {name: torch.from_numpy(column).to(device) for name, column in columns.items()}


def observations(columns: Mapping[str, Tensor]) -> Any:
    """Return the observation column, or a dict of the columns `observation/KEY`; `Masked` where there is an `action_mask`."""
    if ACTION_MASK in columns:
        rest = {name: column for name, column in columns.items() if name != ACTION_MASK}
        return Masked(observations(rest), columns[ACTION_MASK])
    if "observation" in columns:
        return columns["observation"]
    return {name.removeprefix("observation/"): c for name, c in columns.items() if name.startswith("observation/")}


class Gather:
    """Turns rows into a batch: the n-step sum, the discount, the scalers.

    Args:
        columns: Tensors whose rows are steps, with a closing row after each episode (or a ring of them).
        spec: Their spaces.
        gamma: Discount of one step, shape () or (S,): one a seed. Read at every call, so it may be written in place.
        as_indices: Whether numbers of kinds are to count from 0, as networks take them; else they are as in the columns.
        td_steps: n of the n-step return.
        observation_scaler, action_scaler, reward_scaler: Fitted scalers, or None. Rewards are scaled one by one, before the sum.
        dtype: Type of all floats in a batch.
        next_action: Whether the batch carries the next action.
        extra: Names of further columns that the batch carries in `extra`, `cost` among them summed over the n steps as rewards are.
        ahead: K: of so many steps after each window the batch carries in `extra`, [..., B, K, ...] each, `ahead/reward`,
            `ahead/discount`, `ahead/mask` (which of them the episode has) and `ahead/observation`, the one that each step led to.
        returns: What gives returns to go, where they are wanted; the batch carries them in `extra`.
        stacks: By observation column, how its frames are stacked; what is drawn must then say how many steps come `before` it.
        window_actions: Whether the batch carries in `extra` the scaled actions of each window, `window_action`
            [..., B, td_steps, A], and `window_mask` [..., B, td_steps], which is 1 where the episode has the step: beyond that its
            last action is repeated.
        initial: What the first step of an episode counts, as the batch then carries in `extra`, where all others count 0; what is
            drawn must say the number of its `step`. None: it carries no such thing.
    """

    def __init__(
        self,
        columns: Mapping[str, Tensor],
        spec: Spec,
        *,
        gamma: Tensor,
        as_indices: bool = False,
        td_steps: int = 1,
        observation_scaler: ObservationScaler | None = None,
        action_scaler: ActionScaler | None = None,
        reward_scaler: RewardScaler | None = None,
        dtype: torch.dtype = torch.float32,
        next_action: bool = False,
        extra: Sequence[str] = (),
        ahead: int = 0,
        returns: ReturnsToGo | None = None,
        stacks: Mapping[str, FrameStack] | None = None,
        window_actions: bool = False,
        initial: float | None = None,
    ) -> None:
        self.stacks = dict(stacks or {})
        self.columns, self.gamma, self.td_steps, self.dtype = columns, gamma, td_steps, dtype
        self.device = columns["reward"].device
        kinds = {name: str(column.dtype).removeprefix("torch.") for name, column in columns.items()}
        self.observation_affines = observation_affines(observation_scaler, kinds, dtype, self.device)
        self.action_affine = action_scaler.affine(dtype, self.device) if action_scaler else None
        counted = index_affines(spec, self.device)
        self._place = counted.pop("action", None)  # of an action in its mask
        if as_indices:
            self.observation_affines |= counted
            self.action_affine = self._place or self.action_affine
        self.reward_transform = reward_scaler.reward_transform() if reward_scaler else None
        self.window_actions, self.initial = window_actions, initial
        self.next_action, self.extra, self.returns, self.ahead = next_action, tuple(extra), returns, ahead
        self._pairs = {name: _pairs(column) for name, column in columns.items() if _is_narrow(column)}
        for name in self.extra:
            if name not in columns:
                raise DataError(f"This algorithm needs the column {name!r}, which the data do not have.")

    def __call__(self, place: Place, weight: Tensor | None = None) -> Batch:
        """Gather the batch of the transitions at `place`, with their importance weights."""
        batch = self.plain(place, weight).with_observations(*self.seen(self.where(place)))
        return batch.with_extra(**self.following(place)) if self.ahead else batch

    def where(self, place: Place) -> Where:
        """Find the rows of observations at `place` and of those that the windows reach; blocks of them may be cut out."""
        count = self._count(place)
        names = [name for name in self.columns if is_shown(name)]
        return {
            name: self._frame_rows(self.stacks[name], place, count) if name in self.stacks else self._both(name, place, count)
            for name in names
        }

    def seen(self, where: Where) -> tuple[Any, Any]:
        pairs = {
            name: self._stacked(name, *rows) if name in self.stacks else self.observation(name, self._take_both(name, *rows))
            for name, rows in where.items()
        }
        if ACTION_MASK in where:
            here, there = pairs[ACTION_MASK]
            pairs[ACTION_MASK] = self.taken_is_legal(here, where[ACTION_MASK][0]), there
        here, there = (observations({name: pair[i] for name, pair in pairs.items()}) for i in (0, 1))
        return here, there

    def shown(self, name: str, place: Place) -> Tensor:
        """Gather a column of observations at `place`, without what the windows reach."""
        if name in self.stacks:
            return self._stacked_on(name, place, torch.zeros_like(place.rows)[..., None]).squeeze(place.rows.ndim)
        return self.observation(name, self.take(name, place.rows))

    def plain(self, place: Place, weight: Tensor | None = None) -> Batch:
        """Gather the batch at `place` without observations, which take most of the memory and time."""
        rows, wrap, count = place.rows, place.wrap, self._count(place)
        last = rows if count is None else step_rows(rows, count - 1, wrap)
        gamma = self.gamma if self.gamma.ndim == 0 else self.gamma[:, None]  # rows are [..., S, B]
        alive = (~self.take("terminated", last)).to(self.dtype)
        if count is None:
            reward, discount = self.reward(rows), alive * gamma
        else:
            reward, discount = self._n_step_sum(self.reward, rows, count, gamma, wrap), alive * gamma**count
        if self.next_action:
            action, next_action = self._scaled_action(self._take_both("action", *self._both("action", place, count)))
        else:
            action, next_action = self.action(rows), None
        extra = {name: self.take(name, rows) for name in self.extra if name != COST}
        if COST in self.extra:
            extra[COST] = self.cost(rows) if count is None else self._n_step_sum(self.cost, rows, count, gamma, wrap)
        if self.returns is not None:
            extra[RETURNS] = self.returns(rows)
        if self.initial is not None:
            assert place.step is not None, "Which steps are the first is known of steps that have numbers."
            extra[INITIAL] = (place.step == 0).to(self.dtype) * self.initial
        if self.window_actions:
            extra |= self._window(place)
        return Batch(
            observation=None,
            action=action,
            reward=reward,
            next_observation=None,
            discount=discount,
            index=place.index,
            next_action=next_action,
            weight=weight,
            extra=extra,
        )

    def following(self, place: Place) -> dict[str, Tensor]:
        """Gather what `ahead` asks for; where an episode has fewer steps what is masked repeats its last row."""
        count, wrap = self._count(place), place.wrap
        reach = torch.ones_like(place.left) if count is None else count
        left, k = (place.left - reach)[..., None], torch.arange(self.ahead, device=self.device)
        base = step_rows(place.rows, reach, place.wrap)[..., None]
        mask, rows, to = k < left, step_rows(base, torch.minimum(k, left), wrap), step_rows(base, torch.minimum(k + 1, left), wrap)
        gamma = self.gamma if self.gamma.ndim == 0 else self.gamma[:, None, None]
        found = {
            "reward": self.reward(rows) * mask,
            "discount": gamma * (mask & ~self.take("terminated", rows)),
            "mask": mask,
        }
        for name in filter(is_shown, self.columns):
            if name in self.stacks:
                found[name] = self._stacked_on(name, place, reach[..., None] + torch.minimum(k + 1, left))
            else:
                found[name] = self.observation(name, self.take(name, to))
        return {f"ahead/{name}": part for name, part in found.items()}

    def _window(self, place: Place) -> dict[str, Tensor]:
        left, k = place.left[..., None], torch.arange(self.td_steps, device=self.device)
        actions = self.action(step_rows(place.rows[..., None], torch.minimum(k, left - 1), place.wrap))
        return {WINDOW: actions, "window_mask": (k < left).to(self.dtype)}

    def _count(self, place: Place) -> Tensor | None:
        """Return the m of γᵐ of each window, [..., B]; None: 1 for all."""
        return place.left.clamp(max=self.td_steps) if self.td_steps > 1 else None

    def _n_step_sum(
        self, of: Callable[[Tensor], Tensor], rows: Tensor, count: Tensor, gamma: Tensor, wrap: tuple[Tensor, int] | None
    ) -> Tensor:
        """Sum γᵏ r over k < count, [..., B], of rewards or of costs."""
        if gamma.ndim:
            gamma = gamma[..., None]
        k = torch.arange(self.td_steps, device=self.device)  # the last axis: sums over another round by how many are drawn at once
        inside = k < count[..., None]
        reward = of(step_rows(rows[..., None], k * inside, wrap))  # outside: the first, and no weight
        return (reward * (gamma**k * inside)).sum(-1)

    def _both(self, name: str, place: Place, count: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return rows [..., B], and those that the windows reach; None: the ones after them, which a look-up finds too."""
        if count is None and place.wrap is None and name in self._pairs:
            return place.rows, None
        return place.rows, step_rows(place.rows, 1 if count is None else count, place.wrap)

    def _take_both(self, name: str, rows: Tensor, reach: Tensor | None) -> Tensor:
        """Gather raw rows of a column, and those that the windows reach, [2, ..., B, *shape]."""
        if reach is not None:
            return self.take(name, torch.stack((rows, reach)))
        found = self._pairs[name].index_select(0, rows.reshape(-1))
        return found.view(*rows.shape, 2, *self.columns[name].shape[1:]).movedim(rows.ndim, 0).contiguous()

    def _frame_rows(self, stack: FrameStack, place: Place, count: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """[..., B, k + 1 or 2 k] rows of the frames of two stacks, and which are from before the episode began, to be blank.

        Stacks that follow each other share all frames but one, which are looked up and scaled once, and looked at twice.
        """
        k = stack.frames
        offset = torch.arange(1 - k, 1 if count is not None else 2, device=self.device)
        if count is not None:
            offset = torch.cat((offset.expand(*place.rows.shape, k), count[..., None] + offset), -1)
        return self._frames_at(stack, place, offset)

    def _frames_at(self, stack: FrameStack, place: Place, offset: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows [..., B, n] of the frames so many steps from each window's start, and which of them are to be blank."""
        assert place.before is not None, "Frame stacks need to know how many steps come before."
        least = -place.before[..., None]
        found = step_rows(place.rows[..., None], torch.maximum(offset, least), place.wrap)
        return found, None if stack.padding == "repeat" else offset < least

    def _stacked_on(self, name: str, place: Place, steps: Tensor) -> Tensor:
        """Stack the observations `steps` [..., B, K] from each window's start: [..., B, K, *stacked shape]."""
        stack, lead = self.stacks[name], steps.ndim - 1
        offset = steps[..., None] + torch.arange(1 - stack.frames, 1, device=self.device)
        rows, blank = self._frames_at(stack, place, offset.flatten(lead))
        raw = self.take(name, rows)
        frames = self.observation(name, raw if blank is None else _blanked(raw, blank))
        return stack.join(frames.unflatten(lead, (-1, stack.frames)), lead + 1)

    def _stacked(self, name: str, rows: Tensor, blank: Tensor | None) -> tuple[Tensor, Tensor]:
        """Stack an observation, and the one that the window reaches, [..., B, *stacked shape] each."""
        stack, raw, lead = self.stacks[name], self.take(name, rows), rows.ndim - 1
        frames = self.observation(name, raw if blank is None else _blanked(raw, blank))
        k, n = stack.frames, rows.shape[-1]
        return stack.join(frames.narrow(lead, 0, k), lead), stack.join(frames.narrow(lead, n - k, k), lead)

    def take(self, name: str, rows: Tensor) -> Tensor:
        column = self.columns[name]
        if rows.ndim == 1:
            return column.index_select(0, rows)
        return column.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *column.shape[1:])

    def taken_is_legal(self, mask: Tensor, rows: Tensor) -> Tensor:
        """Mark the actions taken at rows [...] as legal in masks [..., n]: what was done could be done, whatever a log says."""
        taken = self.take("action", rows)
        place = self._place.transform(taken) if self._place else taken.long()
        return mask.scatter(-1, place[..., None], torch.ones_like(mask))

    def observation(self, name: str, raw: Tensor) -> Tensor:
        """Convert raw observations of a column, or masks, to what an algorithm sees."""
        if name == ACTION_MASK:
            return raw != 0
        affine = self.observation_affines.get(name)
        return (affine.transform(raw) if affine else raw).to(self.dtype)

    def reward(self, rows: Tensor) -> Tensor:
        raw = self.take("reward", rows).to(self.dtype)
        return self.reward_transform.transform(raw) if self.reward_transform else raw

    def cost(self, rows: Tensor) -> Tensor:
        return self.take(COST, rows).to(self.dtype)

    def action(self, rows: Tensor) -> Tensor:
        return self._scaled_action(self.take("action", rows))

    def _scaled_action(self, raw: Tensor) -> Tensor:
        if self.action_affine:
            return self.action_affine.transform(raw)
        return raw.to(self.dtype if raw.is_floating_point() else torch.int64)


def step_rows(rows: Tensor, by: Tensor | int, wrap: tuple[Tensor, int] | None) -> Tensor:
    """Go `by` steps on from rows [..., B] or [..., B, K], around the ring where there is one."""
    if wrap is None:
        return rows + by
    first, size = wrap
    if 0 < first.ndim < rows.ndim:
        first = first[..., None]
    return first + (rows - first + by) % size


def _is_narrow(column: Tensor) -> bool:
    """Tell whether two of its rows that follow each other are found at once, faster than one after the other."""
    width = math.prod(column.shape[1:])
    return len(column) > 1 < width and width * column.itemsize <= _NARROW and column.is_contiguous()


def _pairs(column: Tensor) -> Tensor:
    """View every row and the one after it, [rows - 1, 2 · width]."""
    width = math.prod(column.shape[1:])
    return column.as_strided((len(column) - 1, 2 * width), (width, 1))


def _blanked(frames: Tensor, missing: Tensor) -> Tensor:
    """Zero the frames [..., k, *shape] where there never was one; `missing` is [..., k]."""
    if host_may_look(frames):
        frames.numpy()[missing.numpy()] = 0  # few are, and NumPy clears whole frames: torch's own took 4 ms for 640 of them
        return frames
    return frames.masked_fill(missing.reshape(*missing.shape, *[1] * (frames.ndim - missing.ndim)), 0)
