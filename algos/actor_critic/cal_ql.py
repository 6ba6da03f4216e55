r"""Calibrated Q-learning (CalQL): CQL that pushes no value of the policy below the return that the data had from there.

    G_i(s, a) = log Σ_k exp(Q̃_i(s, a_k)) / p(a_k) - Q_i(s, a)                                                    `CQL.gap`
    Q̃_i(s, a_k) = max(Q_i(s, a_k), R(s)) where a_k is the policy's, else Q_i(s, a_k)                           `CalQL.counted`
    R(s_t) = Σ_k γᵏ r_{t+k}, to the episode's end; where it was cut what would have followed counts as nothing

All else is CQL's. Values that keep to the scale of returns are not unlearned when the policy goes on online.

Symbols   R = the data's return to go; the others as in `cql.py`.
When      Offline training that goes on online, where CQL's low values would be unlearnt at first. Rewards must be such that
          returns say something.
Paper     Nakamoto, Zhai et al.: Cal-QL: Calibrated Offline RL Pre-Training for Efficient Online Fine-Tuning, 2023,
          arXiv:2303.05479.
Code      github.com/nakamotoo/Cal-QL, JaxCQL/conservative_sac.py, commit ac6eafe. Read, not copied.
Choices   1. R is of scaled rewards, as in the code and in d3rlpy 2.8.1, and exact for every γ and reward scaler.
          2. An episode that was cut ends R there, as in code and d3rlpy; `endless` takes one whose scaled rewards are all r < 0 to
             go on so: R = r / (1 - γ). The code does that where all are the task's reward of failure, of which it has a table, and
             which is below 0 once scaled. Without a table any r < 0 counts: that only lowers R, which stays a bound from below.
          3. Online, steps are learned from when their episode has ended, as in the code, which collects whole trajectories;
             d3rlpy's buffer sums what an episode has so far.
          4. The last step before a timeout is learned from and enters R; the code's reader drops it.
          5. Policies begin as in `sac.py`; in the code log σ has an offset of -1, and layers begin orthogonal.
          6. A lower ω online is a matter of `set_params(conservative_weight=…)` before `fit_online`, as in `cql.py`.
          7. Bounds of G and a temperature in it (`cql_clip_diff_min`, `cql_clip_diff_max`, `cql_temp`), off in the code, are left
             out; CORL's configs of AntMaze bound G at -200.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.sampling import RETURNS
from ..config import Preset, sourced
from ..definition import transitions
from ..presets import TaskPresets
from ..wants import Wants
from .cql import CQL, CQLConfig

CODE = "authors' code ac6eafe, JaxCQL/conservative_sac.py and conservative_sac_main.py"
RATES = ("actor_learning_rate", "critic_learning_rate", "temp_learning_rate", "alpha_learning_rate", "tau")
GAP = ("learn_alpha", "conservative_weight", "n_action_samples", "importance_sampling", "n_critics")


@sourced(CODE, *RATES, *GAP)
class CalQLConfig(CQLConfig):
    backup: Literal["sampled", "mode", "soft", "max"] = setting("max", "which next action the goal has", source=CODE)
    alpha_threshold: float = setting(1.0, "κ: gap at which a learnt α rests", source=CODE)
    endless: bool = setting(
        False,
        "whether an episode that was cut, with the same scaled reward below 0 all along, counts as going on so for ever",
        source=CODE,
    )


class CalQL(CQL):
    """CalQL, offline and then online. Data: continuous actions in [-1, 1] after the action scaler. Rewards' unit matters."""

    Config: ClassVar = CalQLConfig
    presets: ClassVar = {
        "paper": Preset(f"{CODE}: defaults", {}),
        "d3rlpy": Preset(
            "d3rlpy 2.8.1, algos/qlearning/cal_ql.py",
            {"learn_alpha": True, "alpha_learning_rate": 1e-4, "alpha_threshold": 10.0, "backup": "mode"},
        ),
    } | TaskPresets(__file__, CalQLConfig)

    def wants(self, config: Any) -> Wants:
        return transitions(config, extra=(RETURNS,), endless=config.endless)

    def counted(self, values: Tensor, batch: Batch) -> Tensor:
        """Q̃ of the actions, [members, 3 N + 1, B]."""
        n = self.config_.n_action_samples
        anywhere, own, data = values.split((n, 2 * n, 1), 1)
        return torch.cat((anywhere, own.maximum(batch.extra[RETURNS]), data), 1)
