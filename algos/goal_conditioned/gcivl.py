r"""Goal-conditioned implicit V-learning (GCIVL): how far a goal is, and the actions that came nearer to it.

    value   L_V = E[ Σ_i |ε - 1(A < 0)| (r + γ V'_i(s', g) - V_i(s, g))² ],    A = r + γ min_i V'_i(s', g) - mean_i V'_i(s, g)
                                                                                                          `GCIVL.value_loss`
    actor   L_π = E[ -min(exp(α (V(s', g) - V(s, g))), 100) log π(a|s, g) ],    V = mean_i V_i            `GCIVL.actor_loss`

Rewards are -1 until the goal is reached, so that V is less the farther it is. Goals are drawn in hindsight (`hindsight.py`), of the
value and of the actor apart. There is no Q: what luck brought is taken for skill.

Symbols   ε = `expectile`, α = `alpha`, τ = `tau`; ' marks targets.
When      Goals far away in nearly deterministic worlds. `GCIQL` tells luck from skill, `HIQL` reaches farther.
Paper     Park, Ghosh, Eysenbach, Levine: HIQL, NeurIPS 2023, arXiv:2307.11949, section 4;
          as in Park et al.: OGBench, ICLR 2025, arXiv:2410.20092.
Code      github.com/seohongpark/ogbench, impls/agents/gcivl.py, commit 1d41409 (MIT). Read, not copied.
Choices   1. Actor and value see each other as the last step left them, as in the code.
          2. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..definition import LossValue, Network, Verbs, due, loss
from ..nets import Hyper, Nets
from ..presets import TaskPresets
from .shared import CODE, MOST, GoalConditioned, GoalValues, GoalValuesConfig, aimed, log_prob


class GCIVLConfig(GoalValuesConfig):
    alpha: float = setting(10.0, "α: inverse temperature of the advantage weight", source=f"{CODE}/gcivl.py", ge=0)


class GCIVL(GoalConditioned):
    """GCIVL. Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at."""

    Config: ClassVar = GCIVLConfig
    presets: ClassVar = TaskPresets(__file__, GCIVLConfig)
    actions: ClassVar = "continuous"
    exemptions: ClassVar = {
        **GoalConditioned.exemptions,
        "terminated_steps_look_no_further": "the policy's goals are others than the values', which are those that end",
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        value = GoalValues(config.value_encoder, spec.observation)
        return {
            "value": Network(value, "value_learning_rate", True, config.value_optimizer),
            "policy": self.policy_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, actor=1, value_step=1, targets=1)

    def value_step(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.value_loss, "value", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        learner.track("value", rate="tau")

    @loss("member sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_V of each member and sample, [2, B]."""
        with torch.no_grad():
            following = self.goal_values(nets, nets.target.value, batch.next_observation)
            here = self.goal_values(nets, nets.target.value, batch.observation).mean(0)
            advantage = batch.reward + batch.discount * following.amin(0) - here
            goal = batch.reward + batch.discount * following
        value = self.goal_values(nets, nets.value, batch.observation)
        weight = torch.where(advantage < 0, 1 - h.expectile, h.expectile)
        return weight * (goal - value).square(), {"advantage": advantage, "value": value.mean(0)}

    def goal_values(self, nets: Nets, value: Any, observation: Any) -> Tensor:
        """V_i(s, g), [2, B], of the network `value`, which may be the target."""
        return value(observation)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        goal = batch.extra["actor_goal"]
        with torch.no_grad():
            weight = self.weight(nets, batch.observation, batch.next_observation, goal, h.alpha)
        probability = log_prob(nets.policy(aimed(batch.observation, goal)), batch.action)
        return -weight * probability, {"weight": weight, "log_prob": probability}

    def weight(self, nets: Nets, here: Any, there: Any, goal: Tensor, alpha: Tensor) -> Tensor:
        """min(exp(α (V(there, g) - V(here, g))), 100), [B]."""
        near, far = (self.goal_values(nets, nets.value, aimed(seen, goal)).mean(0) for seen in (there, here))
        return (alpha * (near - far)).exp().clamp(max=MOST)
