r"""The behaviour that data come from, modelled by a conditional variational auto-encoder of actions.

    encoder   q(z|s, a) = N(μ(s, a), σ(s, a)²);    decoder   D(s, z), an action in (-1, 1);    prior   N(0, 1)
    loss      L_β = E[ (a - D(s, z))² + β KL(q(z|s, a) ‖ N(0, 1)) ],    z = μ + σ ε, ε ~ N(0, 1)     `BehaviourModel.imitation_loss`
              KL(N(μ, σ²) ‖ N(0, 1)) = ½ (μ² + σ² - 1) - log σ, of each entry                                `divergence_from_prior`

Both terms are means, over the entries of an action and over those of a latent. Draws of behaviour are D(s, z) with z from the
prior, clipped to ±0.5 so that they stay near what was seen.

Symbols   β = `beta`; a latent has `latent_size` entries. log σ is clipped to -4 and 15.
Choices   d3rlpy 2.8.1 leaves tanh out where its `with_squash` is true, so in training and in drawing, and what it draws is
          unbounded, as `decoder_output="linear"` has it; the authors' code of BCQ, BEAR, PLAS, SPOT and MCQ has tanh throughout.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from ...data.batch import Batch
from ...data.config import Config, setting
from ...data.spec import Spec
from ..base import Algorithm
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.behaviour import LatentDecoder, LatentEncoder
from ..networks.encoders import DefaultEncoder, Encoder, VectorEncoder
from ..optimizers import Adam, Optimizer

if TYPE_CHECKING:
    from ...data.dataset import Dataset

BCQ_CODE = "authors' code of BCQ, 4876f7e, continuous_BCQ/BCQ.py"
WIDE = VectorEncoder(hidden_units=(750, 750))
BCQ_LAYERS = {  # PLAS has them too
    **dict.fromkeys(("actor_encoder", "critic_encoder"), VectorEncoder(hidden_units=(400, 300))), "imitator_encoder": WIDE,
}  # fmt: skip
CLIP = 0.5  # where latents are clipped that behaviour is drawn with: BCQ_CODE, `decode`
_STILL = 1e-6  # spread of an action's entry, of a range of 2, below which it is a constant


class BehaviourConfig(Config):
    imitator_learning_rate: float = setting(1e-3, "of the behaviour model", source=BCQ_CODE, gt=0)
    imitator_optimizer: Optimizer = setting(Adam(), "what steps the behaviour model", source=BCQ_CODE)
    imitator_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of both halves of the behaviour model")
    latent_size: int | None = setting(None, "entries of a latent; None: twice those of an action", source=BCQ_CODE, gt=0)
    decoder_output: Literal["tanh", "linear"] = setting("tanh", "what the decoder's actions end in", source=BCQ_CODE)
    beta: float = setting(0.5, "β: weight of the latents' divergence from the prior", source=BCQ_CODE, ge=0)


class BehaviourModel(Algorithm):
    """Algorithms with the networks `vae_encoder` and `vae_decoder`."""

    def behaviour_networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        seen, size, latent = spec.observation, spec.action.shape[0], latent_size(spec, config)
        halves = {
            "vae_encoder": LatentEncoder(config.imitator_encoder, seen, size, latent),
            "vae_decoder": LatentDecoder(config.imitator_encoder, seen, size, latent, linear=config.decoder_output == "linear"),
        }
        return {name: Network(half, "imitator_learning_rate", optimizer=config.imitator_optimizer) for name, half in halves.items()}

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        """Before the others, or long before them."""
        learner.minimise(self.imitation_loss, ("vae_encoder", "vae_decoder"), batch)

    @loss("sample")
    def imitation_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        mean, log_std = nets.vae_encoder(batch.observation, batch.action)
        again = nets.vae_decoder(batch.observation, mean + log_std.exp() * nets.noise("latent", mean.shape))
        error, divergence = (again - batch.action).square().mean(-1), divergence_from_prior(mean, log_std).mean(-1)
        return error + h.beta * divergence, {"reconstruction": error, "divergence": divergence}

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """Warns of actions that never vary, for they leave no behaviour to model."""
        moments = dataset.statistics.action
        still = [] if moments is None else np.flatnonzero(np.asarray(moments.max) - np.asarray(moments.min) <= _STILL)
        if len(still):
            which = "" if len(still) == dataset.spec.action.shape[0] else f"entries {', '.join(map(str, still))} of "
            warnings.warn(
                f"{self.name} keeps to the behaviour that its data show, and {which}the actions of {dataset.name!r} never vary: "
                "there it has nothing to choose from.",
                stacklevel=2,
            )
        return super().completed(config, dataset)


def latent_size(spec: Spec, config: Any) -> int:
    return config.latent_size or 2 * spec.action.shape[0]


def perturbed(perturbation: Any, observation: Any, action: Tensor, h: Hyper) -> Tensor:
    """clip(a + Φ ξ(s, a), -1, 1), where Φ is `h.action_flexibility`."""
    return (action + h.action_flexibility * perturbation(observation, action)).clamp(-1, 1)


def divergence_from_prior(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(mean, std²) ‖ N(0, 1)) of each entry."""
    return 0.5 * (mean.square() + (2 * log_std).exp() - 1) - log_std
