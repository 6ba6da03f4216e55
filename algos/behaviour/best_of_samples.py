"""Acting by the best of some actions that are drawn."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..base import Algorithm
from ..losses.sampled_actions import best_of, repeated, taken
from ..nets import Nets
from ..networks.q_functions import Values


class BestOfSamples(Algorithm):
    """Algorithms that act by the best of some actions that they draw, as the first critic has it.

    The greedy action is the best of `n_action_samples` that come of the same numbers in every state and at every call, so that it
    is a function of the state; a draw is the best of as many that come of new numbers.
    """

    def proposals(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        """Actions [n·B, A] that standard normal numbers [n, B, noise_size] lead to."""
        raise NotImplementedError

    @property
    def noise_size(self) -> int:
        """How many numbers lead to an action."""
        raise NotImplementedError

    def act(self, nets: Nets, observation: Any) -> Tensor:
        return taken(*self._valued(nets, observation, self._same(observation)))

    def choice(self, nets: Nets, observation: Any) -> Tensor:
        return self._valued(nets, observation, self._same(observation))[1]

    def sample(self, nets: Nets, observation: Any) -> Tensor:
        shape = (self.config_.n_action_samples, _count(observation), self.noise_size)
        return taken(*self._valued(nets, observation, nets.noise("action", shape)))

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.critic(observation, action)

    def _same(self, observation: Any) -> Tensor:
        """The same numbers for every state, [n, B, noise_size]."""
        n, size = self.config_.n_action_samples, self.noise_size
        like = pytree.tree_leaves(observation)[0]
        return torch.tensor(_numbers(n, size), dtype=like.dtype, device=like.device)[:, None].expand(n, _count(observation), size)

    def _valued(self, nets: Nets, observation: Any, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The actions [n, B, A], and which is the best, [B]."""
        n, actions = noise.shape[0], self.proposals(nets, observation, noise)
        value = nets.critic(repeated(observation, n), actions, 1)
        return actions.unflatten(0, (n, -1)), best_of(Values(value), n)[1]


@cache
def _numbers(n: int, size: int) -> np.ndarray:
    """Standard normal numbers. NumPy keeps this generator's as they are for good."""
    return np.random.RandomState(0).standard_normal((n, size))


def _count(observation: Any) -> int:
    return pytree.tree_leaves(observation)[0].shape[0]
