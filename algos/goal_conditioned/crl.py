r"""Contrastive RL (CRL): the value of an action for a goal is how much likelier it leads there than others do.

    critic   L_Q = E[ Σ_i 1/B Σ_j  BCE(φ_i(s, a)ᵀ ψ_i(g_j) / √d,  1(g_j is the sample's own)) ]                `CRL.critic_loss`
    actor    L_π = E[ -min_i Q_i(s, π(s, g), g) / mean |min_i Q_i| - α log π(a|s, g) ],    Q_i = φ_iᵀ ψ_i / √d   `CRL.actor_loss`

Goals g come later in the episode, near ones more often by γ (`hindsight.py`), so that Q is the log of the discounted
probability to get to g, up to what depends on g alone. Nothing is bootstrapped. π is normal with deviation 1, and π(s, g) its mean
clipped to [-1, 1].

Symbols   α = `alpha`, d = `latent_size`.
When      Goals that episodes of the data do reach, and where bootstrapping fails. It puts no parts of episodes together.
Paper     Eysenbach, Zhang, Levine, Salakhutdinov: Contrastive Learning as Goal-Conditioned RL, NeurIPS 2022, arXiv:2206.07568; as
          in Park et al.: OGBench, ICLR 2025, arXiv:2410.20092.
Code      github.com/seohongpark/ogbench, impls/agents/crl.py, commit 1d41409 (MIT). Read, not copied.
Choices   1. Actor and critic see each other as the last step left them, as in the code.
          2. The members' losses are summed, in the code a mean: Adam does not notice.
          3. The code's other way to the policy, by weights, is left out: it needs a V of its own.
          4. Processes that train together contrast goals within their shard of a batch.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ...data.batch import Batch
from ...data.config import setting
from ...data.operations.goals import GOAL
from ...data.spec import Dict, ObservationSpace, Spec
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.encoders import Encoder
from ..networks.perceptrons import Linear
from ..optimizers import Adam, Optimizer
from ..presets import TaskPresets
from .hindsight import GoalMixture
from .shared import CODE, NORMALISED, GoalConditioned, GoalConfig, aimed, aimless, climbing, log_prob, state_of

CRL_CODE = f"{CODE}/crl.py"


class CRLConfig(GoalConfig):
    value_goals: GoalMixture = setting(GoalMixture(geometric=True), "how the goals are drawn that critics learn", source=CRL_CODE)
    critic_learning_rate: float = setting(3e-4, "of the critics", source=CRL_CODE, gt=0)
    critic_optimizer: Optimizer = setting(Adam(), "what steps the critics", source=CRL_CODE)
    critic_encoder: Encoder = setting(NORMALISED, "hidden layers of both halves of the critics", source=CRL_CODE)
    n_critics: int = setting(2, "size of the ensemble", source=CRL_CODE, gt=0)
    latent_size: int = setting(512, "d: entries of what both halves give", source=CRL_CODE, gt=0)
    alpha: float = setting(0.1, "α: weight of the data's actions", source=CRL_CODE, ge=0)


class BilinearCritic(nn.Module):
    """Q_i(s, a, g) = φ_i(s, a)ᵀ ψ_i(g) / √d of each member: [B, ...] and [B, A] to [members, B]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int, latent: int, members: int) -> None:
        super().__init__()
        assert isinstance(observation, Dict)
        self.state, self.goal = (
            encoder.build(aimless(observation), action_size, members),
            encoder.build(observation.spaces[GOAL], 0, members),
        )
        self.state_head, self.goal_head = Linear(self.state.features, latent, members), Linear(self.goal.features, latent, members)

    def halves(self, observation: Any, action: Tensor) -> tuple[Tensor, Tensor]:
        """φ divided by √d, and ψ, each [members, B, d]."""
        phi = self.state_head(self.state(state_of(observation), action))
        psi = self.goal_head(self.goal(observation[GOAL]))
        return phi / math.sqrt(phi.shape[-1]), psi

    def forward(self, observation: Any, action: Tensor) -> Tensor:
        phi, psi = self.halves(observation, action)
        return (phi * psi).sum(-1)


class CRL(GoalConditioned):
    """CRL. Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at."""

    Config: ClassVar = CRLConfig
    presets: ClassVar = TaskPresets(__file__, CRLConfig)
    actions: ClassVar = "continuous"
    looks_ahead: ClassVar = False

    def networks(self, spec: Spec, config: CRLConfig) -> dict[str, Network]:
        size, members = spec.action.shape[0], config.n_critics
        critic = BilinearCritic(config.critic_encoder, spec.observation, size, config.latent_size, members)
        return {
            "critic": Network(critic, "critic_learning_rate", optimizer=config.critic_optimizer),
            "policy": self.policy_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("actor", "critic")

    def critic(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.critic_loss, "critic", batch)

    @loss("batch")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of the batch, ()."""
        phi, psi = nets.critic.halves(batch.observation, batch.action)
        logits = phi @ psi.mT  # [members, B, B]: a row for each sample, a column for each one's goal
        own = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device).expand_as(logits)
        each = binary_cross_entropy_with_logits(logits, own, reduction="none")
        return each.mean((1, 2)).sum(), {"accuracy": ((logits > 0) == (own > 0)).to(logits.dtype).mean()}

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        seen = aimed(batch.observation, batch.extra["actor_goal"])
        mean = nets.policy(seen)
        return climbing(nets.critic(seen, mean.clamp(-1, 1)).amin(0), log_prob(mean, batch.action), h)
