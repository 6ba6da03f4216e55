"""What all augmentations are: settings, and a transform of a batch whose random numbers have addresses."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..config import Config
from ..errors import DataError
from ..random import fold, normal, root_key, uniform

Channels = Literal["first", "last"]


class Draw:
    """Random numbers of one augmentation at one batch: one row for each of its N samples.

    Args:
        key: int64 of shape () or (S,), one a seed.
        samples: Of each seed; N = S · samples.
        dtype: Of the numbers.
    """

    def __init__(self, key: Tensor, samples: int, dtype: torch.dtype) -> None:
        self._key, self._samples, self._dtype = key, samples, dtype

    def uniform(self, name: str, low: float = 0.0, high: float = 1.0, size: int | None = None) -> Tensor:
        """Draw uniformly from (low, high): [N], or [N, size]."""
        drawn = uniform(fold(self._key, name), self._shape(size), self._dtype)
        return self._flat(low + (high - low) * drawn, size)

    def normal(self, name: str) -> Tensor:
        """Draw from the standard normal, [N]."""
        return self._flat(normal(fold(self._key, name), self._shape(None), self._dtype), None)

    def _shape(self, size: int | None) -> tuple[int, ...]:
        return (self._samples,) if size is None else (self._samples, size)

    def _flat(self, numbers: Tensor, size: int | None) -> Tensor:
        return numbers.reshape(-1) if size is None else numbers.reshape(-1, size)


class Augmentation(Config):
    """Base of the augmentations."""

    wants: ClassVar[Literal["images", "vectors"]]

    @property
    def label(self) -> str:
        return str(getattr(self, "name"))  # noqa: B009 - subclasses narrow it to one literal

    def transform(self, x: Tensor, key: Tensor | int = 0, *, channels: Channels = "first", top: float | None = None) -> Tensor:
        """A batch with each sample changed by numbers of its own; the same key changes it in the same way.

        Args:
            x: [B, ...], or [S, B, ...] for a stack of S seeds. Images are [..., C, H, W] or [..., H, W, C], vectors [..., D].
                Axes between B and those are frames of one sample, and are changed alike, as are channels.
            key: int64 of shape () or (S,), or a seed.
            channels: Where the channels of images are.
            top: The value of full brightness. None: 255 for integers, 1 for floats.

        Returns:
            Like `x` in shape and type; integers are rounded and stay between 0 and `top`.

        Raises:
            DataError: `x` has too few axes.
        """
        key = key if isinstance(key, Tensor) else root_key(key, x.device)
        lead, inner = key.ndim + 1, 3 if self.wants == "images" else 1
        if x.ndim < lead + inner:
            raise DataError(f"The augmentation {self.label!r} needs batches of {self.wants}, and this is {list(x.shape)}.")
        real = x.is_floating_point()
        top = (1.0 if real else 255.0) if top is None else top
        draw = Draw(key, x.shape[key.ndim], x.dtype if real else torch.float32)
        flat = x.reshape(-1, *x.shape[lead:])
        changed = self._on_images(flat, draw, channels, top) if self.wants == "images" else self._on_vectors(flat, draw)
        if changed.dtype != x.dtype:
            changed = changed.round().clamp(0, top) if not real else changed
            changed = changed.to(x.dtype)
        return changed.reshape(x.shape)

    def _on_images(self, x: Tensor, draw: Draw, channels: Channels, top: float) -> Tensor:
        """Move channels to one axis in front of [H, W], and back afterwards."""
        if channels == "last":
            x = x.movedim(-1, -3)
        stacked = self._images(x.reshape(x.shape[0], -1, *x.shape[-2:]), draw, top).reshape(x.shape)
        return stacked.movedim(-3, -1) if channels == "last" else stacked

    def _images(self, x: Tensor, draw: Draw, top: float) -> Tensor:
        """Augment [N, C, H, W] of any type; C counts the channels of all frames."""
        raise NotImplementedError

    def _on_vectors(self, x: Tensor, draw: Draw) -> Tensor:
        """Augment [N, ..., D] of any type."""
        raise NotImplementedError

    # ---- as d3rlpy calls it

    def get_type(self) -> str:
        return self.label

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the settings by name; `type(augmentation)(**params)` makes the same augmentation."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "name"}


def each(numbers: Tensor, like: Tensor) -> Tensor:
    """Shape one number a sample, [N], to broadcast against [N, ...]."""
    return numbers.reshape(-1, *[1] * (like.ndim - 1))
