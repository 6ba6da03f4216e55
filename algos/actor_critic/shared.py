"""What algorithms with a policy, or with a policy and critics, share.

Most have one step of the critics, one of the policy, and targets that follow, each a kind of update of its own:

    def schedule(self, step):
        c = self.config_
        return due(step, critic=1, actor=c.update_actor_interval, targets=c.target_update_interval or 1)

`Critics` and `ActorCritic` have these kinds, and `tau` and `target_update_interval` mean the same everywhere: every n-th gradient
step a target moves by the share τ. τ = 1 copies the network, which is a hard update.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..base import Algorithm
from ..config import ContinuousConfig
from ..critics import RATE, Critics, CriticsConfig
from ..definition import LossValue, Network, Verbs
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.heads import SoftmaxPolicy
from ..optimizers import Adam, Optimizer
from ..ports import Noise, Ports, Tensors


class PolicyAndCriticsConfig(CriticsConfig):
    """Settings of algorithms with a policy and critics, whichever actions they are for."""

    actor_learning_rate: float = setting(3e-4, "of the policy", source=RATE, gt=0)
    critic_learning_rate: float = setting(3e-4, "of the critics", source=RATE, gt=0)
    actor_optimizer: Optimizer = setting(Adam(), "what steps the policy")
    critic_optimizer: Optimizer = setting(Adam(), "what steps the critics")
    actor_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")
    critic_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the critics")


class ActorCriticConfig(PolicyAndCriticsConfig, ContinuousConfig):
    """Settings of algorithms with a policy and critics, for continuous actions."""


class ActorCritic(Critics):
    """Algorithms whose network `policy` has a target too: the kinds `critic`, `actor` and `targets`."""

    def actor(self, learner: Verbs, batch: Batch) -> None:
        """The policy, down `actor_loss`."""
        learner.minimise(self.actor_loss, "policy", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        """The targets of critics and policy, by the share τ."""
        learner.track("critic", rate="tau")
        learner.track("policy", rate="tau")

    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]."""
        raise NotImplementedError


class DistributionPolicy(Algorithm):
    """Algorithms whose network `policy` gives a distribution over actions: its mode acts, and its draws explore."""

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {} if getattr(config, "policy_type", "") == "deterministic" else {"action": Noise(spec.action.shape)}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        policy = nets.policy(observation)
        return (policy.sample(noise["action"]) if "action" in noise else policy.mode()), state

    def log_prob(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.policy(observation).log_prob(action)


class SoftmaxActor(DistributionPolicy):
    """The same with discrete actions: the likeliest one acts, and its draws explore."""

    actions: ClassVar = "discrete"

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        """Their probabilities."""
        return SoftmaxPolicy(config.actor_encoder, spec.observation, spec.n_actions)

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"action": Noise((spec.n_actions,), "uniform")}


def critic_network(spec: Spec, config: PolicyAndCriticsConfig) -> Network:
    """The critics, with a target: of an action each, or with a value for each discrete one."""
    make, size = (
        (config.q_function.discrete, spec.n_actions) if spec.discrete else (config.q_function.continuous, spec.action.shape[0])
    )
    critic = make(config.critic_encoder, spec.observation, size, config.n_critics, share_encoder=config.share_encoder)
    return Network(critic, "critic_learning_rate", True, config.critic_optimizer, config.q_function.groups())
