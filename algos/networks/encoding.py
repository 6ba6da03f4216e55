"""What every encoder is: a config that builds a module from observations to features, and the settings that ours share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

from pydantic import model_validator
from torch import Tensor, nn

from ...data.config import Config, setting
from ...data.histories import Histories
from ...data.masks import bare
from ...data.spec import Leaf, ObservationSpace, space_columns
from .layers import Dropout, Initializer, initialise
from .normalization import BatchNorm, LayerNorm
from .precision import autocast, lowered
from .vectors import Repeated

Activation = Literal["relu", "tanh", "elu", "gelu", "silu", "leaky_relu", "none"]
D3RLPY = "d3rlpy 2.8.1, models/encoders.py"
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "none": nn.Identity,
}


Module = TypeVar("Module", bound=nn.Module)


class EncoderModule(nn.Module):
    """What an encoder builds.

    Called as `module(observation, action=None, first=None)` it gives [B, features], or [members, B, features] for an ensemble, of
    which `first` asks for the first so many members; without an ensemble `first` changes nothing. An action [members, B, A] is one
    for each member. Where `repeats` is true, observations may come as `Repeated`; else that is copied before. Masks of
    legal actions are no input: they are taken off before. `Histories` are read as such by recurrent ones alone; others see each
    step by itself.
    """

    features: int
    repeats = False
    remembers = False

    def __call__(self, observation: Any, *inputs: Any, **named: Any) -> Tensor:
        seen = observation.copies() if isinstance(observation, Repeated) and not self.repeats else bare(observation)
        if isinstance(seen, Histories) and not self.remembers:
            seen = seen.steps()
        inputs = (seen, *inputs)
        if (device := lowered()) is None:
            return super().__call__(*inputs, **named)
        with autocast(device):
            return super().__call__(*inputs, **named).float()


def after(width: int, config: LayersConfig, members: int | None, *, images: bool = False, last: bool = False) -> list[nn.Module]:
    """What follows an affine layer or a convolution: activation, normalisation, dropout; d3rlpy 2.8.1's order."""
    activation = config.last_activation if last and config.last_activation is not None else config.activation
    layers = [] if activation == "none" else [ACTIVATIONS[activation]()]
    if config.normalization is not None:
        layers.append((BatchNorm if config.normalization == "batch" else LayerNorm)(width, members, images=images))
    if config.dropout_rate:
        layers.append(Dropout(config.dropout_rate, images=images))
    return layers


class EncoderConfig(Config):
    """Base of the encoders. A subclass has a field `name: Literal["…"] = "…"` and writes `build`."""

    @property
    def label(self) -> str:
        """The name that a config gives."""
        return str(getattr(self, "name"))  # noqa: B009 - subclasses narrow it to one literal

    @property
    def remembers(self) -> bool:
        """Whether it builds a recurrent network."""
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

    def begun(self, module: Module) -> Module:
        """The module with weights as the settings want them to begin."""
        initialise(module, self.initializer, self.initial_bias)
        return module


def described(space: ObservationSpace) -> str:
    """A space in a few words, for a sentence that refuses it."""
    if isinstance(space, Leaf):
        return f"of the shape {space.shape}"
    return f"a {space.kind} with the keys {', '.join(name.partition('/')[2] for name in space_columns(space))}"
