r"""Twin delayed deep deterministic policy gradient (TD3): DDPG with two critics, a smoothed goal, and an actor that waits for them.

    critic   L_Q = E[ Σ_i (r + γ min_j Q'_j(s', ã) - Q_i(s, a))² ],   ã = clip(π'(s') + clip(ε, -c, c), -1, 1),  ε ~ N(0, σ²)
    actor    L_π = E[ -Q_1(s, π(s)) + ρ u(s)² ],   π = tanh(u)                                 `TD3.critic_loss`, `DDPG.actor_loss`

The actor and both targets move every d-th step (the targets every `target_update_interval`-th, if set) by the share τ.

Symbols   σ = `target_smoothing_sigma`, c = `target_smoothing_clip`, d = `update_actor_interval`, τ = `tau`; ' marks targets;
          ρ = `regularizing_rate` as in `ddpg.py`, 0.
When      Online, deterministic policies. Offline a baseline that nothing keeps to the data.
Paper     Fujimoto, van Hoof, Meger: Addressing Function Approximation Error in Actor-Critic Methods, ICML 2018, arXiv:1802.09477.
Code      github.com/sfujim/TD3, TD3.py (MIT). Read, not copied.
Choices   1. The actor climbs Q_1, as in paper, code, PFRL and d3rlpy 2.8.1; d3rlpy's manual prints the least of the critics.
          2. Delayed updates fall on steps d, 2d, …, as in the code and PFRL; d3rlpy 2.8.1 begins with the first step.
          3. Learning rate, batch size and layers are the code's later ones; the paper has 1e-3, 100 and 400, 300: `preset="paper"`.
          4. The noise is added to the target's action, and the sum is clipped to the space; d3rlpy's manual prints it outside of Q.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..critics import ActorCriticConfig
from ..definition import LossValue, due, loss
from ..nets import Hyper, Nets
from ..networks.q_functions import Values, reduced, td_loss
from .ddpg import DDPG, LARGE_AND_FAST, MANUAL

CODE = "TD3's code, TD3.py and main.py"


class DelayedConfig(ActorCriticConfig):
    """Settings of `TD3` and of what has its critics."""

    target_smoothing_sigma: float = setting(0.2, "σ: standard deviation of the noise on the target's action", source=CODE, ge=0)
    target_smoothing_clip: float = setting(0.5, "c: where that noise is clipped", source=CODE, ge=0)
    update_actor_interval: int = setting(2, "d: steps of the critic for one of the actor", source=CODE, gt=0)


class TD3Config(DelayedConfig):
    regularizing_rate: float = setting(0.0, "ρ: weight of the square of the action before tanh", source=MANUAL, ge=0)


class TD3(DDPG):
    """TD3, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = TD3Config
    presets: ClassVar = {
        "paper": Preset("Fujimoto et al. 2018, section 6.1 and Table 3", LARGE_AND_FAST),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/td3.py", {}),
        "d3rlpy-2020": Preset(MANUAL, {"batch_size": 100}),
        "d3rlpy-paper": Preset("Seno and Imai 2021, Table 4", {}),
        "pfrl": Preset("PFRL 0.4.0, examples/mujoco/reproduction/td3", LARGE_AND_FAST),
    }

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        delay = c.update_actor_interval
        return due(step, critic=1, actor=delay, targets=c.target_update_interval or delay)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return td_loss(nets.critic, batch, self.goal(nets, batch, h))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        following = nets.target.critic.distribution(batch.next_observation, self.next_action(nets, batch, h))
        return reduced(following, "min") * batch.discount + batch.reward

    def next_action(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        noise = h.target_smoothing_sigma * nets.noise("target smoothing", batch.action.shape)
        noise = noise.clamp(-h.target_smoothing_clip, h.target_smoothing_clip)
        return (nets.target.policy(batch.next_observation) + noise).clamp(-1, 1)
