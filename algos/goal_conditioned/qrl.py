r"""Quasimetric RL (QRL): the shortest way to a goal as a distance that is pushed apart, and held at 1 for a single step.

    distance   L_d = E[ 100 softplus(5 - d(s, g) / 100) ] + λ (E[ max(d(s, s') - 1, 0)² ] - ε²),    g any state of the data
               λ ascends the same; L_λ = λ (ε² - E[ max(d(s, s') - 1, 0)² ])                              `QRL.distance_loss`
    dynamics   L_T = E[ (d(z', ẑ) + d(ẑ, z')) / 2 ],    z = φ(s), z' = φ(s'), ẑ = z + T(z, a)
    actor      L_π = E[ D / mean |D| - α log π(a|s, g) ],    D = d(φ(s) + T(φ(s), π(s, g)), φ(g))             `QRL.actor_loss`

d is an interval quasimetric embedding (IQE): it keeps the triangle inequality and need not be symmetric, as ways are not. π is
normal with deviation 1, and π(s, g) its mean clipped to [-1, 1].

Symbols   ε² = `margin`, α = `alpha`; φ and d = the network `distance`, T = `dynamics`, λ = `multiplier`.
When      Nearly deterministic worlds with goals that are whole observations.
Paper     Wang, Torralba, Isola, Zhang: Optimal Goal-Reaching RL via Quasimetric Learning, ICML 2023, arXiv:2304.01203; IQE: Wang
          and Isola 2022, arXiv:2211.15120; as in Park et al.: OGBench, ICLR 2025, arXiv:2410.20092.
Code      github.com/seohongpark/ogbench, impls/agents/qrl.py and utils/networks.py, commit 1d41409 (MIT). Read, not copied.
Choices   1. Distance, dynamics, λ and actor see each other as the last step left them, as in the code.
          2. The code's other distance (MRN) and its other way to the policy, by weights, are left out.
          3. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ...data.batch import Batch
from ...data.config import setting
from ...data.errors import ConfigError
from ...data.operations.goals import GOAL, SEEN
from ...data.spec import Box, Dict, ObservationSpace, Spec
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.encoders import Encoder
from ..networks.perceptrons import Linear, Temperature
from ..optimizers import Adam, Optimizer
from ..presets import TaskPresets
from .hindsight import GoalMixture
from .shared import CODE, NORMALISED, GoalConditioned, GoalConfig, aimed, climbing, log_prob

QRL_CODE = f"{CODE}/qrl.py"
_COMPONENT = 8  # entries of a latent that a component of the distance is made of: QRL_CODE


class QRLConfig(GoalConfig):
    value_goals: GoalMixture = setting(GoalMixture(future=0.0), "how the goals are drawn that are pushed apart", source=QRL_CODE)
    distance_learning_rate: float = setting(3e-4, "of the distance, λ and the dynamics", source=QRL_CODE, gt=0)
    distance_optimizer: Optimizer = setting(Adam(), "what steps them", source=QRL_CODE)
    distance_encoder: Encoder = setting(NORMALISED, "hidden layers of what a distance is between", source=QRL_CODE)
    dynamics_encoder: Encoder = setting(NORMALISED, "hidden layers of the dynamics", source=QRL_CODE)
    n_components: int = setting(64, "components of the distance, each of 8 entries of a latent", source=QRL_CODE, gt=0)
    margin: float = setting(0.05, "ε²: how much of a step's excess is let be", source=QRL_CODE, ge=0)
    alpha: float = setting(0.003, "α: weight of the data's actions", source=QRL_CODE, ge=0)


class Quasimetric(nn.Module):
    """d(s, g) ≥ 0: observations [B, ...] of either to [B]."""

    def __init__(self, encoder: Encoder, state: ObservationSpace, components: int) -> None:
        super().__init__()
        self.encoder = encoder.build(state)
        self.head = Linear(self.encoder.features, _COMPONENT * components)
        self.mixture = nn.Parameter(torch.zeros(()))

    def latent(self, state: Any) -> Tensor:
        """φ(s), [B, d]."""
        return self.head(self.encoder(state))

    def forward(self, state: Any, goal: Any) -> Tensor:
        return self.between(self.latent(state), self.latent(goal))

    def between(self, here: Tensor, there: Tensor) -> Tensor:
        """The distance of latents, [B, d] each to [B]: mean and maximum, mixed, of lengths of unions of intervals [x_k, y_k]."""
        x, y = (part.unflatten(-1, (-1, _COMPONENT)) for part in (here, there))  # [B, components, 8]
        ends, order = torch.cat((x, y), -1).sort(-1)
        counts = (x < y).to(ends.dtype)  # an interval that begins after its end is none
        opened = torch.cat((counts, -counts), -1).gather(-1, order).cumsum(-1)[..., :-1]
        lengths = ((ends[..., 1:] - ends[..., :-1]) * (opened > 0.5).to(ends.dtype)).sum(-1)
        share = self.mixture.sigmoid()
        return share * lengths.mean(-1) + (1 - share) * lengths.amax(-1)


class Dynamics(nn.Module):
    """T(z, a): latents [B, d] and actions [B, A] to the next latent, z + T(z, a), [B, d]."""

    def __init__(self, encoder: Encoder, latent: int, action_size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(Box(shape=(latent,), dtype="float32"), action_size)
        self.head = Linear(self.encoder.features, latent)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        return latent + self.head(self.encoder(latent, action))


class QRL(GoalConditioned):
    """QRL. Data: continuous actions in [-1, 1] after the action scaler; vectors as observations. Rewards are not looked at."""

    Config: ClassVar = QRLConfig
    presets: ClassVar = TaskPresets(__file__, QRLConfig)
    actions: ClassVar = "continuous"
    exemptions: ClassVar = {
        **GoalConditioned.exemptions,
        "gamma": "the goals of values are any state, unless `value_goals` says otherwise",
        "goal_part": "distances are between whole observations",
        "bootstraps_by_the_batchs_discount": "nothing is bootstrapped: a single step has the length 1",
        "terminated_steps_look_no_further": "the last step of an episode has the length 1 too",
    }

    def networks(self, spec: Spec, config: QRLConfig) -> dict[str, Network]:
        if not isinstance(spec.observation, Dict) or set(spec.observation.spaces) != {SEEN, GOAL} or config.goal_part is not None:
            raise ConfigError("QRL measures distances between whole observations: leave goal_part out, and give vectors.")
        state, size = spec.observation.spaces[SEEN], spec.action.shape[0]
        rate, optimizer = "distance_learning_rate", config.distance_optimizer
        dynamics = Dynamics(config.dynamics_encoder, _COMPONENT * config.n_components, size)
        return {
            "distance": Network(Quasimetric(config.distance_encoder, state, config.n_components), rate, optimizer=optimizer),
            "dynamics": Network(dynamics, rate, optimizer=optimizer),
            "multiplier": Network(Temperature(), rate, optimizer=optimizer),
            "policy": self.policy_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("actor", "measure")

    def measure(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.distance_loss, ("distance", "dynamics", "multiplier"), batch)

    @loss("sample")
    def distance_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_d, L_λ and L_T of each sample, [B]."""
        here, there, goal = batch.observation[SEEN], batch.next_observation[SEEN], batch.observation[GOAL]
        z, after, towards = (nets.distance.latent(seen) for seen in (here, there, goal))
        far, step = nets.distance.between(z, towards), nets.distance.between(z, after)
        excess, price = (step - 1).clamp(min=0).square(), nets.multiplier()
        apart = 100 * softplus(5 - far / 100) + price.detach() * excess + price * (h.margin - excess.detach())
        guess = nets.dynamics(z, batch.action)
        error = (nets.distance.between(after, guess) + nets.distance.between(guess, after)) / 2
        metrics = {"distance": far, "step": step, "multiplier": price.expand_as(far), "dynamics_error": error}
        return apart + error, metrics

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        seen = aimed(batch.observation, batch.extra["actor_goal"])
        mean = nets.policy(seen)
        with torch.no_grad():
            z, goal = nets.distance.latent(seen[SEEN]), nets.distance.latent(seen[GOAL])
        distance = nets.distance.between(nets.dynamics(z, mean.clamp(-1, 1)), goal)
        return climbing(-distance, log_prob(mean, batch.action), h)
