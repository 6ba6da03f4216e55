"""Acting by the best of some actions that are drawn."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.spec import Spec
from ..base import Algorithm
from ..losses.sampled_actions import best_of, repeated, taken
from ..nets import Nets
from ..networks.q_functions import Values
from ..ports import Noise, Ports, Tensors


class BestOfSamples(Algorithm):
    """Algorithms that act by the best of some actions that they draw, as the first critic has it.

    Unless the port is one that always draws, the greedy action is the best of `n_action_samples` that come of the same numbers in
    every state and at every call, so that it is a function of the state; a draw is the best of as many that come of new numbers.
    """

    def proposals(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        """Actions [n·B, A] that standard normal numbers [n, B, noise_size] lead to."""
        raise NotImplementedError

    def worth(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """What actions [n·B, A] are chosen by, [1, n·B]."""
        return nets.critic(observation, action, 1)

    def noise_size(self, spec: Spec, config: Any) -> int:
        """How many numbers lead to an action."""
        raise NotImplementedError

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"action": Noise((config.n_action_samples, self.noise_size(spec, config)))}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        numbers = noise["action"].movedim(0, 1) if "action" in noise else self._same(observation)
        n, actions = numbers.shape[0], self.proposals(nets, observation, numbers)
        value = self.worth(nets, repeated(observation, n), actions)
        return taken(actions.unflatten(0, (n, -1)), best_of(Values(value), n)[1]), state

    def _same(self, observation: Any) -> Tensor:
        """Repeats numbers for every state, [n, B, noise_size]."""
        n, size = self.config_.n_action_samples, self.noise_size(self.spec_, self.config_)
        like = pytree.tree_leaves(observation)[0]
        return torch.tensor(_numbers(n, size), dtype=like.dtype, device=like.device)[:, None].expand(n, _count(observation), size)


@cache
def _numbers(n: int, size: int) -> np.ndarray:
    """Standard normal numbers. NumPy keeps this generator's as they are for good."""
    return np.random.RandomState(0).standard_normal((n, size))


def _count(observation: Any) -> int:
    return pytree.tree_leaves(observation)[0].shape[0]
