"""The base of encoders, configs that build modules from observations to features, and perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...data.config import Config, setting
from ...data.errors import ConfigError
from ...data.spec import Box, Leaf, ObservationSpace, space_columns
from .layers import Dropout, Initializer, initialise
from .normalization import BatchNorm, LayerNorm
from .perceptrons import EncoderModule as EncoderModule
from .perceptrons import Linear, VectorNetwork

Positive = Annotated[int, Field(gt=0)]
Activation = Literal["relu", "tanh", "elu", "gelu", "gelu_tanh", "silu", "mish", "leaky_relu", "none"]
D3RLPY = "d3rlpy 2.8.1, models/encoders.py"
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU("tanh"),  # the approximation that is JAX's default
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "leaky_relu": nn.LeakyReLU,
    "none": nn.Identity,
}


Module = TypeVar("Module", bound=nn.Module)


def after(width: int, config: LayersConfig, members: int | None, *, images: bool = False, last: bool = False) -> list[nn.Module]:
    """Makes what follows an affine layer or a convolution: activation, normalisation, dropout; d3rlpy 2.8.1's order."""
    activation = config.last_activation if last and config.last_activation is not None else config.activation
    layers = [] if activation == "none" else [ACTIVATIONS[activation]()]
    if config.normalization is not None:
        layers.append((BatchNorm if config.normalization == "batch" else LayerNorm)(width, members, images=images))
    if config.dropout_rate:
        layers.append(Dropout(config.dropout_rate, images=images))
    return layers


def _before(width: int, config: LayersConfig, members: int | None) -> list[nn.Module]:
    """Makes what comes before a residual block: dropout, normalisation."""
    layers: list[nn.Module] = [Dropout(config.dropout_rate)] if config.dropout_rate else []
    if config.normalization is not None:
        layers.append((BatchNorm if config.normalization == "batch" else LayerNorm)(width, members))
    return layers


class EncoderConfig(Config):
    """Base of the encoders. A subclass has a field `name: Literal["…"] = "…"` and writes `build`."""

    @property
    def label(self) -> str:
        return str(getattr(self, "name"))  # noqa: B009 - subclasses narrow it to one literal

    @property
    def remembers(self) -> bool:
        return False

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        """The module.

        Args:
            observation: What it encodes.
            action_size: Entries of the action that it is called with; 0: it is called with none.
            members: Size of an ensemble, whose members share nothing; None: a single encoder.

        Raises:
            ConfigError: it cannot encode such observations.
        """
        raise NotImplementedError


class LayersConfig(EncoderConfig):
    """Settings of layers. After each come its activation, normalisation and dropout, in d3rlpy 2.8.1's order."""

    activation: Activation = setting("relu", "after each layer")
    last_activation: Activation | None = setting(None, "after the last layer; None: as after the others")
    normalization: Literal["batch", "layer"] | None = setting(None, "over the batch, or over each sample's features")
    dropout_rate: float | None = setting(None, "probability of zeroing an entry, of images a channel, while training", ge=0, lt=1)
    spectral_norm: bool = setting(False, "divide each layer's weight by its largest singular value")
    initializer: Initializer = setting(
        "uniform", "how weights begin: uniform (torch's), lecun_normal (PFRL's), xavier_uniform or orthogonal"
    )
    initial_bias: float | None = setting(None, "how biases begin; None: as torch's with uniform, else 0")

    @model_validator(mode="before")
    @classmethod
    def _read_d3rlpys_names(cls, settings: Any) -> Any:
        """`use_batch_norm` and `use_layer_norm` are d3rlpy's names of one setting."""
        if not isinstance(settings, Mapping):
            return settings
        rest = dict(cast("Mapping[str, Any]", settings))
        used = [kind for kind in ("batch", "layer") if rest.pop(f"use_{kind}_norm", False)]
        if len(used) == 2 or (used and rest.get("normalization", used[0]) != used[0]):
            raise ValueError("choose one normalization, 'batch' or 'layer'")
        return {**rest, "normalization": used[0]} if used else rest

    def begun(self, module: Module) -> Module:
        initialise(module, self.initializer, self.initial_bias)
        return module


def described(space: ObservationSpace) -> str:
    """A space in a few words, for a sentence that refuses it."""
    if isinstance(space, Leaf):
        return f"of the shape {space.shape}"
    return f"a {space.kind} with the keys {', '.join(name.partition('/')[2] for name in space_columns(space))}"


def perceptron(size: int, config: PerceptronConfig, members: int | None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for k, width in enumerate(config.hidden_units):
        layers.append(Linear(size, width, members, spectral_norm=config.spectral_norm))
        layers += after(width, config, members, last=k == len(config.hidden_units) - 1)
        size = width
    return nn.Sequential(*layers)


class DenseLayers(nn.Module):
    """Layers of which every one but the first is also given the input, beside what the layer before makes of it."""

    def __init__(self, size: int, config: PerceptronConfig, members: int | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        width = 0
        for k, wanted in enumerate(config.hidden_units):
            linear = Linear(size + width, wanted, members, spectral_norm=config.spectral_norm)
            self.blocks.append(nn.Sequential(linear, *after(wanted, config, members, last=k == len(config.hidden_units) - 1)))
            width = wanted

    def forward(self, x: Tensor) -> Tensor:
        h = self.blocks[0](x)
        if h.ndim > x.ndim:
            x = x.expand(h.shape[0], *x.shape)
        for block in list(self.blocks)[1:]:
            h = block(torch.cat((h, x), -1))
        return h


class ResidualLayers(nn.Module):
    """Blocks that are added to their input, after a layer that brings it to their width."""

    _EXPANSION = 4

    def __init__(self, size: int, config: PerceptronConfig, members: int | None) -> None:
        super().__init__()

        def layer(size_in: int, size_out: int) -> Linear:
            return Linear(size_in, size_out, members, spectral_norm=config.spectral_norm)

        widths = (config.hidden_units[0], *config.hidden_units)
        self.first = layer(size, widths[0])
        self.blocks, self.passed = nn.ModuleList(), nn.ModuleList()
        for before, width in pairwise(widths):
            inner = self._EXPANSION * width
            activation = ACTIVATIONS[config.activation]()
            self.blocks.append(
                nn.Sequential(*_before(before, config, members), layer(before, inner), activation, layer(inner, width))
            )
            self.passed.append(nn.Identity() if before == width else layer(before, width))
        self.last = ACTIVATIONS[config.last_activation or config.activation]()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block, passed in zip(self.blocks, self.passed, strict=True):
            x = passed(x) + block(x)
        return self.last(x)


class PerceptronConfig(LayersConfig):
    hidden_units: tuple[Positive, ...] = setting((256, 256), "width of each layer", source=D3RLPY, min_length=1)

    def layers(self, size: int, members: int | None) -> nn.Module:
        return perceptron(size, self, members)


class VectorEncoder(PerceptronConfig):
    """A multi-layer perceptron over a vector. Other observations are flattened; a number of a kind becomes zeros and a one."""

    name: Literal["vector"] = "vector"

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        return self.begun(VectorNetwork(observation, action_size, members, self))


class DenseEncoder(PerceptronConfig):
    """A perceptron each of whose layers also sees the input (D2RL: Sinha et al. 2020); d3rlpy 1's `use_dense`."""

    name: Literal["dense"] = "dense"
    hidden_units: tuple[Positive, ...] = setting(
        (256, 256, 256, 256), "width of each layer", source="Sinha et al. 2020, section 4", min_length=1
    )

    def layers(self, size: int, members: int | None) -> nn.Module:
        return DenseLayers(size, self, members)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        return self.begun(VectorNetwork(observation, action_size, members, self))


class ResidualEncoder(PerceptronConfig):
    """Blocks of two layers, the first four times as wide, that are added to their input: IDQL's LN-ResNet.

    Before each block come dropout and normalisation, after the last the activation.
    """

    name: Literal["residual"] = "residual"
    hidden_units: tuple[Positive, ...] = setting(
        (256, 256, 256), "width of each block", source="authors' code of IDQL 7582571, jaxrl5/networks/resnet.py", min_length=1
    )

    def layers(self, size: int, members: int | None) -> nn.Module:
        return ResidualLayers(size, self, members)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        """The module. Raises ConfigError of images, which its layers would take for vectors."""
        if any(isinstance(leaf, Box) and leaf.is_image for leaf in space_columns(observation).values()):
            raise ConfigError(
                f"The residual encoder is one of vectors, and observations are {described(observation)}: choose impala."
            )
        return self.begun(VectorNetwork(observation, action_size, members, self))
