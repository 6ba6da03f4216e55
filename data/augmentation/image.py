"""Augmentations of images, as in Kostrikov, Yarats, Fergus: DrQ (ICLR 2021), appendix; Laskin et al.: RAD (NeurIPS 2020).

Each sample draws for itself; all its channels, and so all frames that are stacked in it, are changed alike. Names and defaults are
those of d3rlpy's manual of October 2020.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional

from ..config import setting
from ..errors import DataError
from .base import Augmentation, Draw, each

_MANUAL = "d3rlpy's manual of October 2020"
Range = tuple[float, float]


class RandomShift(Augmentation):
    """Moves the image by up to `shift_size` pixels up or down, and left or right; border pixels are repeated."""

    wants = "images"
    name: Literal["random_shift"] = "random_shift"
    shift_size: int = setting(4, "pixels, at most, along each axis", source=_MANUAL, ge=0)
    probability: float = setting(1.0, "share of the samples that it is done to", since="0.2", ge=0, le=1)

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        n, channels, height, width = x.shape
        down, right = (self._shift(draw.uniform(axis)) for axis in ("down", "right"))
        if self.probability < 1:
            chosen = draw.uniform("chosen") < self.probability
            down, right = down * chosen, right * chosen
        rows = (torch.arange(height, device=x.device) - down[:, None]).clamp(0, height - 1)
        columns = (torch.arange(width, device=x.device) - right[:, None]).clamp(0, width - 1)
        at = (rows[:, :, None] * width + columns[:, None, :]).reshape(n, 1, -1)
        return x.reshape(n, channels, -1).gather(2, at.expand(n, channels, -1)).reshape(x.shape)

    def _shift(self, drawn: Tensor) -> Tensor:
        """Draw integers from -shift_size to shift_size, each as likely."""
        return (drawn * (2 * self.shift_size + 1)).floor().to(torch.int64).clamp(max=2 * self.shift_size) - self.shift_size


class Cutout(Augmentation):
    """Blackens a rectangle, with a probability.

    Its area is uniform between 0.02 and 0.33 of the image's and its aspect ratio log-uniform between 0.3 and 1/0.3, as in Zhong
    et al.: Random Erasing (AAAI 2020), table 1; each place where it fits is as likely.
    """

    wants = "images"
    name: Literal["cutout"] = "cutout"
    probability: float = setting(0.5, "share of the samples that it is done to", source=_MANUAL, ge=0, le=1)

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        height, width = x.shape[-2:]
        area = draw.uniform("area", 0.02, 0.33) * (height * width)
        ratio = draw.uniform("ratio", math.log(0.3), -math.log(0.3)).exp()
        spans = (((area * ratio).sqrt(), height, "down"), ((area / ratio).sqrt(), width, "right"))
        inside: list[Tensor] = []
        for length, size, axis in spans:
            span = length.round().clamp(1, size)
            first = (draw.uniform(axis) * (size - span + 1)).floor()
            at = torch.arange(size, device=x.device)
            inside.append((at >= first[:, None]) & (at < (first + span)[:, None]))
        chosen = draw.uniform("chosen") < self.probability
        return x.masked_fill((inside[0][:, :, None] & inside[1][:, None, :] & each(chosen, inside[0][:, :, None]))[:, None], 0)


class _Flip(Augmentation):
    """Base of the flips."""

    wants = "images"
    probability: float = setting(0.1, "share of the samples that it is done to", source=_MANUAL, ge=0, le=1)

    def _flipped(self, x: Tensor, draw: Draw, axis: int) -> Tensor:
        return torch.where(each(draw.uniform("chosen") < self.probability, x), x.flip(axis), x)


class HorizontalFlip(_Flip):
    """Swaps left and right, with a probability."""

    name: Literal["horizontal_flip"] = "horizontal_flip"

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        return self._flipped(x, draw, -1)


class VerticalFlip(_Flip):
    """Swaps top and bottom, with a probability."""

    name: Literal["vertical_flip"] = "vertical_flip"

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        return self._flipped(x, draw, -2)


class RandomRotation(Augmentation):
    """Turns the image about its centre by an angle uniform on ±`degree`: bilinear, black beyond the border."""

    wants = "images"
    name: Literal["random_rotation"] = "random_rotation"
    degree: float = setting(5.0, "degrees, at most, either way", source=_MANUAL, ge=0, le=180)

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        height, width = x.shape[-2:]
        angle = draw.uniform("angle", -self.degree, self.degree).deg2rad()
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        # torch counts both axes from -1 to 1, so a turn of pixels is a turn and a change of scale there
        turn = torch.stack(
            (torch.stack((cos, -sin * height / width, zero), -1), torch.stack((sin * width / height, cos, zero), -1)), -2
        )
        pixels = x.to(turn.dtype)
        grid = functional.affine_grid(turn, list(x.shape), align_corners=False)
        return functional.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


class Intensity(Augmentation):
    """Makes the image brighter or darker: x · (1 + scale · clip(n, -2, 2)), n ~ N(0, 1).

    d3rlpy's manual prints x + n and calls n a multiplier. It is one in DrQ, whose appendix has the code and which the manual cites:
    that is followed. Floats are not clipped afterwards, as there.
    """

    wants = "images"
    name: Literal["intensity"] = "intensity"
    scale: float = setting(0.1, "standard deviation of the factor", source=_MANUAL, ge=0)

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        factor = each(1 + self.scale * draw.normal("factor").clamp(-2, 2), x)
        return x.to(factor.dtype) * factor


class ColorJitter(Augmentation):
    """Changes brightness, saturation and hue in HSV, and contrast in RGB; for images of the real world.

    V and S are multiplied and clipped to [0, 1], and H is moved by a part of the whole circle. x becomes (x - m) · c + m, clipped,
    where m is the mean of a frame's channel. Which of the two comes first is drawn, evenly. Channels are RGB, or several frames
    of it; floats are between 0 and `top`.

    RAD's own code multiplies x - m by c + m, and shrinks the hue's range by 255/360; here the four mean what they mean elsewhere
    (torchvision's ColorJitter).
    """

    wants = "images"
    name: Literal["color_jitter"] = "color_jitter"
    brightness: Range = setting((0.6, 1.4), "range of the factor of V", source=_MANUAL)
    contrast: Range = setting((0.6, 1.4), "range of the factor of contrast", source=_MANUAL)
    saturation: Range = setting((0.6, 1.4), "range of the factor of S", source=_MANUAL)
    hue: Range = setting((-0.5, 0.5), "range of what is added to H, in turns", source=_MANUAL)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for setting_name in ("brightness", "contrast", "saturation", "hue"):
            low, high = getattr(self, setting_name)
            if low > high or (low < 0 and setting_name != "hue"):
                raise ValueError(f"{setting_name} is ({low:g}, {high:g}), which is no range of such numbers")
        return self

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        if x.shape[1] % 3:
            raise DataError(
                f"The augmentation {self.label!r} needs RGB images, and these have {x.shape[1]} channels, no multiple of 3."
            )
        contrast = draw.uniform("contrast", *self.contrast)
        rgb = (x.to(contrast.dtype) / top).reshape(x.shape[0], -1, 3, *x.shape[2:])
        early = each(draw.uniform("order") < 0.5, rgb)
        rgb = torch.where(early, _contrasted(rgb, contrast), rgb)
        hue, saturation, value = hsv_of(rgb)
        factors = (each(draw.uniform(what, *getattr(self, what)), hue) for what in ("hue", "saturation", "brightness"))
        turn, more, light = factors
        rgb = rgb_of((hue + turn) % 1, (saturation * more).clamp(0, 1), (value * light).clamp(0, 1))
        rgb = torch.where(early, rgb, _contrasted(rgb, contrast))
        return rgb.reshape(x.shape) * top


def _contrasted(rgb: Tensor, factor: Tensor) -> Tensor:
    mean = rgb.mean((-2, -1), keepdim=True)
    return ((rgb - mean) * each(factor, rgb) + mean).clamp(0, 1)


def hsv_of(rgb: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Convert RGB in [0, 1], [..., 3, H, W], to hue (in turns), saturation and value, [..., H, W] each."""
    red, green, blue = rgb.unbind(-3)
    value = rgb.amax(-3)
    chroma = value - rgb.amin(-3)
    safe = torch.where(chroma > 0, chroma, 1)
    hue = torch.where(
        value == red,
        (green - blue) / safe % 6,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    return hue / 6, chroma / torch.where(value > 0, value, 1), value


def rgb_of(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Convert hue (in turns), saturation and value, [..., H, W], to RGB [..., 3, H, W]."""
    parts: list[Tensor] = []
    for n in (5, 3, 1):
        k = (n + 6 * hue) % 6
        parts.append(value - value * saturation * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(parts, -3)
