r"""Policy in the latent action space (PLAS): a policy that chooses among the actions that the data's behaviour might have taken.

    behaviour   a conditional VAE of the data's actions, D(s, z); trained first, then left as it is      `behaviour_model.py`
                L_β = E[ (a - D(s, z))² + β KL(q(z|s, a) ‖ N(0, 1)) ],    z ~ q(z|s, a), means over entries
    policy      a = D(s, m π(s)),    π(s) in (-1, 1) for each entry of a latent                                  `PLAS.acting`
    critic      L_Q = E[ Σ_i (r + γ (λ min_j + (1 - λ) max_j) Q'_j(s', a') - Q_i(s, a))² ],    a' of π'    `PLAS.critic_loss`
    actor       L_π = E[ -Q_1(s, D(s, m π(s))) ]                                                            `PLAS.actor_loss`

Symbols   m = `max_latent`, λ = `lam`, τ = `tau`; ' marks targets.
When      Narrow data, actions that must look like the data's. The policy cannot leave what the behaviour model can say.
Paper     Zhou, Bajracharya, Held: PLAS: Latent Action Space for Offline Reinforcement Learning, CoRL 2020, arXiv:2011.07213.
Code      github.com/Wenxuan-Zhou/PLAS, algos.py, commit 9fbc6ff (MIT). Read, not copied.
Choices   1. The behaviour is modelled for the first `warmup_steps` gradient steps, which count among all; in the code they come
             before the first, and in d3rlpy 2.8.1 they count.
          2. λ = 0.75, as in code and d3rlpy; Seno and Imai 2021 have 1.
          3. Latents of the policy reach further than the ±0.5 with which behaviour is drawn: m = 2, as in code and d3rlpy.
          4. The decoder ends in tanh, as in the code; d3rlpy's does not (`decoder_output="linear"`). On the one task looked at,
             with five seeds, the mean was higher without (one-sided p = 0.02, and 0.09 with a perturbation): in learning.md,
             pendulum-plas beside pendulum-plas-open. That tanh passes little on near its bounds may be why; it was not examined.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Preset, sourced
from ..critics import ActorCritic, ActorCriticConfig, critic_network
from ..definition import LossValue, Network, due, loss
from ..nets import Hyper, Nets
from ..networks.perceptrons import DeterministicPolicy
from ..networks.q_functions import reduced, td_loss
from ..ports import Tensors
from ..presets import TaskPresets
from .behaviour_model import BCQ_LAYERS, BehaviourConfig, BehaviourModel, latent_size

CODE = "authors' code 9fbc6ff, main.py and algos.py"
TABLE = "Seno and Imai 2021, Table 4"


@sourced(CODE, "n_critics", "tau")
class PLASConfig(BehaviourConfig, ActorCriticConfig):
    actor_learning_rate: float = setting(1e-4, "of the policy", source=CODE, gt=0)
    critic_learning_rate: float = setting(1e-3, "of the critics", source=CODE, gt=0)
    imitator_learning_rate: float = setting(1e-4, "of the behaviour model", source=CODE, gt=0)
    batch_size: int = setting(100, "transitions in a gradient step", source=CODE, gt=0)
    lam: float = setting(0.75, "λ: weight of the least critic against the largest", source=CODE, ge=0, le=1)
    max_latent: float = setting(2.0, "m: how far from 0 the policy's latents may be", source=CODE, gt=0)
    warmup_steps: int = setting(500_000, "gradient steps in which only the behaviour is modelled", source=CODE, ge=0)


class PLAS(BehaviourModel, ActorCritic):
    """PLAS, offline or online. Data: continuous actions in [-1, 1] after the action scaler, of a behaviour with some variety.

    The policy is not trained before `warmup_steps` are done: train for more.
    """

    Config: ClassVar = PLASConfig
    compiled_from: ClassVar = 200_000  # steps are short already
    actions: ClassVar = "continuous"
    warm_up: ClassVar = "warmup_steps"
    presets: ClassVar = {
        "paper": Preset(CODE, BCQ_LAYERS),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/plas.py", {}),
        "d3rlpy-paper": Preset(TABLE, {**BCQ_LAYERS, "lam": 1.0}),
    } | TaskPresets(__file__, PLASConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        policy = DeterministicPolicy(config.actor_encoder, spec.observation, latent_size(spec, config))
        return {
            **self.behaviour_networks(spec, config),
            "policy": Network(policy, "actor_learning_rate", True, config.actor_optimizer),
            "critic": critic_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        if step < self.config_.warmup_steps:
            return ("imitate",)
        return due(step, critic=1, actor=1, targets=self.config_.target_update_interval or 1)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            action = self.acting(nets, nets.target, batch.next_observation, h)
            following = reduced(nets.target.critic.distribution(batch.next_observation, action), "mix", h.lam)
            goal = following * batch.discount + batch.reward
        return td_loss(nets.critic, batch, goal)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        value = nets.critic(batch.observation, self.acting(nets, nets, batch.observation, h), 1)[0]
        return -value, {"value": value}

    def acting(self, nets: Nets, side: Nets, observation: Any, h: Hyper) -> Tensor:
        """The actions of the policy of one side, `nets` or `nets.target`, [B, A]."""
        return nets.vae_decoder(observation, h.max_latent * side.policy(observation))

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return self.acting(nets, nets, observation, nets.h), state
