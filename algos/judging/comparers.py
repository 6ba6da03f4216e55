"""Scorers that compare an algorithm's actions with another's on the same episodes; the larger is the better, nearer one.

Each algorithm sees the episodes in its own way: its scalers, its stacks of frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...data.errors import ConfigError
from ..base import Algorithm
from .seen import Data, walk


@dataclass(frozen=True)
class Comparer:
    """What `compare_continuous_action_diff` and `compare_discrete_action_match` give.

    Attributes:
        name: What it is called in metrics.
        base_algo: What is compared with.
        kind: Of actions.
        window_size: Transitions that are looked at together.
        sign: -1 where the smaller number is the better one, and the score its negative.
    """

    name: str
    base_algo: Algorithm
    kind: Literal["continuous", "discrete"]
    window_size: int
    sign: int = 1

    @torch.no_grad()
    def __call__(self, algo: Algorithm, episodes: Data, y: None = None) -> float:
        """The score; `y` is where scikit-learn has its targets.

        Raises ConfigError where either algorithm has the other kind of actions, else as `Scorer`.
        """
        for one in (algo, self.base_algo):
            if one.spec_.discrete != (self.kind == "discrete"):
                other = "compare_discrete_action_match" if one.spec_.discrete else "compare_continuous_action_diff"
                raise ConfigError(f"{one.name} has {one.spec_.action_kind} actions, which {other} is for.")
        total, n = torch.zeros((), dtype=torch.float64), 0
        mine_seen, theirs_seen = (walk(one, episodes, self.window_size) for one in (algo, self.base_algo))
        for mine, theirs in zip(mine_seen, theirs_seen, strict=True):
            total += self._compared(mine.greedy.cpu(), theirs.greedy.cpu()).double().sum()
            n += len(mine.greedy)
        return self.sign * float(total / n)

    def _compared(self, mine: Tensor, theirs: Tensor) -> Tensor:
        return mine == theirs if self.kind == "discrete" else (mine.double() - theirs.double()).square()


def compare_continuous_action_diff(base_algo: Algorithm, window_size: int = 1024) -> Comparer:
    """A scorer of -E[Σ (π(s) - π'(s))²], summed over the entries of an action, in the data's units.

    Args:
        base_algo: Whose policy is π'.
        window_size: Transitions that are looked at together.
    """
    return Comparer("compare_continuous_action_diff", base_algo, "continuous", window_size, sign=-1)


def compare_discrete_action_match(base_algo: Algorithm, window_size: int = 1024) -> Comparer:
    """A scorer of the share of observations at which both algorithms take the same action; arguments as above."""
    return Comparer("compare_discrete_action_match", base_algo, "discrete", window_size)
