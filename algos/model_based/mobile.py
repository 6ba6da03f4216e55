r"""Model-Bellman inconsistency penalised policy optimisation (MOBILE): SAC whose goals fall where members of a model disagree.

    y = r - λ u(s, a) + γ min_j Q'_j(s', a'),    a' ~ π(s')                                                     `MOBILE.goal`
    u(s, a) = std_i ( mean_k min_j Q'_j(s'_ik, a'_ik) ),    s'_ik ~ T_i(s, a),    a'_ik ~ π(s'_ik)          `MOBILE.inconsistency`

u counts for what was generated alone. So what makes no difference to values costs nothing, however uncertain it is.

Symbols   λ = `inconsistency_weight`, i: member of the model, k = 1 … `n_model_samples`.
When      As MOPO; of those that learn in a model it came out best on D4RL's locomotion.
Paper     Sun, Zhang, Jia, Lin, Ye, Yu: Model-Bellman Inconsistency for Penalized Offline Model-Based RL, ICML 2023.
Code      github.com/yihaosun1124/mobile, commit 4882dce (MIT). Read, not copied.
Choices   1. The standard deviation is that of a sample (n - 1), as in the code.
          2. The code's goals are at least 0, which holds for D4RL's locomotion: `lowest_goal`; None: there is no such bound.
          3. The code's cosine over 3,000 epochs for the actor's rate is an optimizer setting here, and in no default.
          4. `soft_backup`: SAC's entropy in the goal; the code has it for NeoRL alone.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..actor_critic.sac import SAC, SACConfig
from ..config import Preset
from ..dynamics.settings import ModelRollouts
from ..nets import Hyper, Nets
from ..networks.q_functions import Values, reduced
from ..presets import TaskPresets
from .shared import InAModel

CODE = "authors' code 4882dce, configs/gym/default.py"
ROLLOUTS = ModelRollouts(horizon=1, n_transitions=50_000, interval=1000, real=0.05, penalty="none", lam=0.0)


class MOBILEConfig(SACConfig):
    actor_learning_rate: float = setting(1e-4, "of the policy", source=CODE, gt=0)
    temp_learning_rate: float = setting(1e-4, "of the temperature", source=CODE, gt=0)
    rollouts: ModelRollouts = setting(ROLLOUTS, "how the model generates", source=CODE)
    inconsistency_weight: float = setting(1.0, "λ: what disagreement costs", source=CODE, ge=0)
    n_model_samples: int = setting(10, "next observations that each member draws", source=CODE, gt=0)
    lowest_goal: float | None = setting(0.0, "below which no goal falls; None: there is no bound", source=f"{CODE}; choice 2")
    soft_backup: bool = setting(False, "whether goals have SAC's entropy", source=CODE)


class MOBILE(InAModel, SAC):
    """MOBILE, offline. Data: observations are vectors, actions continuous in [-1, 1] after the action scaler."""

    Config: ClassVar = MOBILEConfig
    presets: ClassVar = {
        "paper": Preset(f"{CODE}; horizon and λ are chosen by task", {}),
    } | TaskPresets(__file__, MOBILEConfig)

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        noise = nets.noise("next action", batch.action.shape)
        action, log_prob = nets.policy(batch.next_observation).sample_with_log_prob(noise)
        following = reduced(nets.target.critic.distribution(batch.next_observation, action), "min")
        if self.config_.soft_backup:
            following = following - self.temperature(nets, h) * log_prob
        cost = h.inconsistency_weight * self.inconsistency(nets, batch) * (1 - batch.extra["real"])
        goal = batch.reward - cost + batch.discount * following
        return goal if self.config_.lowest_goal is None else Values(goal.atoms.clamp(min=h.lowest_goal), goal.weights)

    def inconsistency(self, nets: Nets, batch: Batch) -> Tensor:
        """Gives the disagreement of members on each sample, u, [B]."""
        scaling: Any = self.fit_.scaling
        found = nets.dynamics(scaling.raw_observation(batch.observation), scaling.raw_action(batch.action))
        mean, deviation = found.following, found.deviation[..., :-1]
        noise = nets.noise("what follows", (self.config_.n_model_samples, *mean.shape)).to(mean.dtype)
        drawn = scaling.observation((mean + noise * deviation).to(batch.reward.dtype))  # [K, members, B, D]
        seen = drawn.flatten(0, 2)
        action, _ = nets.policy(seen).sample_with_log_prob(nets.noise("action there", (len(seen), batch.action.shape[-1])))
        values = reduced(nets.target.critic(seen, action), "min").unflatten(0, drawn.shape[:3])
        return values.mean(0).std(0)
