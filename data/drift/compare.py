"""Compare new episodes with recorded ones: which columns changed, how far, and whether chance would do as much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..errors import DataError
from ..recording import Recording
from ..storage.statistics import Moments, Statistics
from .measured import Column, Measured, measured, some_episodes
from .nearest import Nearest
from .two_samples import compare, occurrences

FEWEST = 8  # episodes on either side: of fewer, permutations are too few for a p below 0.001
MOST_EPISODES = 1_000  # that are compared on either side
MOST_STEPS = 20_000
ANCHORS = 2_000  # recorded steps to which distances are measured
NEAREST = "distance to the nearest recorded observation"
FIRST = "first "


@dataclass(frozen=True)
class ColumnDrift:
    """One column.

    Attributes:
        name: As `observation[3]`, `first observation[3]`, `action`, `reward`, or `NEAREST`.
        group: observation, first observation, action, reward, cost or nearest.
        old, new: Means.
        old_std, new_std: Standard deviations.
        distance: D from 0 to 1: the largest difference of cumulative shares, or half the sum of differences of categories' shares.
        p: That chance gives as much in any column, by permuted episodes.
        outside: Share of the new steps below the smallest or above the largest recorded number; None where that was not measured.
    """

    name: str
    group: str
    old: float
    new: float
    old_std: float
    new_std: float
    distance: float
    p: float
    outside: float | None = None


@dataclass(frozen=True)
class Drift:
    """Columns, those furthest apart first, and how much was compared."""

    columns: tuple[ColumnDrift, ...]
    n_old: int  # episodes
    n_new: int
    n_old_steps: int
    n_new_steps: int

    def __getitem__(self, name: str) -> ColumnDrift:
        return next(column for column in self.columns if column.name == name)

    def changed(self, level: float = 0.01, least: float = 0.1) -> tuple[ColumnDrift, ...]:
        """Return the columns that changed by `least` or more, where chance would do as much with a probability below `level`."""
        return tuple(column for column in self.columns if column.p < level and column.distance >= least)


def drift(old: Recording, new: Recording) -> Drift:
    """Compare new episodes with recorded ones.

    An episode's first observations are compared for themselves, since no policy has touched them: where they changed, the world
    did. All else changes with the policy too.

    Args:
        old: What was recorded, such as what the policy learned from.
        new: Episodes of the same spaces.

    Raises DataError where the spaces differ or one of the two has fewer than `FEWEST` episodes.
    """
    if old.spec.observation != new.spec.observation:
        raise DataError(f"{new.name!r} shows other observations than {old.name!r}: d3ray diff says how they differ.")
    if old.spec.action != new.spec.action:
        raise DataError(f"{new.name!r} has other actions than {old.name!r}: d3ray diff says how they differ.")
    for data in (old, new):
        if data.n_episodes < FEWEST:
            raise DataError(f"{data.name!r} has {data.n_episodes} episodes; at least {FEWEST} are needed to compare two datasets.")
    shuffled = some_episodes(old.n_episodes, 2 * MOST_EPISODES, "drift", "old")
    n_anchors = len(shuffled) // 2  # distances are measured to other episodes than those that are compared
    anchors = measured(old, shuffled[:n_anchors], ANCHORS)
    before = measured(old, shuffled[n_anchors:], MOST_STEPS)
    after = measured(new, some_episodes(new.n_episodes, MOST_EPISODES, "drift", "new"), MOST_STEPS)
    return _compared(before, after, Nearest(anchors.seen), bounds(old.statistics))


def bounds(statistics: Statistics) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest recorded number by column, of vectors and numbers."""
    seen = statistics.observation if isinstance(statistics.observation, dict) else {"": statistics.observation}
    found = {f"observation/{key}".rstrip("/"): moments for key, moments in seen.items()} | {"reward": statistics.reward}
    if statistics.action is not None:
        found["action"] = statistics.action
    return {name: ends for column, moments in found.items() for name, ends in _ends(column, moments).items()}


def _ends(name: str, moments: Moments) -> dict[str, tuple[float, float]]:
    if isinstance(moments.min, tuple) and isinstance(moments.max, tuple):
        return {f"{name}[{k}]": ends for k, ends in enumerate(zip(moments.min, moments.max, strict=True))}
    assert not isinstance(moments.min, tuple)
    assert not isinstance(moments.max, tuple)
    return {name: (moments.min, moments.max)}


def _compared(old: Measured, new: Measured, nearest: Nearest, recorded: Mapping[str, tuple[float, float]]) -> Drift:
    pairs = [(a, new.columns[name]) for name, a in old.columns.items() if name in new.columns]
    pairs = [(a, b) for a, b in pairs if np.ptp(np.r_[a.values, b.values]) > 0]
    pairs += [(_of_first(a, old), _of_first(b, new)) for a, b in pairs if a.group == "observation"]
    far = [Column(NEAREST, "nearest", nearest(side.seen), side.episode) for side in (old, new)]
    pairs.append((far[0], far[1]))
    n = old.n_episodes + new.n_episodes
    counts = [
        occurrences(np.r_[a.values, b.values], np.r_[a.episode, b.episode + old.n_episodes], n, kinds=a.kinds) for a, b in pairs
    ]
    distances, p = compare(counts, [a.kinds for a, _ in pairs], old.n_episodes)
    made = [_told(a, b, float(d), float(chance), recorded) for (a, b), d, chance in zip(pairs, distances, p, strict=True)]
    made.sort(key=lambda column: (-column.distance, column.name))
    return Drift(tuple(made), old.n_episodes, new.n_episodes, len(old.episode), len(new.episode))


def _of_first(column: Column, side: Measured) -> Column:
    named = {"name": FIRST + column.name, "group": FIRST + column.group}
    return replace(column, **named, values=column.values[side.first], episode=column.episode[side.first])


def _told(old: Column, new: Column, distance: float, p: float, recorded: Mapping[str, tuple[float, float]]) -> ColumnDrift:
    outside = None
    if (ends := recorded.get(old.name)) is not None:
        outside = float(((new.values < ends[0]) | (new.values > ends[1])).mean())
    return ColumnDrift(
        old.name,
        old.group,
        old=float(old.values.mean()),
        new=float(new.values.mean()),
        old_std=float(old.values.std()),
        new_std=float(new.values.std()),
        distance=distance,
        p=p,
        outside=outside,
    )
