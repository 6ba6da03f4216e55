"""When the MDPs of known environments end: functions of the observation that follows, as their sources have them.

They are those of gymnasium 1.x and of MOPO's and MBPO's `static` folders (Yu et al. 2020, Janner et al. 2019), as equations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Ends = Callable[[Tensor], Tensor]
"""Raw observations [..., D] that followed to bool [...]."""
Termination = Literal[
    "auto",
    "learned",
    "never",
    "hopper",
    "walker2d",
    "ant",
    "humanoid",
    "inverted_pendulum",
    "inverted_double_pendulum",
    "cart_pole",
    "mountain_car",
    "mountain_car_continuous",
    "acrobot",
]
"""When the MDP ends: as the data's environment has it, or a model learns it, or one of `TERMINATIONS`."""


def _never(seen: Tensor) -> Tensor:
    return torch.zeros_like(seen[..., 0], dtype=torch.bool)


def _hopper(seen: Tensor) -> Tensor:
    upright = (seen[..., 0] > 0.7) & (seen[..., 1].abs() < 0.2)
    return ~(upright & (seen[..., 1:].abs() < 100).all(-1))


def _walker(seen: Tensor) -> Tensor:
    height, angle = seen[..., 0], seen[..., 1]
    return ~((height > 0.8) & (height < 2.0) & (angle.abs() < 1.0))


def _between(low: float, high: float) -> Ends:
    return lambda seen: ~((seen[..., 0] >= low) & (seen[..., 0] <= high))


def _inverted_pendulum(seen: Tensor) -> Tensor:
    return seen[..., 1].abs() > 0.2


def _inverted_double_pendulum(seen: Tensor) -> Tensor:
    sine, sine2, cosine, cosine2 = seen[..., 1:5].unbind(-1)
    return 0.6 * (cosine + cosine * cosine2 - sine * sine2) <= 1.0


def _cart_pole(seen: Tensor) -> Tensor:
    return (seen[..., 0].abs() > 2.4) | (seen[..., 2].abs() > math.radians(12))


def _mountain_car(goal: float) -> Ends:
    return lambda seen: (seen[..., 0] >= goal) & (seen[..., 1] >= 0)


def _acrobot(seen: Tensor) -> Tensor:
    cosine, sine, cosine2, sine2 = seen[..., :4].unbind(-1)
    return -cosine - (cosine * cosine2 - sine * sine2) > 1.0


TERMINATIONS: dict[str, Ends] = {
    "never": _never,
    "hopper": _hopper,
    "walker2d": _walker,
    "ant": _between(0.2, 1.0),
    "humanoid": _between(1.0, 2.0),
    "inverted_pendulum": _inverted_pendulum,
    "inverted_double_pendulum": _inverted_double_pendulum,
    "cart_pole": _cart_pole,
    "mountain_car": _mountain_car(0.5),
    "mountain_car_continuous": _mountain_car(0.45),
    "acrobot": _acrobot,
}
"""By name."""

_OF_ENVIRONMENTS = {
    **dict.fromkeys(("Pendulum", "HalfCheetah", "Swimmer", "Reacher", "Pusher", "HumanoidStandup"), "never"),
    "Hopper": "hopper",
    "Walker2d": "walker2d",
    "Ant": "ant",
    "Humanoid": "humanoid",
    "InvertedPendulum": "inverted_pendulum",
    "InvertedDoublePendulum": "inverted_double_pendulum",
    "CartPole": "cart_pole",
    "MountainCar": "mountain_car",
    "MountainCarContinuous": "mountain_car_continuous",
    "Acrobot": "acrobot",
}


def termination_of(environment: str | None) -> str | None:
    return None if environment is None else _OF_ENVIRONMENTS.get(family(environment))


def family(environment: str) -> str:
    return re.sub(r"-v\d+$", "", environment.rpartition("/")[2])
