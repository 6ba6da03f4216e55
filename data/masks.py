"""Legal actions: an observation and a mask of what may be done there, which go everywhere together. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

ACTION_MASK = "action_mask"  # the column of the data, the key of an environment's info, the input of an exported policy


@dataclass(frozen=True, eq=False)
class Masked:
    """An observation, and which of the n discrete actions are legal there.

    Attributes:
        observation: An array or a tensor [..., *shape], or a dict of them.
        action_mask: bool [..., n].
    """

    observation: Any
    action_mask: Any


def masked(observation: Any, action_mask: Any) -> Any:
    return observation if action_mask is None else Masked(observation, action_mask)


def bare(observation: Any) -> Any:
    return observation.observation if isinstance(observation, Masked) else observation


def mask_of(observation: Any) -> Any:
    return observation.action_mask if isinstance(observation, Masked) else None


def has_mask(observation: Any) -> bool:
    """Tell whether it is a mapping whose key `action_mask` is the mask, as RLlib's and PettingZoo's observations are."""
    return isinstance(observation, Mapping) and ACTION_MASK in observation and len(cast("Mapping[str, Any]", observation)) > 1


def without_mask(observation: Mapping[str, Any]) -> Any:
    """Drop the mask of such a mapping; a part that is alone then, whatever its key, stands for itself."""
    rest = {key: part for key, part in observation.items() if key != ACTION_MASK}
    return next(iter(rest.values())) if len(rest) == 1 else rest


def parted(observation: Any) -> Any:
    """Turn a mapping that has its mask among its keys into `Masked`; anything else stays as it is."""
    return Masked(without_mask(observation), observation[ACTION_MASK]) if has_mask(observation) else observation
