"""Encoders: what turns an observation into features. An encoder is a config that builds a module, registered under a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from torch import Tensor, nn

from ...data.config import Config, setting
from ...data.errors import did_you_mean
from ...data.spec import ObservationSpace
from .layers import BatchNorm, Dropout, Linear
from .vectors import vector_size

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
}


class VectorEncoder(Config):
    """A multi-layer perceptron over a vector; observations of other shapes are flattened (`Flat`).

    Each layer is: affine, activation, batch norm, dropout; d3rlpy 2.8.1's order.
    """

    name: Literal["vector"] = "vector"
    hidden_units: tuple[int, ...] = setting(
        (256, 256), "width of each layer", source="d3rlpy 2.8.1, models/encoders.py", min_length=1
    )
    activation: Literal["relu", "tanh", "elu", "gelu", "silu", "leaky_relu"] = setting("relu", "after each layer")
    use_batch_norm: bool = setting(False, "normalise each layer over the batch")
    dropout_rate: float | None = setting(None, "probability of zeroing an entry while training", ge=0, lt=1)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> Perceptron:
        """The module. `action_size` entries of an action are appended to the observation; `members` builds an ensemble."""
        return Perceptron(vector_size(observation) + action_size, self, members)


class Perceptron(nn.Module):
    """[B, in] to [B, features]; with members to [members, B, features]."""

    def __init__(self, size: int, config: VectorEncoder, members: int | None) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in config.hidden_units:
            layers += [Linear(size, width, members), ACTIVATIONS[config.activation]()]
            if config.use_batch_norm:
                layers.append(BatchNorm(width, members))
            if config.dropout_rate:
                layers.append(Dropout(config.dropout_rate))
            size = width
        self.layers = nn.Sequential(*layers)
        self.features = size

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value != "vector":
        raise ValueError(f"there is no such encoder{did_you_mean(value, ['vector'])}")
    return VectorEncoder()


Encoder = Annotated[VectorEncoder, BeforeValidator(_read)]
