"""Q-functions: what a critic estimates of the return, chosen by name for every algorithm that has one.

A critic is an ensemble; B is the last axis of all that concerns samples, so that `goal = reward + discount * following` broadcasts
over members and atoms, whatever the Q-function. Critics of continuous actions have

- `forward(observation, action, first=None)`: the expected values Q_i(s, a), [members, B], or of the `first` members;
- `distribution(observation, action)`: atoms [members, N, B] of what the return may be, for goals, in which each counts 1 / N. Their
  mean is the value (mean: N = 1), but where fractions are proposed (FQF): its value weighs atoms by the widths of their intervals,
  and its goals count them alike, both as in Yang et al. 2019;
- `td_loss(observation, action, goal)`: a loss [members, B] against a goal [B], [N', B] or [members, N', B], and its metrics.

Critics of discrete actions have `forward(observation)`, [members, B, actions]. What `distribution` takes as action is [B], or a
function of those values that gives [B], so that one pass serves to choose and to value.
"""

from .bootstrap import Bootstrap, bootstrap_mask
from .critics import picked
from .fqf import FQF
from .iqn import IQN
from .mean import Mean
from .qr import QR
from .reductions import reduced
from .registry import QFunction

__all__ = ["FQF", "IQN", "QR", "Bootstrap", "Mean", "QFunction", "bootstrap_mask", "picked", "reduced"]
