r"""Rainbow: six improvements of DQN at once, each of which is a setting that can be taken away.

    double       a* = argmax_a' Q(s', a')                                                      `DoubleDQN.following`, `double`
    categorical  the return's distribution on atoms                                            `q_function.name`
    dueling      logits are V(s) + A(s, a) less the mean of A, atom by atom                    `q_function.dueling`
    noisy        weights μ + σ ε, whose draws explore in place of ε-greedy                     `q_function.noisy`
    n-step       r_t + γ r_{t+1} + … + γⁿ Z'(s_{t+n}, a*)                                      `td_steps`
    prioritised  transitions are drawn by the error that they had                              `sampler`

Symbols   Q = expectation of the critic's distribution, Q' = target critic.
When      Online from pixels, where samples are dear. Offline it is a distributional baseline; leave `noisy` out there.
Paper     Hessel et al.: Rainbow: Combining Improvements in Deep Reinforcement Learning, AAAI 2018, arXiv:1710.02298, Table 1.
Choices   1. Noisy layers are those of the two streams, as wide as the encoder's last layer; the encoder's own last layer is plain,
             in the paper it is split in two that are noisy.
          2. Priorities are errors of the expectation; in the paper the KL divergence of the distributions.
          3. An update every four steps is an online run's (`update_interval=4`), 32,000 frames are 2,000 updates of the target.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.config import setting
from ...data.sampling_settings import PrioritizedSampling, Sampling
from ..config import Preset
from ..networks.q_functions import Categorical, QFunction
from .double_dqn import DoubleDQN
from .dqn import DQN, SCREENS, DQNConfig

PAPER = "Hessel et al. 2018, Table 1"
HEAD = Categorical(dueling=True, noisy=0.5)


class RainbowConfig(DQNConfig):
    q_function: QFunction = setting(HEAD, "what critics estimate: categorical, dueling, noisy", source=PAPER)
    double: bool = setting(True, "whether the network that is trained chooses the next action", source=PAPER)
    td_steps: int = setting(3, "n: steps until the return is estimated", source=PAPER, gt=0)
    sampler: Sampling | None = setting(
        PrioritizedSampling(alpha=0.5, normalize_by_max="memory"), "how transitions are drawn", source=f"{PAPER}; PFRL 0.4.0"
    )
    target_update_interval: int = setting(  # pyright: ignore[reportIncompatibleVariableOverride]  # configs are frozen
        2_000, "C: gradient steps from one copy of the target to the next; choice 3", source=PAPER, gt=0
    )


class Rainbow(DoubleDQN):
    """Rainbow, online or offline. Data: discrete actions."""

    Config: ClassVar = RainbowConfig
    presets: ClassVar = {
        "paper": Preset(PAPER, {}),
        "atari": Preset(
            f"{PAPER}; PFRL 0.4.0, examples/atari/reproduction/rainbow; scalers and frames of Mnih et al. 2015",
            {**SCREENS, "sampler": PrioritizedSampling(alpha=0.5, normalize_by_max="memory", frames=4)},
        ),
        "pfrl": Preset("PFRL 0.4.0, examples/atari/reproduction/rainbow", {"target_update_interval": 8_000}),
        "small": DQN.presets["small"],
    }
