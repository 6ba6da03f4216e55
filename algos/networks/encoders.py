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
from .encoding import DenseEncoder as DenseEncoder
from .encoding import EncoderConfig as EncoderConfig
from .encoding import LayersConfig, PerceptronConfig, Positive, described
from .encoding import ResidualEncoder as ResidualEncoder
from .encoding import VectorEncoder as VectorEncoder
from .impala import ImpalaEncoder as ImpalaEncoder
from .named import Named
from .perceptrons import EncoderModule as EncoderModule
from .perceptrons import KeysNetwork
from .pixels import PixelEncoder as PixelEncoder
from .recurrent import Kind, RecurrentNetwork


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
            if self.encoders[key].remembers:
                label = self.encoders[key].label
                raise ConfigError(f"The encoder of key {key!r} is {label}, which remembers: set {label}, with keys as its encoder.")
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


class RecurrentConfig(EncoderConfig):
    """Settings of both recurrent encoders. Algorithms that take them learn from sub-sequences, see the sampler `recurrent`."""

    units: int = setting(128, "entries of what is remembered", source="Ni et al. 2022, arXiv:2110.05038", gt=0)
    encoder: Encoder = setting(DefaultEncoder(hidden_units=(128,)), "what reads each observation, before it is remembered")
    head_units: tuple[Positive, ...] = setting(
        (), "width of layers after it, each with ReLU, which also see a critic's action; none: one of `units` where there is one"
    )

    @property
    def remembers(self) -> bool:
        return True

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        """The module.

        Raises:
            ConfigError: what reads observations is recurrent itself, or takes statistics of a batch.
        """
        label, inner = self.label, self.encoder
        if inner.remembers:
            raise ConfigError(f"The encoder within {label} is {inner.label}, which remembers too: choose one that does not.")
        if getattr(inner, "normalization", None) == "batch":
            raise ConfigError(
                f"The encoder within {label} has normalization 'batch', into which padding would enter: choose 'layer', or none."
            )
        before = inner.build(observation, members=members)
        return RecurrentNetwork(self.kind, before, self.units, self.head_units, action_size, members)

    @property
    def kind(self) -> Kind:
        raise NotImplementedError


class GRUEncoder(RecurrentConfig):
    """Gated recurrent units over what another encoder makes of observations (Cho et al. 2014, arXiv:1406.1078)."""

    name: Literal["gru"] = "gru"

    @property
    def kind(self) -> Kind:
        return "gru"


class LSTMEncoder(RecurrentConfig):
    """Long short-term memory over what another encoder makes of observations (Hochreiter and Schmidhuber 1997)."""

    name: Literal["lstm"] = "lstm"

    @property
    def kind(self) -> Kind:
        return "lstm"


def is_image(space: ObservationSpace) -> bool:
    """Tells whether the default encoder takes it for an image: bytes with three axes."""
    return isinstance(space, Box) and space.channels is not None


def _shared(config: LayersConfig, kind: type[LayersConfig]) -> dict[str, Any]:
    both = type(config).model_fields.keys() & kind.model_fields.keys() - {"name"}
    return {name: getattr(config, name) for name in both}


# ---- by name

_OURS = (
    DefaultEncoder,
    VectorEncoder,
    DenseEncoder,
    ResidualEncoder,
    PixelEncoder,
    ImpalaEncoder,
    KeysEncoder,
    GRUEncoder,
    LSTMEncoder,
)
KINDS = Named("encoder", EncoderConfig, _OURS, "vector")
register_encoder = KINDS.register  # makes a user's own encoder known by its `name`; also a class decorator


def _read(value: Any) -> Any:
    """d3rlpy's `use_dense` is a name here."""
    if isinstance(value, Mapping):
        value = dict(cast("Mapping[str, Any]", value))
        if value.pop("use_dense", False) and value.get("name", "vector") == "vector":
            value["name"] = "dense"
    return KINDS.read(value)


Encoder = Annotated[SerializeAsAny[EncoderConfig], BeforeValidator(_read), KINDS]
for _config in (KeysEncoder, GRUEncoder, LSTMEncoder):
    _config.model_rebuild()
