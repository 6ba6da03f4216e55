r"""Supported policy optimization (SPOT): TD3 whose actor pays for actions that the data's behaviour makes unlikely.

    behaviour   a conditional VAE of the data's actions, D(s, z); trained first, then left as it is    `behaviour_model.py`
                L_β = E[ (a - D(s, z))² + β KL(q(z|s, a) ‖ N(0, 1)) ],    z ~ q(z|s, a), means over entries
    critic      TD3's
    actor       L_π = E[ -Q_1(s, π(s)) / mean |Q_1(s, π(s))| + λ N(s, π(s)) ]                             `SPOT.actor_loss`
                N(s, a) = mean_k (a - D(s, z_k))² + β KL(q(z|s, a) ‖ N(0, 1)),    z_k ~ q(z|s, a)          `SPOT.unlikeliness`

N is, up to a factor and a constant, a bound from above on the negative log-density of the behaviour: the model's own loss, at the
policy's action. The mean of |Q_1| is over the batch and has no gradient.

Symbols   λ = `support_weight`, k < `n_density_samples`; the others as in `td3.py` and `behaviour_model.py`.
When      Data of mixed quality and training that goes on online: only the actor's loss differs from TD3, and its weight can be
          let go.
Paper     Wu, Wu, Qiu, Wang, Long: Supported Policy Optimization for Offline Reinforcement Learning, NeurIPS 2022, arXiv:2202.06239.
Code      github.com/thuml/SPOT, SPOT.py and vae.py, commit 4be91cc (MIT). Read, not copied.
Choices   1. The behaviour is modelled for the first `warmup_steps` gradient steps; in the code by a program of its own.
          2. N is the evidence bound, the code's default; its importance-sampled estimate (`iwae`, off there) is not here.
          3. Dropout of the actor, 0.1 in the code, is in the presets; the code drops units of its target too, at rest here.
          4. The code decays λ and leaves TD3's clipping as it is when it goes on online: call `set_params(support_weight=…)` as you
             go, between two trainings or in a callback.
          5. Q is always divided by its mean size; `without_Q_norm` of the code, off there, is left out.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..actor_critic.td3 import TD3, DelayedConfig
from ..config import Preset, sourced
from ..definition import LossValue, Network, loss
from ..losses.sampled_actions import apart, repeated
from ..nets import Hyper, Nets
from ..networks.encoders import VectorEncoder
from ..networks.training import whole_batch
from ..presets import TaskPresets
from .behaviour_model import WIDE, BehaviourConfig, BehaviourModel, divergence_from_prior

CODE = "authors' code 4be91cc, main.py and train_vae.py"
LOCOMOTION = {"actor_encoder": VectorEncoder(dropout_rate=0.1), "imitator_encoder": WIDE, "observation_scaler": "standard"}


@sourced(CODE, "actor_learning_rate", "critic_learning_rate", "n_critics", "tau")
class SPOTConfig(BehaviourConfig, DelayedConfig):
    support_weight: float = setting(1.0, "λ: weight of how unlikely an action is; chosen by task", source=CODE, ge=0)
    n_density_samples: int = setting(1, "latents that an action's likelihood is estimated by", source=CODE, gt=0)
    warmup_steps: int = setting(100_000, "gradient steps in which only the behaviour is modelled", source=CODE, ge=0)


class SPOT(BehaviourModel, TD3):
    """SPOT, offline or online. Data: continuous actions in [-1, 1] after the action scaler, of a behaviour with some variety.

    The policy is not trained before `warmup_steps` are done: train for more.
    """

    Config: ClassVar = SPOTConfig
    compiled_from: ClassVar = 200_000  # steps are short already
    warm_up: ClassVar = "warmup_steps"
    presets: ClassVar = {
        "paper": Preset(f"{CODE}; λ = 1 stands for what is chosen by task", LOCOMOTION),
    } | TaskPresets(__file__, SPOTConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {**self.behaviour_networks(spec, config), **super().networks(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",) if step < self.config_.warmup_steps else super().schedule(step)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        action = nets.policy(batch.observation)
        value, price = nets.critic(batch.observation, action, 1)[0], self.unlikeliness(nets, batch.observation, action, h)
        return h.support_weight * price - value / whole_batch(value.detach().abs()).mean(), {"value": value, "unlikeliness": price}

    def unlikeliness(self, nets: Nets, observation: Any, action: Tensor, h: Hyper) -> Tensor:
        """N(s, a), [B]; its gradient is for the action."""
        n = self.config_.n_density_samples
        mean, log_std = nets.vae_encoder(observation, action)
        latent = mean + log_std.exp() * nets.noise("latent", (n, *mean.shape))
        again = nets.vae_decoder(repeated(observation, n), latent.flatten(0, 1))
        error = (again - repeated(action, n)).square().mean(-1)
        return apart(error, n).mean(0) + h.beta * divergence_from_prior(mean, log_std).mean(-1)
