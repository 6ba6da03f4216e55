"""What a policy remembers of an episode, as a text that travels with the client: replicas keep nothing, so any of them answers.

The text is base64 of safetensors: the arrays of one row, and in the metadata whose they are: policy, version, episode, next step.
It is not secret and not signed; what comes back is compared with what the policy would have given in name, type, shape and
finiteness, so a forged one changes nothing but its own episode.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ...data.errors import DataError

Flat = dict[str, np.ndarray]
_INNER = "policy"  # the key that a stack of frames keeps its policy's own memory under


@dataclass(frozen=True)
class State:
    """A memory on its way: `memory` of one row [1, ...] by name, flat; `step` is that of the decision to come."""

    policy: str
    version: str
    episode: str
    step: int
    memory: Flat


def packed(state: State) -> str:
    """Write a state as the text that a reply has."""
    about = {"policy": state.policy, "version": state.version, "episode": state.episode, "step": str(state.step)}
    return base64.b64encode(save({k: np.ascontiguousarray(v) for k, v in state.memory.items()}, metadata=about)).decode()


def unpacked(text: str, policy: str) -> State:
    """Read a state of a policy of this name. Raises DataError: it is none, or another policy's."""
    try:
        content = base64.b64decode(text, validate=True)
        arrays = load(content)
        about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        state = State(about["policy"], about["version"], about["episode"], int(about["step"]), arrays)
    except (binascii.Error, SafetensorError, KeyError, ValueError, TypeError):
        raise DataError("state is none that this service gave: hand in the state of the episode's last reply as it came.") from None
    if state.policy != policy:
        raise DataError(f"state is of the policy {state.policy!r}, and {policy!r} was asked.")
    if state.step < 0:
        raise DataError(f"state has the step {state.step}, and steps count from 0.")
    return state


def check_memory(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    """Raises DataError where a memory has other parts, types or shapes than one that is wanted, or is not finite."""
    for name in sorted({*found, *wanted}):
        own, other = wanted.get(name), found.get(name)
        if own is None or other is None or own.shape != other.shape or own.dtype != other.dtype:
            raise DataError(f"state does not fit this policy: its part {name!r} is {_told(other)}, not {_told(own)}.")
        if other.dtype.kind == "f" and not np.isfinite(other).all():
            raise DataError(f"state is NaN or infinite in its part {name!r}.")


def _told(array: np.ndarray | None) -> str:
    return "missing" if array is None else f"{array.dtype} {list(array.shape)}"


def flat(memory: Any, prefix: str = "") -> Flat:
    """Flatten a policy's memory: None, arrays by name, or such beside the memory of a policy within."""
    found: Flat = {}
    for name, part in (memory or {}).items():
        found |= flat(part, f"{prefix}{name}/") if isinstance(part, Mapping) else {f"{prefix}{name}": part}
    return found


def nested(memory: Mapping[str, np.ndarray], *, inner: bool) -> Any:
    """Give a policy its memory back; `inner`: it is one with a policy within."""
    if not memory:
        return None
    if not inner:
        return dict(memory)
    own = {name: part for name, part in memory.items() if not name.startswith(f"{_INNER}/")}
    within = {name.removeprefix(f"{_INNER}/"): part for name, part in memory.items() if name.startswith(f"{_INNER}/")}
    return {**own, _INNER: within} if within else own


def joined(memories: Sequence[Mapping[str, np.ndarray]]) -> Flat:
    """Put the memories of single rows together to one of a batch."""
    return {name: np.concatenate([memory[name] for memory in memories]) for name in memories[0]}


def split(memory: Mapping[str, np.ndarray], n: int) -> list[Flat]:
    """Take the memory of a batch of n rows apart."""
    return [{name: part[k : k + 1] for name, part in memory.items()} for k in range(n)]
