r"""Constraints penalized Q-learning (CPQ): what lies beyond the data counts as costly, and what is costly is worth nothing.

    behaviour     a conditional VAE of the data's actions, q(z|s, a) and D(s, z)                   `behaviour_model.py`
    far           d(s, ã) = KL(q(z|s, ã) ‖ N(0, 1)), means over entries, of n draws ã ~ π(s); the share p of them that
                  has the largest d in the whole batch is far from the data: E_ν is the mean over those       `CPQ.far`
    cost critic   L_Qc = E[ Σ_i (c + γ max_j Qc'_j(s', a') - Qc_i(s, a))² - α E_ν[ Qc_i(s, ã) ] ]       `CPQ.cost_loss`
    critic        L_Q  = E[ Σ_i (r + γ 1{max_j Qc'_j(s', a') ≤ l} min_j Q'_j(s', a') - Q_i(s, a))² ]        `CPQ.goal`
    actor         L_π  = E[ -1{max_j Qc_j(s, ã) ≤ l} min_j Q_j(s, ã) ]                                 `CPQ.actor_loss`
    multiplier    L_α  = E_ν[ α (max_j Qc_j(s, ã) - η l) ]: α falls once what is far costs η l in the mean

a' and ã are drawn of π, a normal distribution whose draws pass through tanh.

Symbols   l the limit, c the cost, α the multiplier: `shared.py`; n = `n_action_samples`, p = `far_share`, η = `far_factor`.
When      Rewards are not negative: what breaks the limit is worth 0, which of negative values would be the best.
Paper     Xu, Zhan, Zhu: Constraints Penalized Q-learning for Safe Offline Reinforcement Learning, AAAI 2022, arXiv:2107.09003.
Code      github.com/liuzuxin/OSRL, osrl/algorithms/cpq.py, commit 03a4586 (Apache-2.0). Read, not copied.
Choices   1. E_ν has a gradient in the cost critic, as in the paper. In the code it is worked out by the target critic without
             one: α moves, and nothing is penalized.
          2. E_ν is the mean over what is far; the code's mean counts the other draws as 0.
          3. Of two critics of costs the larger one counts; the code takes the smaller one.
          4. Costs end with the episode; the code's cost critic looks beyond terminals.
          5. Order: behaviour, critic, cost critic and α, actor, targets, as in the code.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..behaviour.behaviour_model import BehaviourConfig, BehaviourModel, divergence_from_prior
from ..config import Bounds, Preset, sourced
from ..critics import ActorCriticConfig, Critics, DistributionPolicy, critic_network
from ..definition import LossValue, Network, Verbs, due, loss
from ..losses.sampled_actions import apart, repeated
from ..nets import Hyper, Nets
from ..networks.encoders import VectorEncoder
from ..networks.perceptrons import SquashedGaussianPolicy
from ..networks.q_functions import Values, reduced, td_loss
from ..networks.training import whole_batch
from .shared import OSRL, CostCritics, MultiplierConfig, cost_td_loss

CODE = f"{OSRL}, examples/configs/cpq_configs.py"


@sourced(CODE, "n_critics", "tau", "beta", "imitator_learning_rate")
class CPQConfig(MultiplierConfig, BehaviourConfig, ActorCriticConfig):
    actor_learning_rate: float = setting(1e-4, "of the policy", source=CODE, gt=0)
    critic_learning_rate: float = setting(1e-3, "of the critics, of rewards and of costs", source=CODE, gt=0)
    multiplier_learning_rate: float = setting(1e-4, "of α", source=CODE, gt=0)
    log_std_bounds: Bounds = setting((-20.0, 2.0), "where the logarithm of σ is clipped", source=f"{OSRL}, osrl/common/net.py")
    n_action_samples: int = setting(10, "n: draws in each state, of which some are far from the data", source=CODE, gt=0)
    far_share: float = setting(0.25, "p: share of the draws that is far", source=f"{OSRL}, osrl/algorithms/cpq.py", gt=0, le=1)
    far_factor: float = setting(1.5, "η: how many limits what is far is to cost", source=CODE, gt=0)
    update_actor_interval: int = setting(1, "steps of the critics for one of the policy", source=CODE, gt=0)


class CPQ(BehaviourModel, CostCritics, DistributionPolicy, Critics):
    """CPQ, offline.

    Data: continuous actions in [-1, 1] after the action scaler, of a behaviour with some variety, and a column `cost`.
    """

    Config: ClassVar = CPQConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {
        "paper": Preset(
            f"{CODE}: one setting for all tasks",
            {
                "imitator_encoder": VectorEncoder(hidden_units=(400, 400)),
                "batch_size": 512,
                "reward_scaler": {"name": "multiply", "multiplier": 0.1},
            },
        )
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        policy = SquashedGaussianPolicy(config.actor_encoder, spec.observation, spec.action.shape[0], config.log_std_bounds, True)
        return {
            **self.behaviour_networks(spec, config),
            "policy": Network(policy, "actor_learning_rate", optimizer=config.actor_optimizer),
            "critic": critic_network(spec, config),
            "cost_critic": self.cost_network(spec, config),
            "multiplier": self.multiplier_network(config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        return due(step, imitate=1, critic=1, cost_critic=1, actor=c.update_actor_interval, targets=c.target_update_interval or 1)

    def cost_critic(self, learner: Verbs, batch: Batch) -> None:
        """With α; each sees the other as it was."""
        learner.minimise(self.cost_loss, ("cost_critic", "multiplier"), batch)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.actor_loss, "policy", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        super().targets(learner, batch)
        learner.track("cost_critic", rate="tau")

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return td_loss(nets.critic, batch, self.goal(nets, batch, h))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        action = nets.policy(batch.next_observation).sample(nets.noise("next action", batch.action.shape))
        allowed = self.allowed(nets.target.cost_critic(batch.next_observation, action), h)
        following = reduced(nets.target.critic.distribution(batch.next_observation, action), "min")
        return following * (allowed * batch.discount) + batch.reward

    def allowed(self, costs: Tensor, h: Hyper) -> Tensor:
        """1 where the largest of [members, B] keeps within the limit, else 0, [B]."""
        return (costs.amax(0) <= self.discounted_limit(h)).to(costs.dtype)

    @loss("member sample")
    def cost_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Qc of each member and sample, and L_α, shared among the members: neither has a gradient in the other's network."""
        with torch.no_grad():
            action = nets.policy(batch.next_observation).sample(nets.noise("next action", batch.action.shape))
            following = nets.target.cost_critic(batch.next_observation, action).amax(0)
        found, metrics = cost_td_loss(nets, batch, following)
        beyond = self.far(nets, batch, h)
        excess = h.far_factor * self.discounted_limit(h) - beyond.detach().amax(0)
        penalty = self.multiplier(nets, h).detach() * beyond - self.ascent(nets, excess, h) / len(beyond)
        return found - penalty, {**metrics, "far_cost": beyond.amax(0), "multiplier": self.multiplier(nets, h)}

    def far(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """What far draws cost in the mean, as each critic and sample has its part in it, [members, B]."""
        n = self.config_.n_action_samples
        seen = repeated(batch.observation, n)
        with torch.no_grad():
            action = nets.policy(batch.observation).sample(nets.noise("action", (n, *batch.action.shape))).flatten(0, 1)
            distance = apart(divergence_from_prior(*nets.vae_encoder(seen, action)).mean(-1), n)
            every = whole_batch(distance)
            rank = ((1 - h.far_share) * (every.numel() - 1)).ceil().long()
            least = every.flatten().sort().values.gather(0, rank[None])
            weight = (distance >= least).to(distance.dtype) / (every >= least).to(distance.dtype).mean()
        return (weight * apart(nets.cost_critic(seen, action), n)).mean(-2)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        action = nets.policy(batch.observation).sample(nets.noise("action", batch.action.shape))
        allowed = self.allowed(nets.cost_critic(batch.observation, action).detach(), h)
        value = reduced(nets.critic(batch.observation, action), "min")
        return -allowed * value, {"value": value, "allowed": allowed}
