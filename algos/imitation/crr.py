r"""Critic-regularised regression (CRR): cloning of those of the data's actions that are better than the policy's.

    critic   L_Q = E[ Σ_i (r + γ min_j Q'_j(s', a') - Q_i(s, a))² ],    a' ~ π'(s')                             `CRR.critic_loss`
    actor    L_π = E[ -f(A(s, a)) log π(a|s) ]                                                                   `CRR.actor_loss`
             A(s, a) = Q(s, a) - mean_k Q(s, a_k), or - max_k Q(s, a_k),    a_k ~ π(s)                            `CRR.advantage`
             f(A) = 1 where A > 0, else 0; or min(exp(A / β), w)
    policy   π acts by its mean, or by the k-th of its draws with probability softmax_k Q(s, a_k)                `CRR.act`

Q is the mean of the ensemble. The target networks π' and Q' are copied every n-th step, or follow softly.

Symbols   β = `beta`, w = `max_weight`, k < `n_action_samples`, n = `target_update_interval`; ' marks targets.
When      Data of mixed quality, many action entries. The actor is a weighted regression and does not climb the critic, yet it can
          still fail: pendulum-crr in learning.md is no better than random actions, in d3rlpy too. Long training may overfit.
Paper     Wang, Novikov, Zolna et al.: Critic Regularized Regression, NeurIPS 2020, arXiv:2006.15134.
Code      github.com/google-deepmind/acme, agents/jax/crr (Apache 2.0). Read, not copied.
Choices   1. π is normal with a deviation that depends on the state, as in d3rlpy 2.8.1; in the paper a mixture of five.
          2. `action_choice="softmax"`, the critic-weighted policy of the paper and d3rlpy 2.8.1, draws anew for every decision: its
             random numbers are inputs of an exported policy. The default is the mean, which five seeds each found no worse on
             random, replayed and expert data (random-crr, pendulum-crr, hopper-crr and halfcheetah-crr in learning.md).
             `sample_action` is one draw of π, as d3rlpy's.
          3. Q' comes from the least critic of the ensemble, as in d3rlpy; the paper has one critic.
          4. A distributional Q is a setting, `q_function`; the paper has C51.
          5. `tau=1`, the default, copies the targets; d3rlpy's soft targets are `tau=0.005, target_update_interval=1`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Bounds, Preset, sourced
from ..critics import ActorCritic, ActorCriticConfig, DistributionPolicy, PolicyAndCriticsConfig, critic_network
from ..definition import LossValue, Network, due, loss
from ..losses.sampled_actions import apart, repeated, taken, values_beside
from ..nets import Hyper, Nets
from ..networks.distributions import Categorical
from ..networks.perceptrons import GaussianPolicy
from ..networks.q_functions import Values, reduced, td_loss
from ..ports import Noise, Ports, Tensors

D3RLPY = "d3rlpy 2.8.1, algos/qlearning/crr.py"


@sourced(D3RLPY, "actor_learning_rate", "critic_learning_rate")
class RegularizedConfig(PolicyAndCriticsConfig):
    """Settings of CRR, whichever actions it is for."""

    n_critics: int = setting(1, "size of the ensemble", source=D3RLPY, gt=0)
    tau: float = setting(1.0, "τ: share of a network that enters its target when it moves; 1 copies it", source=D3RLPY, gt=0, le=1)
    target_update_interval: int | None = setting(
        100, "n: gradient steps from one move of the targets to the next", source=D3RLPY, gt=0
    )
    beta: float = setting(1.0, "β: temperature of the exponential weight", source=D3RLPY, gt=0)
    max_weight: float = setting(20.0, "w: ceiling of the exponential weight", source=D3RLPY, gt=0)
    advantage_type: Literal["mean", "max"] = setting(
        "mean", "what the data's action is compared with: the policy's mean value, or its best", source=D3RLPY
    )
    weight_type: Literal["exp", "binary"] = setting("exp", "f: an exponential, or an indicator", source=D3RLPY)


class CRRConfig(RegularizedConfig, ActorCriticConfig):
    n_action_samples: int = setting(4, "actions of the policy that the data's is compared with", source=D3RLPY, gt=0)
    action_choice: Literal["mean", "softmax"] = setting(
        "mean", "the action taken: π's mean, or of as many of its draws one by softmax(Q)", source="choice 2", since="0.2"
    )
    log_std_bounds: Bounds = setting((-20.0, 2.0), "where log σ is clipped", source="d3rlpy 2.8.1, models/builders.py")


class CRR(ActorCritic, DistributionPolicy):
    """CRR, offline or online. Data: continuous actions in [-1, 1] after the action scaler. β is in units of return."""

    Config: ClassVar = CRRConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {
        "d3rlpy": Preset(D3RLPY, {"batch_size": 100, "action_choice": "softmax"}),
        "d3rlpy-paper": Preset(
            "Seno and Imai 2021, Table 4, and d3rlpy 1.0.0, reproductions/offline/crr.py, whose policy's draws pass through tanh",
            {"weight_type": "binary", "action_choice": "softmax", "tau": 0.005, "target_update_interval": 1},
        ),
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {
            "policy": Network(self.policy_network(spec, config), "actor_learning_rate", True, config.actor_optimizer),
            "critic": critic_network(spec, config),
        }

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        return GaussianPolicy(config.actor_encoder, spec.observation, spec.action.shape[0], config.log_std_bounds, True)

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, critic=1, actor=1, targets=self.config_.target_update_interval or 1)

    def ports(self, spec: Spec, config: CRRConfig) -> Ports:
        weighted: Ports = {
            "draws": Noise((config.n_action_samples, *spec.action.shape), always=True),
            "choice": Noise((config.n_action_samples,), "uniform", always=True),
        }
        return {**super().ports(spec, config), **(weighted if config.action_choice == "softmax" else {})}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        if "action" in noise or "choice" not in noise:
            return super().act(nets, observation, state, noise)
        n = self.config_.n_action_samples
        drawn = nets.policy(observation).sample(noise["draws"].movedim(1, 0))  # [n, B, A]
        values = apart(nets.critic(repeated(observation, n), drawn.flatten(0, 1)).mean(0), n)
        return taken(drawn, Categorical(values.transpose(0, 1).log_softmax(-1)).sample(noise["choice"])), state

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            goal = self.following(nets, batch) * batch.discount + batch.reward
        return td_loss(nets.critic, batch, goal)

    def following(self, nets: Nets, batch: Batch) -> Values:
        """min_j Q'_j(s', a'), [N, B]."""
        action = nets.target.policy(batch.next_observation).sample(nets.noise("next action", batch.action.shape))
        return reduced(nets.target.critic.distribution(batch.next_observation, action), "min")

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]. The weight has no gradient."""
        policy = nets.policy(batch.observation)
        with torch.no_grad():
            advantage = self.advantage(nets, policy, batch)
            binary = self.config_.weight_type == "binary"
            weight = self.better(advantage) if binary else (advantage / h.beta).exp().minimum(h.max_weight)
        log_prob = policy.log_prob(batch.action)
        return -weight * log_prob, {"advantage": advantage, "weight": weight, "log_prob": log_prob}

    def better(self, advantage: Tensor) -> Tensor:
        """1 where A > 0, else 0: [B]."""
        return (advantage > 0).to(advantage.dtype)

    def advantage(self, nets: Nets, policy: Any, batch: Batch) -> Tensor:
        values = values_beside(nets, policy, batch, self.config_.n_action_samples, "mean")
        return values[0] - (values[1:].mean(0) if self.config_.advantage_type == "mean" else values[1:].amax(0))
