"""Q-functions: what a critic estimates of the return, chosen by name for every algorithm that has one.

A critic is an ensemble; B is the last axis of all that concerns samples, so that `goal = reward + discount * following` broadcasts
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
from .critics import ContinuousCritic, Critic, CriticSpec, DiscreteCritic, QFunctionConfig, picked, report
from .fqf import FQF
from .heads import HeadConfig
from .iqn import IQN
from .mean import Mean
from .qr import QR
from .reductions import reduced
from .registry import MeanQFunction, QFunction, losses_as_written, register_q_function
from .values import Goal, Values, as_values

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
    "losses_as_written",
    "picked",
    "reduced",
    "register_q_function",
    "report",
]
