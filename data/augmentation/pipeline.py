"""Several augmentations one after the other, and the setting that names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from torch import Tensor

from ..config import Config, by_name, setting
from ..errors import DataError
from ..random import fold, root_key
from .base import Augmentation, Channels
from .image import ColorJitter, Cutout, HorizontalFlip, Intensity, RandomRotation, RandomShift, VerticalFlip
from .layout import layouts
from .vector import MultipleAmplitudeScaling, SingleAmplitudeScaling

_KNOWN: tuple[type[Augmentation], ...] = (
    RandomShift,
    Cutout,
    HorizontalFlip,
    VerticalFlip,
    RandomRotation,
    Intensity,
    ColorJitter,
    SingleAmplitudeScaling,
    MultipleAmplitudeScaling,
)
NAMES = tuple(str(known.model_fields["name"].default) for known in _KNOWN)


AnyAugmentation = Annotated[
    Annotated[
        RandomShift
        | Cutout
        | HorizontalFlip
        | VerticalFlip
        | RandomRotation
        | Intensity
        | ColorJitter
        | SingleAmplitudeScaling
        | MultipleAmplitudeScaling,
        Field(discriminator="name"),
    ],
    BeforeValidator(by_name("augmentation", _KNOWN)),
]


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
