"""Several augmentations one after the other, and the setting that names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Field
from torch import Tensor

from ..config import Config, by_name, setting
from ..errors import DataError
from ..random import fold, root_key
from ..spec import Box, ObservationSpace, space_columns
from .base import Augmentation, Channels
from .image import ColorJitter, Cutout, HorizontalFlip, Intensity, RandomRotation, RandomShift, VerticalFlip
from .vector import MultipleAmplitudeScaling, SingleAmplitudeScaling

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


_Known = (
    RandomShift
    | Cutout
    | HorizontalFlip
    | VerticalFlip
    | RandomRotation
    | Intensity
    | ColorJitter
    | SingleAmplitudeScaling
    | MultipleAmplitudeScaling
)
NAMES = tuple(str(known.model_fields["name"].default) for known in get_args(_Known))
AnyAugmentation = Annotated[_Known, Field(discriminator="name"), BeforeValidator(by_name("augmentation", get_args(_Known)))]


def _read_all(value: Any) -> Any:
    if isinstance(value, AugmentationPipeline):
        return value.augmentations
    if value is None:
        return ()
    return (value,) if isinstance(value, str | Mapping | Augmentation) else value


Augmentations = Annotated[tuple[AnyAugmentation, ...], BeforeValidator(_read_all)]


class AugmentationPipeline(Config):
    """Augmentations in order: `AugmentationPipeline(augmentations=["random_shift", {"name": "intensity", "scale": 0.2}])`."""

    augmentations: Augmentations = setting(..., "names, settings or objects")

    def transform(
        self,
        x: Tensor,
        key: Tensor | int = 0,
        *,
        channels: Channels = "first",
        top: float | None = None,
        wants: str | None = None,
    ) -> Tensor:
        """Apply each augmentation, or those of `wants` ("images" or "vectors"). Arguments as `Augmentation.transform`'s."""
        key = key if isinstance(key, Tensor) else root_key(key, x.device)
        for at, augmentation in enumerate(self.augmentations):
            if wants in (None, augmentation.wants):
                x = augmentation.transform(x, fold(key, at), channels=channels, top=top)
        return x

    def check_space(self, space: Any, name: str) -> None:
        """Raise DataError unless each augmentation finds what it changes in observations of this space."""
        kinds = {layout.wants for layout in layouts(space).values()}
        for augmentation in self.augmentations:
            if augmentation.wants not in kinds:
                raise DataError(
                    f"The augmentation {augmentation.label!r} needs {augmentation.wants}, and observations of {name!r} have none."
                )

    # ---- as d3rlpy calls it

    def get_augmentation_types(self) -> list[str]:
        return [augmentation.get_type() for augmentation in self.augmentations]

    def get_augmentation_params(self) -> list[dict[str, Any]]:
        return [augmentation.get_params() for augmentation in self.augmentations]
