"""Settings, networks and policies of what is told a goal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.errors import ConfigError
from ...data.operations.goals import GOAL
from ...data.spec import Dict, ObservationSpace, Spec
from ..base import Algorithm
from ..config import ActionsConfig, SampledConfig
from ..definition import LossValue, Network, Verbs, transitions
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.layers import initialise
from ..networks.perceptrons import Linear, Observation
from ..networks.training import whole_batch
from ..optimizers import Adam, Optimizer
from ..ports import Tensors
from ..wants import Wants
from .hindsight import GoalMixture, Hindsight

CODE = "OGBench's code 1d41409, impls/agents"
THREE = DefaultEncoder(hidden_units=(512, 512, 512), activation="gelu_tanh", initializer="xavier_uniform")
NORMALISED = THREE.model_copy(update={"normalization": "layer"})
MOST = 100.0  # ceiling of advantage weights: CODE
Part = tuple[int, ...] | str | None


class GoalConfig(SampledConfig, ActionsConfig):
    """Settings of what is told a goal."""

    batch_size: int = setting(1024, "transitions in a gradient step", source=CODE, gt=0)
    goal_part: Part = setting(
        None, "what of an observation a goal is: entries of a vector by number, or a key of a dict; None: the whole of a vector"
    )
    gamma: float = setting(0.99, "γ: discount of one step", source=CODE, ge=0, lt=1)
    actor_goals: GoalMixture = setting(GoalMixture(), "how the goals are drawn that the policy learns", source=CODE)
    actor_learning_rate: float = setting(3e-4, "of the policy", source=CODE, gt=0)
    actor_optimizer: Optimizer = setting(Adam(), "what steps the policy", source=CODE)
    actor_encoder: Encoder = setting(THREE, "hidden layers of the policy", source=CODE)

    @model_validator(mode="after")
    def _check_augmentation(self) -> Self:
        if self.augmentation or self.n_augmentations > 1:
            raise ValueError(
                "what is told a goal takes no augmentation, which would change a goal in one place and not in another."
            )
        return self


class GoalValuesConfig(GoalConfig):
    """Settings of what values states for goals too."""

    value_goals: GoalMixture = setting(
        GoalMixture(current=0.2, future=0.5, geometric=True), "how the goals are drawn that values learn", source=CODE
    )
    negative_rewards: bool = setting(
        True, "whether a step costs 1 until the goal is reached; else reaching it gives 1", source=CODE
    )
    value_learning_rate: float = setting(3e-4, "of the value function", source=CODE, gt=0)
    value_optimizer: Optimizer = setting(Adam(), "what steps the value function", source=CODE)
    value_encoder: Encoder = setting(NORMALISED, "hidden layers of the value function", source=CODE)
    expectile: float = setting(0.9, "ε: which expectile of the return the value learns", source=CODE, gt=0, lt=1)
    tau: float = setting(0.005, "τ: share of a network that enters its target when it moves", source=CODE, gt=0, le=1)


class MeanPolicy(nn.Module):
    """The mean of a normal policy whose deviation is 1: [B, ...] to [B, A], any real numbers; `extra` [B, E] stands beside s."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, size: int, extra: int = 0) -> None:
        super().__init__()
        self.encoder = encoder.build(observation, extra)
        self.head = Linear(self.encoder.features, size)
        initialise(self.head, "xavier_uniform")
        with torch.no_grad():
            self.head.weight.mul_(0.1)  # a hundredth of the variance, as in the code

    def forward(self, observation: Observation, extra: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(observation, extra))


class GoalValues(nn.Module):
    """V_i(s, g) of each member i: [B, ...] to [members, B]; `extra` [B, E] stands beside s."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, extra: int = 0, members: int = 2) -> None:
        super().__init__()
        self.encoder = encoder.build(observation, extra, members)
        self.head = Linear(self.encoder.features, 1, members)

    def forward(self, observation: Observation, extra: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(observation, extra))[..., 0]


class GoalConditioned(Algorithm):
    """Algorithms whose policy, the network `policy`, is told a goal: by the key `goal` of dict observations.

    Data without it are given one, see `data.operations.goals.with_goals`.
    """

    goal_conditioned: ClassVar = True
    has_td_errors: ClassVar = False
    exemptions: ClassVar[Mapping[str, str]] = dict.fromkeys(("augmentation", "n_augmentations"), "refused: goals would differ")
    looks_ahead: ClassVar = True  # whether losses look at the next observation
    leaps: ClassVar = False  # whether values look from subgoal to subgoal
    subgoals: ClassVar = ""  # the setting that counts the steps to a subgoal

    def wants(self, config: Any) -> Wants:
        return Hindsight(
            config.batch_size,
            config.goal_part,
            values=getattr(config, "value_goals", None),
            actor=config.actor_goals,
            subgoal_steps=getattr(config, self.subgoals) if self.subgoals else 0,
            negative=getattr(config, "negative_rewards", True),
            following=self.looks_ahead,
            leaps=self.leaps,
            members=transitions(config).members,
        )

    def completed_online(self, config: Any, spec: Spec, environment: str) -> Any:
        raise ConfigError(f"{self.name} draws its goals in hindsight from a dataset: train it on one, and not in {environment!r}.")

    def policy_network(self, spec: Spec, config: Any) -> Network:
        policy = MeanPolicy(config.actor_encoder, spec.observation, spec.action.shape[0])
        return Network(policy, "actor_learning_rate", optimizer=config.actor_optimizer)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.actor_loss, "policy", batch)

    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> Any:
        """L_π of each sample, [B]."""
        raise NotImplementedError

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.policy(observation).clamp(-1, 1), state


def climbing(value: Tensor, probability: Tensor, h: Hyper) -> LossValue:
    """-Q / mean |Q| - α log π(a|s, g) of each sample, [B]: DDPG+BC, of which α is `h.alpha`."""
    size = whole_batch(value.detach().abs()).mean() + 1e-6
    return -value / size - h.alpha * probability, {"value": value, "log_prob": probability}


def aimed(observation: dict[str, Tensor], goal: Tensor) -> dict[str, Tensor]:
    """An observation with another goal."""
    return {**observation, GOAL: goal}


def aimless(space: ObservationSpace) -> Dict:
    """The space of observations without their goal."""
    assert isinstance(space, Dict)
    return Dict(spaces={key: part for key, part in space.spaces.items() if key != GOAL})


def state_of(observation: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: part for key, part in observation.items() if key != GOAL}


def log_prob(mean: Tensor, x: Tensor) -> Tensor:
    """Log N(x; mean, 1), [B]."""
    return -0.5 * (x - mean).square().sum(-1) - 0.5 * math.log(2 * math.pi) * x.shape[-1]
