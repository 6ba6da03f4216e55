"""RLlib's sample batches, whatever file they come from: what its columns are called, and what it packs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lz4.frame

from ...errors import DataError, reason
from ..arrays import Array
from ..untrusted import restricted_pickle
from ..untrusted.unpacking import LZ4, left, unpacks

NAMES = {  # d3ray's word: what RLlib calls it, the first found is taken
    "observations": ("obs", "observations"),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "terminated": ("terminateds", "dones"),
    "truncated": ("truncateds",),
    "next_observations": ("new_obs", "next_obs"),
    "episode": ("eps_id",),
    "agent": ("agent_index", "agent_id"),
    "step": ("t",),
    "log_prob": ("action_logp",),
    "probability": ("action_prob",),
    "infos": ("infos",),
}
REQUIRED = ("observations", "actions", "rewards", "terminated")


def unpack(source: str, value: Any) -> Any:
    """Unpack what RLlib packed as text (base64 of LZ4 of a pickle); return `value` itself if it is not text.

    The pickle is read by `restricted_pickle`: arrays and plain containers come out, anything else is refused.
    """
    if not isinstance(value, str | bytes):
        return value
    try:
        packed = base64.b64decode(value, validate=True)
        most = min(left(), LZ4 * len(packed) + (1 << 16)) + 1  # which is asked for at once
        data = lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=most)
    except (binascii.Error, ValueError, RuntimeError, EOFError, MemoryError) as error:
        raise DataError(f"{source} is text that RLlib did not pack, or damaged ({reason(error)}).") from None
    unpacks(source, len(data))
    return restricted_pickle.loads(data, source=source)


def action_notes(actions: Array) -> list[str]:
    """Warn that RLlib writes actions before they are stretched to the environment's bounds."""
    if actions.dtype.kind != "f":
        return []
    low, high = float(actions.min()), float(actions.max())
    if low >= -1 and high <= 1:
        return [
            "All actions in the file lie in [-1, 1]: RLlib writes them before it stretches them to the environment's bounds; where "
            "those are wider, action_scale stretches them (2 for Pendulum)."
        ]
    if max(-low, high) > 10:
        return [
            f"Warning: actions reach from {low:,.0f} to {high:,.0f}, and RLlib's own lie in [-1, 1] or within the environment's "
            "bounds: look at what wrote them, or import with actions=clip and the environment."
        ]
    return []


def together(files: Sequence[Path], folder: Path, episodes: Callable[[Path], set[Any] | None]) -> list[Path]:
    """List the files of a folder where each has whole episodes, else the folder."""
    seen: set[Any] = set()
    for file in files:
        ids = episodes(file)
        if ids is None or seen & ids:
            return [folder]
        seen |= ids
    return list(files)
