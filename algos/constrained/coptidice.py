r"""COptiDICE: weighs the data by how often the best policy within the limit would be there, and imitates them by that weight.

    weight      w(s, a, s') = f'⁻¹(e/α)⁺,    e = r - κ c + γ ν(s') - ν(s)                              `COptiDICE.weight`
                f(x) = x (log x - 1) + 1 below 1, ½ (x - 1)² above;    f'⁻¹(y) = exp(y) below 0, y + 1 above
    value       L_ν = (1 - γ) E_0[ν(s)] + E[ w e - α f(w) ]                                        `COptiDICE.value_loss`
    worst case  ω = softmax over the batch of ℓ/τ, 1 in the mean;   ℓ = (1 - γ) ι χ(s) + w (c + γ χ(s') - χ(s))
                L_χ = E[ω ℓ],    L_τ = τ (ε - E[ω log ω - ω + 1])                             `COptiDICE.cost_value_loss`
    multiplier  L_κ = E[ -κ (ω w c - (1 - γ) l) ]                                            `COptiDICE.multiplier_loss`
    policy      L_π = E[ -w log π(a|s) ]                                                           `COptiDICE.actor_loss`

E_0 is the mean over first observations: ι is 0 elsewhere, and 1 in the mean. ω makes of the cost E[w c] its largest value within
a divergence ε of the data, an upper bound; ε = 0 takes the cost as it is.

Symbols   α = `alpha`, ε = `caution`; κ, l and c as in `shared.py`; ν = value, χ = cost_value, τ = temperature, learnt as κ is.
When      Stationary behaviour is to keep within a limit and nothing is to be bootstrapped from actions beyond the data.
Paper     Lee, Paduraru, Mankowitz, Heess, Precup, Kim, Guez: COptiDICE: Offline Constrained Reinforcement Learning via Stationary
          Distribution Correction Estimation, ICLR 2022, arXiv:2204.08957.
Code      github.com/liuzuxin/OSRL, osrl/algorithms/coptidice.py, commit 03a4586 (Apache-2.0), after the authors'. Read, not copied.
Choices   1. E[w c] is a step's cost, so it is held against (1 - γ) l, as in the paper; the code holds it against l, 1 / (1 - γ)
             times as much, which costs of 0 and 1 hardly ever reach.
          2. ν and χ are one network each; the code has the smaller of two.
          3. κ and τ are learnt as their logarithms; in the code they are a softplus, which begins at 1.31.
          4. The policy sees the data as they are; the code adds noise to observations and actions.
          5. Order: χ and τ, ν, κ, policy, each after the one before, as in the code; there κ sees the w and ω of the step's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.sampling import INITIAL
from ...data.spec import Spec
from ...data.storage.costs import COST
from ..config import ActionsConfig, Bounds, DiscountedConfig, Preset, SampledConfig
from ..critics import DistributionPolicy
from ..definition import LossValue, Network, Verbs, loss, transitions
from ..losses.prices import price_loss
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.perceptrons import SquashedGaussianPolicy, ValueFunction
from ..networks.training import own_shard, whole_batch
from ..optimizers import Adam, Optimizer
from ..wants import Wants
from .shared import MOST, OSRL, Constrained, MultiplierConfig

CODE = f"{OSRL}, examples/configs/coptidice_configs.py"


class COptiDICEConfig(MultiplierConfig, DiscountedConfig, SampledConfig, ActionsConfig):
    gamma: float = setting(0.99, "γ: discount of one step", source=CODE, ge=0, lt=1)
    actor_learning_rate: float = setting(1e-4, "of the policy", source=CODE, gt=0)
    value_learning_rate: float = setting(1e-4, "of ν and χ", source=CODE, gt=0)
    multiplier_learning_rate: float = setting(1e-4, "of κ and τ", source=CODE, gt=0)
    actor_optimizer: Optimizer = setting(Adam(), "what steps the policy", source=CODE)
    value_optimizer: Optimizer = setting(Adam(), "what steps ν and χ", source=CODE)
    actor_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy", source=CODE)
    value_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of ν and of χ", source=CODE)
    log_std_bounds: Bounds = setting((-20.0, 2.0), "where the logarithm of σ is clipped", source=f"{OSRL}, osrl/common/net.py")
    alpha: float = setting(0.5, "α: weight of the divergence from the data", source=CODE, gt=0)
    caution: float = setting(0.01, "ε: divergence within which the worst case of the costs is taken", source=CODE, ge=0)


class COptiDICE(Constrained, DistributionPolicy):
    """COptiDICE, offline. Data: continuous actions in [-1, 1] after the action scaler, and a column `cost`."""

    Config: ClassVar = COptiDICEConfig
    actions: ClassVar = "continuous"
    has_td_errors: ClassVar = False
    exemptions: ClassVar[Mapping[str, str]] = {
        **Constrained.exemptions,
        "targets_get_no_gradient": "ν and χ are multipliers of the flow between states, which counts at both ends",
        "truncation_is_unseen": "each end is followed by a first step, and first steps count for themselves",
    }
    presets: ClassVar = {
        "paper": Preset(
            f"{CODE}: one setting for all tasks",
            {"batch_size": 512, "reward_scaler": {"name": "multiply", "multiplier": 0.1}},
        )
    }

    def wants(self, config: Any) -> Wants:
        return transitions(config, extra=(COST, INITIAL))

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        policy = SquashedGaussianPolicy(config.actor_encoder, spec.observation, spec.action.shape[0], config.log_std_bounds, True)
        value, cost_value = (
            Network(ValueFunction(config.value_encoder, spec.observation), "value_learning_rate", optimizer=config.value_optimizer)
            for _ in range(2)
        )
        return {
            "policy": Network(policy, "actor_learning_rate", optimizer=config.actor_optimizer),
            "value": value,
            "cost_value": cost_value,
            "multiplier": self.multiplier_network(config),
            "temperature": self.multiplier_network(config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("costs", "improve", "price", "actor")

    def costs(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.cost_value_loss, ("cost_value", "temperature"), batch)

    def improve(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.value_loss, "value", batch)

    def price(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.multiplier_loss, "multiplier", batch)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.actor_loss, "policy", batch)

    def weight(self, nets: Nets, batch: Batch, h: Hyper) -> tuple[Tensor, Tensor]:
        """Works out w and e, [B]."""
        reward = batch.reward - self.multiplier(nets, h).detach() * batch.extra[COST]
        excess = reward + batch.discount * nets.value(batch.next_observation) - nets.value(batch.observation)
        y = excess / h.alpha
        return torch.where(y < 0, y.clamp(max=0).exp(), y + 1), excess

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_ν of each sample, [B]."""
        weight, excess = self.weight(nets, batch, h)
        first = (1 - h.gamma) * batch.extra[INITIAL] * nets.value(batch.observation)
        return first + weight * excess - h.alpha * divergence(weight), {"weight": weight}

    def worst_case(self, nets: Nets, batch: Batch, h: Hyper) -> tuple[Tensor, Tensor, Tensor]:
        """ω, without a gradient, ℓ and w, [B]."""
        with torch.no_grad():
            weight = self.weight(nets, batch, h)[0]
        here, there = nets.cost_value(batch.observation), nets.cost_value(batch.next_observation)
        flow = weight * (batch.extra[COST] + batch.discount * there - here)
        logits = (1 - h.gamma) * batch.extra[INITIAL] * here + flow
        every = whole_batch(logits.detach()) / nets.temperature().detach()
        odds = own_shard(every.softmax(-1) * every.shape[-1])
        return torch.where(h.caution > 0, odds, torch.ones_like(odds)), logits, weight

    @loss("sample")
    def cost_value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_χ and L_τ of each sample, [B]: neither has a gradient in the other's network."""
        odds, logits, _ = self.worst_case(nets, batch, h)
        spread = odds * odds.clamp(min=1e-12).log() - odds + 1
        ascent = price_loss(nets.temperature(), spread - h.caution, 1 / MOST, MOST)
        return odds * logits + ascent, {"temperature": nets.temperature(), "spread": spread}

    @loss("sample")
    def multiplier_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_κ of each sample, [B]."""
        odds, _, weight = self.worst_case(nets, batch, h)
        excess = (odds * weight * batch.extra[COST]).detach() - (1 - h.gamma) * self.discounted_limit(h)
        return self.ascent(nets, excess, h), {"multiplier": self.multiplier(nets, h), "cost_excess": excess}

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]."""
        with torch.no_grad():
            weight = self.weight(nets, batch, h)[0]
        likelihood = nets.policy(batch.observation).log_prob(batch.action)
        return -weight * likelihood, {"log_prob": likelihood}


def divergence(weight: Tensor) -> Tensor:
    """f(w), of w that are not negative."""
    low = weight.clamp(min=1e-10, max=1)
    return torch.where(weight < 1, low * (low.log() - 1) + 1, 0.5 * (weight - 1).square())
