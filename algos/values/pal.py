r"""Persistent advantage learning (PAL): as AL, but an action that stays nearly the best one in the next state is spared.

    y = r + γ Q'(s', a*) - α min(G(s, a), G(s', a)),    G(s, a) = Q'(s, a°) - Q'(s, a), a° the best action at s   `PAL.goal`

G(s', a) is 0 after a terminated step, where all values are 0.

Symbols   Q' = target critic, α = `alpha`; a* and a° the best actions at s' and at s.
When      As `AL`, where actions last for several steps: with frames that are skipped, or control in small steps.
Paper     Bellemare, Ostrovski, Guez, Thomas, Munos: Increasing the Action Gap, AAAI 2016, arXiv:1512.04860, section 3.2.
Choices   1. The paper's operator is max(y of AL, r + γ Q'(s', a)), which with γ = 1 and α = 1 is this one; its agents, and PFRL,
             have α in both.
          2. PFRL 0.4.0 takes G(s', a) after terminated steps too.
          3. As AL's.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from ...data.batch import Batch
from ..nets import Hyper, Nets
from ..networks.q_functions import Values
from .al import AL, ALConfig
from .dqn import DQN, gap


class PAL(DQN):
    """Persistent advantage learning, offline or online. Data: discrete actions."""

    Config: ClassVar = ALConfig
    presets: ClassVar = AL.presets

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        here = gap(nets.target.critic(batch.observation), batch.action)
        there = gap(nets.target.critic(batch.next_observation), batch.action) * (batch.discount > 0)
        return super().goal(nets, batch, h) - h.alpha * torch.minimum(here, there)
