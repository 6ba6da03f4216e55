r"""Ensemble-diversified actor-critic (EDAC): SAC-N whose critics must not agree on which way an action should move.

    critic   L_Q = SAC-N's + η E[ 1/(N - 1) Σ_{i≠j} ⟨g_i, g_j⟩ ],    g_i = ∇_a Q_i(s, a) / ‖∇_a Q_i(s, a)‖      `EDAC.critic_loss`

Slopes that point the same way at the data's actions make all critics right or wrong together beside them. Diverse ones make the
least critic fall there, so that fewer critics do.

Symbols   N = `n_critics`, η = `eta`; the others as in `sac.py`.
When      Data that cover much, where scores count more than time. Narrow data need η and the number of critics tuned.
Paper     An, Moon, Kim, Song: Uncertainty-Based Offline RL with Diversified Q-Ensemble, NeurIPS 2021, arXiv:2110.01548.
Code      github.com/snu-mllab/EDAC, commit 198d570 (MIT). Read, not copied.
Choices   1. Order and first weights: as in `sac_n.py`.
          2. N and η are chosen by task in the paper: presets `d4rl-TASK` have CORL's choices. η = 1 is CORL's default, and the code
             has none at all.
          3. The slope is that of the expected value where Q is distributional, of which the paper has none.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..presets import TaskPresets
from .sac_n import SACN, SACNConfig

_LEAST = 1e-10  # added to a slope's length, as in the code


class EDACConfig(SACNConfig):
    n_critics: int = setting(10, "N: size of the ensemble", source="authors' code 198d570, scripts/sac.py", gt=1)
    eta: float = setting(1.0, "η: weight of the diversity of slopes", source="CORL, algorithms/offline/edac.py", ge=0)


class EDAC(SACN):
    """EDAC, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = EDACConfig
    presets: ClassVar = {
        "paper": Preset("authors' code 198d570, scripts/sac.py: MuJoCo tasks; N and η are chosen by task", {}),
    } | TaskPresets(__file__, EDACConfig)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of each member and sample, [members, B]; members bear equal shares of the diversity."""
        loss, metrics = super().critic_loss(nets, batch, h)
        alike = self.alikeness(nets, batch)
        return loss + h.eta * alike / len(loss), {**metrics, "alikeness": alike}

    def alikeness(self, nets: Nets, batch: Batch) -> Tensor:
        """1/(N - 1) Σ_{i≠j} ⟨g_i, g_j⟩, [B]: from -N/(N - 1), where slopes cancel, to N, where all are one."""
        n = self.config_.n_critics

        def total(actions: Tensor) -> Tensor:
            return nets.critic(batch.observation, actions).sum()

        slope = torch.func.grad(total)(batch.action.expand(n, *batch.action.shape))
        unit = slope / (slope.norm(dim=-1, keepdim=True) + _LEAST)
        together = unit.sum(0).square().sum(-1) - unit.square().sum((0, -1))  # Σ_{i,j} without i = j
        return together / (n - 1)
