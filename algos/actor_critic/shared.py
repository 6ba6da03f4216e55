"""What algorithms with a policy, or with a policy and critics, for continuous actions share.

Targets move by a kind of update of their own, which every algorithm with targets has (see `td3.py`):

    def schedule(self, step):
        c = self.config_
        return due(step, critic=1, actor=c.update_actor_interval, targets=c.target_update_interval or 1)

    def targets(self, learner, batch):
        learner.track("critic", rate="tau")

so that `tau` and `target_update_interval` mean the same everywhere: every n-th gradient step a target moves by the share τ. τ = 1
copies the network, which is a hard update.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...data.config import setting
from ...data.spec import Spec
from ..base import Algorithm
from ..config import ContinuousConfig
from ..critics import RATE, CriticsConfig
from ..definition import Network
from ..nets import Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..optimizers import Adam, Optimizer


class ActorCriticConfig(CriticsConfig, ContinuousConfig):
    """Settings of algorithms with a policy and critics."""

    actor_learning_rate: float = setting(3e-4, "of the policy", source=RATE, gt=0)
    critic_learning_rate: float = setting(3e-4, "of the critics", source=RATE, gt=0)
    actor_optimizer: Optimizer = setting(Adam(), "what steps the policy")
    critic_optimizer: Optimizer = setting(Adam(), "what steps the critics")
    actor_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")
    critic_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the critics")


class DistributionPolicy(Algorithm):
    """Algorithms whose network `policy` gives a distribution over actions: its mode acts, and its draws explore."""

    def act(self, nets: Nets, observation: Any) -> Tensor:
        return nets.policy(observation).mode()

    def sample(self, nets: Nets, observation: Any) -> Tensor:
        policy = nets.policy(observation)
        return policy.sample(nets.noise("action", policy.mean.shape))

    def log_prob(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.policy(observation).log_prob(action)


def critic_network(spec: Spec, config: ActorCriticConfig) -> Network:
    """The critics, with a target."""
    critic = config.q_function.continuous(
        config.critic_encoder, spec.observation, spec.action.shape[0], config.n_critics, share_encoder=config.share_encoder
    )
    return Network(critic, "critic_learning_rate", True, config.critic_optimizer, config.q_function.groups())
