r"""Categorical double DQN: C51 whose next action is chosen by the network that is trained.

    L(θ) = E[ -Σ_k m_k log p_k(s, a) ],    m of r + γ z with p'(s', a*)                                          `DQN.goal`
    a* = argmax_a' Σ_k z_k p_k(s', a')                                                                 `DoubleDQN.following`

Symbols   p, p' = probabilities of critic and target, z = the atoms, m = what falls to each of them.
When      As `CategoricalDQN`, where it overestimates. With noisy dueling heads, steps ahead and priorities it is `Rainbow`.
Paper     Bellemare, Dabney, Munos 2017, arXiv:1707.06887; van Hasselt, Guez, Silver 2016, arXiv:1509.06461.
Choices   As those of `CategoricalDQN`.
"""

from __future__ import annotations

from .categorical_dqn import CategoricalDQN
from .double_dqn import DoubleDQN


class CategoricalDoubleDQN(CategoricalDQN, DoubleDQN):
    """Categorical double deep Q-network, offline or online. Data: discrete actions."""
