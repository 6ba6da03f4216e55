"""What an algorithm's loss reads: tensors of one batch of transitions, or of stretches of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree  # vmap and graph capture go through it; it has no public name yet

from .masks import Masked

Observation = Tensor | dict[str, Tensor]


@dataclass(frozen=True)
class Batch:
    """Transitions, B of them, for one seed; a stack of seeds has an axis before B.

    `reward` is the n-step sum Σγᵏr and `discount` is γⁿ (1 - terminated), so every bootstrapped target is
    `reward + discount * value(next_observation)`, whatever n, at episode ends and at truncations.
    Scalers have acted: an algorithm sees scaled values only.
    """

    observation: Any  # [B, ...] or a dict of such tensors; of data with an action_mask `Masked`, as is the next one
    action: Tensor  # [B, A] floats, or [B] int64 for discrete actions
    reward: Tensor  # [B]
    next_observation: Any  # [B, ...]
    discount: Tensor  # [B]
    index: Tensor  # [B] int64: the transition's number in its source
    next_action: Tensor | None = None  # like `action`, where asked for: what was done next; zeros where the episode had ended
    weight: Tensor | None = None  # [B] importance weights; None: all ones
    extra: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # what an algorithm asked for by name

    @property
    def seen(self) -> Any:
        """The observation: what a policy acts on."""
        return self.observation

    def __getitem__(self, at: slice) -> Batch:
        """Take some of several batches that were drawn together, along their first axis."""
        return pytree.tree_map(lambda part: part[at], self)

    def unbind(self) -> list[Batch]:
        """Split batches that were drawn together along their first axis."""
        n = len(self.index)  # written out: this is part of every step, and a general tree walk takes longer than the rest
        extra = {name: column.unbind() for name, column in self.extra.items()}
        parts = zip(
            unbound(self.observation, n),
            self.action.unbind(),
            self.reward.unbind(),
            unbound(self.next_observation, n),
            self.discount.unbind(),
            self.index.unbind(),
            unbound(self.next_action, n),
            unbound(self.weight, n),
            strict=True,
        )
        return [
            Batch(
                seen, action, reward, following, discount, index, after, weight, {name: column[k] for name, column in extra.items()}
            )
            for k, (seen, action, reward, following, discount, index, after, weight) in enumerate(parts)
        ]

    def with_observations(self, observation: Any, next_observation: Any) -> Batch:
        made = object.__new__(Batch)  # as `replace` makes it, in an eighth of its time: this is part of every step
        made.__dict__.update(self.__dict__, observation=observation, next_observation=next_observation)
        return made

    def with_extra(self, **columns: Tensor) -> Batch:
        """Add named columns: what one kind of update computes once for several losses."""
        return replace(self, extra={**self.extra, **columns})


@dataclass(frozen=True)
class Context:
    """Input of a policy that looks back: the latest T steps of B episodes, the current one last, padded at the front.

    Scalers have been applied. The entry of the last action is ignored: it is the one to be predicted.
    """

    observation: Any  # [B, T, ...] or a dict of such tensors
    action: Tensor  # [B, T, A] floats, or [B, T] int64 for discrete actions
    return_to_go: Tensor  # [B, T]: the return that is left, or asked for, from this step on
    timestep: Tensor  # [B, T] int64: the step's number in its episode, from 0
    mask: Tensor  # [B, T] bool: which steps there are


@dataclass(frozen=True)
class Sequences:
    """B stretches of episodes, each of T steps or fewer, which are padded; a stack of seeds has an axis before B.

    Where `mask` is false everything else is zero. Scalers have acted; frames are not stacked.
    """

    observation: Any  # [B, T, ...] or a dict of such tensors
    action: Tensor  # [B, T, A] floats, or [B, T] int64 for discrete actions
    reward: Tensor  # [B, T], one step's
    discount: Tensor  # [B, T]: γ (1 - terminated)
    mask: Tensor  # [B, T] bool: which steps there are
    timestep: Tensor  # [B, T] int64: the step's number in its episode, from 0
    index: Tensor  # [B] int64: the number, in its source, of the transition or the episode that was drawn
    return_to_go: Tensor | None = None  # [B, T]: sum of the scaled rewards from this step to the episode's end, where asked for
    next_observation: Any = None  # like `observation`, where asked for
    weight: Tensor | None = None  # [B] importance weights; None: all ones
    extra: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # what an algorithm asked for by name

    @property
    def seen(self) -> Context:
        """The context that a policy acts on. Raises ValueError where returns to go were not asked for."""
        if self.return_to_go is None:
            raise ValueError("these sequences were drawn without returns to go")
        return Context(self.observation, self.action, self.return_to_go, self.timestep, self.mask)

    def __getitem__(self, at: int) -> Sequences:
        return pytree.tree_map(lambda part: part[at] if isinstance(part, Tensor) else part, self)


Drawn = Batch | Sequences
"""What a sampler draws and a loss reads."""


AnyDrawn = TypeVar("AnyDrawn", Batch, Sequences)


def joined(parts: Sequence[AnyDrawn]) -> AnyDrawn:
    """Concatenate batches that carry the same, in order."""
    if len(parts) == 1:
        return parts[0]
    leaves, spec = zip(*(pytree.tree_flatten(part) for part in parts), strict=True)
    axis = parts[0].index.ndim - 1
    return pytree.tree_unflatten([torch.cat(same, axis) for same in zip(*leaves, strict=True)], spec[0])


def unbound(part: Any, n: int) -> Sequence[Any]:
    """Unbind the first axis (of length n) of a tensor, a dict of tensors, a `Masked`, or None."""
    if part is None:
        return [None] * n
    if isinstance(part, Masked):
        return list(map(Masked, unbound(part.observation, n), part.action_mask.unbind()))
    if isinstance(part, dict):
        columns = {key: unbound(column, n) for key, column in part.items()}
        return [{key: column[k] for key, column in columns.items()} for k in range(n)]
    return part.unbind()


pytree.register_dataclass(Masked)
pytree.register_dataclass(Batch)
pytree.register_dataclass(Context)
pytree.register_dataclass(Sequences)


BLOCK = 128  # steps that are drawn at once, at most; changes no value, and makes the cost of a call vanish


class Source(Protocol):
    """Interface that training draws batches from."""

    def sample(self, step: int) -> Batch: ...

    def between_epochs(self, epoch: int) -> None:
        """Let a source renew itself; called before the first step of an epoch, which counts from 1."""
        ...


class Steps:
    """Gradient steps, one after another, whose random numbers are drawn together.

    Args:
        numbers: [K] int64. In a program of tensors they lie on its device, so that it can be run again for other steps.

    Attributes:
        at: Which of them is under way, from 0.
        made: What is kept of all of them together, by name.
    """

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.at = numbers, 0
        self.made: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.numbers)
