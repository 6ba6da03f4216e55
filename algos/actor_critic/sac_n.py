r"""SAC-N: soft actor-critic with so many critics that the least of them keeps to the data.

    critic   L_Q = E[ Σ_i (r + γ (min_j Q'_j(s', a') - α log π(a'|s')) - Q_i(s, a))² ],    i, j = 1 … N          `SAC.critic_loss`
    actor    L_π = E[ α log π(ã|s) - min_i Q_i(s, ã) ]                                                            `SAC.actor_loss`

All else is SAC's. Critics that have not seen an action disagree about it, so the least of N is a bound that falls with N.

Symbols   N = `n_critics`; the others as in `sac.py`.
When      Data that cover much, and a machine that bears tens or hundreds of critics; EDAC needs fewer.
Paper     An, Moon, Kim, Song: Uncertainty-Based Offline RL with Diversified Q-Ensemble, NeurIPS 2021, arXiv:2110.01548.
Code      github.com/snu-mllab/EDAC, commit 198d570 (MIT). Read, not copied.
Choices   1. Order: SAC's. In the code all losses are computed before anything steps; CORL steps the temperature first.
          2. N = 10 is the code's default; the paper chooses N by task, and takes hundreds where the data are narrow: presets
             `d4rl-TASK` have CORL's choices.
          3. Layers begin as torch's; in the code biases begin at 0.1 and last layers close to 0.
          4. The code's `--max_q_backup` and `--deterministic_backup`, off there, are left out; its README has the first for
             EDAC on pen-cloned.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.config import setting
from ..config import Bounds, Preset, sourced
from ..networks.encoders import DefaultEncoder, Encoder
from ..presets import TaskPresets
from .sac import SAC, SACConfig

CODE = "authors' code 198d570, scripts/sac.py"
THREE = DefaultEncoder(hidden_units=(256, 256, 256))


@sourced(CODE, "actor_learning_rate", "critic_learning_rate", "tau")
class SACNConfig(SACConfig):
    n_critics: int = setting(10, "N: size of the ensemble", source=CODE, gt=0)
    actor_encoder: Encoder = setting(THREE, "hidden layers of the policy", source=CODE)
    critic_encoder: Encoder = setting(THREE, "hidden layers of the critics", source=CODE)
    log_std_bounds: Bounds = setting((-5.0, 2.0), "where the logarithm of σ is clipped", source="authors' code 198d570")


class SACN(SAC):
    """SAC-N, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = SACNConfig
    compiled_from: ClassVar = None  # products bound it
    presets: ClassVar = {
        "paper": Preset("authors' code 198d570, scripts/sac.py: MuJoCo tasks; N is chosen by task", {}),
    } | TaskPresets(__file__, SACNConfig)
