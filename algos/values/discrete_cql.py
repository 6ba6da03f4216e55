r"""Conservative Q-learning for discrete actions (DiscreteCQL): values that are pushed down at all actions, and up at the data's.

    L(θ) = L_DoubleDQN(θ) + α E[ Σ_i G_i(s, a) ]                                                   `DiscreteCQL.critic_loss`
    G_i(s, a) = log Σ_a' exp Q_i(s, a') - Q_i(s, a)                                                `DiscreteCQL.gap`

L_DoubleDQN is that of `double_dqn.py`. G_i is -log of the data's action's probability under softmax Q_i(s, ·).

Symbols   α = `alpha`, i numbers the ensemble.
When      A first choice offline for discrete actions. α has to be tuned: more for few data and for rewards of a small unit.
Paper     Kumar, Zhou, Tucker, Levine: Conservative Q-Learning for Offline RL, NeurIPS 2020, arXiv:2006.04779.
Code      github.com/aviralkumar2907/CQL, atari/batch_rl, commit 25c9984 (Apache 2.0). Read, not copied.
Choices   1. The values learn as DoubleDQN's, as in d3rlpy 2.8.1; in the code as DQN's: `double=False`, which preset `atari` has.
          2. A distributional critic has its expectation in G, as in code and d3rlpy.
          3. Each member of an ensemble has a gap of its own; d3rlpy has one, of their mean.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..networks.legal import legal_only
from ..networks.q_functions import picked, td_loss
from .double_dqn import DoubleDQN
from .dqn import DQN, MANUAL, OFFLINE_ATARI, DQNConfig

D3RLPY = "d3rlpy 2.8.1, algos/qlearning/cql.py"
CODE = "CQL's code 25c9984, atari/batch_rl/fixed_replay/configs/quantile.gin"
THEIRS = "d3rlpy 2.8.1, reproductions/offline/discrete_cql.py"


class DiscreteCQLConfig(DQNConfig):
    alpha: float = setting(1.0, "α: weight of the gap", source=f"{D3RLPY}; {CODE}", ge=0)
    double: bool = setting(True, "whether the network that is trained chooses the next action", source=D3RLPY)


class DiscreteCQL(DoubleDQN):
    """Conservative Q-learning, offline or online. Data: discrete actions. α depends on the reward's unit."""

    Config: ClassVar = DiscreteCQLConfig
    presets: ClassVar = {
        "d3rlpy": Preset(f"{D3RLPY} and optimizers.py", {"optimizer": "adam"}),
        "d3rlpy-2020": Preset(f"{MANUAL}, which has no α", {}),
        "atari": Preset(
            f"{CODE}; 8,000 steps at an update in four; scalers and frames of {THEIRS}", {"double": False, **OFFLINE_ATARI}
        ),
        "atari-1-percent": Preset(f"1 % of the data: {THEIRS}", {"alpha": 4.0, **OFFLINE_ATARI}),
        "small": DQN.presets["small"],
    }

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L of each member and sample, [members, B]; the encoder sees a state once for both terms."""
        goal, features = self.goal(nets, batch, h), nets.critic.features(batch.observation)
        loss, metrics = td_loss(nets.critic, batch, goal, features)
        gap = self.gap(legal_only(nets.critic.expected(features), batch.observation), batch.action)
        return loss + h.alpha * gap, {**metrics, "gap": gap.detach().mean(0)}

    def gap(self, values: Tensor, action: Tensor) -> Tensor:
        """G of each member and sample, [members, B]: of values [members, B, A] and the data's actions [B]."""
        return values.logsumexp(-1) - picked(values, action)
