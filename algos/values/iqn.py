r"""Implicit quantile networks (IQN): DQN whose critic gives the return's quantile at any fraction.

    L(θ) = E[ Σ_i 1/N' Σ_j |τ_i - 1(δ_ij < 0)| huber(δ_ij) ],    δ_ij = r + γ Z'_τ'_j(s', a*) - Z_τ_i(s, a)      `DQN.goal`

τ_i and τ'_j are drawn, uniform on (0, 1); a* is the best action by the mean of Z' over K fractions. The network and
the loss are the Q-function's (`q_functions/iqn.py`).

Symbols   Z, Z' = quantile functions of critic and target, N, N' and K = `n_quantiles`, `n_target_quantiles`, `n_greedy_quantiles`.
When      Online from pixels, and offline: among the strongest of the value-based ones, at some times the cost of DQN.
Paper     Dabney, Ostrovski, Silver, Munos: Implicit Quantile Networks for Distributional RL, ICML 2018, arXiv:1806.06923.
Choices   It is `DQN` with `q_function="iqn"`, under the name that PFRL has for it; and as there.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.config import setting
from ..config import Preset
from ..networks import q_functions
from ..networks.q_functions import QFunction
from ..optimizers import Adam, Optimizer
from .dqn import DQN, SCREENS, DQNConfig

PFRL = "PFRL 0.4.0, examples/atari/reproduction/iqn"


class IQNConfig(DQNConfig):
    learning_rate: float = setting(5e-5, "Adam", source=f"{PFRL}; Dabney et al. 2018, appendix", gt=0)
    optimizer: Optimizer = setting(Adam(epsilon=1e-2 / 32), "what steps the critic", source=PFRL)
    q_function: QFunction = setting(q_functions.IQN(), "what critics estimate", source=PFRL)
    target_update_interval: int = setting(  # pyright: ignore[reportIncompatibleVariableOverride]  # configs are frozen
        2_500, "C: gradient steps from one move of the target to the next; 10,000 steps at one update in four", source=PFRL, gt=0
    )


class IQN(DQN):
    """Implicit quantile network, offline or online. Data: discrete actions."""

    Config: ClassVar = IQNConfig
    presets: ClassVar = {"pfrl": Preset(PFRL, {}), "atari": Preset(PFRL, SCREENS), "small": DQN.presets["small"]}
