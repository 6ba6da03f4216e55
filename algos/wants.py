"""Declarations of what an algorithm learns from, of which `Definition.wants` gives one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..data.batch import Source


@dataclass(frozen=True)
class Transitions:
    """Single transitions, as `Batch`, drawn as the setting `sampler` says.

    Attributes:
        size: Of a batch.
        td_steps: n of the n-step return.
        following: Whether losses look at the next observation; else steps without one are drawn too.
        next_action: Whether `batch.next_action` is wanted, what the data did next: steps at which an episode was cut have none.
        extra: Columns of the data that are wanted as `batch.extra[NAME]`; "return_to_go" is the discounted return from there on,
            "window_action" [B, n, A] the actions of the n steps, and "window_mask" beside it says which of them there are; "cost"
            is summed over the n steps as rewards are, and "initial" is 0 but at first steps of episodes, and 1 in the mean.
        ahead: How many steps after the next observation are wanted, as `batch.extra["ahead/NAME"]`.
        endless: Whether returns to go take an episode that was cut, with the same negative reward at each step, to go on for ever.
        members: Of an ensemble whose members each learn from a half of the transitions, of its own: `batch.extra["kept"]`
            [members, B] says which. 0: all learn from all.
    """

    size: int
    td_steps: int = 1
    following: bool = True
    next_action: bool = False
    extra: tuple[str, ...] = ()
    ahead: int = 0
    endless: bool = False
    members: int = 0


@dataclass(frozen=True)
class Stretches:
    """Stretches of episodes, as `Sequences` [B, T, …] with a mask, drawn uniformly.

    Attributes:
        size: Stretches of a batch.
        length: Steps of each that are learned from.
        burn_in: Steps before those, which fill a memory; T is their sum.
        anchor: What a step that is drawn is to its stretch: the first of it, or the last.
        extra: Columns of the data that are wanted as `batch.extra[NAME]`; "cost_to_go" is the undiscounted sum of `cost` from
            there on.
    """

    size: int
    length: int
    burn_in: int = 0
    anchor: Literal["first", "last"] = "first"
    extra: tuple[str, ...] = ()

    @property
    def following(self) -> bool:
        """The next observation is the next step's."""
        return False


class Looks(Protocol):
    """The fit as a source sees it that feeds it; `Learner` is one.

    Attributes:
        seeds: One for each row.
        stacked: Whether there are several rows, which tensors then have an axis for in front.
        step: Gradient steps done.
        values: Settings that are floats, one value a row.
        hyper: The same as tensors, () or (S,), which are written in place.
        dtype: Of what networks see.
        device: Where batches are wanted.
    """

    seeds: tuple[int, ...]
    stacked: bool
    step: int
    values: dict[str, list[float]]
    hyper: dict[str, Tensor]
    dtype: torch.dtype
    device: torch.device

    def look(self, part: Callable[..., Any], *inputs: Any, call: int = 1) -> Any:
        """Calls a function of (nets, *inputs, h) of one seed at the present state, for every row.

        It draws at (seed, name of the function, step, call): who looks several times in a step numbers the calls.
        """
        ...


class Opened(Source, Protocol):
    """A source that sees the fit. Whatever it keeps from one step to the next is in its state."""

    def state(self) -> Mapping[str, Tensor]:
        """Gives the tensors that it goes on from, by name; of a stack each with an axis of rows in front."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Goes on from what `state` gave, which lies on the learner's device."""
        ...


@dataclass(frozen=True)
class Material:
    """The data to learn from.

    Attributes:
        given: The dataset, the replay buffer, or what else training was called with, as an environment of tensors.
        ordinary: Opens the sampler of transitions or stretches over it, scaled and drawn as the settings say.
    """

    given: Any
    ordinary: Callable[[Transitions | Stretches], Source]


@runtime_checkable
class Opens(Protocol):
    """A want that opens a source of its own, which sees the fit: rollouts of the present policy, steps of a learnt model.

    It is trained on anything that it can open; what is no dataset has the `spec` of its spaces.

    Attributes:
        reads_data: Whether it draws from data by `Material.ordinary`, so that losses can be read on data that are held out.
    """

    reads_data: ClassVar[bool]

    def open(self, material: Material, learner: Looks) -> Opened:
        """The source; begun anew, until it is given a state."""
        ...


Wants = Transitions | Stretches | Opens
