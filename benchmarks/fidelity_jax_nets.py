"""Networks of the side of the fidelity table that is written in JAX: affine layers, GELU, and layer norm where there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

GAMMA = 0.99
EPSILON = 1e-5  # ours, which layer norm adds to the variance
Arrays = dict[str, Any]
Losses = dict[str, Any]


class Networks:
    """Networks whose weights are `live/…` and `target/…` of some arrays."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = weights

    def __call__(
        self, network: str, *inputs: Any, kind: str = "live", member: int = 0, activation: Callable[[Any], Any] = jax.nn.gelu
    ) -> Any:
        place, x, layer = f"{kind}/{network}/{member}", jnp.concatenate(inputs, -1), 0
        while f"{place}/encoder.{layer}/weight" in self.weights:
            x = activation(self.affine(f"{place}/encoder.{layer}", x))
            x = self.normalised(f"{kind}/{network}/0/encoder.layers.{3 * layer + 2}", x, member)
            layer += 1
        return self.affine(f"{place}/head", x)

    def half(self, network: str, half: str, x: Any, member: int) -> Any:
        """One half of a network that has two."""
        place, layer = f"live/{network}/{member}", 0
        while f"{place}/{half}.layers.{layer}/weight" in self.weights:
            x = jax.nn.gelu(self.affine(f"{place}/{half}.layers.{layer}", x))
            x = self.normalised(f"live/{network}/0/{half}.layers.{layer + 2}", x, member)
            layer += 3
        return self.affine(f"{place}/{half}_head", x)

    def affine(self, place: str, x: Any) -> Any:
        return x @ self.weights[f"{place}/weight"].T + self.weights[f"{place}/bias"]

    def normalised(self, place: str, x: Any, member: int) -> Any:
        """Layer norm, whose weights are those of all members, or x where there is none."""
        if f"{place}.weight" not in self.weights:
            return x
        gain, bias = (self.weights[f"{place}.{part}"].reshape(-1, x.shape[-1])[member] for part in ("weight", "bias"))
        apart = x - x.mean(-1, keepdims=True)
        return gain * apart / jnp.sqrt(jnp.square(apart).mean(-1, keepdims=True) + EPSILON) + bias


def expectile(error: Any, share: float) -> Any:
    """|ε - 1(u < 0)| u²."""
    return jnp.where(error >= 0, share, 1 - share) * jnp.square(error)
