r"""Diffusion of actions: what predicts the noise within a noisy action can take it out again, step by step.

    noise      x_k = √ᾱ_k a + √(1 - ᾱ_k) ε,    ε ~ N(0, 1),    k = 1 … K                             `Diffusion.noised`
    loss       L_ε = E[ |ε(s, x_k, k) - ε|² ],    k uniform                                     `Diffusing.diffusion_loss`
    sampling   K steps back from N(0, 1), each of which adds noise but the last (Ho et al. 2020); or, of the same network, fewer
               steps that add none (DPM-Solver++, Lu et al. 2022)                                     `Diffusing.generated`

Symbols   ε(s, x, k) = the network `diffusion`, K = `diffusion_steps`, ᾱ as `noise_schedule` has it. |·|² is a mean over the entries
          of an action.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..base import Algorithm
from ..config import TrainedConfig
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.diffusion import IDQL_CODE, Diffusion, Schedule, TimeEmbedding
from ..networks.encoders import Encoder, ResidualEncoder
from ..optimizers import Adam, Optimizer


class DiffusionConfig(TrainedConfig):
    diffusion_steps: int = setting(5, "K: steps from an action to noise", source=IDQL_CODE, gt=0)
    noise_schedule: Schedule = setting("vp", "how much noise each step adds: vp, cosine or linear", source=IDQL_CODE)
    sampler_steps: int | None = setting(None, "steps of DPM-Solver++ that draw an action; None: all K back, with noise", gt=0)
    time_embedding: TimeEmbedding = setting(TimeEmbedding(), "what the network sees of k", source=IDQL_CODE)
    diffusion_learning_rate: float = setting(3e-4, "of the noise that is predicted", source=IDQL_CODE, gt=0)
    diffusion_optimizer: Optimizer = setting(Adam(), "what steps that network")
    diffusion_encoder: Encoder = setting(
        ResidualEncoder(activation="mish", normalization="layer", dropout_rate=0.1), "its hidden layers", source=IDQL_CODE
    )
    diffusion_tau: float = setting(0.001, "share of the network that enters its average", source=IDQL_CODE, gt=0, le=1)

    @model_validator(mode="after")
    def _check_sampler(self) -> Self:
        if self.sampler_steps is not None and self.sampler_steps > self.diffusion_steps:
            raise ValueError(
                f"sampler_steps is {self.sampler_steps}, and at most diffusion_steps ({self.diffusion_steps}) times are known."
            )
        return self


class Diffusing(Algorithm):
    """Algorithms with the network `diffusion`."""

    clip: ClassVar[Literal["start", "each"]]  # see `networks.diffusion.Diffusion.ancestral`

    def diffusion_network(self, spec: Spec, config: Any) -> Network:
        size, steps = spec.action.shape[0], config.diffusion_steps
        network = Diffusion(config.diffusion_encoder, config.time_embedding, spec.observation, size, config.noise_schedule, steps)
        return Network(network, "diffusion_learning_rate", True, config.diffusion_optimizer)

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.diffusion_loss, "diffusion", batch)

    @loss("sample")
    def diffusion_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_ε of each sample, [B]."""
        noise = nets.noise("noise", batch.action.shape)
        k = (nets.uniform("time", (len(batch.action),)) * self.config_.diffusion_steps).floor()
        noisy = nets.diffusion.noised(batch.action, noise, k)
        return (nets.diffusion(batch.observation, noisy, k) - noise).square().mean(-1), {}

    def noise_shape(self, spec: Spec, config: Any) -> tuple[int, ...]:
        """Numbers of which an action is made: (draws, A)."""
        return (1 if config.sampler_steps else config.diffusion_steps, *spec.action.shape)

    def generated(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        """Actions [B, A] in [-1, 1] from noise [draws, B, A]; `nets` may be the targets."""
        if self.config_.sampler_steps:
            return nets.diffusion.solved(observation, noise[0], self.config_.sampler_steps)
        return nets.diffusion.ancestral(observation, noise, clip=self.clip)
