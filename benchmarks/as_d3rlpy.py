"""Algorithms of ours with a difference of d3rlpy 2.8.1 taken over, where a learning row is to show what the difference is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from d3ray.algos.behaviour.behaviour_model import BehaviourModel, latent_size
from d3ray.algos.behaviour.plas import PLAS
from d3ray.algos.behaviour.plas_with_perturbation import PLASWithPerturbation
from d3ray.algos.definition import Network
from d3ray.algos.networks.behaviour import LatentDecoder
from d3ray.algos.registry import register_algorithm
from d3ray.data.spec import Spec


class OpenDecoder(LatentDecoder):
    """D(s, z) without tanh, unbounded: an action at the edge does not stop what is learned through it."""

    def forward(self, observation: Any, latent: Tensor) -> Tensor:
        return self.raw(observation, latent)


class OpenBehaviour(BehaviourModel):
    """Algorithms whose behaviour model has such a decoder."""

    def behaviour_networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        networks = super().behaviour_networks(spec, config)
        decoder = OpenDecoder(config.imitator_encoder, spec.observation, spec.action.shape[0], latent_size(spec, config))
        return {**networks, "vae_decoder": replace(networks["vae_decoder"], module=decoder)}


@register_algorithm
class OpenPLAS(OpenBehaviour, PLAS):
    """PLAS as d3rlpy has it."""


@register_algorithm
class OpenPLASWithPerturbation(OpenBehaviour, PLASWithPerturbation):
    """PLAS with a perturbation as d3rlpy has it."""
