r"""Twin delayed deep deterministic policy gradient (TD3).

    critic   L_Q = E[ Σ_i (r + γ min_j Q'_j(s', ã) - Q_i(s, a))² ],   ã = clip(π'(s') + clip(ε, -c, c), -1, 1),  ε ~ N(0, σ²)
    actor    L_π = E[ -Q_1(s, π(s)) ]                                                            `TD3.critic_loss`, `TD3.actor_loss`

The actor and both targets move every d-th step (the targets every `target_update_interval`-th, if set) by the share τ.

Symbols   σ = `target_smoothing_sigma`, c = `target_smoothing_clip`, d = `update_actor_interval`, τ = `tau`; ' marks targets.
Paper     Fujimoto, van Hoof, Meger: Addressing Function Approximation Error in Actor-Critic Methods, ICML 2018, arXiv:1802.09477.
Code      github.com/sfujim/TD3, TD3.py (MIT). Read, not copied.
Choices   1. The actor climbs Q_1, as in paper and code; d3rlpy's manual prints the least of the critics.
          2. Delayed updates fall on steps d, 2d, …, as in the code; d3rlpy 2.8.1 begins with the first step.
          3. Learning rate and batch size are the code's; the paper's Table 3 has 1e-3 and 100.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.config import setting
from ..data.spec import Spec
from .actor_critic import ActorCriticConfig, critic_network
from .base import Algorithm
from .config import Preset
from .definition import Network
from .learner import Learner, LossValue
from .nets import Hyper, Nets
from .networks.heads import DeterministicPolicy
from .networks.q_functions import reduced
from .schedule import due

CODE = "authors' code, TD3.py and main.py"


class TD3Config(ActorCriticConfig):
    """Settings of `TD3`."""

    target_smoothing_sigma: float = setting(0.2, "σ: standard deviation of the noise on the target's action", source=CODE, ge=0)
    target_smoothing_clip: float = setting(0.5, "c: where that noise is clipped", source=CODE, ge=0)
    update_actor_interval: int = setting(2, "d: steps of the critic for one of the actor", source=CODE, gt=0)


class TD3(Algorithm):
    """TD3, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = TD3Config
    actions: ClassVar = "continuous"
    presets: ClassVar = {
        "paper": Preset(
            "Fujimoto et al. 2018, Table 3", {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "batch_size": 100}
        ),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/td3.py", {}),
        "d3rlpy-2020": Preset("d3rlpy's manual of October 2020", {"batch_size": 100}),
    }

    def networks(self, spec: Spec, config: TD3Config) -> dict[str, Network]:
        policy = DeterministicPolicy(config.actor_encoder, spec.observation, spec.action.shape[0])
        return {
            "policy": Network(policy, "actor_learning_rate", True, config.actor_optimizer),
            "critic": critic_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        delay = c.update_actor_interval
        return due(step, critic=1, actor=delay, targets=c.target_update_interval or delay)

    def critic(self, learner: Learner, batch: Batch) -> None:
        """Every step."""
        learner.minimise(self.critic_loss, "critic", batch)

    def actor(self, learner: Learner, batch: Batch) -> None:
        """Every d-th step, after the critic."""
        learner.minimise(self.actor_loss, "policy", batch)

    def targets(self, learner: Learner, batch: Batch) -> None:
        """Every d-th step, after the actor; at every `target_update_interval`-th where that is set."""
        learner.track("critic", rate="tau")
        learner.track("policy", rate="tau")

    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of each sample, [B]."""
        with torch.no_grad():
            noise = h.target_smoothing_sigma * nets.noise("target smoothing", batch.action.shape)
            noise = noise.clamp(-h.target_smoothing_clip, h.target_smoothing_clip)
            action = (nets.target.policy(batch.next_observation) + noise).clamp(-1, 1)
            following = nets.target.critic.distribution(batch.next_observation, action)  # [members, atoms, B]
            goal = batch.reward + batch.discount * reduced(following, "min")
        return nets.critic.td_loss(batch.observation, batch.action, goal)

    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]."""
        value = nets.critic(batch.observation, nets.policy(batch.observation), 1)[0]
        return -value, {"value": value}

    def act(self, nets: Nets, observation: Any) -> Tensor:
        return nets.policy(observation)

    def value(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.critic(observation, action).mean(0)
