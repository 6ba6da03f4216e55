"""Acting by the best of actions that a model of the data's draws, as IQL's critics have it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...data.config import setting
from ..behaviour.best_of_samples import BestOfSamples
from ..config import ContinuousConfig
from ..critics import CriticsConfig
from ..in_sample.iql import ExpectileConfig
from ..nets import Nets
from ..networks.encoders import Encoder
from ..networks.q_functions import reduced
from ..optimizers import Adam, Optimizer
from .flow import NORMALISED

IFQL_CODE = "authors' code of FQL 719d044, agents/ifql.py"


class RejectionConfig(ExpectileConfig, CriticsConfig, ContinuousConfig):
    """Settings of IQL's value and critics, and of the actions among which they choose."""

    expectile: float = setting(0.9, "ε: which expectile of Q the value learns", source=IFQL_CODE, gt=0, lt=1)
    n_action_samples: int = setting(32, "N: actions whose best acts", source=IFQL_CODE, gt=0)
    critic_learning_rate: float = setting(3e-4, "of the critics", source=IFQL_CODE, gt=0)
    critic_optimizer: Optimizer = setting(Adam(), "what steps the critics", source=IFQL_CODE)
    critic_encoder: Encoder = setting(NORMALISED, "hidden layers of the critics", source=IFQL_CODE)
    value_encoder: Encoder = setting(NORMALISED, "hidden layers of the value function", source=IFQL_CODE)


class Rejection(BestOfSamples):
    """Algorithms that act by the action with the largest min_i Q_i(s, a)."""

    def worth(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return reduced(nets.critic(observation, action), "min")[None]
