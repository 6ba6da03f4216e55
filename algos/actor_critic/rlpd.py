r"""RL with prior data (RLPD): SAC online from the first step on, half of each batch from logged data, with many critics.

    critic   L_Q = E[ Σ_i (r + γ (min_{j ∈ M} Q'_j(s', a') - α log π(a'|s')) - Q_i(s, a))² ],    a' ~ π(s')        `RLPD.goal`
             M: m of the n critics, drawn anew for each batch; without the entropy where `backup_entropy` is false
    actor    L_π = E[ α log π(ã|s) - mean_i Q_i(s, ã) ]                                                     `RLPD.actor_loss`
    temperature as in `sac.py`, with H = -|A| / 2

Layer norm keeps Q from running away where the data have no action, so that nothing else has to keep the policy to them.

Symbols   n = `n_critics`, m = `n_target_critics`; the others as in `sac.py`.
When      There is an environment to act in, and logged data to begin with: `fit_online(env, dataset=data, mixture=0.5,
          n_updates=20, update_start_step=5_000)`, 20 steps of the critics for one of the environment. It learns nothing of use
          offline.
Paper     Ball, Smith, Kostrikov, Levine: Efficient Online Reinforcement Learning with Offline Data, ICML 2023, arXiv:2302.02948.
Code      github.com/ikostrikov/rlpd, rlpd/agents/sac/sac_learner.py and configs, commit c90fd4b (MIT). Read, not copied.
Choices   1. Each of the 20 critic steps for one of the actor draws a batch of its own; the code draws one of 20 times the size, and
             cuts it.
          2. Layer norm follows the activation; in the code it comes before it, and weights begin as Xavier has it.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.q_functions import Values, reduced
from ..presets import TaskPresets
from .sac import SAC, SACConfig

RLPD_CODE = "authors' code of RLPD c90fd4b, configs/rlpd_config.py"
LAYERS = DefaultEncoder(normalization="layer")


class RLPDConfig(SACConfig):
    n_critics: int = setting(10, "n: size of the ensemble", source=RLPD_CODE, gt=0)
    n_target_critics: int = setting(2, "m: critics whose least is the goal", source=RLPD_CODE, gt=0)
    critic_encoder: Encoder = setting(LAYERS, "hidden layers of the critics", source=RLPD_CODE)
    update_actor_interval: int = setting(20, "steps of the critics for one of the policy", source="README: utd_ratio", gt=0)
    backup_entropy: bool = setting(True, "whether the critics' goal has the policy's entropy", source=RLPD_CODE)

    @model_validator(mode="after")
    def _check_critics(self) -> Self:
        if self.n_target_critics > self.n_critics:
            raise ValueError(f"n_target_critics is {self.n_target_critics}, and there are n_critics = {self.n_critics} to ask.")
        return self


class RLPD(SAC):
    """RLPD, online with logged data. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = RLPDConfig
    presets: ClassVar = {"paper": Preset(RLPD_CODE, {})} | TaskPresets(__file__, RLPDConfig)

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        noise = nets.noise("next action", batch.action.shape)
        action, log_prob = nets.policy(batch.next_observation).sample_with_log_prob(noise)
        following = nets.target.critic.distribution(batch.next_observation, action)
        chosen = nets.uniform("critics", (self.config_.n_critics,)).argsort()[: self.config_.n_target_critics]
        least = reduced(following.map(lambda x: x.index_select(0, chosen)), "min")
        if self.config_.backup_entropy:
            least = least - self.temperature(nets, h) * log_prob
        return least * batch.discount + batch.reward

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B], and L_α."""
        action, log_prob = nets.policy(batch.observation).sample_with_log_prob(nets.noise("action", batch.action.shape))
        value, alpha = nets.critic(batch.observation, action).mean(0), self.temperature(nets, h)
        loss = alpha.detach() * log_prob - value
        if self.config_.learn_temperature:
            loss = loss + self.temperature_loss(alpha, log_prob.detach(), h)
        return loss, {"value": value, "entropy": -log_prob, "temperature": alpha}

    def entropy_goal(self, h: Hyper) -> Tensor | float:
        return -self.spec_.action.shape[0] / 2 if self.config_.target_entropy is None else h.target_entropy
