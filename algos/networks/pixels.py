"""The encoder over images: convolutions, then one affine layer that an action enters beside what they make."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import pad

from ...data.config import setting
from ...data.errors import ConfigError, named
from ...data.spec import Box, ObservationSpace
from .encoding import D3RLPY, LayersConfig, Positive, after, described
from .layers import Convolution, Dropout
from .normalization import BatchNorm
from .perceptrons import EncoderModule, Linear, Observation, Repeated, beside, repeat


class PixelNetwork(EncoderModule):
    """[B, C, H, W], or [B, H, W, C] where `channels_last`, to [B, features]; with members to [members, B, features].

    Each of `Repeated` images is convolved once.
    """

    def __init__(
        self, shape: tuple[int, ...], *, channels_last: bool, action_size: int, members: int | None, config: PixelEncoder
    ) -> None:
        super().__init__()
        self.members, self.channels_last = members, channels_last
        channels, height, width = (shape[2], shape[0], shape[1]) if channels_last else shape
        height, width = (_side(length, config) for length in (height, width))
        if min(height, width) < 1:
            least, sides = _least(config), " × ".join(str(n) for n in (shape[:2] if channels_last else shape[1:]))
            raise ConfigError(
                f"The pixel encoder's filters need images of {least} × {least} or more, and these are {sides}"
                f": set smaller filters of {named('encoder')}, or the encoder 'vector'."
            )
        layers: list[nn.Module] = []
        for count, kernel, stride in config.filters:
            layers.append(Convolution(channels, count, kernel, stride, members, spectral_norm=config.spectral_norm))
            layers += after(count, config, members, images=True)
            channels = count
        self.convolutions = nn.ModuleList(layers)
        self.repeats = not any(isinstance(layer, BatchNorm | Dropout) for layer in layers)  # to those each copy is one more image
        linear = Linear(channels * height * width + action_size, config.feature_size, members, spectral_norm=config.spectral_norm)
        self.layers = nn.Sequential(linear, *after(config.feature_size, config, members, last=True))
        self.features = config.feature_size

    def forward(self, observation: Observation | Repeated, action: Tensor | None = None, first: int | None = None) -> Tensor:
        seen = observation.observation if isinstance(observation, Repeated) else observation
        assert isinstance(seen, Tensor)
        x = seen.movedim(-1, -3) if self.channels_last else seen
        for layer in self.convolutions:
            x = layer(x, first) if isinstance(layer, Convolution) else layer(x)
        if self.members is None:
            x = x.flatten(1)
        else:
            n = self.members if first is None else first
            x = x.reshape(x.shape[0], n, -1).transpose(0, 1)
        if isinstance(observation, Repeated):
            return self.of_copies(x, observation.n, action)
        return self.layers(x if action is None else beside(x, action))

    def of_copies(self, x: Tensor, n: int, action: Tensor | None) -> Tensor:
        """Applies the layers to states' features [..., B, F], each n times: the affine layer's product with them is done once."""
        axis, (linear, *others) = x.ndim - 2, self.layers
        assert isinstance(linear, Linear)
        if action is None:
            return repeat(self.layers(x), n, axis)
        if linear.spectral is not None:
            return self.layers(beside(repeat(x, n, axis), action))
        size = action.shape[-1]
        weight = linear.weight if self.members is None else linear.weight[: x.shape[0]]
        h = repeat(linear(pad(x, (0, size))), n, axis) + action @ weight[..., -size:, :]
        for layer in others:
            h = layer(h)
        return h


def _side(length: int, config: PixelEncoder) -> int:
    """Places along an axis after the convolutions; less than one where a filter is larger than what is left."""
    for _, size, stride in config.filters:
        length = (length - size) // stride + 1
    return length


def _least(config: PixelEncoder) -> int:
    """The shortest axis that the filters leave anything of."""
    length = 1
    for _, size, stride in reversed(config.filters):
        length = (length - 1) * stride + size
    return length


class PixelEncoder(LayersConfig):
    """Convolutions over an image and one affine layer, as in Mnih et al. 2015; an action enters beside what the convolutions make.

    Images have three axes; their channels lie on the shorter of the outer two. They are not divided by anything: set the
    observation scaler `pixel`.
    """

    name: Literal["pixel"] = "pixel"
    filters: tuple[tuple[Positive, Positive, Positive], ...] = setting(
        ((32, 8, 4), (64, 4, 2), (64, 3, 1)), "channels, size and stride of each convolution", source=D3RLPY, min_length=1
    )
    feature_size: int = setting(512, "width of the affine layer", source=D3RLPY, gt=0)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        if not isinstance(observation, Box) or len(observation.shape) != 3:
            raise ConfigError(f"The pixel encoder needs images of three axes, and observations are {described(observation)}.")
        last = observation.channels == "last" if observation.channels else observation.shape[2] < observation.shape[0]
        return self.begun(
            PixelNetwork(observation.shape, channels_last=last, action_size=action_size, members=members, config=self)
        )
