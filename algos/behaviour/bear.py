r"""Bootstrapping error accumulation reduction (BEAR): SAC whose policy keeps to what the behaviour does, at a learnt price.

    behaviour   a conditional VAE of the data's actions, D(s, z)                                      `behaviour_model.py`
                L_β = E[ (a - D(s, z))² + β KL(q(z|s, a) ‖ N(0, 1)) ],    z ~ q(z|s, a), means over entries
    critic      L_Q = E[ Σ_i (y - Q_i(s, a))² ],    y = r + γ (λ min_j + (1 - λ) max_j) Q'_j(s', a') - γ T log π(a'|s')
                a': of N draws of π(s') the one for which the mixture of Q'_j is largest                         `BEAR.goal`
    actor       L_π = E[ T log π(ã|s) - min_i Q_i(s, ã) + α (M(s) - ε) ]                                    `BEAR.actor_loss`
                M(s) = √(E k(x, x') + E k(y, y') - 2 E k(x, y) + 1e-6),    x: m draws of π(s), y: m of D(s, ·), all before tanh
                k(x, y) = exp(-‖x - y‖₁ / 2σ), or exp(-‖x - y‖₂² / 2σ) of the Gaussian kernel: σ is not squared  `BEAR.discrepancy`
    dual        L_α = E[ -α (M - ε) ]: α grows while M is above ε
    policy      π acts by the best of n draws, as Q_1 has it

T is SAC's temperature, and is learnt as there. For the first `warmup_steps` steps L_π = E[ α (M(s) - ε) ] alone, and α stays.

Symbols   λ = `lam`, N = `n_target_samples`, n = `n_action_samples`, m = `n_mmd_action_samples`, ε = `alpha_threshold`,
          σ of the kernels = `mmd_sigma`, T = temperature, α = `initial_alpha` exp(θ), where θ is learnt.
When      Data of middling behaviours, whose support is to be kept to and not their frequencies. Kernel and its width depend on
          the task.
Paper     Kumar, Fu, Tucker, Levine: Stabilizing Off-Policy Q-Learning via Bootstrapping Error Reduction, NeurIPS 2019,
          arXiv:1906.00949.
Code      github.com/rail-berkeley/d4rl_evaluations, bear, commit c93b9d2 (MIT), to which the authors' own repository (f2e31c1)
          sends its users. Read, not copied.
Choices   1. Entropy, with its temperature, is d3rlpy's; code and paper have none: `preset="paper"`, T = 0.
          2. m draws are compared before tanh, as in the code. d3rlpy 2.8.1 takes the behaviour's after it, the policy's before it.
          3. In d3rlpy 2.8.1 the step of α also leaves -∇ α M in the policy's gradient, which the actor's own +∇ α M then cancels:
             after the warm-up its policy is SAC's. Here α's step has no part in the policy's gradient.
          4. In the warm-up α stays, as in d3rlpy; in the code it is learnt.
          5. log α/`initial_alpha` is learnt no further than -5 and 10, as in code and d3rlpy, which cut it off there.
          6. d3rlpy 2.8.1 steps α at the actor's learning rate, whatever `alpha_learning_rate` says.
          7. The greedy action comes of the same draws of noise at every state and call; code and d3rlpy draw new ones.
          8. d3rlpy of October 2020 models the behaviour by a regression, not by a VAE. It compares draws that have passed through
             tanh, each entry for itself, sums over entries and takes no root: M, and so ε, is on another scale there.
          9. log σ of the policy is clipped to -20 and 2, as in d3rlpy; the code has -5 and 2, and so have its presets.
         10. Kernel and σ of the code's README, Laplacian and 20; left alone, its script has a Gaussian with 50, its trainer a
             Laplacian with 10.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..actor_critic.sac import SAC, SACConfig
from ..config import Preset, sourced
from ..critics import DistributionPolicy
from ..definition import LossValue, Network, Verbs, loss
from ..losses.mmd import Kernel, mmd
from ..losses.prices import price_loss
from ..losses.sampled_actions import best_of, repeated, taken
from ..nets import Hyper, Nets
from ..networks.distributions import SquashedGaussian
from ..networks.perceptrons import Temperature
from ..networks.q_functions import Values, reduced
from ..optimizers import Adam, Optimizer
from ..ports import Ports, Tensors
from ..presets import TaskPresets
from .behaviour_model import CLIP, WIDE, BehaviourConfig, BehaviourModel, latent_size
from .best_of_samples import BestOfSamples

CODE = "d4rl_evaluations c93b9d2, bear/examples/bear_hdf5_d4rl.py and bear/rlkit/torch/sac/bear.py"
README = "d4rl_evaluations c93b9d2, bear/README.md"
D3RLPY = "d3rlpy 2.8.1, algos/qlearning/bear.py"
TABLE = "Seno and Imai 2021, Table 4, and d3rlpy 1.0.0, reproductions/offline/bear.py; α is learnt in the warm-up there"
COLD = {"imitator_encoder": WIDE, "learn_temperature": False, "initial_temperature": 1e-20}
PAPER: dict[str, Any] = {**COLD, "initial_temperature": 0.0, "log_std_bounds": (-5.0, 2.0)}
_LEAST, _MOST = -5.0, 10.0  # of log α / initial α


@sourced(CODE, "critic_learning_rate", "n_critics", "tau")
class BEARConfig(BehaviourConfig, SACConfig):
    actor_learning_rate: float = setting(1e-4, "of the policy", source=CODE, gt=0)
    imitator_learning_rate: float = setting(3e-4, "of the behaviour model", source=CODE, gt=0)
    temp_learning_rate: float = setting(1e-4, "of the temperature", source=D3RLPY, gt=0)
    initial_temperature: float = setting(1.0, "T's first value; 0: no entropy", source=D3RLPY, ge=0)
    alpha_learning_rate: float = setting(1e-3, "of α", source=CODE, gt=0)
    alpha_optimizer: Optimizer = setting(Adam(), "what steps α", source=CODE)
    initial_alpha: float = setting(1.0, "α's first value", source=CODE, gt=0)
    alpha_threshold: float = setting(0.05, "ε: MMD at which α rests", source=CODE)
    mmd_kernel: Kernel = setting("laplacian", "kernel of the MMD", source=f"{README}: Hopper and Walker2d")
    mmd_sigma: float = setting(20.0, "σ: width of the kernel", source=f"{README}, and {D3RLPY}; choice 10", gt=0)
    lam: float = setting(0.75, "λ: weight of the least critic against the largest", source=CODE, ge=0, le=1)
    n_target_samples: int = setting(10, "N: draws whose best is the critics' goal", source=CODE, gt=0)
    n_mmd_action_samples: int = setting(4, "m: draws that the MMD compares", source=CODE, gt=0)
    n_action_samples: int = setting(100, "n: draws whose best acts", source=CODE, gt=0)
    warmup_steps: int = setting(40_000, "gradient steps in which the policy only nears the behaviour", source=CODE, ge=0)


class BEAR(BehaviourModel, BestOfSamples, SAC):
    """BEAR, offline or online. Data: continuous actions in [-1, 1] after the action scaler, of a behaviour with some variety.

    The policy sees no critic before `warmup_steps` are done: train for more.
    """

    Config: ClassVar = BEARConfig
    warm_up: ClassVar = "warmup_steps"
    presets: ClassVar = {
        "paper": Preset(f"{CODE}; its kernel is of bear/README.md, for Hopper and Walker2d", PAPER),
        "d3rlpy": Preset(f"{D3RLPY}; choice 6", {"alpha_learning_rate": 1e-4}),
        "d3rlpy-2020": Preset(
            "d3rlpy's manual of October 2020, whose σ = 20 is squared; choice 8; the code of 0.32 has α ≤ e²",
            {
                "actor_learning_rate": 3e-4,
                "imitator_learning_rate": 1e-3,
                "temp_learning_rate": 3e-4,
                "batch_size": 100,
                "mmd_kernel": "gaussian",
                "mmd_sigma": 400.0,
                "n_target_samples": 4,
                "n_action_samples": 4,
                "warmup_steps": 0,
            },
        ),
        "d3rlpy-paper": Preset(TABLE, COLD),
    } | TaskPresets(__file__, BEARConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {
            **self.behaviour_networks(spec, config),
            **super().networks(spec, config),
            "alpha": Network(Temperature(), "alpha_learning_rate", optimizer=config.alpha_optimizer),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        kinds = ("imitate", *super().schedule(step))
        return tuple("match" if kind == "actor" else kind for kind in kinds) if step < self.config_.warmup_steps else kinds

    def match(self, learner: Verbs, batch: Batch) -> None:
        """In place of the actor in the warm-up."""
        learner.minimise(self.matching_loss, "policy", batch)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        """After the critic: policy, α and temperature, each of which sees the others as they were."""
        prices = ("alpha", "temperature") if self.config_.learn_temperature else ("alpha",)
        learner.minimise(self.actor_loss, ("policy", *prices), batch)

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        n = self.config_.n_target_samples
        noise = nets.noise("next action", (n, *batch.action.shape))
        action, log_prob = nets.policy(batch.next_observation).sample_with_log_prob(noise)
        seen = repeated(batch.next_observation, n)
        following, chosen = best_of(reduced(nets.target.critic.distribution(seen, action.flatten(0, 1)), "mix", h.lam), n)
        return (following - self.temperature(nets, h) * taken(log_prob, chosen)) * batch.discount + batch.reward

    @loss("sample")
    def matching_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample in the warm-up, [B]."""
        distance = self.discrepancy(nets, nets.policy(batch.observation), batch, h)
        return self.alpha(nets, h).detach() * (distance - h.alpha_threshold), {"mmd": distance}

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π and L_α of each sample, [B], and the temperature's: none has a gradient in another's network."""
        policy = nets.policy(batch.observation)
        action, log_prob = policy.sample_with_log_prob(nets.noise("action", batch.action.shape))
        value, temperature = reduced(nets.critic(batch.observation, action), "min"), self.temperature(nets, h)
        distance, alpha = self.discrepancy(nets, policy, batch, h), self.alpha(nets, h)
        excess = distance - h.alpha_threshold
        loss = temperature.detach() * log_prob - value + alpha.detach() * excess + self.alpha_loss(nets, excess.detach(), h)
        if self.config_.learn_temperature:
            loss = loss + self.temperature_loss(temperature, log_prob.detach(), h)
        return loss, {"value": value, "entropy": -log_prob, "temperature": temperature, "mmd": distance, "alpha": alpha}

    def discrepancy(self, nets: Nets, policy: Any, batch: Batch, h: Hyper) -> Tensor:
        """M(s), [B]. The behaviour has no gradient."""
        m, (rows, size) = self.config_.n_mmd_action_samples, batch.action.shape
        with torch.no_grad():
            latent = nets.noise("behaviour", (m * rows, latent_size(self.spec_, self.config_))).clamp(-CLIP, CLIP)
            behaviour = nets.vae_decoder.raw(repeated(batch.observation, m), latent).unflatten(0, (m, rows))
        raw = policy.mean + policy.log_std.exp() * nets.noise("policy", (m, rows, size))
        return mmd(raw, behaviour, self.config_.mmd_kernel, h.mmd_sigma)

    def alpha(self, nets: Nets, h: Hyper) -> Tensor:
        return h.initial_alpha * nets.alpha()

    def alpha_loss(self, nets: Nets, excess: Tensor, h: Hyper) -> Tensor:
        """L_α of each sample, [B]; choice 5: nothing where α would leave its bounds."""
        return h.initial_alpha * price_loss(nets.alpha(), excess, math.exp(_LEAST), math.exp(_MOST))

    def noise_size(self, spec: Spec, config: Any) -> int:
        return spec.action.shape[0]

    def ports(self, spec: Spec, config: Any) -> Ports:
        return DistributionPolicy.ports(self, spec, config)

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        kind = DistributionPolicy if "action" in noise else BestOfSamples  # a draw is one of π alone
        return kind.act(self, nets, observation, state, noise)

    def proposals(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        policy, n = nets.policy(observation), noise.shape[0]
        # flat from the start: what broadcasts to [n, B, A] cannot be flattened in a graph for any batch size
        return SquashedGaussian(repeated(policy.mean, n), repeated(policy.log_std, n)).sample(noise.flatten(0, 1))
