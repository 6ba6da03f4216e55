r"""Model-based offline policy optimisation (MOPO): SAC in a model, whose rewards are lowered where it is uncertain.

    r̃ = r - λ u(s, a),    u = max_i ‖σ_i(s, a)‖                                                        `Outcomes.uncertainty`

All else is SAC's, on batches of which the share `real` is data, and the rest what the present policy does in the model.

Symbols   λ = `rollouts.lam`, σ_i: standard deviations of a member of the model, in the units of observations and rewards.
When      Data that are poor but cover much, as random ones and replay buffers. Where they are narrow it hurts: the model is asked
          what nobody has seen. λ and the horizon have to be tuned.
Paper     Yu, Thomas, Yu, Ermon, Zou, Levine, Finn, Ma: MOPO, NeurIPS 2020, arXiv:2005.13239.
Code      github.com/tianheyu927/mopo, commit e5efe3e (MIT). Read, not copied.
Choices   1. The model is trained first, as a `ProbabilisticEnsemble`, and given as `dynamics`; so many policies can share it.
          2. u is of the elites; in the code of all members.
          3. A rollout that ends goes on from another observation of the data, so that every round has as many transitions.
          4. `rollouts.penalty`: "variance" is d3rlpy's of 2020, max_i ‖σ_i²‖; "difference" is the code's without learned variances.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.config import setting
from ..actor_critic.sac import SAC, SACConfig
from ..config import Preset
from ..dynamics.settings import ModelRollouts
from ..presets import TaskPresets
from .shared import MOPO_CODE, InAModel

ROLLOUTS = ModelRollouts(horizon=5, n_transitions=50_000, interval=1000, real=0.05, penalty="aleatoric", lam=1.0)


class MOPOConfig(SACConfig):
    rollouts: ModelRollouts = setting(ROLLOUTS, "how the model generates", source=f"{MOPO_CODE}/base.py")


class MOPO(InAModel, SAC):
    """MOPO, offline. Data: observations are vectors, actions continuous in [-1, 1] after the action scaler."""

    Config: ClassVar = MOPOConfig
    presets: ClassVar = {
        "paper": Preset(f"{MOPO_CODE}/base.py; horizon and λ are chosen by task", {}),
    } | TaskPresets(__file__, MOPOConfig)
