r"""Advantage weighted regression for discrete actions (DiscreteAWR): AWR with a policy that is a softmax.

    value    L_V = E[ ((R(s, a) - V(s)) / c)² ],    R of the values that the last phase left                   `AWR.value_loss`
    actor    L_π = E[ -min(exp(Â / β), w) log π(a|s) ],    π(a|s) = softmax_a f(s)                             `AWR.actor_loss`
    return   R_t = r_t + γ ((1 - λ) V(s_{t+1}) + λ R_{t+1}), over K steps; or the sum that the data had         `AWR.returns`

Phases, returns and the weight are AWR's. The likeliest action acts, and draws of π explore.

Symbols   As in `awr.py`: Â is A = R(s, a) - V(s), normalised, c = `value_scale`, β = `beta`, w = `max_weight`, λ = `lam`,
          K = `horizon`; f(s) are the policy's logits.
When      Discrete actions, episodes with their whole returns, and no wish for a Q-function. It prefers good episodes and does not
          put good parts of bad ones together.
Paper     Peng, Kumar, Zhang, Levine: Advantage-Weighted Regression, 2019, arXiv:1910.00177.
Code      github.com/xbpeng/awr, awr_configs.py and learning/awr_agent.py, commit 64eca1d (MIT). Read, not copied.
Choices   1. The code penalises logits in LunarLander, with the weight 0.001 (`action_l2_weight`); here nothing does.
          2. All else as choices 1 to 4 and 6 to 9 of `awr.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..config import Preset
from ..critics import SoftmaxActor
from ..nets import Hyper, Nets
from ..networks.distributions import Categorical
from .awr import AWR, MANUAL, PAPER, AdvantageWeightedConfig


class DiscreteAWRConfig(AdvantageWeightedConfig):
    """Settings of `DiscreteAWR`."""


class DiscreteAWR(SoftmaxActor, AWR):
    """AWR for discrete actions, offline or online, where its own draws explore."""

    Config: ClassVar = DiscreteAWRConfig
    actions: ClassVar = "discrete"
    presets: ClassVar = {
        "paper": Preset("authors' code 64eca1d, awr_configs.py: LunarLander-v2", {**PAPER, "actor_learning_rate": 5e-4}),
        "d3rlpy-2020": Preset("d3rlpy's manual of October 2020, with its rounds as in choice 1 of `awr.py`", MANUAL),
    }

    def distribution(self, nets: Nets, observation: Any, h: Hyper) -> Categorical:
        return nets.policy(observation)
