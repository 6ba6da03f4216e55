"""Augmentations: batches changed at random while training, and at no other time.

Every random number is a hash of (seed, step, place), so a batch's augmentation is a function of the seed and the step: a stacked
seed sees what it would see alone, and a resumed run what an uninterrupted one would have seen.
"""

from .base import Augmentation
from .image import ColorJitter, Cutout, HorizontalFlip, Intensity, RandomRotation, RandomShift, VerticalFlip
from .pipeline import NAMES, AugmentationPipeline, Augmentations
from .source import AugmentedSource
from .vector import MultipleAmplitudeScaling, SingleAmplitudeScaling

__all__ = [
    "NAMES",
    "Augmentation",
    "AugmentationPipeline",
    "Augmentations",
    "AugmentedSource",
    "ColorJitter",
    "Cutout",
    "HorizontalFlip",
    "Intensity",
    "MultipleAmplitudeScaling",
    "RandomRotation",
    "RandomShift",
    "SingleAmplitudeScaling",
    "VerticalFlip",
]
