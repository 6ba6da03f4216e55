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
from ..definition import Network
from ..nets import Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.q_functions import Bootstrap, Mean, QFunction
from ..optimizers import Adam, Optimizer
from ..ports import Noise, Ports, Tensors

RATE = "SAC, Table 1; the authors' code of TD3, TD3+BC and IQL"


class ActorCriticConfig(ContinuousConfig):
    """Settings of algorithms with a policy and critics."""

    actor_learning_rate: float = setting(3e-4, "of the policy", source=RATE, gt=0)
    critic_learning_rate: float = setting(3e-4, "of the critics", source=RATE, gt=0)
    actor_optimizer: Optimizer = setting(Adam(), "what steps the policy")
    critic_optimizer: Optimizer = setting(Adam(), "what steps the critics")
    actor_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")
    critic_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the critics")
    q_function: QFunction = setting(Mean(), "what critics estimate: mean, or a distribution of the return")
    n_critics: int = setting(2, "size of the ensemble", source=RATE, gt=0)
    share_encoder: bool = setting(False, "whether the ensemble has one encoder")
    bootstrap: Bootstrap = setting(
        False, "whether each critic learns from a half of the transitions, of its own", source="Osband et al. 2016"
    )
    tau: float = setting(0.005, "τ: share of a network that enters its target when it moves; 1 copies it", source=RATE, gt=0, le=1)
    target_update_interval: int | None = setting(
        None, "gradient steps from one move of the targets to the next; None: as the algorithm has it", gt=0
    )


class DistributionPolicy(Algorithm):
    """Algorithms whose network `policy` gives a distribution over actions: its mode acts, and its draws explore."""

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {} if getattr(config, "policy_type", "") == "deterministic" else {"action": Noise(spec.action.shape)}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        policy = nets.policy(observation)
        return (policy.sample(noise["action"]) if "action" in noise else policy.mode()), state

    def log_prob(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.policy(observation).log_prob(action)


def critic_network(spec: Spec, config: ActorCriticConfig) -> Network:
    """The critics, with a target."""
    critic = config.q_function.continuous(
        config.critic_encoder, spec.observation, spec.action.shape[0], config.n_critics, share_encoder=config.share_encoder
    )
    return Network(critic, "critic_learning_rate", True, config.critic_optimizer, config.q_function.groups())
