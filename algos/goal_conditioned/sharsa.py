r"""SHARSA: subgoals that a flow draws as the data have them, chosen by the values of a SARSA that leaps from subgoal to subgoal.

    critic   L_Q = E[ Σ_i BCE(q_i(s, g, w), γᵐ (1(w is g) + 1(w is not g) V(s_w, g))) ],   Q = σ(q), V = σ(v)  `SHARSA.critic_loss`
    value    L_V = E[ BCE(v(s, g), min_i Q'_i(s, g, w)) ]                                                  `SHARSA.value_loss`
    high     a flow of subgoals w, L_h = E[ |u_h(s, g, w_t, t) - (w - z)|² ]                                `SHARSA.high_loss`
    low      a flow of actions on the way to w, L_l = E[ |u_l(s, w, a_t, t) - (a - z)|² ]                    `SHARSA.low_loss`
    acting   the best of N subgoals of the high flow, as min_i Q_i has it; an action of the low flow to it      `SHARSA.act`

w is what was seen k steps on, m steps away, or the goal where it comes before that. Flows are those of `flow.py`. Values are of the
data's behaviour, which only the choice among N subgoals is better than; and an error is bootstrapped a k-th as often.

Symbols   k = `subgoal_steps`, N = `n_subgoal_samples`, the flows' steps `flow_steps`, τ = `tau`; ' marks targets, z ~ N(0, 1).
When      Long tasks and much data, where what bootstraps at every step does not get better with more of them.
Paper     Park, Frans, Mann, Eysenbach, Kumar, Levine: Horizon Reduction Makes RL Scalable, 2025, arXiv:2506.04168.
Code      github.com/seohongpark/horizon-reduction, agents/sharsa.py and utils/datasets.py, commit c298aed (MIT). Read, not copied.
Choices   1. Values and flows see each other as the last step left them, as in the code.
          2. Where an episode ends before w, the last state stands for it and is bootstrapped from, by γ at least; in the code any
             goal counts as reached there, and one that is just k steps away does not.
          3. Subgoals are whole goals; the code has other representations of them for some tasks.
          4. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from ...data.batch import Batch
from ...data.config import setting
from ...data.errors import ConfigError
from ...data.operations.goals import GOAL
from ...data.spec import Box, Dict, Spec
from ..definition import LossValue, Network, Verbs, due, loss
from ..losses.sampled_actions import apart, repeated, taken
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.vector_fields import VectorField, integrated
from ..optimizers import Adam, Optimizer
from ..ports import Noise, Ports, Tensors
from .hindsight import GoalMixture
from .shared import GoalConditioned, GoalConfig, GoalValues, aimed

CODE = "authors' code of SHARSA c298aed, agents/sharsa.py"
FOUR = DefaultEncoder(hidden_units=(1024,) * 4, activation="gelu_tanh", initializer="xavier_uniform", normalization="layer")


class SHARSAConfig(GoalConfig):
    gamma: float = setting(0.999, "γ: discount of one step", source=CODE, ge=0, lt=1)
    value_goals: GoalMixture = setting(
        GoalMixture(current=0.2, future=0.5), "how the goals are drawn that values learn", source=CODE
    )
    actor_goals: GoalMixture = setting(
        GoalMixture(future=0.5, geometric=True), "how the goals are drawn that the flow of subgoals learns", source=CODE
    )
    subgoal_steps: int = setting(25, "k: steps to a subgoal", source=CODE, gt=0)
    n_subgoal_samples: int = setting(32, "N: subgoals whose best is gone to", source=CODE, gt=0)
    flow_steps: int = setting(10, "steps from noise to a subgoal, and to an action", source=CODE, gt=0)
    actor_encoder: Encoder = setting(FOUR, "hidden layers of the flow of actions", source=CODE)
    high_encoder: Encoder = setting(FOUR, "hidden layers of the flow of subgoals", source=CODE)
    value_encoder: Encoder = setting(FOUR, "hidden layers of the value function", source=CODE)
    critic_encoder: Encoder = setting(FOUR, "hidden layers of the critics", source=CODE)
    critic_learning_rate: float = setting(3e-4, "of value and critics", source=CODE, gt=0)
    critic_optimizer: Optimizer = setting(Adam(), "what steps value and critics", source=CODE)
    tau: float = setting(0.005, "τ: share of the critics that enters their targets", source=CODE, gt=0, le=1)


class SHARSA(GoalConditioned):
    """SHARSA. Data: continuous actions in [-1, 1] after the action scaler, goals that are vectors. Rewards are not looked at."""

    Config: ClassVar = SHARSAConfig
    actions: ClassVar = "continuous"
    leaps: ClassVar = True
    subgoals: ClassVar = "subgoal_steps"

    def networks(self, spec: Spec, config: SHARSAConfig) -> dict[str, Network]:
        seen, goal = spec.observation, _goal_size(spec)
        rate, optimizer = "critic_learning_rate", config.critic_optimizer
        low = VectorField(config.actor_encoder, seen, spec.action.shape[0])
        high = VectorField(config.high_encoder, seen, goal)
        return {
            "critic": Network(GoalValues(config.critic_encoder, seen, goal), rate, True, optimizer),
            "value": Network(GoalValues(config.value_encoder, seen, members=1), rate, optimizer=optimizer),
            "high": Network(high, "actor_learning_rate", optimizer=config.actor_optimizer),
            "policy": Network(low, "actor_learning_rate", optimizer=config.actor_optimizer),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, actor=1, value_step=1, targets=1)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.high_loss, "high", batch)
        learner.minimise(self.low_loss, "policy", batch)

    def value_step(self, learner: Verbs, batch: Batch) -> None:
        """The critics move before the value that is their goal; it reads their targets, which move last."""
        learner.minimise(self.critic_loss, "critic", batch)
        learner.minimise(self.value_loss, "value", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        learner.track("critic", rate="tau")

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of each member and sample, [2, B]."""
        with torch.no_grad():
            goal = batch.reward + batch.discount * nets.value(batch.next_observation)[0].sigmoid()
        logits = nets.critic(batch.observation, batch.extra["value_subgoal"])
        return bce(logits, goal.expand_as(logits), reduction="none"), {"value": logits.sigmoid().mean(0)}

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            goal = nets.target.critic(batch.observation, batch.extra["value_subgoal"]).sigmoid().amin(0)
        return bce(nets.value(batch.observation)[0], goal, reduction="none"), {}

    @loss("sample")
    def high_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_h of each sample, [B]."""
        subgoal, goal = batch.extra["high_target"], batch.extra["high_goal"]
        noise, t = nets.noise("noise", subgoal.shape), nets.uniform("time", (len(subgoal), 1))
        velocity = nets.high(aimed(batch.observation, goal), (1 - t) * noise + t * subgoal, t)
        return (velocity - (subgoal - noise)).square().mean(-1), {}

    @loss("sample")
    def low_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_l of each sample, [B]."""
        noise, t = nets.noise("noise", batch.action.shape), nets.uniform("time", (len(batch.action), 1))
        velocity = nets.policy(aimed(batch.observation, batch.extra["low_goal"]), (1 - t) * noise + t * batch.action, t)
        return (velocity - (batch.action - noise)).square().mean(-1), {}

    def ports(self, spec: Spec, config: SHARSAConfig) -> Ports:
        return {
            "subgoals": Noise((config.n_subgoal_samples, _goal_size(spec)), always=True),
            "action": Noise(spec.action.shape, always=True),
        }

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        n, steps = self.config_.n_subgoal_samples, self.config_.flow_steps
        seen = repeated(observation, n)
        subgoals = integrated(lambda x, t: nets.high(seen, x, t), noise["subgoals"].movedim(1, 0).flatten(0, 1), steps)
        best = apart(nets.critic(seen, subgoals).amin(0), n).argmax(0)
        towards = aimed(observation, taken(subgoals.unflatten(0, (n, -1)), best))
        return integrated(lambda x, t: nets.policy(towards, x, t), noise["action"], steps).clamp(-1, 1), state


def _goal_size(spec: Spec) -> int:
    """How many entries a goal has. Raises ConfigError of goals that are no vectors."""
    assert isinstance(spec.observation, Dict)
    goal = spec.observation.spaces[GOAL]
    if not isinstance(goal, Box) or len(goal.shape) != 1:
        raise ConfigError("SHARSA draws subgoals, which have to be vectors: choose goal_part, or another algorithm.")
    return goal.shape[0]
