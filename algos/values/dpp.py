r"""Dynamic policy programming (DPP): values that are preferences, whose softmax is the policy, and that add up over updates.

    y = Q'(s, a) - M Q'(s) + r + γ M Q'(s'),    M Q(s) = Σ_a softmax(η Q(s, ·))_a Q(s, a)                        `DPP.goal`

What an action has fallen behind by is kept and added to, so that errors of single updates average out; the gaps grow without end.

Symbols   Q' = target critic, η = `eta`, M = `operator`.
When      Where values are noisy, as with few samples of a transition. Values are no returns: only their order means something.
Paper     Azar, Gómez, Kappen: Dynamic Policy Programming, JMLR 13, 2012, arXiv:1004.2027.
Choices   1. `operator="log_partition"` has log Σ_a exp(η Q) / η for M, which is the paper's first form; `"max"` is what both come
             to as η grows, and is AL with α = 1. PFRL 0.4.0 calls them DPPL and DPPGreedy.
          2. A distributional critic's goal is the mixture of the next actions' distributions by the softmax, shifted so that its
             expectation is y.
          3. Of an ensemble the least is the value of each action.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..nets import Hyper, Nets
from ..networks.q_functions import Values, picked, reduced
from .dqn import DQN, DQNConfig, best


class DPPConfig(DQNConfig):
    eta: float = setting(1.0, "η: inverse temperature of the softmax", source="PFRL 0.4.0, agents/dpp.py", gt=0)
    operator: Literal["softmax", "log_partition", "max"] = setting("softmax", "M: what a state is worth", source="Azar et al. 2012")


class DPP(DQN):
    """Dynamic policy programming, offline or online. Data: discrete actions. η is in 1/reward."""

    Config: ClassVar = DPPConfig
    presets: ClassVar = {"small": Preset("tried on CartPole", DQN.presets["small"].settings)}

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        here = nets.target.critic(batch.observation)
        behind = picked(reduced(here, "min"), batch.action) - self.worth(here, h)
        return super().goal(nets, batch, h) + behind

    def following(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        if self.config_.operator == "max":
            return super().following(nets, batch, h)
        values = reduced(nets.target.critic.distributions(batch.next_observation), "min")  # [actions, N, B]
        least = values.mean.mT
        mixture = values.mixed((h.eta * least).softmax(-1))
        return mixture + (self.worth(least[None], h) - mixture.mean)

    def worth(self, values: Tensor, h: Hyper) -> Tensor:
        """M of values [members, B, A], [B]."""
        least = reduced(values, "min")
        match self.config_.operator:
            case "softmax":
                return ((h.eta * least).softmax(-1) * least).sum(-1)
            case "log_partition":
                return (h.eta * least).logsumexp(-1) / h.eta
            case _:
                return picked(least, best(values))
