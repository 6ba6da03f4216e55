"""The base of on-policy algorithms: settings, networks of policy and value, acting, and what completes a rollout."""

from __future__ import annotations

from typing import Any, ClassVar, Never, Self

import torch
from pydantic import model_validator
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.batch import Batch
from ...data.config import setting
from ...data.errors import ConfigError
from ...data.spec import Spec
from ..base import Algorithm
from ..config import ActionsConfig, ContinuousConfig, DiscountedConfig
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.encoders import Encoder, VectorEncoder
from ..networks.perceptrons import ClippedGaussianPolicy, SoftmaxPolicy, ValueFunction
from ..networks.recurrent import recalling
from ..optimizers import Adam, Optimizer
from ..ports import Noise, Ports, Tensors
from ..recurrence import remembers
from .estimators import advantages
from .rollouts import Rollouts
from .sequences import AFTER, BEFORE, Columns, handed, joined, memories, said

TANH = VectorEncoder(hidden_units=(64, 64), activation="tanh")
_TOO_FEW = 2  # rows of which a standard deviation can be told


class OnPolicyConfig(DiscountedConfig, ActionsConfig):
    """Settings of algorithms that learn from rollouts."""

    follows_rollouts: ClassVar = True
    once: ClassVar = ContinuousConfig
    never: ClassVar = ("td_steps", "sampler")

    policy_encoder: Encoder = setting(TANH, "hidden layers of the policy")
    last_scale: float = setting(
        1.0,
        "what the policy's last layer begins multiplied by; 0.01: all actions begin alike",
        source="what 0.01 is for: Andrychowicz et al. 2021, section 3.2",
        gt=0,
    )
    optimizer: Optimizer = setting(Adam(), "what steps policy and value function")
    learning_rate: float = setting(3e-4, "of both", gt=0)
    entropy_weight: float = setting(0.0, "β: what is given for entropy", ge=0)
    log_std_bounds: tuple[float, float] = setting((-20.0, 2.0), "where log σ of continuous actions is clipped")


class RolloutsConfig(OnPolicyConfig):
    """Settings of those whose rollouts have a length."""

    update_interval: int = setting(2048, "steps of all environments together between two updates", gt=0)


class OnPolicy(Algorithm):
    """Base of algorithms that learn from what their own policy just did; `fit_online` trains them.

    Actions are draws of the policy. Continuous ones are of a normal distribution cut off at ±1, and what was cut off counts with
    the probability of being cut off there (Fujita and Maeda 2018, arXiv:1802.07564): no step is seen as another than was taken.
    """

    actions: ClassVar = ("continuous", "discrete")
    has_td_errors: ClassVar = False
    recurrent: ClassVar = ("policy",)

    def fitter(self, dataset: Any = None, *positional: Any, **arguments: Any) -> Never:  # pyright: ignore
        """Refused. Raises ConfigError, which says why."""
        raise ConfigError(
            f"{self.name} learns from what its own policy has just done, so data are of no use to it: call fit_online, or choose "
            "an algorithm that learns from data."
        )

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        if spec.discrete:
            policy = SoftmaxPolicy(config.policy_encoder, spec.observation, spec.n_actions)
        else:
            size = spec.action.shape[0]
            policy = ClippedGaussianPolicy(config.policy_encoder, spec.observation, size, config.log_std_bounds, False)
        with torch.no_grad():
            policy.head.weight.mul_(config.last_scale)
        return {"policy": Network(policy, "learning_rate", optimizer=config.optimizer)}

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"action": Noise((spec.n_actions,), "uniform") if spec.discrete else Noise(spec.action.shape)}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        policy = nets.policy(observation)
        return policy.sample(noise["action"]) if noise else policy.mode(), state

    def log_prob(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.policy(observation).log_prob(action)

    def improve(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.policy_loss, "policy", batch)

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("improve",)

    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L of each sample, [B]."""
        raise NotImplementedError


class ActorCriticConfig(RolloutsConfig):
    """Settings of those that learn a value function too."""

    value_encoder: Encoder = setting(TANH, "hidden layers of the value function")
    lam: float = setting(0.95, "λ of the advantages", ge=0, le=1)
    value_weight: float = setting(1.0, "of the value function's loss", ge=0)
    standardize_advantages: bool = setting(True, "whether a rollout's advantages are brought to mean 0 and deviation 1")


class SequencesConfig(ActorCriticConfig):
    """Settings of those that recurrent encoders go with."""

    sequence_length: int | None = setting(
        None,
        "steps of the sub-sequences that recurrent encoders learn from; None: all that an environment makes in a rollout",
        source="PFRL 0.4.0, max_recurrent_sequence_len",
        gt=0,
    )

    @model_validator(mode="after")
    def _of_sequences(self) -> Self:
        if self.sequence_length is not None and not remembers(self):
            raise ValueError(
                f"sequence_length is {self.sequence_length}, and no encoder is recurrent: choose gru or lstm, or leave it out."
            )
        return self


class ActorCritic(OnPolicy):
    """Those with V(s), by which advantages are told."""

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        value = ValueFunction(config.value_encoder, spec.observation)
        return {**super().networks(spec, config), "value": Network(value, "learning_rate", optimizer=config.optimizer)}

    def wants(self, config: Any) -> Rollouts:
        length = getattr(config, "sequence_length", None)  # of `SequencesConfig`
        return Rollouts(self, config.update_interval, recurrent=remembers(config), sequence_length=length)

    def improve(self, learner: Verbs, batch: Batch) -> None:
        """Policy and value function, down the sum of their losses, of which each is one network's."""
        learner.minimise(self.total_loss, ("policy", "value"), batch)

    def complete(self, nets: Nets, rollout: Columns, h: Hyper) -> Columns:
        """Advantages Â and goals G = Â + V, [T, n] each."""
        shape, known = rollout["reward"].shape, memories(nets, "value", rollout)
        shown = [flat(rollout, name) for name in ("observation", "next_observation")]
        then = [handed(nets, "value", known, when) for when in (BEFORE, AFTER)]
        with recalling({layer: torch.cat([part[layer].flatten(0, 1) for part in then]) for layer in then[0]}):
            value, after = nets.value(pytree.tree_map(lambda *parts: torch.cat(parts), *shown)).unflatten(0, (2, *shape))
        found = advantages(rollout["reward"], value, after, rollout["discount"], rollout["ends"], h.gamma * h.lam)
        goal, advantage = found + value, found
        if self.config_.standardize_advantages and found.numel() >= _TOO_FEW:
            advantage = (found - found.mean()) / (found.std(correction=0) + 1e-8)
        return {"advantage": advantage, "goal": goal, "value": value, **known, **memories(nets, "policy", rollout)}

    @loss("sample")
    def total_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """The sum of both losses of each sample, [B]."""
        policy, of_policy = self.policy_loss(nets, batch, h)
        value, of_value = self.value_loss(nets, batch, h)
        return policy + value, {"policy_loss": policy, "value_loss": value, **of_policy, **of_value}

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """The weighted (G - V(s))² of each sample, [B]."""
        error = batch.extra["goal"] - said(nets, "value", batch)
        return h.value_weight * error.square(), {"value": batch.extra["value"], "value_error": error.abs()}


def acted(nets: Nets, rollout: Columns) -> Columns:
    """Gives what the policy that acted says of its actions: log density, [T, n], and its distributions' parameters, [T, n, P].

    Of a recurrent one the rollout has what it remembered.
    """
    shape, then = rollout["reward"].shape, handed(nets, "policy", rollout)
    with recalling({layer: memory.flatten(0, 1) for layer, memory in then.items()}):
        policy = nets.policy(flat(rollout, "observation"))
    log_prob = policy.log_prob(rollout["action"].flatten(0, 1))
    return {"log_prob": log_prob.unflatten(0, shape), "old": policy.parameters().unflatten(0, shape)}


def flat(rollout: Columns, name: str) -> Any:
    """Observations [T, n, ...] as one batch; of several parts a dict."""
    return pytree.tree_map(lambda part: part.flatten(0, 1), joined(rollout, name))


def entropy_and_density(policy: Any, action: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy and log density of actions at once, [B] each."""
    return policy.entropy(), policy.log_prob(action)
