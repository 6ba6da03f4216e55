r"""Double DQN: the network that is trained chooses the next action, its target values it, and neither believes its own luck.

    L(θ) = E[ Σ_i huber(r + γ min_j Q'_j(s', a*) - Q_i(s, a)) ],    a* = argmax_a' mean_j Q_j(s', a')      `DoubleDQN.following`

All else is DQN's, whose target chooses what it values.

Symbols   Q' = target critic, i and j number the ensemble.
When      Wherever DQN would be used: it overestimates less and costs one pass of a network more.
Paper     van Hasselt, Guez, Silver: Deep Reinforcement Learning with Double Q-learning, AAAI 2016, arXiv:1509.06461.
Choices   As `DQN`. The paper's tuned version has a target that is copied every 30,000 frames and one bias for all actions.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.batch import Batch
from ..config import Preset
from ..nets import Hyper, Nets
from ..networks.q_functions import Values, reduced
from .dqn import DQN, REPRODUCTIONS


class DoubleDQN(DQN):
    """Double deep Q-network, offline or online. Data: discrete actions."""

    presets: ClassVar = {
        **{name: DQN.presets[name] for name in ("d3rlpy", "d3rlpy-2020", "small")},
        "atari": Preset(
            f"{REPRODUCTIONS}/online/double_dqn.py; RMSprop as DQN's preset",
            {**DQN.presets["atari"].settings, "target_update_interval": 10_000},
        ),
    }

    def following(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        """min_j Q'_j(s', a*), [N, B]; as DQN's where a page's setting `double` is off."""
        if not getattr(self.config_, "double", True):
            return super().following(nets, batch, h)
        chosen = self.greedy(nets, batch.next_observation)
        return reduced(nets.target.critic.distribution(batch.next_observation, chosen), "min")
