"""Settings and kinds of update of algorithms with critics, or with a policy and critics.

Most have one step of the critics, one of the policy, and targets that follow, each a kind of update of its own:

    def schedule(self, step):
        c = self.config_
        return due(step, critic=1, actor=c.update_actor_interval, targets=c.target_update_interval or 1)

`Critics` and `ActorCritic` have these kinds, and `tau` and `target_update_interval` mean the same everywhere: every n-th gradient
step a target moves by the share τ. τ = 1 copies the network, which is a hard update.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor, nn

from ..data.batch import Batch
from ..data.config import setting
from ..data.errors import named
from ..data.spec import Spec
from .base import Algorithm
from .config import AlgorithmConfig, ContinuousConfig, TrainedConfig
from .definition import LossValue, Network, Verbs
from .dynamics.settings import Dynamics, ModelRollouts
from .nets import Hyper, Nets
from .networks.encoders import DefaultEncoder, Encoder
from .networks.perceptrons import SoftmaxPolicy
from .networks.q_functions import Bootstrap, Mean, QFunction, picked
from .optimizers import Adam, Optimizer
from .ports import Noise, Ports, Tensors

if TYPE_CHECKING:
    from ..data.dataset import Dataset

_FAR = 3.0  # corners of the Huber loss: rewards that spread further are far beyond it
RATE = "SAC, Table 1; the authors' code of TD3, TD3+BC and IQL"


class QConfig(TrainedConfig):
    """Settings of critics; the defaults are those of most for continuous actions."""

    q_function: QFunction = setting(Mean(), "what critics estimate: mean, or a distribution of the return")
    n_critics: int = setting(2, "size of the ensemble", source=RATE, gt=0)
    share_encoder: bool = setting(False, "whether the ensemble has one encoder")
    bootstrap: Bootstrap = setting(
        False, "whether each critic learns from a half of the transitions, of its own", source="Osband et al. 2016"
    )


class TargetsConfig(TrainedConfig):
    """Settings of networks that have targets."""

    tau: float = setting(0.005, "τ: share of a network that enters its target when it moves; 1 copies it", source=RATE, gt=0, le=1)
    target_update_interval: int | None = setting(
        None, "gradient steps from one move of the targets to the next; None: as the algorithm has it", gt=0
    )


class GeneratedConfig(TrainedConfig):
    """Settings of what may learn from a model's transitions too."""

    dynamics: Dynamics = setting(
        None,
        "a model that generates a share of each batch: a trained ProbabilisticEnsemble, or its path; None: none does",
        since="0.2",
    )
    rollouts: ModelRollouts = setting(ModelRollouts(), "how that model generates", since="0.2")


class CriticsConfig(AlgorithmConfig, QConfig, TargetsConfig, GeneratedConfig):
    """Settings of algorithms with critics."""


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


class Critics(Algorithm):
    """Algorithms whose network `critic` has a target: the kinds of update `critic` and `targets`, and Q(s, a) to predict.

    One with another order, or with other targets, writes its own.
    """

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """Warns of returns that the Q-function cannot tell, and of rewards whose mean it does not learn."""
        from ..data.sampling import range_of_returns

        if self.goal_conditioned:  # its rewards are not the data's
            return super().completed(config, dataset)
        function = getattr(config, "q_function", None)
        if isinstance(function, Mean) and function.is_huber(discrete="discrete" in self.action_kinds()):
            self._warn_of_spread(config, dataset)
        if function is not None and (span := function.span):
            scaler = config.reward_scaler
            lowest, highest = range_of_returns(dataset, config.gamma, scaler and scaler.reward_transform())
            if lowest < span[0] or highest > span[1]:
                warnings.warn(
                    f"{self.name}: the discounted returns of {dataset.name!r} lie from {lowest:.4g} to {highest:.4g}, and its "
                    f"critic's atoms from {span[0]:g} to {span[1]:g}: what lies beyond is taken for the nearer end. Set v_min and "
                    f"v_max of {named('q_function')}, or a {named('reward_scaler')}.",
                    stacklevel=2,
                )
        return super().completed(config, dataset)

    def _warn_of_spread(self, config: Any, dataset: Dataset) -> None:
        rewards, scaler = dataset.statistics.reward, config.reward_scaler
        ends = np.cumsum(np.asarray([rewards.mean, rewards.std], np.float64))
        low, high = ends if scaler is None else scaler.transform(ends).tolist()
        if (spread := abs(float(high) - float(low))) > _FAR:
            warnings.warn(
                f"{self.name}: the rewards of {dataset.name!r} have a standard deviation of {spread:.3g}, and beyond errors of 1 "
                "the Huber loss of its critic goes with their median and not with their mean: where large rewards are rare, worse "
                f"actions look better. Set {named('q_function')} to {{name: mean, loss: squared}}, or to qr.",
                stacklevel=2,
            )

    def critic(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.critic_loss, "critic", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        learner.track("critic", rate="tau")

    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of each member and sample, [members, B]."""
        raise self.unwritten("critic_loss(nets, batch, h)", "is marked @loss('member sample')")

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.critic(observation, action)


class DiscreteCritics(Critics):
    """`Critics` of discrete actions: a critic has a value for each."""

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return picked(nets.critic(observation), action)


class ActorCritic(Critics):
    """Algorithms whose network `policy` has a target too: the kinds `critic`, `actor` and `targets`."""

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.actor_loss, "policy", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        learner.track("critic", rate="tau")
        learner.track("policy", rate="tau")

    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]."""
        raise self.unwritten("actor_loss(nets, batch, h)", "is marked @loss('sample')")


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
    """A `DistributionPolicy` over discrete actions: the likeliest one acts, and its draws explore."""

    actions: ClassVar = "discrete"

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        return SoftmaxPolicy(config.actor_encoder, spec.observation, spec.n_actions)

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"action": Noise((spec.n_actions,), "uniform")}


def critic_network(spec: Spec, config: Any, settings: str = "critic_") -> Network:
    """The critics, with a target: of an action each, or with a value for each discrete one.

    `settings` is what the names of their settings begin with.
    """
    encoder, optimizer = (getattr(config, f"{settings}{part}") for part in ("encoder", "optimizer"))
    function = config.q_function
    make, size = (function.discrete, spec.n_actions) if spec.discrete else (function.continuous, spec.action.shape[0])
    critic = make(encoder, spec.observation, size, config.n_critics, share_encoder=config.share_encoder)
    return Network(critic, f"{settings}learning_rate", True, optimizer, function.groups())
