"""Settings of Q-functions: what makes critics, the layers that those of d3ray end with, and the expected return."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

from ....data.config import Config, setting
from ....data.errors import ConfigError
from ....data.spec import ObservationSpace
from ...optimizers import Group
from ..dueling import Dueling
from ..encoders import Encoder
from ..noisy import NoisyLinear
from ..perceptrons import Linear
from .critics import ContinuousCritic, Critic, CriticSpec, DiscreteCritic, DiscreteMeanCritic, MeanCritic

Kind = TypeVar("Kind", bound=Critic)
Maker = Callable[[Any, CriticSpec], Kind]  # a critic's class, of a Q-function's settings


class QFunctionConfig(Config):
    """Base of the settings of Q-functions. A subclass has a field `name: Literal["…"] = "…"` and writes `critics`."""

    def critics(self) -> tuple[Maker[ContinuousCritic], Maker[DiscreteCritic]]:
        """The classes of its critics, of continuous and of discrete actions."""
        raise NotImplementedError

    @property
    def span(self) -> tuple[float, float] | None:
        """The least and the largest return that it can tell; None: any."""
        return None

    def groups(self) -> tuple[Group, ...]:
        return ()

    def continuous(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool = False
    ) -> ContinuousCritic:
        """The critic of continuous actions: `members` functions of [B, ...] and [B, A], which may share one encoder."""
        return self.critics()[0](self, CriticSpec(encoder, observation, action_size, 1, members, share_encoder))

    def discrete(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool = False
    ) -> DiscreteCritic:
        """The critic of discrete actions: `members` functions of [B, ...], each with a value for every action."""
        return self.critics()[1](self, CriticSpec(encoder, observation, 0, n_actions, members, share_encoder))


class HeadConfig(QFunctionConfig):
    """Settings of the layers after the encoder, which every Q-function of d3ray has. Floats here are no coefficients."""

    dueling: bool = setting(
        False, "whether values are V(s) + A(s, a) less the mean of A", source="Wang et al. 2016, equation 9", since="0.2"
    )
    stream_units: int | None = setting(
        None, "width of a hidden layer in each of the two streams; None: there is none", since="0.2", gt=0
    )
    noisy: float = setting(
        0.0, "σ₀ of noisy layers, whose draws explore; 0: layers are plain", source="Fortunato et al. 2018: 0.5", since="0.2", ge=0
    )

    def head(self, size_in: int, spec: CriticSpec, each: int, members: int | None) -> Linear | Dueling:
        """[..., B, size_in] to [..., B, outputs · each].

        Raises ConfigError where two streams are asked for and an action is an input, which adds to no state's value.
        """
        layer = partial(NoisyLinear, sigma=self.noisy) if self.noisy else Linear
        if not self.dueling:
            if self.stream_units is not None:
                raise ConfigError(f"stream_units is {self.stream_units}, and there are no two streams without dueling=True.")
            return layer(size_in, spec.outputs * each, members)
        if spec.action_size:
            raise ConfigError("dueling tells a state's value from what each of its actions adds, and needs discrete actions.")
        return Dueling(size_in, spec.outputs, each, members, hidden=self.stream_units, layer=layer)

    def affine_head(self, size_in: int, spec: CriticSpec, members: int | None) -> Linear | Dueling:
        """Makes a head whose weights are read: one affine layer. Raises ConfigError where it is none."""
        if self.stream_units is not None:
            raise ConfigError("A head over embedded fractions is affine: leave stream_units out, and widen the encoder.")
        return self.head(size_in, spec, 1, members)


class Mean(HeadConfig):
    """Q(s, a) = E[return].

    Only the squared error estimates it. The Huber loss goes with a median beyond its corner: it is steadier while errors of
    bootstrapping are larger than the noise of rewards, and wrong where that noise is larger than the corner.
    """

    name: Literal["mean"] = "mean"
    loss: Literal["squared", "huber"] | None = setting(
        None, "squared, or huber with its corner at 1; null: squared for continuous actions, else huber", since="0.2"
    )

    def is_huber(self, *, discrete: bool) -> bool:
        """Tells whether critics of such actions have the Huber loss."""
        return (self.loss or self.critics()[discrete].usual) == "huber"

    def critics(self) -> tuple[type[MeanCritic], type[DiscreteMeanCritic]]:
        return MeanCritic, DiscreteMeanCritic
