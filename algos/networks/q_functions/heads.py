"""What a critic ends with: affine layers, plain or noisy, of one stream or two."""

from __future__ import annotations

from functools import partial

from ....data.config import setting
from ....data.errors import ConfigError
from ..dueling import Dueling
from ..layers import Linear
from ..noisy import NoisyLinear
from .critics import CriticSpec, QFunctionConfig


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
        """The same for those that read its weights: one affine layer, all in all. Raises ConfigError where it is none."""
        if self.stream_units is not None:
            raise ConfigError("A head over embedded fractions is affine: leave stream_units out, and widen the encoder.")
        return self.head(size_in, spec, 1, members)
