"""Encoders: what turns an observation into features. An encoder is a config that builds a module, registered under a name.

`encoder: vector`, or `encoder: {name: pixel, feature_size: 256}`; a user's own is made known by `register_encoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BeforeValidator, SerializeAsAny, ValidationError
from pydantic_core import InitErrorDetails

from ...data.config import setting
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Box, Dict, ObservationSpace, flat_space, space_columns
from .encoding import EncoderConfig as EncoderConfig
from .encoding import EncoderModule as EncoderModule
from .encoding import LayersConfig, described
from .perceptrons import DenseEncoder as DenseEncoder
from .perceptrons import KeysNetwork, PerceptronConfig
from .perceptrons import VectorEncoder as VectorEncoder
from .pixels import PixelEncoder as PixelEncoder


class KeysEncoder(PerceptronConfig):
    """An encoder for each key of dict or tuple observations, and a perceptron over their features side by side.

    Keys without one enter the perceptron as they are, images through a pixel encoder. Nested keys are joined by "/", and the parts
    of a tuple are "0", "1", ….
    """

    name: Literal["keys"] = "keys"
    encoders: dict[str, Encoder] = setting({}, "encoder of each key; keys that are not named: pixel for images, none for others")

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        if not isinstance(flat := flat_space(observation), Dict):
            raise ConfigError(f"The keys encoder needs a dict or a tuple, and observations are {described(observation)}.")
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
