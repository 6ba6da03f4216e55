"""Frame stacks: a dataset stores every frame once, and they are stacked when they are drawn.

Imports no torch: exported policies stack what they are shown, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from .errors import ConfigError
from .spec import Box, Dict, Spec, flat_space, space_columns

if TYPE_CHECKING:
    from torch import Tensor

Padding = Literal["zero", "repeat"]
Frames = TypeVar("Frames", np.ndarray, "Tensor")


@dataclass(frozen=True)
class FrameStack:
    """How the frames of one observation column are put together, the newest last.

    Attributes:
        frames: k, how many.
        padding: What stands for frames from before the episode began: "zero", as the DQN of Nature 2015, Dopamine and d3rlpy have
            it; or "repeat" the first one, as gymnasium's `FrameStackObservation` does.
        channels: Where the channels of a frame are, "first" or "last"; None: each frame becomes a channel of its own.
    """

    frames: int
    padding: Padding = "zero"
    channels: str | None = "first"

    def join(self, frames: Frames, lead: int) -> Frames:
        """Join [..., B, k, *shape] to one observation each; `lead` counts the axes before k."""
        if self.channels is None:
            return frames
        at = lead
        if self.channels == "last":
            at = frames.ndim - 2
            frames = np.moveaxis(frames, lead, at) if isinstance(frames, np.ndarray) else frames.movedim(lead, at)
        return frames.reshape((*frames.shape[:at], -1, *frames.shape[at + 2 :]))


def frame_stacks(spec: Spec, frames: int, padding: Padding = "zero") -> dict[str, FrameStack]:
    """Return how frames are stacked, by observation column: images only, so the vectors beside them in a dict stay as they are.

    Images are uint8 with three axes, or two, which then get one for the frames in front; `padding` is as `FrameStack`'s. Raises
    ConfigError where there are none.
    """
    if frames < 1 or padding not in ("zero", "repeat"):
        raise ConfigError(f"frames is {frames} and its padding {padding!r}; it takes 1 or more images, and 'zero' or 'repeat'.")
    if frames == 1:
        return {}
    images = {name: leaf for name, leaf in space_columns(spec.observation).items() if isinstance(leaf, Box) and leaf.is_image}
    if not images:
        raise ConfigError(f"frames is {frames}, and there is no image among the observations to stack.")
    return {name: FrameStack(frames, padding, getattr(leaf, "channels", None)) for name, leaf in images.items()}


def stacked_spec(spec: Spec, frames: int) -> Spec:
    """Return the spaces that an algorithm sees of frame stacks; bounds that differ by pixel are dropped."""
    stacks, space = frame_stacks(spec, frames), flat_space(spec.observation)
    if not stacks:
        return spec
    if not isinstance(space, Dict):
        return spec.model_copy(update={"observation": _stacked(space, frames)})
    leaves = {key: _stacked(leaf, frames) if f"observation/{key}" in stacks else leaf for key, leaf in space.spaces.items()}
    return spec.model_copy(update={"observation": Dict(spaces=leaves)})


def _stacked(box: Any, frames: int) -> Box:
    match box.channels:
        case "first":
            shape = (frames * box.shape[0], *box.shape[1:])
        case "last":
            shape = (*box.shape[:-1], frames * box.shape[-1])
        case _:
            shape = (frames, *box.shape)
    plain = {name: None if isinstance(bound := getattr(box, name), tuple) else bound for name in ("low", "high")}
    return box.model_copy(update={"shape": shape, **plain})
