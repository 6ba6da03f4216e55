"""Statistics of a dataset, measured block by block so that they do not depend on shards or on who measured which block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field

from ..config import Config
from ..spec import Box, Discrete, Spec
from .episode_table import EpisodeTable
from .rows import Rows, block

_ENTRIES = 1 << 20  # entries of an image column that are measured at once; of vectors 16 times as many


class Moments(Config):
    """Mean, population standard deviation, smallest and largest value: one number, or one for each entry of a vector."""

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    min: float | tuple[float, ...]
    max: float | tuple[float, ...]


class Statistics(Config):
    """Statistics of a dataset. Closing rows do not count."""

    model_config = ConfigDict(serialize_by_alias=True)

    return_: Moments = Field(alias="return", description="undiscounted return of an episode")
    steps: Moments = Field(description="transitions of an episode")
    reward: Moments = Field(description="reward of a transition")
    observation: Moments | dict[str, Moments] = Field(
        description="by entry for vectors, over all entries for images, and by key for dict observations"
    )
    action: Moments | None = Field(description="by entry; null for discrete actions, one number each")
    action_counts: tuple[int, ...] | None = Field(
        description="how often each discrete action was taken, from the first on; null for continuous ones"
    )
    action_outside: int = Field(description="transitions whose action lies outside the action space's bounds")
    n_terminated: int = Field(description="episodes that the MDP ended")
    n_final_missing: int = Field(description="episodes without a recorded final observation")

    def quantities(self) -> dict[str, Moments]:
        """Return what was measured, by column, or by what it is."""
        seen = self.observation if isinstance(self.observation, dict) else {"": self.observation}
        return {
            "return of an episode": self.return_,
            "steps of an episode": self.steps,
            "reward": self.reward,
            **{f"observation/{key}".rstrip("/"): found for key, found in seen.items()},
            **({} if self.action is None else {"action": self.action}),
        }


@dataclass(frozen=True)
class Part:
    """Moments of some rows: `mean`, `squares` (of differences from the mean), `low` and `high` are arrays of one shape."""

    count: int
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class BlockStatistics:
    """Contribution of one block of rows to the statistics."""

    parts: dict[str, Part]
    action_counts: np.ndarray | None
    action_outside: int


def measure_block(rows: Rows, k: int, spec: Spec) -> BlockStatistics:
    """Measure block `k`; observations, continuous actions and rewards in float64."""
    steps = ~block(rows, "closing", k)
    action = block(rows, "action", k)[steps]
    counts, outside = None, 0
    if isinstance(spec.action, Discrete):
        counts = np.bincount(action - spec.action.start, minlength=spec.action.n)
    elif isinstance(spec.action, Box):
        outside = count_outside(action, spec.action)
    names = [name for name in rows.names() if name == "reward" or name.split("/")[0] == "observation"]
    parts = {name: measure(block(rows, name, k), steps) for name in names}
    if counts is None:
        parts["action"] = measure(action)
    return BlockStatistics(parts, counts, outside)


def count_outside(action: np.ndarray, space: Box) -> int:
    """Count actions [N, A] with an entry below `low` or above `high`, bounds rounded to the actions' own precision."""
    bounds = space.bounds()
    if bounds is None:
        return 0
    low, high = (b.astype(action.dtype) for b in bounds)
    return int(((action < low) | (action > high)).reshape(len(action), -1).any(1).sum())


def measure(values: np.ndarray, chosen: np.ndarray | None = None) -> Part:
    """Moments over rows, or those that are `chosen` [N] bool: by entry for [N] and [N, A], over all entries for images.

    Images, and vectors as long as images, are measured in pieces: float64 copies of a whole block of them would fill the memory.
    """
    n = len(values) if chosen is None else int(np.count_nonzero(chosen))
    if n == 0:
        return Part(0, np.zeros(values.shape[1:2]), np.zeros(values.shape[1:2]), np.zeros(0), np.zeros(0))
    image, width = values.ndim > 2, max(1, int(np.prod(values.shape[1:], dtype=np.int64)))
    some = max(1, (_ENTRIES if image else _ENTRIES << 4) // width)
    pieces = (slice(k, k + some) for k in range(0, len(values), some))
    rows = (values[piece] if chosen is None else values[piece][chosen[piece]] for piece in pieces)
    return merge(_measure_entries(part.reshape(-1) if image else part) for part in rows if len(part))


def _measure_entries(values: np.ndarray) -> Part:
    if values.dtype == np.uint8 and values.ndim == 1:  # a histogram is exact and four times as fast
        counts, level = np.bincount(values, minlength=256), np.arange(256, dtype=np.float64)
        mean = counts @ level / len(values)
        squares, seen = counts @ (level - mean) ** 2, np.flatnonzero(counts)
        return Part(len(values), np.asarray(mean), np.asarray(squares), np.asarray(seen[0]), np.asarray(seen[-1]))
    mean = values.mean(0, dtype=np.float64)
    squares = np.square(values - mean).sum(0)
    return Part(len(values), np.asarray(mean), np.asarray(squares), np.asarray(values.min(0)), np.asarray(values.max(0)))


def merge(parts: Iterable[Part]) -> Part:
    """Merge the moments of all rows of `parts`, in their order (Chan, Golub, LeVeque 1979)."""
    total: Part | None = None
    for part in parts:
        if total is None or total.count == 0:
            total = part
        elif part.count:
            count, shift = total.count + part.count, part.mean - total.mean
            total = Part(
                count,
                total.mean + shift * (part.count / count),
                total.squares + part.squares + shift**2 * (total.count * part.count / count),
                np.minimum(total.low, part.low),
                np.maximum(total.high, part.high),
            )
    if total is None:
        raise ValueError("There are no rows to measure.")
    return total


def summarise(blocks: Sequence[BlockStatistics], episodes: EpisodeTable) -> Statistics:
    """Compute the statistics of a dataset from those of all its blocks, in order."""
    merged = {name: _moments(merge(b.parts[name] for b in blocks)) for name in blocks[0].parts}
    keys = {name.partition("/")[2]: moments for name, moments in merged.items() if name.startswith("observation/")}
    counts = [b.action_counts for b in blocks if b.action_counts is not None]
    total = sum(np.pad(c, (0, max(map(len, counts)) - len(c))) for c in counts) if counts else None
    return Statistics.model_validate(
        {
            "return": _moments(measure(np.asarray(episodes.returns))),
            "steps": _moments(measure(np.asarray(episodes.steps))),
            "reward": merged["reward"],
            "observation": keys or merged["observation"],
            "action": merged.get("action"),
            "action_counts": None if total is None else tuple(map(int, np.asarray(total))),
            "action_outside": sum(b.action_outside for b in blocks),
            "n_terminated": int(np.count_nonzero(episodes.terminated)),
            "n_final_missing": int(len(episodes) - np.count_nonzero(episodes.final_recorded)),
        }
    )


def _moments(part: Part) -> Moments:
    std = np.sqrt(part.squares / max(part.count, 1))
    return Moments(mean=_plain(part.mean), std=_plain(std), min=_plain(part.low), max=_plain(part.high))


def _plain(values: np.ndarray) -> Any:
    return tuple(map(float, values)) if values.ndim else float(values)
