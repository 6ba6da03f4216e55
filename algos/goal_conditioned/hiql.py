r"""Hierarchical implicit Q-learning (HIQL): a policy that names a subgoal, a second one that goes there, and one value for both.

    representation   φ(s, g), a vector of length √d, which the value learns                                  `Representation`
    value            L_V of `gcivl.py`, of V(s, φ(s, g))
    high             L_h = E[ -min(exp(α_h (V(w, g) - V(s, g))), 100) log π_h(φ(s, w) | s, g) ]             `HIQL.high_loss`
    low              L_l = E[ -min(exp(α_l (V(s', w) - V(s, w))), 100) log π_l(a | s, φ(s, w)) ]            `HIQL.low_loss`
                     w: what was seen k steps on; in L_h the goal itself, where it comes before
    acting           z = mean of π_h(s, g), brought to the length √d;  a = mean of π_l(s, z), clipped to [-1, 1]   `HIQL.act`

What is far has values that hardly differ from one step to the next; over k steps they do.

Symbols   k = `subgoal_steps`, α_h = `high_alpha`, α_l = `low_alpha`, d = `representation_size`; the others as in `gcivl.py`.
When      Goals that are farther than values can tell: long mazes.
Paper     Park, Ghosh, Eysenbach, Levine: HIQL: Offline Goal-Conditioned RL with Latent States as Actions, NeurIPS 2023,
          arXiv:2307.11949.
Code      github.com/seohongpark/ogbench, impls/agents/hiql.py, commit 1d41409 (MIT). Read, not copied.
Choices   1. Policies and value see each other as the last step left them, as in the code.
          2. Target values are of the live representation, which has no target, as in the code.
          3. A goal from anywhere that happens to come before w is w in L_h, where the code goes on to k steps.
          4. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import ObservationSpace, Spec
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.encoders import Encoder
from ..networks.perceptrons import Linear, Observation
from ..optimizers import Adam, Optimizer
from ..ports import Tensors
from ..presets import TaskPresets
from .gcivl import GCIVL
from .shared import CODE, NORMALISED, GoalValues, GoalValuesConfig, MeanPolicy, aimed, aimless, log_prob, state_of

HIQL_CODE = f"{CODE}/hiql.py"


class HIQLConfig(GoalValuesConfig):
    expectile: float = setting(0.7, "ε: which expectile of the return the value learns", source=HIQL_CODE, gt=0, lt=1)
    low_alpha: float = setting(3.0, "α_l: inverse temperature of the weight of actions", source=HIQL_CODE, ge=0)
    high_alpha: float = setting(3.0, "α_h: inverse temperature of the weight of subgoals", source=HIQL_CODE, ge=0)
    subgoal_steps: int = setting(25, "k: steps to a subgoal", source=HIQL_CODE, gt=0)
    representation_size: int = setting(10, "d: entries of a subgoal", source=HIQL_CODE, gt=0)
    representation_encoder: Encoder = setting(NORMALISED, "hidden layers of the representation", source=HIQL_CODE)
    high_encoder: Encoder = setting(
        GoalValuesConfig.model_fields["actor_encoder"].default, "hidden layers of the policy over subgoals", source=HIQL_CODE
    )
    high_learning_rate: float = setting(3e-4, "of the policy over subgoals", source=HIQL_CODE, gt=0)
    high_optimizer: Optimizer = setting(Adam(), "what steps the policy over subgoals", source=HIQL_CODE)


class Representation(nn.Module):
    """φ(s, g), of length √d: [B, ...] to [B, d]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, size)

    def forward(self, observation: Observation) -> Tensor:
        return of_length(self.head(self.encoder(observation)))


class HIQL(GCIVL):
    """HIQL. Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at."""

    Config: ClassVar = HIQLConfig
    presets: ClassVar = TaskPresets(__file__, HIQLConfig)
    subgoals: ClassVar = "subgoal_steps"

    def networks(self, spec: Spec, config: HIQLConfig) -> dict[str, Network]:
        seen, state, d = spec.observation, aimless(spec.observation), config.representation_size
        rate, optimizer = "value_learning_rate", config.value_optimizer
        low = MeanPolicy(config.actor_encoder, state, spec.action.shape[0], d)
        high = MeanPolicy(config.high_encoder, seen, d)
        return {
            "representation": Network(Representation(config.representation_encoder, seen, d), rate, optimizer=optimizer),
            "value": Network(GoalValues(config.value_encoder, state, d), rate, True, optimizer),
            "policy": Network(low, "actor_learning_rate", optimizer=config.actor_optimizer),
            "high_policy": Network(high, "high_learning_rate", optimizer=config.high_optimizer),
        }

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.low_loss, "policy", batch)
        learner.minimise(self.high_loss, "high_policy", batch)

    def value_step(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.value_loss, ("value", "representation"), batch)

    def goal_values(self, nets: Nets, value: Any, observation: Any) -> Tensor:
        return value(state_of(observation), nets.representation(observation))

    @loss("sample")
    def low_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_l of each sample, [B]."""
        goal = batch.extra["low_goal"]
        with torch.no_grad():
            weight = self.weight(nets, batch.observation, batch.next_observation, goal, h.low_alpha)
            subgoal = nets.representation(aimed(batch.observation, goal))
        probability = log_prob(nets.policy(state_of(batch.observation), subgoal), batch.action)
        return -weight * probability, {"weight": weight, "log_prob": probability}

    @loss("sample")
    def high_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_h of each sample, [B]."""
        goal, target = batch.extra["high_goal"], batch.extra["high_target"]
        with torch.no_grad():
            weight = self.weight(nets, batch.observation, batch.extra["high_state"], goal, h.high_alpha)
            subgoal = nets.representation(aimed(batch.observation, target))
        probability = log_prob(nets.high_policy(aimed(batch.observation, goal)), subgoal)
        return -weight * probability, {"weight": weight, "log_prob": probability}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        subgoal = of_length(nets.high_policy(observation))
        return nets.policy(state_of(observation), subgoal).clamp(-1, 1), state


def of_length(x: Tensor) -> Tensor:
    """X brought to the length √d: [B, d] to [B, d]."""
    return x / x.norm(dim=-1, keepdim=True) * math.sqrt(x.shape[-1])
