"""What the parts of an observation are: images or vectors, where channels lie, and how bright white is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..spec import Box, ObservationSpace, space_columns
from .base import Channels

_KINDS: dict[int, Literal["images", "vectors"]] = {1: "vectors", 3: "images"}  # by the number of axes


@dataclass(frozen=True)
class Layout:
    """Of one array of an observation, as a batch holds it."""

    wants: Literal["images", "vectors"]
    channels: Channels
    top: float


def layouts(space: ObservationSpace, scaled: frozenset[str] = frozenset()) -> dict[str, Layout]:
    """Of each array that can be augmented, by column: `observation`, or `observation/KEY`.

    Args:
        space: Of the observations.
        scaled: Columns that a scaler acts on. The only one of images divides by 255.
    """
    return {
        column: Layout(_KINDS[len(box.shape)], channels_of(box), _top(box) / (255 if column in scaled else 1))
        for column, box in space_columns(space).items()
        if isinstance(box, Box) and len(box.shape) in _KINDS
    }


def channels_of(box: Box) -> Channels:
    """Find the channels of an image: where the space says so for bytes, else on the shorter of the outer axes."""
    return box.channels or ("last" if len(box.shape) == 3 and box.shape[2] < box.shape[0] else "first")


def _top(box: Box) -> float:
    """Return the value of white: 255 for bytes, else the upper bound, else 1."""
    if np.dtype(box.dtype).kind in "iu":
        return 255.0
    bounds = box.bounds()
    top = float(bounds[1].max(initial=0)) if bounds is not None else 1.0
    return top if 0 < top < 1e6 else 1.0
