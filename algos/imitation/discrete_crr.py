r"""Critic-regularised regression for discrete actions (DiscreteCRR): CRR whose comparisons are with all actions, and exact.

    critic   L_Q = E[ Σ_i (r + γ Σ_a' π'(a'|s') Q'(s', a') - Q_i(s, a))² ]                               `DiscreteCRR.following`
    actor    L_π = E[ -f(A(s, a)) log π(a|s) ],    π(a|s) = softmax_a g(s)                                      `CRR.actor_loss`
             A(s, a) = Q(s, a) - Σ_a' π(a'|s) Q(s, a'), or - max_a' Q(s, a')                             `DiscreteCRR.advantage`
             f(A) = 1 where A ≥ 0, else 0; or min(exp(A / β), w)                                            `DiscreteCRR.better`

Q is the mean of the ensemble, and Q' the member whose expectation is least. The likeliest action acts, and draws of π explore.

Symbols   As in `crr.py`: β = `beta`, w = `max_weight`; ' marks targets, g(s) are the policy's logits.
When      Discrete actions and data of mixed quality: the policy takes up what the data did well, and nothing that they lack.
Paper     Wang, Novikov, Zolna et al.: Critic Regularized Regression, NeurIPS 2020, arXiv:2006.15134, equations 2 to 6, whose
          expectations over π are drawn there and summed here.
Choices   1. A distributional critic goes towards the whole mixture of its actions' returns, weighed by π'.
          2. No action is better than the best of all, so that f counts A = 0 too: with `advantage_type="max"` and
             `weight_type="binary"` the best action is cloned where the data took it.
          3. The paper's other policy, weighed by the critic when it acts, is left out: the actor's own is what regression left.
          4. Defaults and target networks as in `crr.py`: d3rlpy has CRR for continuous actions only.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..critics import DiscreteCritics, SoftmaxActor
from ..nets import Nets
from ..networks.q_functions import Mean, MeanQFunction, Values, picked, reduced
from .crr import CRR, RegularizedConfig


class DiscreteCRRConfig(RegularizedConfig):
    q_function: MeanQFunction = setting(Mean(loss="squared"), "what critics estimate: mean, or a distribution of the return")


class DiscreteCRR(SoftmaxActor, DiscreteCritics, CRR):
    """CRR for discrete actions, offline or online. β is in units of return."""

    Config: ClassVar = DiscreteCRRConfig
    actions: ClassVar = "discrete"
    presets: ClassVar = {}

    def following(self, nets: Nets, batch: Batch) -> Values:
        """Σ_a' π'(a'|s') Q'(s', a') as a mixture, [N, B]."""
        shares = nets.target.policy(batch.next_observation).probs
        return reduced(nets.target.critic.distributions(batch.next_observation).mixed(shares), "min")

    def advantage(self, nets: Nets, policy: Any, batch: Batch) -> Tensor:
        values = reduced(nets.critic(batch.observation), "mean")  # [B, A]
        mean = self.config_.advantage_type == "mean"
        return picked(values, batch.action) - ((policy.probs * values).sum(-1) if mean else values.amax(-1))

    def better(self, advantage: Tensor) -> Tensor:
        """1 where A ≥ 0, else 0: [B]."""
        return (advantage >= 0).to(advantage.dtype)
