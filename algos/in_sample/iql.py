r"""Implicit Q-learning (IQL): values and a policy from logged data; Q is never asked about an action that is not in them.

    value    L_V = E[ |ε - 1(u < 0)| u² ],    u = min_i Q̂_i(s, a) - V(s)                           `IQL.value_loss`
    critic   L_Q = E[ Σ_i (r + γ V(s') - Q_i(s, a))² ],    no bootstrap past a terminated step      `IQL.critic_loss`
    actor    L_π = E[ -min(exp(β u), w) log π(a|s) ]                                                `IQL.actor_loss`

V is the ε-expectile of Q over the data's actions: ε = 0.5 is their mean, ε → 1 the best of them. Q̂ is the target critic. π is
normal: its mean passes through tanh, its deviation is a parameter. A deterministic π has (a - π(s))² in place of -log π(a|s).

Symbols   paper τ = ε = `expectile`, paper α = `tau` (target networks), β = `weight_temp`, w = `max_weight`.
When      A first choice where good parts of episodes must be put together, and before training online: the critic is never asked
          about actions that the data lack.
Paper     Kostrikov, Nair, Levine: Offline Reinforcement Learning with Implicit Q-Learning, 2021, arXiv:2110.06169.
Code      github.com/ikostrikov/implicit_q_learning, commit 09d7002 (MIT). Read, not copied.
Choices   1. Order: value, actor, critic, target in every step, as in the code (`learner.py`); the paper's Algorithm 1 extracts the
             policy after the values have been learned. d3rlpy 2.8.1 steps value and critic at once, the critic towards the old V.
          2. The critics' errors are summed, as in the code and d3rlpy; CORL and unifloral take their mean.
          3. The actor's learning rate falls along a cosine to 0 at 10⁶ steps, as in the code; d3rlpy keeps it constant, and so does
             the code's config for going on online: `actor_optimizer="adam"`, from the first step on.
          4. log σ is clipped to its bounds, as in the code; d3rlpy passes a parameter through a sigmoid that spans them.
          5. A deterministic policy's square is summed over an action's entries, as in CORL: a normal one of deviation 1/√2.
          6. Layers begin as torch's; in the code (`common.py`) all begin orthogonal, with gain √2, and their biases at 0.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Bounds, Preset, TrainedConfig
from ..critics import ActorCriticConfig, Critics, DistributionPolicy, PolicyAndCriticsConfig, critic_network
from ..definition import LossValue, Network, Verbs, due, loss, precomputed
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.perceptrons import GaussianPolicy, PointPolicy, ValueFunction
from ..networks.q_functions import reduced, td_loss
from ..optimizers import Adam, Cosine, Optimizer
from ..presets import TaskPresets

RETURNS = {"name": "return_based", "multiplier": 1000.0}
CODE = "IQL's code 09d7002, configs/mujoco_config.py"


class InSampleConfig(TrainedConfig):
    """Settings of a value of the data's actions."""

    value_learning_rate: float = setting(3e-4, "of the value function", source=CODE, gt=0)
    value_optimizer: Optimizer = setting(Adam(), "what steps the value function", source="IQL's code, learner.py")
    value_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the value function", source=CODE)


class ExpectileConfig(InSampleConfig):
    """Settings of a value that is an expectile."""

    expectile: float = setting(0.7, "ε: which expectile of Q the value learns", source=CODE, gt=0, lt=1)


class WeightedConfig(InSampleConfig, PolicyAndCriticsConfig):
    """Settings of IQL's weighted regression, whichever actions they are."""

    weight_temp: float = setting(3.0, "β: inverse temperature of the advantage weight; 0 is cloning", source=CODE, ge=0)
    max_weight: float = setting(100.0, "w: ceiling of the advantage weight", source="IQL's code, actor.py", gt=0)
    actor_optimizer: Optimizer = setting(
        Adam(schedule=Cosine(duration=1_000_000)), "what steps the policy", source="IQL's code, learner.py and train_offline.py"
    )


class ContinuousInSampleConfig(WeightedConfig, ActorCriticConfig):
    """Settings of those that have IQL's policy of continuous actions."""

    policy_type: Literal["stochastic", "deterministic"] = setting("stochastic", "normal, or one action a state", source=CODE)
    state_dependent_std: bool = setting(False, "whether the policy's σ depends on the state", source="IQL's code, learner.py")
    log_std_bounds: Bounds = setting((-5.0, 2.0), "where log σ is clipped", source="IQL's code, learner.py and policy.py")


class IQLConfig(ExpectileConfig, ContinuousInSampleConfig):
    """Settings of `IQL`."""


class InSampleValues(Critics):
    """Algorithms whose critics learn from a value function of the data's actions."""

    def value_networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        value = ValueFunction(config.value_encoder, spec.observation)
        return {
            "value": Network(value, "value_learning_rate", optimizer=config.value_optimizer),
            "critic": critic_network(spec, config),
        }

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        u = self.advantage(nets, batch, h)
        return torch.where(u < 0, 1 - h.expectile, h.expectile) * u.square(), {"advantage": u}

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of each member and sample, [members, B]. `batch.discount` is γⁿ (1 - terminated)."""
        with torch.no_grad():
            goal = batch.reward + batch.discount * nets.value(batch.next_observation)
        return td_loss(nets.critic, batch, goal)

    def advantage(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """The advantage u = min_i Q̂_i(s, a) - V(s), [B], in units of return."""
        return self.target_value(nets, batch, h) - nets.value(batch.observation)

    @precomputed
    def target_value(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """min_i Q̂_i(s, a), [B]; two losses read it."""
        return reduced(self.values(nets.target, batch.observation, batch.action), "min")


class IQL(InSampleValues, DistributionPolicy):
    """IQL, offline or online.

    Data: continuous actions in [-1, 1] after the action scaler. β is in 1/reward: another unit of the reward is another β.
    """

    Config: ClassVar = IQLConfig
    actions: ClassVar = "continuous"
    recurrent: ClassVar = ("policy",)
    presets: ClassVar = {
        "paper": Preset(f"D4RL locomotion: {CODE} and train_offline.py", {"reward_scaler": RETURNS}),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/iql.py", {"actor_optimizer": "adam"}),
    } | TaskPresets(__file__, IQLConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        policy = Network(self.policy_network(spec, config), "actor_learning_rate", optimizer=config.actor_optimizer)
        return {"policy": policy, **self.value_networks(spec, config)}

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        seen, size = spec.observation, spec.action.shape[0]
        if config.policy_type == "deterministic":
            return PointPolicy(config.actor_encoder, seen, size)
        return GaussianPolicy(config.actor_encoder, seen, size, config.log_std_bounds, config.state_dependent_std)

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, joint_step=1, targets=self.config_.target_update_interval or 1)

    def joint_step(self, learner: Verbs, batch: Batch) -> None:
        """Choice 1. Actor and critic see this step's value function; u is read from the target that the last step left."""
        batch = learner.precompute(self.target_value, batch)
        learner.minimise(self.value_loss, "value", batch)
        learner.minimise(self.actor_loss, "policy", batch)
        learner.minimise(self.critic_loss, "critic", batch)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]. The weight has no gradient."""
        with torch.no_grad():
            weight = (h.weight_temp * self.advantage(nets, batch, h)).exp().minimum(h.max_weight)
        log_prob = nets.policy(batch.observation).log_prob(batch.action)
        return -weight * log_prob, {"weight": weight, "log_prob": log_prob}
