"""d3rlpy's `models`: factories of encoders and of Q-functions by its names; users' own factories become encoders here."""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal

import torch
from pydantic import create_model
from torch import Tensor, nn

from d3ray.algos.networks.encoders import register_encoder
from d3ray.algos.networks.encoding import EncoderConfig
from d3ray.algos.networks.perceptrons import EncoderModule
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box, ObservationSpace

from .parts import Part


@dataclass
class EncoderFactory(Part):
    """Base of encoders; a user's writes `create`, `create_with_action` for critics of continuous actions, and `get_type`.

    What `create` makes is called with observations [B, ...], what `create_with_action` makes with actions [B, A] too. It gives
    features [B, n]; n is found by a call with zeros, unless the module says `feature_size`.
    """

    def create(self, observation_shape: Any) -> nn.Module:
        """A module from observations to features."""
        raise NotImplementedError(f"{type(self).__name__} writes no create.")

    def create_with_action(self, observation_shape: Any, action_size: int, discrete_action: bool = False) -> nn.Module:
        """A module from observations and actions to features."""
        raise NotImplementedError(f"{type(self).__name__} writes no create_with_action, which critics of continuous actions need.")


@dataclass
class _Layers(EncoderFactory):
    activation: str = "relu"
    use_batch_norm: bool = False
    dropout_rate: float | None = None


@dataclass
class DefaultEncoderFactory(_Layers):
    """What suits the observations."""

    kind: ClassVar = "default"


@dataclass
class VectorEncoderFactory(EncoderFactory):
    """Fully connected layers."""

    hidden_units: list[int] = field(default_factory=lambda: [256, 256])
    activation: str = "relu"
    use_batch_norm: bool = False
    use_layer_norm: bool = False
    dropout_rate: float | None = None
    exclude_last_activation: bool = False
    last_activation: str | None = None
    kind: ClassVar = "vector"


@dataclass
class PixelEncoderFactory(EncoderFactory):
    """Convolutions, those of Nature's DQN where none are given."""

    filters: list[list[int]] = field(default_factory=lambda: [[32, 8, 4], [64, 4, 2], [64, 3, 1]])
    feature_size: int = 512
    activation: str = "relu"
    use_batch_norm: bool = False
    dropout_rate: float | None = None
    exclude_last_activation: bool = False
    last_activation: str | None = None
    kind: ClassVar = "pixel"


@dataclass
class QFunctionFactory(Part):
    """Base of Q-functions."""

    share_encoder: bool = False


@dataclass
class MeanQFunctionFactory(QFunctionFactory):
    """The expected return."""

    kind: ClassVar = "mean"


@dataclass
class QRQFunctionFactory(QFunctionFactory):
    """Quantiles at fixed fractions."""

    n_quantiles: int = 32
    kind: ClassVar = "qr"


@dataclass
class IQNQFunctionFactory(QFunctionFactory):
    """Quantiles at drawn fractions."""

    n_quantiles: int = 64
    n_greedy_quantiles: int = 32
    embed_size: int = 64
    kind: ClassVar = "iqn"


Q_FUNCTIONS = {one.kind: one for one in (MeanQFunctionFactory, QRQFunctionFactory, IQNQFunctionFactory)}
_OURS = (DefaultEncoderFactory, VectorEncoderFactory, PixelEncoderFactory)


def own_encoder(factory: Any) -> EncoderConfig | None:
    """The encoder of a user's own factory; None: it is one of d3rlpy's. What it says must go into JSON, for it is saved."""
    if not isinstance(factory, EncoderFactory) or isinstance(factory, _OURS):
        return None
    return _config_of(type(factory))(**factory.serialize_to_dict())


def register_encoder_factory(factory: type[EncoderFactory]) -> type[EncoderFactory]:
    """Makes a user's factory known by its type, so that what was saved with it can be loaded where it was not used yet."""
    _config_of(factory)
    return factory


class _Own(EncoderConfig):
    """Base of encoders that a user's factory makes."""

    factory: ClassVar[type[EncoderFactory]]

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        if not isinstance(observation, Box):
            raise ConfigError(f"The encoder {self.label!r} is for arrays, and these observations have several parts.")
        made = self.factory(**self.model_dump(exclude={"name"}))
        shape = tuple(observation.shape)
        modules = [
            made.create_with_action(shape, action_size, discrete_action=False) if action_size else made.create(shape)
            for _ in range(members or 1)
        ]
        return _Modules(modules, shape, action_size, members)


_configs: dict[type[EncoderFactory], type[_Own]] = {}


def _config_of(factory: type[EncoderFactory]) -> type[_Own]:
    """The settings of a factory's fields, known by its type."""
    if factory not in _configs:
        settings: dict[str, Any] = {one.name: (Any, ... if one.default is MISSING else one.default) for one in fields(factory)}
        kind = factory.get_type()
        made = create_model(f"{factory.__name__}Config", __base__=_Own, name=(Literal[kind], kind), **settings)  # pyright: ignore
        made.factory = factory
        made.__qualname__ = f"{factory.__module__}.{factory.__qualname__}"  # a class that is made anew is the same one
        _configs[factory] = register_encoder(made)
    return _configs[factory]


class _Modules(EncoderModule):
    """Modules side by side, one a member of an ensemble, each called with what is its own."""

    def __init__(self, modules: list[nn.Module], shape: tuple[int, ...], action_size: int, members: int | None) -> None:
        super().__init__()
        self.each, self.members = nn.ModuleList(modules), members
        size = getattr(modules[0], "feature_size", None)
        inputs = (torch.zeros(1, *shape), torch.zeros(1, action_size))[: 2 if action_size else 1]
        self.features = size if isinstance(size, int) else int(modules[0](*inputs).shape[-1])
        self._axes = 1 + len(shape)

    def forward(self, observation: Tensor, action: Tensor | None = None, first: int | None = None) -> Tensor:
        def given(k: int) -> list[Tensor]:
            seen = observation[k] if observation.ndim > self._axes else observation
            return [seen] if action is None else [seen, action[k] if action.ndim > 2 else action]

        if self.members is None:
            return self.each[0](*given(0))
        return torch.stack([self.each[k](*given(k)) for k in range(first or self.members)])


encoders = q_functions = sys.modules[__name__]  # where d3rlpy has them
