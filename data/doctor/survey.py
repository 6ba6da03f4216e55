"""One pass over the rows of a dataset: everything that the checks look at, in memory that does not grow with its columns.

Pieces of rows are read in order, each with the row before and the row after it. What grows with the dataset is 8 bytes for each
episode and each transition, the latter only up to `HASHES`; beyond that, transitions are thinned by their hash, so that equal ones
stay together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..dataset import Dataset
from ..masks import ACTION_MASK
from ..spec import Box, Discrete, Spec
from ..storage.costs import COST
from ..storage.legal import illegal_steps
from ..storage.statistics import Part, measure, merge
from .sample import Piece, Sample, Sampler, first_rows, mix, ordered_sums, pieces, row_hashes

HASHES = 1 << 22
_FOLLOWED = 20  # episodes from which on it is looked at whether one follows on another
_NEAR = 1e-3  # share of an action's range that counts as its bound

Advance = Callable[[int], object]


@dataclass
class Column:
    """Summary of one column. Numbers are of finite rows that are steps; entries are those of vectors, images count as one."""

    dtype: str
    shape: tuple[int, ...]
    bad: int = 0  # rows, closing rows too, with NaN or infinity
    first_bad: int | None = None  # logical row
    moments: Part | None = None
    at_low: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # steps that hold exactly the smallest value
    at_high: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def std(self) -> np.ndarray:
        assert self.moments is not None
        return np.sqrt(self.moments.squares / max(self.moments.count, 1))

    @property
    def is_vector(self) -> bool:
        return len(self.shape) <= 1

    def add(self, values: np.ndarray, steps: np.ndarray, first_row: int) -> None:
        """Add rows of a piece; `steps` is false for closing rows."""
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            good = np.isfinite(values).reshape(len(values), -1).all(1)
            if self.first_bad is None:
                self.first_bad = first_row + int(np.flatnonzero(~good)[0])
            self.bad += int(np.count_nonzero(~good))
            steps = steps & good
        if not steps.any():
            return
        values = values if steps.all() else values[steps]
        part, before = measure(values), self.moments
        self.moments = part if before is None else merge([before, part])
        if self.is_vector:
            self.at_low = _count(values, part.low, self.moments.low, None if before is None else before.low, self.at_low)
            self.at_high = _count(values, part.high, self.moments.high, None if before is None else before.high, self.at_high)


def _count(
    values: np.ndarray, extreme: np.ndarray, overall: np.ndarray, before: np.ndarray | None, counted: np.ndarray
) -> np.ndarray:
    """Count rows with the overall extreme of each entry: of this piece, and of earlier ones that shared it."""
    fresh = np.where(extreme == overall, np.count_nonzero(values == extreme, axis=0), 0)
    return np.atleast_1d(fresh if before is None else fresh + np.where(before == overall, counted, 0).reshape(fresh.shape))


class Survey:
    """Facts that the checks look at: accumulated piece by piece, complete once all pieces have been added.

    Attributes:
        columns: summary of each, but for flags.
        action_counts: [n], how often each discrete action was taken, from the first on; None for other actions.
        outside: steps whose action lies outside the bounds; the farthest by `beyond` times the range.
        at_bounds: [A], steps whose entry lies at a bound; empty where bounds are not known.
        first_rewards: [E], reward of each episode's first step.
        costs: [E], what each episode cost; None where the data have no column `cost`.
        flags_wrong: rows whose flags disagree with the table of episodes; the first is the logical row `first_wrong`.
        n_illegal: steps whose action was not legal by `action_mask`; the first is `first_illegal`.
        episode_hashes: [E] uint64.
        thinned: one of so many transitions has its hash kept.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.names = dataset, list(dataset.kinds)
        flags = ("terminated", "truncated", "closing")
        self.columns = {name: Column(*kind) for name, kind in dataset.kinds.items() if name not in flags}
        self.bounds = action_bounds(dataset)  # low and high of continuous actions; None where they are discrete or unknown
        self.action_counts: np.ndarray | None = None
        self.outside, self.beyond = 0, 0.0
        self.at_bounds = np.zeros(0 if self.bounds is None else len(self.bounds[0]), np.int64)
        n = len(dataset.episodes)
        self.first_rewards, self.episode_hashes = np.zeros(n), np.zeros(n, np.uint64)
        self.costs = np.zeros(n) if COST in self.columns else None
        self.n_zero_rewards = self.flags_wrong = self.n_illegal = 0
        self.first_wrong: int | None = None
        self.first_illegal: int | None = None
        self._bits = max(0, math.ceil(math.log2(max(dataset.n_transitions, 1) / HASHES)))
        self.thinned = 1 << self._bits
        self._hashed, self._hashes = sorted(name for name in self.names if is_observation(name)), list[np.ndarray]()
        self._sampler, self._first = Sampler(dataset), first_action(dataset.spec)

    @cached_property
    def sample(self) -> Sample:
        return self._sampler.result()

    @cached_property
    def transition_hashes(self) -> np.ndarray:
        """[<= HASHES] uint64, sorted."""
        return np.sort(np.concatenate(self._hashes)) if self._hashes else np.zeros(0, np.uint64)

    @property
    def observations(self) -> dict[str, Column]:
        return {name: column for name, column in self.columns.items() if is_observation(name)}

    @cached_property
    def of_decisions(self) -> bool:
        """True if every step is an independent decision, as a bandit's: all episodes have one step, and none continues another.

        Steps that do continue, as those of a task whose ends were misread, begin nearer to the one before than to any other.
        """
        episodes, first = self.dataset.episodes, self.sample.first
        bootstrapped = ~np.asarray(episodes.terminated) & np.asarray(episodes.final_recorded)
        if (np.asarray(episodes.steps) != 1).any() or bootstrapped.any():
            return False
        moving = first[:, first.std(0) > 0] / first.std(0)[first.std(0) > 0]
        if not moving.size or len(moving) < _FOLLOWED:
            return True
        next_one, any_one = (np.median(np.square(moving - np.roll(moving, -k, 0)).sum(1)) for k in (1, len(moving) // 2))
        return bool(next_one > any_one / 2)

    def entries(self, column: str, n: int) -> list[str]:
        """Name the n entries of a column as a person finds them."""
        return [f"{column} {name}".strip() for name in self.dataset.spec.entry_names(column, n)]

    def place(self, row: int) -> str:
        """Name a logical row by its step and episode."""
        first = first_rows(self.dataset)
        episode = int(np.searchsorted(first, row, side="right")) - 1
        return f"step {row - int(first[episode]):,} of episode {episode:,}"

    def add(self, piece: Piece) -> None:
        steps = ~piece.closing
        for name, column in self.columns.items():
            column.add(piece.rows(name), steps, piece.start)
        self._flags(piece)
        self._actions(piece.rows("action")[steps])
        if ACTION_MASK in self.columns:
            self._legal(piece, steps)
        reward = piece.rows("reward")
        self.n_zero_rewards += int(np.count_nonzero(reward[steps] == 0))
        begins = np.flatnonzero(piece.position == 0)
        self.first_rewards[piece.episode[begins]] = reward[begins]
        if self.costs is not None:
            np.add.at(self.costs, piece.episode[steps], piece.rows(COST)[steps])
        self._hash(piece, steps)
        self._sampler.add(piece)

    def _flags(self, piece: Piece) -> None:
        episodes, last = self.dataset.episodes, piece.position == np.asarray(self.dataset.episodes.steps)[piece.episode] - 1
        ends = np.asarray(episodes.terminated)[piece.episode]
        expected = {"closing": piece.closing, "terminated": last & ends, "truncated": last & ~ends}
        wrong = np.zeros(piece.n, bool)
        for name, flags in expected.items():
            if name in self.names:
                wrong |= piece.rows(name).astype(bool) != flags
        if wrong.any():
            self.flags_wrong += int(np.count_nonzero(wrong))
            if self.first_wrong is None:
                self.first_wrong = piece.start + int(np.flatnonzero(wrong)[0])

    def _actions(self, action: np.ndarray) -> None:
        if action.ndim == 1 and action.dtype.kind in "iu" and len(action):
            counts = np.bincount(np.maximum(action - self._first, 0), minlength=getattr(self.dataset.spec.action, "n", 0))
            if self.action_counts is None:
                self.action_counts = counts.astype(np.int64)
            else:
                wide = max(len(counts), len(self.action_counts))
                self.action_counts = np.pad(self.action_counts, (0, wide - len(self.action_counts))) + np.pad(
                    counts, (0, wide - len(counts))
                )
        if self.bounds is None or not len(action):
            return
        flat = action.reshape(len(action), -1)
        low, high = (bound.astype(flat.dtype) for bound in self.bounds)
        self.outside += int(np.count_nonzero(((flat < low) | (flat > high)).any(1)))
        span = np.where(high > low, high - low, 1)
        farthest = np.maximum(low - flat, flat - high) / span
        self.beyond = max(self.beyond, float(np.max(farthest, initial=0.0, where=np.isfinite(farthest))))
        self.at_bounds += np.count_nonzero((flat <= low + _NEAR * span) | (flat >= high - _NEAR * span), axis=0)

    def _legal(self, piece: Piece, steps: np.ndarray) -> None:
        illegal = illegal_steps(piece.rows(ACTION_MASK), piece.rows("action"), self._first) & steps
        self.n_illegal += int(np.count_nonzero(illegal))
        if self.first_illegal is None and illegal.any():
            self.first_illegal = piece.start + int(illegal.argmax())

    def _hash(self, piece: Piece, steps: np.ndarray) -> None:
        seen = row_hashes([piece.columns[name] for name in self._hashed])
        here, after = seen[piece.before :][: piece.n], seen[piece.before + 1 :][: piece.n]
        after = np.pad(after, (0, piece.n - len(after)))  # the very last row is a closing one
        did = row_hashes([piece.rows("action"), piece.rows("reward"), piece.rows("terminated")])
        hashes = mix(here ^ mix(after ^ did))[steps]
        self.episode_hashes += ordered_sums(hashes, piece.position[steps], piece.episode[steps], len(self.episode_hashes))
        self._hashes.append(hashes[hashes >> np.uint64(64 - self._bits) == 0] if self._bits else hashes)


def is_observation(name: str) -> bool:
    return name.partition("/")[0] == "observation"


def first_action(spec: Spec) -> int:
    """Return the number of the first discrete action; 0 for other kinds."""
    return spec.action.start if isinstance(spec.action, Discrete) else 0


def action_bounds(dataset: Dataset) -> tuple[np.ndarray, np.ndarray] | None:
    """Return finite bounds of continuous actions, [A] each."""
    space = dataset.spec.action
    bounds = space.bounds() if isinstance(space, Box) else None
    if bounds is None or not all(np.isfinite(bound).all() for bound in bounds):
        return None
    low, high = (bound.reshape(-1) for bound in bounds)
    return low, high


def survey(dataset: Dataset, advance: Advance | None = None) -> Survey:
    """Read every row once; `advance` is called with 1 after each piece. Raises DataError where a file is missing or truncated."""
    seen = Survey(dataset)
    for piece in pieces(dataset):
        seen.add(piece)
        if advance is not None:
            advance(1)
    return seen
