r"""Advantage weighted actor-critic (AWAC): regression to the actions that a critic prefers to the policy's own.

    critic   L_Q = E[ Σ_i (r + γ min_j Q'_j(s', a') - Q_i(s, a))² ],    a' ~ π(s')                            `AWAC.critic_loss`
    actor    L_π = E[ -w(s, a) log π(a|s) ],    w ∝ exp(A(s, a) / λ)                                            `AWAC.actor_loss`
             A(s, a) = min_i Q_i(s, a) - mean_k min_i Q_i(s, a_k),    a_k ~ π(s)                                 `AWAC.advantage`

π is normal: its mean passes through tanh, its deviation is a parameter. Made for offline training that goes on online.

Symbols   λ = `lam`, τ = `tau`, k < `n_action_samples`; ' marks the target critic.
When      Data of mixed quality that training is to go on from online: the policy stays near what it has seen, and needs no other
          algorithm for the change. λ is in units of the return.
Paper     Nair, Gupta, Dalal, Levine: AWAC: Accelerating Online RL with Offline Datasets, 2020, arXiv:2006.09359.
Code      github.com/rail-berkeley/rlkit, torch/sac/awac_trainer.py, commit ac45a9d (MIT). Read, not copied.
Choices   1. w is a softmax over the batch, times its size, as in the code and in d3rlpy 2.8.1 (which then sums where the code takes
             the mean: B times the loss). `weighting="exp"` is the paper's w = exp(A / λ), bounded by `max_weight`.
          2. The critic's goal has no entropy, and its action is drawn from π, as in paper and code; d3rlpy 2.8.1 has SAC's goal
             there, which squashes the draw and has the entropy at temperature 1.
          3. log σ is a parameter in a sigmoid that spans its bounds, as in code and d3rlpy: σ starts at exp(-3).
          4. Order: critic, actor, target, as in d3rlpy; the code computes the actor's loss before the critic has stepped.
          5. λ = 1 is d3rlpy's; the code's script for MuJoCo sets 1 and then searches over 2 alone.
          6. Draws of π are cut off at ±1, in the critic's goal and the baseline too; densities are the normal's own.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Bounds, Preset, sourced
from ..critics import ActorCriticConfig, Critics, DistributionPolicy, critic_network
from ..definition import LossValue, Network, Verbs, due, loss
from ..losses.sampled_actions import values_beside
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder, VectorEncoder
from ..networks.perceptrons import GaussianPolicy
from ..networks.q_functions import reduced, td_loss
from ..networks.training import own_shard, whole_batch
from ..optimizers import Adam, Optimizer

CODE = "authors' code ac45a9d, examples/awac/mujoco/awac1.py"


@sourced(CODE, "actor_learning_rate", "critic_learning_rate", "n_critics", "tau")
class AWACConfig(ActorCriticConfig):
    batch_size: int = setting(1024, "transitions in a gradient step", source=CODE, gt=0)
    actor_optimizer: Optimizer = setting(Adam(weight_decay=1e-4), "what steps the policy", source=CODE)
    actor_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")
    lam: float = setting(1.0, "λ: temperature of the advantage weight", source="d3rlpy 2.8.1, algos/qlearning/awac.py", gt=0)
    n_action_samples: int = setting(1, "actions of the policy whose mean value is the advantage's baseline", source=CODE, gt=0)
    weighting: Literal["softmax", "exp"] = setting("softmax", "weights that are relative in a batch, or bounded", source=CODE)
    max_weight: float = setting(20.0, "ceiling of a weight of weighting=exp", source="d3rlpy's manual of October 2020", gt=0)
    log_std_bounds: Bounds = setting((-6.0, 0.0), "between which log σ lies", source=CODE)
    update_actor_interval: int = setting(
        1, "steps of the critic for one of the policy", source="d3rlpy's manual of October 2020", gt=0
    )


class AWAC(Critics, DistributionPolicy):
    """AWAC, offline or online. Data: continuous actions in [-1, 1] after the action scaler. λ is in units of return."""

    Config: ClassVar = AWACConfig
    actions: ClassVar = "continuous"
    exemptions: ClassVar = {"max_weight": "only weighting=exp has a ceiling"}
    presets: ClassVar = {
        "paper": Preset(CODE, {"lam": 2.0, "actor_encoder": VectorEncoder(hidden_units=(256, 256, 256, 256))}),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/awac.py", {"actor_optimizer": "adam"}),
        "d3rlpy-2020": Preset("d3rlpy's manual of October 2020; the code of 0.32 has the softmax", {"weighting": "exp"}),
        "d3rlpy-paper": Preset(
            "Seno and Imai 2021, Table 4; in d3rlpy 1.0.0, algos/torch/awac_impl.py, the policy's draws pass through tanh",
            {"actor_encoder": VectorEncoder(hidden_units=(256, 256, 256, 256))},
        ),
    }

    def networks(self, spec: Spec, config: AWACConfig) -> dict[str, Network]:
        size, bounds = spec.action.shape[0], config.log_std_bounds
        policy = GaussianPolicy(config.actor_encoder, spec.observation, size, bounds, False, spanning=True)
        return {
            "policy": Network(policy, "actor_learning_rate", optimizer=config.actor_optimizer),
            "critic": critic_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        return due(step, critic=1, actor=c.update_actor_interval, targets=c.target_update_interval or 1)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        """After the critic."""
        learner.minimise(self.actor_loss, "policy", batch)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            action = nets.policy(batch.next_observation).sample(nets.noise("next action", batch.action.shape))
            following = nets.target.critic.distribution(batch.next_observation, action)
            goal = reduced(following, "min") * batch.discount + batch.reward
        return td_loss(nets.critic, batch, goal)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]. The weight has no gradient."""
        policy = nets.policy(batch.observation)
        with torch.no_grad():
            advantage = self.advantage(nets, policy, batch)
            if self.config_.weighting == "softmax":
                everyone = whole_batch(advantage)
                weight = own_shard((everyone / h.lam).softmax(-1) * len(everyone))
            else:
                weight = (advantage / h.lam).exp().minimum(h.max_weight)
        log_prob = policy.log_prob(batch.action)
        return -weight * log_prob, {"advantage": advantage, "weight": weight, "log_prob": log_prob}

    def advantage(self, nets: Nets, policy: Any, batch: Batch) -> Tensor:
        values = values_beside(nets, policy, batch, self.config_.n_action_samples, "min")
        return values[0] - values[1:].mean(0)
