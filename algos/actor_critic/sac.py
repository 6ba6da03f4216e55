r"""Soft actor-critic (SAC): the policy earns rewards and keeps its entropy, at a price that is learnt.

    critic        L_Q = E[ Σ_i (r + γ (min_j Q'_j(s', a') - α log π(a'|s')) - Q_i(s, a))² ],    a' ~ π(s')      `SAC.critic_loss`
    actor         L_π = E[ α log π(ã|s) - min_i Q_i(s, ã) ],    ã = tanh(μ(s) + σ(s) ε),    ε ~ N(0, 1)         `SAC.actor_loss`
    temperature   L_α = E[ -α (log π(ã|s) + H) ]                                                          `SAC.temperature_loss`

π is a normal distribution whose draws pass through tanh. α = α₀ exp(θ), and θ is learnt: the step of α is relative.

Symbols   α = temperature, α₀ = `initial_temperature`, H = `target_entropy`, τ = `tau`; ' marks the target critic.
When      Online, the usual first choice. Offline a baseline that nothing keeps to the data, or the start of SAC-N, EDAC and CQL.
Paper     Haarnoja et al.: Soft Actor-Critic Algorithms and Applications, 2018, arXiv:1812.05905.
Code      github.com/rail-berkeley/softlearning, algorithms/sac.py (MIT). Read, not copied.
Choices   1. Order: critic; actor and temperature in one step from the same draw, each seeing the other as it was; targets. So have
             the paper's Algorithm 1 and PFRL; in d3rlpy 2.8.1 the actor sees the temperature after its step.
          2. L_α is the paper's (18), in α, as in d3rlpy and PFRL; the code has log α in front of the bracket, which is another
             length of the same gradient.
          3. Errors of the critics are squared whole, as in d3rlpy; paper and PFRL halve them.
          4. The actor descends at every step. d3rlpy's manual of 2020 delays it, as TD3 does: `update_actor_interval`.
          5. H = -|A|, as in the paper's Table 1; d3rlpy's manual prints it without its sign.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Bounds, Preset
from ..critics import ActorCriticConfig, Critics, DistributionPolicy, critic_network
from ..definition import LossValue, Network, Verbs, due, loss
from ..nets import Hyper, Nets
from ..networks.encoders import VectorEncoder
from ..networks.perceptrons import SquashedGaussianPolicy, Temperature
from ..networks.q_functions import Values, reduced, td_loss
from ..optimizers import Adam, Optimizer

PAPER = "Haarnoja et al. 2018, Table 1"
XAVIER = VectorEncoder(initializer="xavier_uniform")


class SACConfig(ActorCriticConfig):
    temp_learning_rate: float = setting(3e-4, "of the temperature", source=PAPER, gt=0)
    temp_optimizer: Optimizer = setting(Adam(), "what steps the temperature", source=PAPER)
    initial_temperature: float = setting(1.0, "α₀: the temperature's first value", source="d3rlpy 2.8.1; PFRL 0.4.0", gt=0)
    learn_temperature: bool = setting(True, "whether the temperature is learnt; else it keeps its first value", source=PAPER)
    target_entropy: float | None = setting(None, "H: entropy that is aimed at; None: minus the entries of an action", source=PAPER)
    log_std_bounds: Bounds = setting(
        (-20.0, 2.0), "where the logarithm of σ is clipped", source="d3rlpy 2.8.1, models/builders.py; PFRL's example"
    )
    update_actor_interval: int = setting(1, "steps of the critic for one of actor and temperature", source=PAPER, gt=0)


class SAC(Critics, DistributionPolicy):
    """SAC, offline or online, where its own draws explore. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = SACConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {
        "paper": Preset(PAPER, {}),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/sac.py", {}),
        "d3rlpy-2020": Preset("d3rlpy's manual of October 2020", {"batch_size": 100, "update_actor_interval": 2}),
        "d3rlpy-paper": Preset("Seno and Imai 2021, Table 4", {}),
        "pfrl": Preset(
            "PFRL 0.4.0, examples/mujoco/reproduction/soft_actor_critic; not how its last layers (by Xavier too) and its "
            "biases (by torch) begin; the class alone keeps the temperature at 1 and draws 100",
            {"actor_encoder": XAVIER, "critic_encoder": XAVIER},
        ),
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        networks = {
            "policy": Network(self.policy_network(spec, config), "actor_learning_rate", optimizer=config.actor_optimizer),
            "critic": critic_network(spec, config),
        }
        if config.learn_temperature:
            networks["temperature"] = Network(Temperature(), "temp_learning_rate", optimizer=config.temp_optimizer)
        return networks

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        return SquashedGaussianPolicy(config.actor_encoder, spec.observation, spec.action.shape[0], config.log_std_bounds, True)

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        return due(step, critic=1, actor=c.update_actor_interval, targets=c.target_update_interval or 1)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        """After the critic; choice 1."""
        learner.minimise(self.actor_loss, ("policy", "temperature") if self.config_.learn_temperature else "policy", batch)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return td_loss(nets.critic, batch, self.goal(nets, batch, h))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        """Gives the target of Q, [N, B]."""
        noise = nets.noise("next action", batch.action.shape)
        action, log_prob = nets.policy(batch.next_observation).sample_with_log_prob(noise)
        following = reduced(nets.target.critic.distribution(batch.next_observation, action), "min")
        return (following - self.temperature(nets, h) * log_prob) * batch.discount + batch.reward

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]; and L_α, if the temperature is learnt: neither has a gradient in the other's network."""
        action, log_prob = nets.policy(batch.observation).sample_with_log_prob(nets.noise("action", batch.action.shape))
        value, alpha = reduced(nets.critic(batch.observation, action), "min"), self.temperature(nets, h)
        loss = alpha.detach() * log_prob - value
        if self.config_.learn_temperature:
            loss = loss + self.temperature_loss(alpha, log_prob.detach(), h)
        return loss, {"value": value, "entropy": -log_prob, "temperature": alpha}

    def temperature_loss(self, alpha: Tensor, log_prob: Tensor, h: Hyper) -> Tensor:
        return -alpha * (log_prob + self.entropy_goal(h))

    def entropy_goal(self, h: Hyper) -> Tensor | float:
        return -self.spec_.action.shape[0] if self.config_.target_entropy is None else h.target_entropy

    def temperature(self, nets: Nets, h: Hyper) -> Tensor:
        return h.initial_temperature * nets.temperature() if self.config_.learn_temperature else h.initial_temperature
