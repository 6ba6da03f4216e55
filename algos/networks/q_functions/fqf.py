r"""Fully parametrised quantile functions (FQF): quantiles at fractions that a network proposes for each state and action.

    widths     p = softmax(proposal(ψ)),    τ_i = p_1 + … + p_i,    τ̂_i = (τ_{i-1} + τ_i) / 2
    value      Q = Σ_i p_i Z_{τ̂_i}                                               Z as in `iqn.py`
    critic     (1 / N) Σ_j Σ_i |τ̂_i - 1{u_ij < 0}| huber(u_ij),    u_ij = r + γ Z'_{τ̂'_j}(s', a') - Z_{τ̂_i}(s, a)
    proposal   ∂W₁ / ∂τ_i = 2 Z_{τ_i} - Z_{τ̂_i} - Z_{τ̂_{i+1}},    i = 1 … N - 1,    and  -c H(p)

W₁ is the 1-Wasserstein distance from the staircase with steps τ and heights Z_τ̂ to the quantile function. Its gradient moves the
proposal only: ψ and Z are constants to it, and τ̂ is one to the critic.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ....data.config import setting
from ...optimizers import Group, Optimizer, RMSprop
from ..perceptrons import Linear
from .config import HeadConfig
from .critics import ContinuousCritic, CriticSpec, DiscreteCritic, Loss, Values, over_members, report
from .iqn import ImplicitCritic
from .quantiles import quantile_huber

CODE = "authors' code, github.com/microsoft/FQF (MIT), fqf_agent.py"


class FQF(HeadConfig):
    """Quantiles at N proposed fractions; Q is their mean, weighted by the widths of the intervals.

    Paper: Yang, Zhao, Lin, Qin, Bian, Liu: Fully Parameterized Quantile Function for Distributional Reinforcement Learning, NeurIPS
    2019, arXiv:1911.02140. Choices: the target proposes fractions of its own at s', as in the authors' code (read, not copied) and
    d3rlpy 1; goals count 1 / N each, whatever their widths, as in all three; the actor's loss takes fractions as constants.
    Widths begin nearly equal. Floats here are no coefficients of a stack's rows.
    """

    name: Literal["fqf"] = "fqf"
    n_quantiles: int = setting(32, "N: proposed fractions", source=f"{CODE}; d3rlpy 1", gt=1)
    embed_size: int = setting(64, "n: cosines of a fraction", source=f"{CODE}; d3rlpy 1", gt=0)
    entropy_coefficient: float = setting(
        0.001, "c: weight of the entropy of the widths, which keeps them apart from 0", source=f"{CODE}; d3rlpy 1 has 0", ge=0
    )
    proposal_learning_rate: float = setting(2.5e-9, "of the proposal", source="Yang et al. 2019, section 5", gt=0)
    proposal_optimizer: Optimizer = setting(
        RMSprop(alpha=0.95, epsilon=1e-5, epsilon_inside=True, centered=True), "what steps the proposal", source=CODE
    )

    def groups(self) -> tuple[Group, ...]:
        return (Group("proposal.", self.proposal_learning_rate, self.proposal_optimizer),)

    def critics(self) -> tuple[type[FQFCritic], type[DiscreteFQFCritic]]:
        return FQFCritic, DiscreteFQFCritic


class _Proposed(ImplicitCritic):
    def __init__(self, config: FQF, spec: CriticSpec) -> None:
        super().__init__(config, spec, config.embed_size)
        self.config = config
        size = self.encoder.features
        self.proposal = Linear(size, config.n_quantiles, spec.members)
        bound = 0.01 * (6 / (size + config.n_quantiles)) ** 0.5  # Xavier's by a hundredth, so that widths are nearly equal
        nn.init.uniform_(self.proposal.weight, -bound, bound)
        nn.init.zeros_(self.proposal.bias)

    @torch.no_grad()
    def proposed(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """τ̂ and the widths p, [members, B, N] each, as constants."""
        widths = self.proposal(features).softmax(-1)
        return widths.cumsum(-1) - widths / 2, widths

    def fractions(self, features: Tensor) -> Tensor:
        return self.proposed(features)[0]

    def expected(self, features: Tensor) -> Tensor:
        return self.expected_at(features, *self.proposed(features))

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        """The critic's loss and the proposal's, [members, B]. Of the second only the gradient and the entropy show."""
        logs = self.proposal(features.detach()).log_softmax(-1)
        widths = logs.exp()
        steps = widths.cumsum(-1)
        middles = (steps - widths / 2).detach()
        quantiles = self.quantiles(features, middles, action)
        with torch.no_grad():
            slope = 2 * self.quantiles(features, steps[..., :-1], action) - quantiles[:, :-1] - quantiles[:, 1:]
            value = (widths.transpose(-1, -2) * quantiles).sum(-2)
        distance = (slope * steps[..., :-1].transpose(-1, -2)).sum(-2)  # its gradient is W₁'s, its value means nothing
        entropy = -(widths * logs).sum(-1)
        loss = quantile_huber(quantiles, middles.transpose(-1, -2), goal)
        loss = loss + (distance - distance.detach()) - self.config.entropy_coefficient * entropy
        return report(loss, value, goal.mean, fraction_entropy=over_members(entropy))


class FQFCritic(ContinuousCritic, _Proposed):
    """Q_i(s, a), quantiles at proposed fractions."""


class DiscreteFQFCritic(DiscreteCritic, _Proposed):
    """Q_i(s, ·), quantiles at proposed fractions."""
