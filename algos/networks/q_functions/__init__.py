"""Q-functions: what a critic estimates of the return, chosen by name for every algorithm that has one.

A critic is an ensemble; B is the last axis of all that concerns samples, so that `goal = following * discount + reward` broadcasts
over members and atoms, whatever the Q-function. Critics of continuous actions have

- `forward(observation, action, first=None)`: the expected values Q_i(s, a), [members, B], or of the `first` members;
- `distribution(observation, action)`: `Values` [members, N, B], what the return may be, for goals. Their mean is the expected value
  (N = 1 where it is all that is known), but where fractions are proposed (FQF): its value weighs atoms by the widths of their
  intervals, and its goals count them alike, both as in Yang et al. 2019;
- `td_loss(observation, action, goal)`: a loss [members, B] against `Values` [N', B] or [members, N', B], and its metrics.

Critics of discrete actions have `forward(observation)`, [members, B, actions]. What `distribution` takes as action is [B], or a
function of those values that gives [B], so that one pass serves to choose and to value; `distributions(observation)` gives all
actions, [members, actions, N, B].
"""

from .bootstrap import Bootstrap, bootstrap_mask
from .categorical import Categorical
from .config import HeadConfig, Mean, QFunctionConfig
from .critics import (
    ContinuousCritic,
    Critic,
    CriticSpec,
    DiscreteCritic,
    Goal,
    Values,
    as_values,
    learned_from,
    over_members,
    picked,
    reduced,
    report,
    td_loss,
)
from .fqf import FQF
from .iqn import IQN
from .qr import QR
from .registry import MeanQFunction, QFunction, losses_as_written, register_q_function

__all__ = [
    "FQF",
    "IQN",
    "QR",
    "Bootstrap",
    "Categorical",
    "ContinuousCritic",
    "Critic",
    "CriticSpec",
    "DiscreteCritic",
    "Goal",
    "HeadConfig",
    "Mean",
    "MeanQFunction",
    "QFunction",
    "QFunctionConfig",
    "Values",
    "as_values",
    "bootstrap_mask",
    "learned_from",
    "losses_as_written",
    "over_members",
    "picked",
    "reduced",
    "register_q_function",
    "report",
    "td_loss",
]
