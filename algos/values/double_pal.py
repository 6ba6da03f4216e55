r"""Double persistent advantage learning (DoublePAL): PAL with the next value of DoubleDQN.

    y = r + γ Q'(s', a*) - α min(G(s, a), G(s', a)),    a* = argmax_a' Q(s', a')                       `DoubleDQN.following`

G, the gap of the target critic, is PAL's (`PAL.goal`).

Symbols   Q = critic, Q' = its target, α = `alpha`.
When      As `PAL`, where DQN overestimates.
Paper     PFRL 0.4.0 has it (agents/double_pal.py), of Bellemare et al. 2016, arXiv:1512.04860, and van Hasselt et al. 2016,
          arXiv:1509.06461.
Choices   As PAL's.
"""

from __future__ import annotations

from .double_dqn import DoubleDQN
from .pal import PAL


class DoublePAL(PAL, DoubleDQN):
    """Double persistent advantage learning, offline or online. Data: discrete actions."""
