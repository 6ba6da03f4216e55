r"""Flow Q-learning (FQL): a policy that leaps from noise to an action, near where a flow of the data's actions would end.

    flow      L_v, of the data's actions                                                                         `flow.py`
    critic    L_Q = E[ Σ_i (r + γ mean_j Q'_j(s', a') - Q_i(s, a))² ],    a' = clip(μ(s', z), -1, 1)       `FQL.critic_loss`
    actor     L_μ = E[ α |μ(s, z) - flow(s, z)|² - λ mean_i Q_i(s, clip(μ(s, z), -1, 1)) ],    z ~ N(0, 1)  `FQL.actor_loss`
              λ = 1; with `normalize_q` 1 / mean |mean_i Q_i|

The policy μ never asks the flow for its gradient, so Q-learning does not go back through M steps; and one pass acts.

Symbols   μ = the network `policy`, α = `alpha`, M = `flow_steps`, τ = `tau`; ' marks targets. With `target_value` "min" the goal
          has min_j. |·|² is a mean over the entries of an action.
When      Where TD3+BC or IQL stay below what the data can do, and actions have several modes. α must be found for each task, from
          0.03 to 10 with `normalize_q` and up to 30,000 without; an update costs two to three of TD3+BC's of the same layers.
Paper     Park, Li, Levine: Flow Q-Learning, ICML 2025, arXiv:2502.02538.
Code      github.com/seohongpark/fql, agents/fql.py, commit 719d044 (MIT). Read, not copied.
Choices   1. Critic, policy and flow see each other as the last step left them, as in the code, whose one step has the gradients of
             all.
          2. The critics' errors are summed, as everywhere here; the code takes their mean. Adam does not notice.
          3. Every action is drawn, the greedy ones too, as in the code.
          4. Where an encoder sees images, policy and velocity each have one, as in the code.
          5. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6. Last layers begin as torch's.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Preset
from ..critics import ActorCriticConfig, Critics, critic_network
from ..definition import LossValue, Network, Verbs, due, loss, precomputed
from ..nets import Hyper, Nets
from ..networks.encoders import Encoder
from ..networks.q_functions import reduced, td_loss
from ..networks.training import whole_batch
from ..networks.vector_fields import VectorField
from ..ports import Noise, Ports, Tensors
from ..presets import TaskPresets
from .flow import FQL_CODE, LAYERS, NORMALISED, Flow, FlowConfig

IMPALA = {"name": "impala", **LAYERS.model_dump(include={"hidden_units", "activation", "initializer"})}


class FQLConfig(FlowConfig, ActorCriticConfig):
    actor_encoder: Encoder = setting(LAYERS, "hidden layers of the policy", source=FQL_CODE)
    critic_encoder: Encoder = setting(NORMALISED, "hidden layers of the critics", source=FQL_CODE)
    alpha: float = setting(10.0, "α: weight of the distance from the flow", source=FQL_CODE, ge=0)
    target_value: Literal["mean", "min"] = setting("mean", "which of the critics' values is their goal", source=FQL_CODE)
    normalize_q: bool = setting(False, "whether Q is divided by its mean size, so that α has no unit", source=FQL_CODE)


class FQL(Flow, Critics):
    """FQL, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = FQLConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {
        "pixels": Preset(
            "the authors' README on pixels: `impala_small`, three frames, shifts by 3 pixels of half of the images; in the code of "
            "half of the batches, of observation and next observation alike",
            {
                "observation_scaler": "pixel",
                "augmentation": [{"name": "random_shift", "shift_size": 3, "probability": 0.5}],
                "sampler": {"name": "uniform", "frames": 3, "frame_padding": "repeat"},
                **dict.fromkeys(("actor_encoder", "flow_encoder"), IMPALA),
                "critic_encoder": {**IMPALA, "normalization": "layer"},
            },
        ),
        "normalized": Preset("the authors' README on new tasks: then α from 0.03 to 10", {"normalize_q": True, "alpha": 1.0}),
    } | TaskPresets(__file__, FQLConfig)

    def networks(self, spec: Spec, config: FQLConfig) -> dict[str, Network]:
        policy = VectorField(config.actor_encoder, spec.observation, spec.action.shape[0], timed=False)
        return {
            "flow": self.flow_network(spec, config),
            "policy": Network(policy, "actor_learning_rate", optimizer=config.actor_optimizer),
            "critic": critic_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, joint_step=1, targets=self.config_.target_update_interval or 1)

    def joint_step(self, learner: Verbs, batch: Batch) -> None:
        """Choice 1: the goal's action is drawn before the policy moves, which moves before what it is held to."""
        batch = learner.precompute(self.next_action, batch)
        learner.minimise(self.actor_loss, "policy", batch)
        learner.minimise(self.flow_loss, "flow", batch)
        learner.minimise(self.critic_loss, "critic", batch)

    @precomputed
    def next_action(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        return self.one_step(nets, batch.next_observation, nets.noise("next action", batch.action.shape))

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            following = nets.target.critic.distribution(batch.next_observation, self.next_action(nets, batch, h))
            goal = reduced(following, self.config_.target_value) * batch.discount + batch.reward
        return td_loss(nets.critic, batch, goal)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_μ of each sample, [B]. The flow has no gradient."""
        noise = nets.noise("action", batch.action.shape)
        with torch.no_grad():
            generated = self.flow(nets, batch.observation, noise)
        action = nets.policy(batch.observation, noise)
        distance = (action - generated).square().mean(-1)
        value = nets.critic(batch.observation, action.clamp(-1, 1)).mean(0)
        size = whole_batch(value.detach().abs()).mean() if self.config_.normalize_q else 1.0
        return h.alpha * distance - value / size, {"distance": distance, "value": value}

    def one_step(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        return nets.policy(observation, noise).clamp(-1, 1)

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"noise": Noise(spec.action.shape, always=True)}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return self.one_step(nets, observation, noise["noise"]), state
