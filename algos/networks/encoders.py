"""Encoders: what turns an observation into features. An encoder is a config that builds a module, registered under a name.

`encoder: vector`, or `encoder: {name: pixel, feature_size: 256}`; a user's own is made known by `register_encoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator
from pydantic_core import InitErrorDetails
from torch import nn

from ...data.config import Config, setting
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Box, Dict, Leaf, ObservationSpace, flat_space, space_columns
from .layers import Initializer, initialise
from .perceptrons import DenseLayers, EncoderModule, KeysNetwork, VectorNetwork, perceptron
from .pixels import PixelNetwork

Activation = Literal["relu", "tanh", "elu", "gelu", "silu", "leaky_relu", "none"]
_D3RLPY = "d3rlpy 2.8.1, models/encoders.py"
_Positive = Annotated[int, Field(gt=0)]


class EncoderConfig(Config):
    """Base of the encoders. A subclass has a field `name: Literal["…"] = "…"` and writes `build`."""

    @property
    def label(self) -> str:
        """The name that a config gives."""
        return str(getattr(self, "name"))  # noqa: B009 - subclasses narrow it to one literal

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
    """What all of ours have. After each layer come its activation, normalisation and dropout, in d3rlpy 2.8.1's order."""

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

    def begun(self, module: EncoderModule) -> EncoderModule:
        """The module with weights as the settings want them to begin."""
        initialise(module, self.initializer, self.initial_bias)
        return module


class PerceptronConfig(LayersConfig):
    """Settings of what ends in a multi-layer perceptron."""

    hidden_units: tuple[_Positive, ...] = setting((256, 256), "width of each layer", source=_D3RLPY, min_length=1)

    def layers(self, size: int, members: int | None) -> nn.Module:
        """The perceptron, over [..., B, size]."""
        return perceptron(size, self, members)


class VectorEncoder(PerceptronConfig):
    """A multi-layer perceptron over a vector. Other observations are flattened; a number of a kind becomes zeros and a one."""

    name: Literal["vector"] = "vector"

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        return self.begun(VectorNetwork(observation, action_size, members, self))


class DenseEncoder(PerceptronConfig):
    """A perceptron each of whose layers also sees the input (D2RL: Sinha et al. 2020); d3rlpy 1's `use_dense`."""

    name: Literal["dense"] = "dense"
    hidden_units: tuple[_Positive, ...] = setting(
        (256, 256, 256, 256), "width of each layer", source="Sinha et al. 2020, section 4", min_length=1
    )

    def layers(self, size: int, members: int | None) -> nn.Module:
        return DenseLayers(size, self, members)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        return self.begun(VectorNetwork(observation, action_size, members, self))


class PixelEncoder(LayersConfig):
    """Convolutions over an image and one affine layer, as in Mnih et al. 2015; an action enters beside what the convolutions make.

    Images have three axes; their channels lie on the shorter of the outer two. They are not divided by anything: set the
    observation scaler `pixel`.
    """

    name: Literal["pixel"] = "pixel"
    filters: tuple[tuple[_Positive, _Positive, _Positive], ...] = setting(
        ((32, 8, 4), (64, 4, 2), (64, 3, 1)), "channels, size and stride of each convolution", source=_D3RLPY, min_length=1
    )
    feature_size: int = setting(512, "width of the affine layer", source=_D3RLPY, gt=0)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        if not isinstance(observation, Box) or len(observation.shape) != 3:
            raise ConfigError(f"The pixel encoder needs images of three axes, and observations are {_described(observation)}.")
        last = observation.channels == "last" if observation.channels else observation.shape[2] < observation.shape[0]
        return self.begun(
            PixelNetwork(observation.shape, channels_last=last, action_size=action_size, members=members, config=self)
        )


class KeysEncoder(PerceptronConfig):
    """An encoder for each key of dict or tuple observations, and a perceptron over their features side by side.

    Keys without one enter the perceptron as they are, images through a pixel encoder. Nested keys are joined by "/", and the parts
    of a tuple are "0", "1", ….
    """

    name: Literal["keys"] = "keys"
    encoders: dict[str, Encoder] = setting({}, "encoder of each key; keys that are not named: pixel for images, none for others")

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        if not isinstance(flat := flat_space(observation), Dict):
            raise ConfigError(f"The keys encoder needs a dict or a tuple, and observations are {_described(observation)}.")
        for key in self.encoders:
            if key not in flat.spaces:
                raise ConfigError(f"Observations have no key {key!r} to encode{did_you_mean(key, flat.spaces)}")
        pixel = PixelEncoder(**_shared(self, PixelEncoder))
        chosen = {key: self.encoders.get(key) or (pixel if is_image(space) else None) for key, space in flat.spaces.items()}
        parts = {key: config.build(flat.spaces[key], members=members) for key, config in sorted(chosen.items()) if config}
        return self.begun(KeysNetwork(flat, action_size, members, self, parts))


class DefaultEncoder(PerceptronConfig):
    """The encoder that suits the observations: `pixel` for images, `keys` for dicts and tuples with images, else `vector`.

    `pixel` has no `hidden_units`.
    """

    name: Literal["default"] = "default"

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        leaves = space_columns(observation).values()
        kind = VectorEncoder if not any(map(is_image, leaves)) else PixelEncoder if is_image(observation) else KeysEncoder
        return kind(**_shared(self, kind)).build(observation, action_size, members)


def is_image(space: ObservationSpace) -> bool:
    """Whether it is what the default encoder takes for an image: bytes with three axes."""
    return isinstance(space, Box) and space.channels is not None


def _shared(config: LayersConfig, kind: type[LayersConfig]) -> dict[str, Any]:
    """The settings that another encoder has too."""
    both = type(config).model_fields.keys() & kind.model_fields.keys() - {"name"}
    return {name: getattr(config, name) for name in both}


def _described(space: ObservationSpace) -> str:
    if isinstance(space, Leaf):
        return f"of the shape {space.shape}"
    return f"a {space.kind} with the keys {', '.join(name.partition('/')[2] for name in space_columns(space))}"


# ---- by name

Kind = TypeVar("Kind", bound=type[EncoderConfig])
_known: dict[str, type[EncoderConfig]] = {
    str(kind.model_fields["name"].default): kind
    for kind in (DefaultEncoder, VectorEncoder, DenseEncoder, PixelEncoder, KeysEncoder)
}
_OURS = tuple(_known)


def register_encoder(encoder: Kind) -> Kind:
    """Makes a user's own encoder known by its `name`; also a class decorator. Saved runs hold the name and its settings.

    Raises:
        ConfigError: it has no name, or the name is taken.
    """
    name = encoder.model_fields["name"].default if "name" in encoder.model_fields else None
    if not isinstance(name, str):
        raise ConfigError(f'The encoder {encoder.__name__} needs a name: a field `name: Literal["mine"] = "mine"`.')
    if name in _OURS or _known.get(name, encoder).__qualname__ != encoder.__qualname__:
        raise ConfigError(f"There is an encoder {name!r} already: give yours another name.")
    _known[name] = encoder
    return encoder


def _read(value: Any) -> Any:
    """A name, or a mapping with a name and settings; a mapping without a name is the vector encoder's settings."""
    if isinstance(value, EncoderConfig):
        return value
    if not isinstance(value, str | Mapping):
        raise ValueError(f"it must be a name or settings with a name, of {', '.join(_known)}")
    settings = {"name": value} if isinstance(value, str) else {"name": "vector", **cast("Mapping[str, Any]", value)}
    if settings.pop("use_dense", False) and settings["name"] == "vector":
        settings["name"] = "dense"
    name = settings["name"]
    if name not in _known:
        raise ValueError(f"there is no such encoder{did_you_mean(str(name), _known)}")
    try:
        return _known[name].model_validate(settings)
    except ValidationError as error:  # again with the name in the path, as a union's would have it
        details = [
            InitErrorDetails(type=one["type"], loc=(name, *one["loc"]), input=one["input"], ctx=one.get("ctx", {}))  # pyright: ignore[reportArgumentType]
            for one in error.errors(include_url=False)
        ]
        raise ValidationError.from_exception_data("encoder", details) from None


Encoder = Annotated[SerializeAsAny[EncoderConfig], BeforeValidator(_read)]
KeysEncoder.model_rebuild()
