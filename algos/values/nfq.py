r"""Neural fitted Q iteration (NFQ): Q-learning without a target network, whose goals move with every step.

    L(θ) = E[ Σ_i huber(r + γ min_j Q_j(s', a*) - Q_i(s, a)) ],    a* = argmax_a' mean_j Q_j(s', a')            `NFQ.following`

No gradient goes through Q(s', a*). All else is DQN's, whose goal has a target network Q' in place of Q.

Symbols   i and j number the ensemble.
When      A baseline, which shows what a target network is for: on CartPole's replay data, where DQN's policy kept the pole up for
          217 steps, values ran away beyond 10⁵ within 4,000 steps of rate 1e-3 (one seed), and beyond 10³ with γ = 0.9.
Paper     Riedmiller: Neural Fitted Q Iteration, ECML 2005, LNCS 3720, doi:10.1007/11564096_32.
Choices   1. As d3rlpy 2.8.1's, which copies its network after every step and asks the copy: the same, where layers draw nothing.
          2. The paper fits all transitions for many epochs by Rprop while goals stay, then works them out anew. Nearer to that is
             DQN, where goals stay between the copies: `target_update_interval`.
          3. Huber's loss, as in d3rlpy; the paper has squares.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ...data.batch import Batch
from ...data.spec import Spec
from ..config import Preset
from ..definition import Network, due
from ..nets import Hyper, Nets
from ..networks.q_functions import Values, reduced
from .dqn import DQN, REPRODUCTIONS, SCREENS, DQNConfig, ValuesConfig, best


class NFQConfig(ValuesConfig):
    once: ClassVar = DQNConfig


class NFQ(DQN):
    """Neural fitted Q iteration, offline or online. Data: discrete actions."""

    Config: ClassVar = NFQConfig
    presets: ClassVar = {
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/nfq.py and optimizers.py", {"optimizer": "adam"}),
        "atari": Preset(f"on DQN Replay: {REPRODUCTIONS}/offline/nfq.py", {"learning_rate": 5e-5, "optimizer": "adam", **SCREENS}),
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {name: replace(network, target=False) for name, network in super().networks(spec, config).items()}

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, critic=1)

    def following(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        return reduced(nets.critic.distribution(batch.next_observation, best), "min")
