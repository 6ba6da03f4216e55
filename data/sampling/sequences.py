"""Stretches of episodes [B, T]: for sequence models and recurrent networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ..batch import Sequences
from ..errors import ConfigError, DataError
from ..masks import Masked
from ..random import bits, fold, shift_right
from ..scalers import ActionScaler, ObservationScaler, RewardScaler
from ..spec import is_shown
from ..storage.costs import COST
from .base import Experience, FreeMemory, Sampler, free_memory, needed_columns
from .gather import Gather, as_tensors, observations, step_rows
from .returns import COSTS, ReturnsToGo
from .windows import Place, Runs


class StretchSampler(Sampler):
    """Base of the samplers of stretches: turns first rows and lengths into padded tensors.

    Args:
        source: A dataset or a replay buffer.
        batch_size: B.
        seed: One, or a sequence of S seeds.
        gamma: Discount of one step; a tensor of shape () or (S,) is read at every draw.
        as_indices: See `Gather`.
        pad: On which side a stretch that is shorter than T is padded, "left" as for Decision Transformers, or "right" as for
            recurrent networks.
        return_to_go: Whether to give the undiscounted returns to go of scaled rewards. They are summed once for all rows of a
            dataset, one number of `dtype` a row; of a buffer, which changes, they are not to be had.
        next_observation: Whether to give each step's next observation.
        bootstrap: Whether the last steps of truncated episodes whose final observation is missing are left out.
        observation_scaler, action_scaler, reward_scaler: Fitted scalers.
        extra: Names of further columns. "cost_to_go" is none, but the undiscounted sum of the column `cost` from each step to the
            episode's end; of a replay buffer it is not to be had.
        device, free_memory: See `Sampler`.
        dtype: Type of all floats.
    """

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        gamma: float | Tensor = 0.99,
        as_indices: bool = False,
        pad: Literal["left", "right"] = "left",
        return_to_go: bool = False,
        next_observation: bool = False,
        bootstrap: bool = False,
        observation_scaler: ObservationScaler | None = None,
        action_scaler: ActionScaler | None = None,
        reward_scaler: RewardScaler | None = None,
        extra: Sequence[str] = (),
        device: torch.device | str = "cpu",
        free_memory: FreeMemory = free_memory,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        named = [COST if name == COSTS else name for name in extra]
        columns = needed_columns(source, tuple(dict.fromkeys(named)))
        super().__init__(source, batch_size, seed, device, columns, free_memory)
        if pad not in ("left", "right"):
            raise ConfigError(f"pad is {pad!r}; choose 'left' or 'right'.")
        self.pad, self.bootstrap, self.next_observation = pad, bootstrap, next_observation
        if (return_to_go or COSTS in extra) and self.grows:
            raise DataError("A replay buffer has no returns to go: its episodes go on. Use to_dataset() for the finished ones.")
        transform, once = reward_scaler.reward_transform() if reward_scaler else None, torch.ones(())
        returns = ReturnsToGo(source, None, once, transform, False, dtype, self.columns_device)
        self._returns = returns if return_to_go else None
        costs = ReturnsToGo(source, None, once, None, False, dtype, self.columns_device, COST)
        self._costs = costs if COSTS in extra else None
        self._gamma = gamma if isinstance(gamma, Tensor) else torch.tensor(gamma, dtype=dtype, device=self.columns_device)
        self._gather = Gather(
            as_tensors(columns, self.columns_device),
            source.spec,
            gamma=self._discount(),
            as_indices=as_indices,
            observation_scaler=observation_scaler,
            action_scaler=action_scaler,
            reward_scaler=reward_scaler,
            dtype=dtype,
            extra=[name for name in extra if name != COSTS],
        )

    def _stretches(self, index: Tensor, first: Tensor, length: Tensor, timestep: Tensor, padded: int, wrap: Any) -> Sequences:
        """Gather stretches of `length` steps from the rows `first`, whose steps are numbered from `timestep` on, [..., B] each."""
        gather = self._gather
        position = torch.arange(padded, device=self.columns_device)
        if self.pad == "left":
            position = position - (padded - length[..., None])
        mask = (position >= 0) & (position < length[..., None])
        position = position * mask  # what is padding reads the first row, and is made zero below
        rows = step_rows(first[..., None], position, wrap)

        def kept(part: Tensor) -> Tensor:
            return part * mask.reshape(*mask.shape, *[1] * (part.ndim - mask.ndim))

        def seen(rows: Tensor) -> Any:
            names = [name for name in gather.columns if is_shown(name)]
            return observations({name: kept(gather.observation(name, gather.take(name, rows))) for name in names})

        observation = seen(rows)
        if isinstance(observation, Masked):
            observation = Masked(observation.observation, kept(gather.taken_is_legal(observation.action_mask, rows)))

        extra = {name: kept(gather.cost(rows) if name == COST else gather.take(name, rows)) for name in gather.extra}
        if self._costs:
            extra[COSTS] = kept(self._costs(rows))
        gamma = self._discount()
        alive = (~gather.take("terminated", rows)).to(gather.dtype)
        return Sequences(
            observation=observation,
            action=kept(gather.action(rows)),
            reward=kept(gather.reward(rows)),
            discount=kept(alive * (gamma if gamma.ndim == 0 else gamma[:, None, None])),
            mask=mask,
            timestep=kept(timestep[..., None] + position),
            index=index,
            return_to_go=kept(self._returns(rows)) if self._returns else None,
            next_observation=seen(step_rows(rows, 1, wrap)) if self.next_observation else None,
            extra=extra,
        )


class SequenceSampler(StretchSampler):
    """Stretches of at most T steps, drawn so that each transition is the anchor of one: uniform over transitions.

    Args:
        source: A dataset, or a replay buffer.
        batch_size: B.
        length: T.
        seed: One, or a sequence of S seeds.
        anchor: What the drawn transition is to its stretch: the "last" step, as d3rlpy slices, with up to T - 1 steps before it; or
            the "first", as in the code of Decision Transformer's authors, with up to T - 1 after it. None reaches over an episode's
            beginning or end.
        **options: As `StretchSampler`'s.
    """

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        length: int,
        seed: int | Sequence[int] = 0,
        *,
        anchor: Literal["first", "last"] = "last",
        **options: Any,
    ) -> None:
        super().__init__(source, batch_size, seed, **options)
        if length < 1 or anchor not in ("first", "last"):
            raise ConfigError(f"length is {length} and anchor {anchor!r}; it takes 1 or more steps, and 'first' or 'last'.")
        self.length, self.anchor = length, anchor
        self.windows = self._open_windows(self._known_ahead() if self.grows else 1, self.bootstrap)

    def _known_ahead(self) -> int:
        """Return how many steps must be there from a transition of a buffer on, or to its episode's end, for it to be drawn."""
        return self.length if self.anchor == "first" else 1

    def sample(self, step: int | None = None, size: int | None = None) -> Sequences:
        """Draw the batch of a step; see `TransitionSampler.sample`."""
        return self.at(self.numbers(self._step(step))[..., :size].contiguous())

    def along(self, steps: Tensor) -> list[Any] | None:
        if self.grows or self.columns_device != self.device:
            return None
        drawn = self._draw(steps) % self._size()
        return [self.at(drawn[k]) for k in range(len(steps))]

    def at(self, numbers: Tensor) -> Sequences:
        """Gather the stretches of the transitions of these numbers, [..., B] int64 from 0 to `n_windows` - 1."""
        place: Place = self.windows.locate(numbers, before=True)
        assert place.before is not None
        assert place.step is not None
        if self.anchor == "last":
            back = place.before.clamp(max=self.length - 1)
            first, length, timestep = step_rows(place.rows, -back, place.wrap), back + 1, place.step - back
        else:
            first, length, timestep = place.rows, place.left.clamp(max=self.length), place.step
        return self._moved(self._stretches(place.index, first, length, timestep, self.length, place.wrap))


class EpisodeSampler(StretchSampler):
    """Whole episodes, or random subsequences of them, uniform over finished episodes; PFRL's `sample_episodes(n, max_len)`.

    T is `max_length`. Without one it is the longest of the batch, rounded up to a power of two and at most the longest of all, so
    that few shapes occur.

    Args:
        source: A dataset, or a replay buffer: of it, the finished episodes that are all there.
        batch_size: B, episodes.
        seed: One, or a sequence of S seeds.
        max_length: Of an episode that is longer, as many steps in a row, from a start drawn uniformly; None: whole episodes.
        pad: As `StretchSampler`'s; "right" here.
        **options: As `StretchSampler`'s.
    """

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        max_length: int | None = None,
        pad: Literal["left", "right"] = "right",
        **options: Any,
    ) -> None:
        super().__init__(source, batch_size, seed, pad=pad, **options)
        if max_length is not None and max_length < 1:
            raise ConfigError(f"max_length is {max_length}; it must be at least 1.")
        self.max_length = max_length
        self.windows: Any = (
            self.source.whole(self.bootstrap)
            if self.grows
            else Runs(self.source, bootstrap=self.bootstrap, device=self.columns_device)
        )

    def sample(self, step: int | None = None, size: int | None = None) -> Sequences:
        """Draw the batch of a step; `index` has the episodes' numbers, of a buffer their first rows."""
        step = self._step(step)
        return self._moved(self._cut(self.windows.locate(self.numbers(step)[..., :size].contiguous()), step))

    def _cut(self, place: Place, step: int) -> Sequences:
        """Cut the stretches of a step from the episodes that lie at `place`."""
        rows, length, wrap = place.rows, place.left, place.wrap
        start = torch.zeros_like(length)
        if self.max_length is None:
            padded = min(1 << (int(length.max()) - 1).bit_length(), self.windows.longest)
        else:
            padded = self.max_length
            key = fold(self._keys(torch.tensor([step], device=self._key.device))[0], "start")
            start = shift_right(bits(key, rows.shape[-1]), 1) % ((length - padded).clamp(min=0) + 1)
            length = length.clamp(max=padded)
        return self._stretches(place.index, step_rows(rows, start, wrap), length, start, padded, wrap)
