r"""Categorical DQN (C51): DQN whose critic has the return's distribution, as probabilities of evenly spaced atoms.

    L(θ) = E[ -Σ_k m_k log p_k(s, a) ],    m = what of r + γ z falls to each atom, z with the probabilities p'(s', a*)    `DQN.goal`

a* is the best action by the expectation of p'. The projection and the loss are the Q-function's (`Categorical`).

Symbols   p, p' = probabilities of critic and target, z = the atoms.
When      Online from pixels, where a distribution learns faster than its mean. Atoms must span the returns.
Paper     Bellemare, Dabney, Munos: A Distributional Perspective on Reinforcement Learning, ICML 2017, arXiv:1707.06887.
Choices   1. It is `DQN` with `q_function="categorical"`, under the name that PFRL has for it.
          2. Transitions are prioritised by the expectation's error; in PFRL 0.4.0 by the cross entropy.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...data.config import setting
from ..config import Preset
from ..networks.q_functions import Categorical, QFunction
from ..optimizers import Adam
from .dqn import DQN, SCREENS, DQNConfig

PAPER = "Bellemare et al. 2017, section 5; PFRL 0.4.0, examples/atari/reproduction"
SETTINGS: dict[str, Any] = {"learning_rate": 2.5e-4, "optimizer": Adam(epsilon=1e-2 / 32), "target_update_interval": 2_500}


class CategoricalDQNConfig(DQNConfig):
    q_function: QFunction = setting(Categorical(), "what critics estimate", source="Bellemare et al. 2017, section 5")


class CategoricalDQN(DQN):
    """Categorical deep Q-network, offline or online. Data: discrete actions."""

    Config: ClassVar = CategoricalDQNConfig
    presets: ClassVar = {
        "paper": Preset(PAPER, SETTINGS),
        "atari": Preset(f"{PAPER}; scalers and frames of Mnih et al. 2015", {**SETTINGS, **SCREENS}),
        "small": DQN.presets["small"],
    }
