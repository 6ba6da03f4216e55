"""Observations with what came before them in their episodes, for networks that remember."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree  # vmap goes through it; it has no public name yet

from .masks import bare


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """Observations of N = B · L steps, the last L of each of B stretches of episodes; those before them fill a memory.

    It stands where a batch has observations [N, ...]: step l of stretch b is number b · L + l. What is no step of the episode is
    padding, which comes before the steps that are there. A stretch of a rollout may go through several episodes.

    Attributes:
        observation: [B, K, ...] or a dict of such tensors.
        mask: [B, K] bool: which steps there are.
        before: K - L, steps that nothing is said of.
        begins: [B, K] bool: steps at which an episode begins, so that nothing before them is remembered; None: no stretch goes over
            an episode's end.
    """

    observation: Any
    mask: Tensor
    before: int
    begins: Tensor | None = None

    @property
    def there(self) -> Tensor:
        """Which of the N steps there are, bool [N]."""
        return self.mask[:, self.before :].flatten(0, 1)

    def steps(self) -> Any:
        """Return the observations of the N steps alone, [N, ...]."""
        return pytree.tree_map(lambda part: part[:, self.before :].flatten(0, 1), self.observation)

    def every(self) -> Any:
        """Return the observations of all steps, [B · K, ...]."""
        return pytree.tree_map(lambda part: part.flatten(0, 1), self.observation)


def steps_there(observation: Any) -> Tensor | None:
    """Return which samples of a batch there are by its observation, bool [N]; None: all."""
    seen = bare(observation)
    return seen.there if isinstance(seen, Histories) else None


def _parts(histories: Histories) -> tuple[list[Any], int]:
    begins = [] if histories.begins is None else [histories.begins]
    return [histories.observation, histories.mask, *begins], histories.before


def _whole(parts: Sequence[Any], before: int | None) -> Histories:
    observation, mask, *begins = parts
    return Histories(observation, mask, before, *begins)  # pyright: ignore[reportArgumentType]


pytree.register_pytree_node(Histories, _parts, _whole)  # pyright: ignore[reportArgumentType] - its context is a number
