r"""Batch-constrained Q-learning (BCQ): the best, as a critic has it, of some actions that the data's behaviour might have taken.

    behaviour      a conditional VAE of the data's actions, D(s, z)                                    `behaviour_model.py`
                   L_β = E[ (a - D(s, z))² + β KL(q(z|s, a) ‖ N(0, 1)) ],    z ~ q(z|s, a), means over entries
    policy         a_k = clip(D(s, z_k) + Φ ξ(s, D(s, z_k)), -1, 1),    z_k ~ clip(N(0, 1), ±0.5)                `perturbed`
                   π(s) is the a_k of n whose Q_1(s, a_k) is largest
    critic         L_Q = E[ Σ_i (r + γ max_k (λ min_j + (1 - λ) max_j) Q'_j(s', a'_k) - Q_i(s, a))² ]      `BCQ.critic_loss`
                   a'_k: N of them, of D and ξ'
    perturbation   L_ξ = E[ -Q_1(s, a_1) ]                                                                  `BCQ.actor_loss`

Symbols   Φ = `action_flexibility`, λ = `lam`, n = `n_action_samples`, N = `n_target_samples`, τ = `tau`; ' marks targets.
When      Narrow data of one or a few behaviours. A decision draws and judges many actions, so policies are slow to ask. An
          update grows with N: with the 100 of preset `d3rlpy` it costs 21 of SAC's; the default 10 was not timed.
Paper     Fujimoto, Meger, Precup: Off-Policy Deep Reinforcement Learning without Exploration, ICML 2019, arXiv:1812.02900.
Code      github.com/sfujim/BCQ, continuous_BCQ/BCQ.py, commit 4876f7e (MIT). Read, not copied.
Choices   1. N = 10 and n = 100, as in the code; d3rlpy 2.8.1 has one number, 100, for both.
          2. Latents are clipped to ±0.5, as in code and d3rlpy; the paper clips what D has drawn from a normal prior.
          3. The greedy action comes of the same z_k at every state and call, and so does an exported policy's; `sample_action`
             draws new ones, as paper, code and d3rlpy do whenever they act.
          4. Order: behaviour, critic, perturbation, targets, as in code and d3rlpy.
          5. `rl_start_step`: until then only the behaviour is modelled, as in d3rlpy; the code begins at once.
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
from ..losses.sampled_actions import best_of, by_parts, repeated
from ..nets import Hyper, Nets
from ..networks.behaviour import Perturbation
from ..networks.q_functions import Values, reduced, td_loss
from .behaviour_model import BCQ_CODE, BCQ_LAYERS, CLIP, BehaviourConfig, BehaviourModel, latent_size, perturbed
from .best_of_samples import BestOfSamples

D3RLPY = "d3rlpy 2.8.1, algos/qlearning/bcq.py"


@sourced(BCQ_CODE, "n_critics", "tau")
class BCQConfig(BehaviourConfig, ActorCriticConfig):
    actor_learning_rate: float = setting(1e-3, "of the perturbation", source=BCQ_CODE, gt=0)
    critic_learning_rate: float = setting(1e-3, "of the critics", source=BCQ_CODE, gt=0)
    batch_size: int = setting(100, "transitions in a gradient step", source=BCQ_CODE, gt=0)
    lam: float = setting(0.75, "λ: weight of the least critic against the largest", source=BCQ_CODE, ge=0, le=1)
    n_target_samples: int = setting(10, "N: actions whose best is the critics' goal", source=BCQ_CODE, gt=0)
    n_action_samples: int = setting(100, "n: actions whose best acts", source=BCQ_CODE, gt=0)
    action_flexibility: float = setting(0.05, "Φ: how far the perturbation moves an action", source=BCQ_CODE, ge=0)
    update_actor_interval: int = setting(1, "steps of the critic for one of the perturbation", source=BCQ_CODE, gt=0)
    rl_start_step: int = setting(0, "gradient steps in which only the behaviour is modelled", source=D3RLPY, ge=0)


class BCQ(BehaviourModel, BestOfSamples, ActorCritic):
    """BCQ, offline or online. Data: continuous actions in [-1, 1] after the action scaler, of a behaviour with some variety."""

    Config: ClassVar = BCQConfig
    actions: ClassVar = "continuous"
    warm_up: ClassVar = "rl_start_step"
    presets: ClassVar = {
        "paper": Preset(BCQ_CODE, BCQ_LAYERS),
        "d3rlpy": Preset(D3RLPY, {"n_target_samples": 100}),
        "d3rlpy-2020": Preset("d3rlpy's manual of October 2020", {"n_target_samples": 100, "latent_size": 32}),
        "d3rlpy-paper": Preset("Seno and Imai 2021, Table 4", {**BCQ_LAYERS, "n_target_samples": 100}),
    }

    def networks(self, spec: Spec, config: BCQConfig) -> dict[str, Network]:
        perturbation = Perturbation(config.actor_encoder, spec.observation, spec.action.shape[0])
        return {
            **self.behaviour_networks(spec, config),
            "policy": Network(perturbation, "actor_learning_rate", True, config.actor_optimizer),
            "critic": critic_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        if step < self.config_.rl_start_step:
            return ("imitate",)
        return due(step, imitate=1, critic=1, actor=c.update_actor_interval, targets=c.target_update_interval or 1)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return td_loss(nets.critic, batch, self.goal(nets, batch, h))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        n = self.config_.n_target_samples

        def following(noise: Tensor) -> Values:
            seen = repeated(batch.next_observation, noise.shape[0])
            action = perturbed(nets.target.policy, seen, self.behaviour(nets, seen, noise), h)
            return reduced(nets.target.critic.distribution(seen, action), "mix", h.lam)

        size = latent_size(self.spec_, self.config_)
        values = by_parts(following, nets.noise("next action", (n, len(batch.reward), size)))
        return best_of(values, n)[0] * batch.discount + batch.reward

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_ξ of each sample, [B]. The behaviour has no gradient."""
        with torch.no_grad():
            noise = nets.noise("action", (1, len(batch.reward), latent_size(self.spec_, self.config_)))
            drawn = self.behaviour(nets, batch.observation, noise)
        value = nets.critic(batch.observation, perturbed(nets.policy, batch.observation, drawn, h), 1)[0]
        return -value, {"value": value}

    def behaviour(self, nets: Nets, seen: Any, noise: Tensor) -> Tensor:
        """D(s, z), [n·B, A], of observations that are n times there and of noise [n, B, Z]."""
        return nets.vae_decoder(seen, noise.flatten(0, 1).clamp(-CLIP, CLIP))

    def noise_size(self, spec: Spec, config: Any) -> int:
        return latent_size(spec, config)

    def proposals(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        seen = repeated(observation, noise.shape[0])
        return perturbed(nets.policy, seen, self.behaviour(nets, seen, noise), nets.h)
