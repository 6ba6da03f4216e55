r"""Soft actor-critic for discrete actions (DiscreteSAC): SAC whose expectations over actions are exact.

    critic        L_Q = E[ Σ_i huber(r + γ V(s') - Q_i(s, a)) ]                                     `DiscreteSAC.critic_loss`
                  V(s) = Σ_a π(a|s) (min_j Q'_j(s, a) - α log π(a|s))                                    `DiscreteSAC.goal`
    actor         L_π = E[ Σ_a π(a|s) (α log π(a|s) - min_i Q_i(s, a)) ]                           `DiscreteSAC.actor_loss`
    temperature   L_α = E[ α (H(π(s)) - H̄) ],    H(π(s)) = -Σ_a π(a|s) log π(a|s),    H̄ = ρ log A    `SAC.temperature_loss`

π acts by its likeliest action, and explores by its draws. α = α₀ exp(θ), and θ is learnt.

Symbols   α = temperature, α₀ = `initial_temperature`, ρ = `entropy_share`, A = number of actions; ' marks the target critic.
When      Online, where a policy that draws is wanted, or DQN's ε-greedy explores too little. Offline a baseline.
Paper     Christodoulou: Soft Actor-Critic for Discrete Action Settings, 2019, arXiv:1910.07207.
Choices   1. Order: critic; actor and temperature in one step, each seeing the other as it was; target. In d3rlpy 2.8.1 the actor
             sees the temperature after its step.
          2. Of distributional critics the goal is the mixture, by π, of the actions' distributions, each less its α log π; d3rlpy
             averages them quantile by quantile. The expectation is the same.
          3. Critics have the Q-function's own loss, of `mean` Huber's as in d3rlpy; the paper has squares.
          4. The target is copied after steps C, 2C, …; d3rlpy also copies it after the first.
          5. Noisy layers of critics (`q_function.noisy`) draw in losses only: π's draws explore.
          6. Where not all A actions are legal, H̄ is ρ times the logarithm of how many are.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..actor_critic.sac import SAC
from ..config import Preset, sourced
from ..critics import DiscreteCritics, PolicyAndCriticsConfig, SoftmaxActor
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..networks.legal import log_share
from ..networks.q_functions import Values, reduced
from ..optimizers import Adam, Optimizer

D3RLPY = "d3rlpy 2.8.1, algos/qlearning/sac.py"


@sourced(D3RLPY, "actor_learning_rate", "critic_learning_rate", "n_critics", "gamma")
class DiscreteSACConfig(PolicyAndCriticsConfig):
    batch_size: int = setting(64, "transitions in a gradient step", source=D3RLPY, gt=0)
    tau: float = setting(1.0, "share of the critics that enters their target when it moves; 1 copies them", gt=0, le=1)
    target_update_interval: int | None = setting(8000, "C: steps from one move of the target to the next", source=D3RLPY, gt=0)
    temp_learning_rate: float = setting(3e-4, "of the temperature", source=D3RLPY, gt=0)
    temp_optimizer: Optimizer = setting(Adam(), "what steps the temperature", source=D3RLPY)
    initial_temperature: float = setting(1.0, "α₀: the temperature's first value", source=D3RLPY, gt=0)
    learn_temperature: bool = setting(True, "whether the temperature is learnt; else it keeps its first value", source=D3RLPY)
    entropy_share: float = setting(0.98, "ρ: share of the largest entropy that is aimed at", source="d3rlpy 2.8.1", gt=0, le=1)
    update_actor_interval: int = setting(1, "steps of the critic for one of actor and temperature", source=D3RLPY, gt=0)


class DiscreteSAC(SoftmaxActor, DiscreteCritics, SAC):
    """SAC for discrete actions, offline or online, where its own draws explore. α is in units of return."""

    Config: ClassVar = DiscreteSACConfig
    actions: ClassVar = "discrete"
    presets: ClassVar = {"d3rlpy": Preset(D3RLPY, {})}

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        policy = nets.policy(batch.next_observation)
        values = reduced(nets.target.critic.distributions(batch.next_observation), "min")  # [A, N, B]
        soft = values - self.temperature(nets, h) * policy.log_probs.mT
        return soft.mixed(policy.probs) * batch.discount + batch.reward

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]; and L_α, if the temperature is learnt: neither has a gradient in the other's network."""
        policy, alpha = nets.policy(batch.observation), self.temperature(nets, h)
        with torch.no_grad():
            values = reduced(nets.critic(batch.observation), "min")
        value, entropy = (policy.probs * values).sum(-1), policy.entropy()
        loss = -alpha.detach() * entropy - value
        if self.config_.learn_temperature:
            fewer = h.entropy_share * log_share(batch.observation, entropy)  # choice 6
            loss = loss + self.temperature_loss(alpha, fewer - entropy.detach(), h)
        return loss, {"value": value, "entropy": entropy, "temperature": alpha}

    def entropy_goal(self, h: Hyper) -> Tensor:
        return h.entropy_share * math.log(self.spec_.n_actions)
