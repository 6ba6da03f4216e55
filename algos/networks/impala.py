"""IMPALA's residual encoder over images (Espeholt et al. 2018, arXiv:1802.01561, figure 3), with a perceptron after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad

from ...data.config import setting
from ...data.errors import ConfigError
from ...data.spec import Box, Leaf, ObservationSpace
from .encoding import EncoderModule, PerceptronConfig, Positive, described
from .layers import Convolution
from .perceptrons import Linear, Observation, Repeated, beside, for_members, repeat

_ALONE = ""  # the key of an image that is no part of a dict
OGBENCH = "OGBench's code 1d41409, impls/utils/encoders.py: impala_small"


class _Stack(nn.Module):
    """A convolution, pooling to half the size, and blocks of two convolutions that are added to their input."""

    def __init__(self, channels_in: int, channels: int, n_blocks: int) -> None:
        super().__init__()
        self.first = Convolution(channels_in, channels, 3, 1, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(),
                Convolution(channels, channels, 3, 1, padding=1),
                nn.ReLU(),
                Convolution(channels, channels, 3, 1, padding=1),
            )
            for _ in range(n_blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = _pooled(self.first(x))
        for block in self.blocks:
            x = x + block(x)
        return x


def _pooled(x: Tensor) -> Tensor:
    """The largest of 3 × 3 at every second place, [B, C, H, W] to half of H and W, rounded up; as in JAX less padding is before."""
    around: list[int] = []
    for length in (x.shape[-1], x.shape[-2]):
        more = (-(-length // 2) - 1) * 2 + 3 - length
        around += [more // 2, more - more // 2]
    return max_pool2d(pad(x, around, value=float("-inf")), 3, 2)


class ImpalaNetwork(EncoderModule):
    """[B, C, H, W], or [B, H, W, C] where channels are last, to [B, features]; with members to [members, B, features].

    Members share what sees the image. Each of `Repeated` images is seen once. Images of a dict lie on one another: their channels
    are those of one image.
    """

    repeats = True

    def __init__(self, images: Mapping[str, Box], *, action_size: int, members: int | None, config: ImpalaEncoder):
        super().__init__()
        self.members, self.last = members, {key: _channels_last(image) for key, image in images.items()}
        shapes = {_channels_first(image) for image in images.values()}
        channels, (height, width) = sum(shape[0] for shape in map(_channels_first, images.values())), next(iter(shapes))[1:]
        stacks: list[nn.Module] = []
        for count in config.stacks:
            stacks.append(_Stack(channels, count, config.n_blocks))
            channels, height, width = count, -(-height // 2), -(-width // 2)
        self.stacks = nn.Sequential(*stacks, nn.ReLU(), nn.Flatten())
        self.seen = nn.Sequential(Linear(channels * height * width, config.feature_size), nn.GELU("tanh"))
        self.layers = config.layers(config.feature_size + action_size, members)
        self.features = config.hidden_units[-1]

    def forward(self, observation: Observation | Repeated, action: Tensor | None = None, first: int | None = None) -> Tensor:
        shown = observation.observation if isinstance(observation, Repeated) else observation
        images = {_ALONE: shown} if isinstance(shown, Tensor) else cast("dict[str, Tensor]", shown)
        parts = [images[key].movedim(-1, -3) if last else images[key] for key, last in self.last.items()]
        x = self.seen(self.stacks(parts[0] if len(parts) == 1 else torch.cat(parts, -3)))
        if isinstance(observation, Repeated):
            x = repeat(x, observation.n)
        return self.layers(for_members(x if action is None else beside(x, action), self.members, first))


class ImpalaEncoder(PerceptronConfig):
    """Residual convolutions over an image, which an ensemble shares, and a perceptron that an action enters beside what they see.

    Images have three axes. They are not divided by anything: set the observation scaler `pixel`. Of a dict of images, as of what is
    seen and a goal, all are of one height and width; they are seen as one image of all their channels, as in OGBench's code.
    """

    name: Literal["impala"] = "impala"
    stacks: tuple[Positive, ...] = setting(
        (16, 32, 32), "channels of each stack, which halves the image", source=OGBENCH, min_length=1
    )
    n_blocks: int = setting(1, "residual blocks of a stack; 2 in IMPALA", source=OGBENCH, gt=0)
    feature_size: int = setting(512, "width of the layer over what the stacks see", source=OGBENCH, gt=0)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        images: Any = {_ALONE: observation} if isinstance(observation, Leaf) else getattr(observation, "spaces", {})
        if not isinstance(images, Mapping) or not all(isinstance(one, Box) and len(one.shape) == 3 for one in images.values()):
            raise ConfigError(f"The impala encoder needs images of three axes, and observations are {described(observation)}.")
        if len(sizes := {_channels_first(one)[1:] for one in images.values()}) != 1:
            said = " and ".join(f"{height} × {width}" for height, width in sorted(sizes))
            raise ConfigError(f"The impala encoder needs images of one height and width, and observations have {said}.")
        return self.begun(ImpalaNetwork(images, action_size=action_size, members=members, config=self))


def _channels_last(image: Box) -> bool:
    return image.channels == "last" if image.channels else image.shape[2] < image.shape[0]


def _channels_first(image: Box) -> tuple[int, ...]:
    return (image.shape[2], *image.shape[:2]) if _channels_last(image) else image.shape
