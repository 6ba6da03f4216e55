r"""BCQ-Lagrangian: BCQ whose choice among the behaviour's actions pays for their costs, at a price that keeps a limit.

    behaviour     D(s, z), a conditional VAE of the data's actions                                 `behaviour_model.py`
    policy        a_k = clip(D(s, z_k) + Φ ξ(s, D(s, z_k)), -1, 1);    π(s) is the a_k of n with the largest W_1    `bcq.py`
                  W_i(s, a) = Q_i(s, a) - κ max_j Qc_j(s, a)                                       `BCQLagrangian.worth`
    next action   a' is, of N draws in s', the one with the largest M(Q') - κ F(Qc')             `BCQLagrangian.next_action`
                  M(x) = λ min_j x_j + (1 - λ) max_j x_j,    F(x) = λ max_j x_j + (1 - λ) min_j x_j
    critics       L_Q  = E[ Σ_i (r + γ M(Q'(s', a')) - Q_i(s, a))² ]                              `BCQLagrangian.goal`
                  L_Qc = E[ Σ_i (c + γ F(Qc'(s', a')) - Qc_i(s, a))² ]                              `BCQLagrangian.cost_loss`
    perturbation  L_ξ = E[ -W_1(s, a_1) ]                                                          `BCQLagrangian.actor_loss`
    multiplier    L_κ = E[ -κ (F(Qc'(s', a')) - l) ]                                          `BCQLagrangian.multiplier_loss`

Symbols   as in `bcq.py` and `shared.py`: κ the multiplier, l the limit, c the cost; ' marks targets.
When      Data whose costs and rewards both vary, of behaviours some of which keep within the limit.
Paper     Fujimoto et al. 2019 (BCQ); a multiplier beside it is a baseline of Xu, Zhan, Zhu: Constraints Penalized Q-learning for
          Safe Offline Reinforcement Learning, AAAI 2022, arXiv:2107.09003.
Code      github.com/liuzuxin/OSRL, osrl/algorithms/bcql.py, commit 03a4586 (Apache-2.0). Read, not copied.
Choices   1. Both critics value the action that the policy would choose. In the code each takes its own largest value of N draws:
             its Q is of a policy that heeds no costs, its Qc of one that seeks them.
          2. The policy chooses among n actions by W. The code acts by a single draw.
          3. κ ascends; the code steers it by a PID controller (Stooke et al. 2020), whose integral part that is.
          4. Costs end with the episode; the code's cost critic looks beyond terminals.
          5. Order: behaviour, critics, perturbation, multiplier, targets, as in the code.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..behaviour.bcq import BCQ, BCQConfig
from ..behaviour.behaviour_model import latent_size, perturbed
from ..config import Preset
from ..definition import LossValue, Network, Verbs, due, loss, precomputed
from ..losses.sampled_actions import best_of, by_parts, repeated, taken
from ..nets import Hyper, Nets
from ..networks.encoders import VectorEncoder
from ..networks.q_functions import Values, reduced
from .shared import OSRL, CostCritics, MultiplierConfig, cost_td_loss

CODE = f"{OSRL}, examples/configs/bcql_configs.py"
LAYERS: dict[str, Any] = {"imitator_encoder": VectorEncoder(hidden_units=(400, 400)), "batch_size": 512}


class BCQLagrangianConfig(MultiplierConfig, BCQConfig):
    n_action_samples: int = setting(10, "n: actions whose best acts", source=CODE, gt=0)


class BCQLagrangian(CostCritics, BCQ):
    """BCQ-Lagrangian, offline.

    Data: continuous actions in [-1, 1] after the action scaler, of a behaviour with some variety, and a column `cost`.
    """

    Config: ClassVar = BCQLagrangianConfig
    presets: ClassVar = {
        "paper": Preset(f"{CODE}: one setting for all tasks", {**LAYERS, "reward_scaler": {"name": "multiply", "multiplier": 0.1}}),
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {
            **super().networks(spec, config),
            "cost_critic": self.cost_network(spec, config),
            "multiplier": self.multiplier_network(config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        if step < c.rl_start_step:
            return ("imitate",)
        return due(step, imitate=1, critic=1, actor=c.update_actor_interval, price=1, targets=c.target_update_interval or 1)

    def critic(self, learner: Verbs, batch: Batch) -> None:
        """Both critics, towards the value of the same action."""
        batch = learner.precompute(self.next_action, batch)
        learner.minimise(self.critic_loss, "critic", batch)
        learner.minimise(self.cost_loss, "cost_critic", batch)

    def price(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.multiplier_loss, "multiplier", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        super().targets(learner, batch)
        learner.track("cost_critic", rate="tau")

    @precomputed
    @torch.no_grad()
    def next_action(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """a', [B, A], as the target networks would have it."""
        n, price = self.config_.n_target_samples, self.multiplier(nets, h)
        noise = nets.noise("next action", (n, len(batch.reward), latent_size(self.spec_, self.config_)))

        def drawn(noise: Tensor) -> Tensor:
            seen = repeated(batch.next_observation, noise.shape[0])
            return perturbed(nets.target.policy, seen, self.behaviour(nets, seen, noise), h).mT

        actions = by_parts(drawn, noise).mT

        def worth(part: Tensor) -> Tensor:
            seen, action = repeated(batch.next_observation, part.shape[0]), part.flatten(0, 1)
            reward = reduced(nets.target.critic(seen, action), "mix", h.lam)
            return reward - price * self.feared(nets.target.cost_critic(seen, action), h)

        parts = actions.unflatten(0, (n, -1))
        return taken(parts, best_of(Values(by_parts(worth, parts)[None]), n)[1])

    def feared(self, costs: Tensor, h: Hyper) -> Tensor:
        """F, [members, B] to [B]: of costs the larger estimate counts λ."""
        return reduced(costs, "mix", 1 - h.lam)

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        following = nets.target.critic.distribution(batch.next_observation, self.next_action(nets, batch, h))
        return reduced(following, "mix", h.lam) * batch.discount + batch.reward

    @loss("member sample")
    def cost_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return cost_td_loss(nets, batch, self.next_cost(nets, batch, h))

    @torch.no_grad()
    def next_cost(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """What is feared of a' in s', [B]."""
        return self.feared(nets.target.cost_critic(batch.next_observation, self.next_action(nets, batch, h)), h)

    @loss("sample")
    def multiplier_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_κ of each sample, [B]; nothing is known of what follows a terminal."""
        excess = (self.next_cost(nets, batch, h) - self.discounted_limit(h)) * (batch.discount > 0)
        return self.ascent(nets, excess, h), {"multiplier": self.multiplier(nets, h).detach(), "cost_excess": excess}

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_ξ of each sample, [B]. Behaviour and multiplier have no gradient."""
        with torch.no_grad():
            noise = nets.noise("action", (1, len(batch.reward), latent_size(self.spec_, self.config_)))
            drawn = self.behaviour(nets, batch.observation, noise)
        action = perturbed(nets.policy, batch.observation, drawn, h)
        value, cost = nets.critic(batch.observation, action, 1)[0], nets.cost_critic(batch.observation, action).amax(0)
        return self.multiplier(nets, h).detach() * cost - value, {"value": value, "cost": cost}

    def worth(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        cost = nets.cost_critic(observation, action).amax(0, keepdim=True)
        return super().worth(nets, observation, action) - self.multiplier(nets, nets.h) * cost
