"""Fitted Q evaluation of discrete actions: as `fqe.py`, with a critic that values every action and π(s') picking one."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ..nets import Nets
from ..networks.q_functions import picked
from .fqe import FQE, EvaluationConfig


class DiscreteFQEConfig(EvaluationConfig):
    """Settings of `DiscreteFQE`."""


class DiscreteFQE(FQE):
    """Fitted Q evaluation of `algo`. Data: discrete actions. `predict` and what else acts are the judged policy's."""

    Config: ClassVar = DiscreteFQEConfig
    actions: ClassVar = "discrete"

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return picked(nets.critic(observation), action)
