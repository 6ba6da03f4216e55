"""Encoders: what turns an observation into features. An encoder is a config that builds a module, registered under a name.

`encoder: vector`, or `encoder: {name: pixel, feature_size: 256}`; a user's own is made known by `register_encoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, SerializeAsAny

from ...data.config import setting
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Box, Dict, ObservationSpace, flat_space, space_columns
from .encoding import EncoderConfig as EncoderConfig
from .encoding import EncoderModule as EncoderModule
from .encoding import LayersConfig, described
from .named import Named
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

KINDS = Named("encoder", EncoderConfig, (DefaultEncoder, VectorEncoder, DenseEncoder, PixelEncoder, KeysEncoder), "vector")
register_encoder = KINDS.register  # makes a user's own encoder known by its `name`; also a class decorator


def _read(value: Any) -> Any:
    """d3rlpy's `use_dense` is a name here."""
    if isinstance(value, Mapping):
        value = dict(cast("Mapping[str, Any]", value))
        if value.pop("use_dense", False) and value.get("name", "vector") == "vector":
            value["name"] = "dense"
    return KINDS.read(value)


Encoder = Annotated[SerializeAsAny[EncoderConfig], BeforeValidator(_read), KINDS]
KeysEncoder.model_rebuild()
