r"""Advantage learning (AL): the Bellman operator less a share of the action gap, so that what is not the best falls further behind.

    y = r + γ Q'(s', a*) - α (Q'(s, a°) - Q'(s, a)),    a* and a° the best actions at s' and at s                `AL.goal`

The best action's value stays as it is, and the gap to the others grows by 1 / (1 - α): a small error changes fewer choices.

Symbols   Q' = target critic, α = `alpha`; α = 0 is DQN.
When      Online, where choices are near to each other, as with short steps of time; offline too, where data cover what is chosen.
Paper     Bellemare, Ostrovski, Guez, Thomas, Munos: Increasing the Action Gap, AAAI 2016, arXiv:1512.04860, equation 7.
Choices   1. The gap is one of expected values: a distributional critic's goal is shifted by it.
          2. Of an ensemble the least is the value, of the action with the largest mean, as in `DQN`.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..nets import Hyper, Nets
from ..networks.q_functions import Values
from .dqn import DQN, DQNConfig, gap

PAPER = "Bellemare et al. 2016, section 4; PFRL 0.4.0"


class ALConfig(DQNConfig):
    alpha: float = setting(0.9, "α: weight of the gap; optimal actions stay optimal below 1", source=PAPER, ge=0, le=1)


class AL(DQN):
    """Advantage learning, offline or online. Data: discrete actions."""

    Config: ClassVar = ALConfig
    presets: ClassVar = {"paper": Preset("Bellemare et al. 2016, section 4", {}), "small": DQN.presets["small"]}

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        here = gap(nets.target.critic(batch.observation), batch.action)
        return super().goal(nets, batch, h) - h.alpha * here
