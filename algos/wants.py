"""What an algorithm learns from: how its batches are drawn, and what they carry. `Definition.wants` declares one of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Transitions:
    """Single transitions, as `Batch`, drawn as the setting `sampler` says.

    Attributes:
        size: Of a batch.
        td_steps: n of the n-step return.
        following: Whether losses look at the next observation; else steps without one are drawn too.
        next_action: Whether `batch.next_action` is wanted, what the data did next: steps at which an episode was cut have none.
        extra: Columns of the data that are wanted as `batch.extra[NAME]`; "return_to_go" is the discounted return from there on.
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
        extra: Columns of the data that are wanted as `batch.extra[NAME]`.
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


Wants = Transitions | Stretches
