"""Transitions with what came before them in their episodes, for networks that remember."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..batch import Batch, Sequences
from ..errors import ConfigError
from ..histories import Histories
from ..masks import bare, mask_of, masked
from ..random import bits, fold, shift_right
from .base import Experience
from .gather import step_rows
from .sequences import SequenceSampler
from .windows import Place


class RecurrentSampler(SequenceSampler):
    """Stretches of at most K steps of which the last L = K - `burn_in` are learned from, as a `Batch` of N = B · L transitions.

    Observations are `Histories`. For each stretch a transition is drawn uniformly, and a number from 0 to L - 1 is too: the stretch
    ends so many steps after it, or where the episode ends before. So no step is always in a burn-in: each is learned from between
    half as often and one and a half times as often as one in the middle of a long episode. A stretch that begins with its episode
    may have fewer than K steps; what is missing is padding of weight 0, and the mean weight is 1. `index` is of the transition that
    was drawn.

    Args:
        source: A dataset, or a replay buffer.
        batch_size: B.
        seed: One, or a sequence of S seeds.
        length: K.
        burn_in: Steps of them that only fill the memory.
        bootstrap: As `StretchSampler`'s; the batch has next observations where it is true.
        **options: As `StretchSampler`'s.

    Raises:
        ConfigError: the burn-in leaves nothing to learn from.
    """

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        length: int,
        burn_in: int = 0,
        bootstrap: bool = True,
        **options: Any,
    ) -> None:
        if not 0 <= burn_in < length:
            raise ConfigError(f"burn_in is {burn_in} of {length} steps: at least one has to be left to learn from.")
        self.burn_in, self.learned = burn_in, length - burn_in
        following = {"bootstrap": bootstrap, "next_observation": bootstrap}
        super().__init__(source, batch_size, length, seed, anchor="last", **following, **options)

    def _known_ahead(self) -> int:
        return self.learned

    def sample(self, step: int | None = None, size: int | None = None) -> Batch:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw the batch of a step; see `TransitionSampler.sample`. `size` counts stretches."""
        step = self._step(step)
        ahead = self._ahead(torch.tensor([step], device=self._key.device))[0]
        return self.ending(self.numbers(step)[..., :size].contiguous(), ahead[..., :size])

    def along(self, steps: Tensor) -> list[Batch] | None:
        if self.grows or self.columns_device != self.device:
            return None
        drawn, ahead = self._draw(steps) % self._size(), self._ahead(steps)
        return [self.ending(drawn[k], ahead[k]) for k in range(len(steps))]

    def _ahead(self, steps: Tensor) -> Tensor:
        """Draw how many steps after the transition that was drawn a stretch ends, [len(steps), (S,) B]."""
        return shift_right(bits(fold(self._keys(steps), "ahead"), self.batch_size), 1) % self.learned

    def at(self, numbers: Tensor) -> Batch:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gather the stretches that end with the transitions of these numbers, [..., B] int64."""
        return self.ending(numbers, torch.zeros_like(numbers))

    def ending(self, numbers: Tensor, ahead: Tensor) -> Batch:
        """Gather the stretches that end so many steps after the transitions of these numbers, or with their episodes."""
        place: Place = self.windows.locate(numbers, before=True)
        assert place.before is not None
        assert place.step is not None
        on = torch.minimum(ahead, place.left - 1)
        back = (place.before + on).clamp(max=self.length - 1)
        first = step_rows(place.rows, on - back, place.wrap)
        return self._moved(
            self._flat(self._stretches(place.index, first, back + 1, place.step + on - back, self.length, place.wrap))
        )

    def _flat(self, drawn: Sequences) -> Batch:
        axis, skip, mask = drawn.index.ndim - 1, self.burn_in, drawn.mask

        def learned(part: Tensor) -> Tensor:
            """Flatten [..., B, K, ...] to [..., N, ...]."""
            return part.narrow(axis + 1, skip, self.learned).flatten(axis, axis + 1)

        def later(part: Tensor, following: Tensor) -> Tensor:
            """Append the observation that the last step led to: [..., B, K + 1, ...]."""
            return torch.cat((part, following.narrow(axis + 1, self.length - 1, 1)), axis + 1)

        def shown(observation: Any, histories: Histories) -> Any:
            legal = mask_of(observation)  # of padding any action is, so that no network has to say what cannot be
            return masked(histories, None if legal is None else learned(legal | ~mask[..., None]))

        seen, following = drawn.observation, drawn.next_observation
        here = there = shown(seen, Histories(bare(seen), mask, skip))
        if following is not None:
            reached = pytree.tree_map(later, bare(seen), bare(following))
            there = shown(following, Histories(reached, later(mask, mask), skip + 1))
        counted = learned(mask).to(drawn.reward.dtype)
        return Batch(
            observation=here,
            action=learned(drawn.action),
            reward=learned(drawn.reward),
            next_observation=there,
            discount=learned(drawn.discount),
            index=drawn.index.repeat_interleave(self.learned, -1),
            weight=counted / counted.mean(-1, keepdim=True),
            extra={name: learned(column) for name, column in drawn.extra.items()},
        )
