"""A deterministic sample of transitions with what came before and after: for the checks that would cost too much on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..dataset import Dataset
from ..seeds import GOLDEN, SPLITMIX
from ..spec import Box, Discrete, Leaf, MultiDiscrete, space_columns
from ..storage.rows import BLOCK

_WORD = np.uint64
_GOLDEN = _WORD(GOLDEN & (2**64 - 1))
_MULTIPLIERS = tuple(_WORD(constant & (2**64 - 1)) for constant in SPLITMIX)


def mix(x: np.ndarray) -> np.ndarray:
    """Apply splitmix64's finaliser to uint64 of any shape."""
    x = (x ^ (x >> _WORD(30))) * _MULTIPLIERS[0]
    x = (x ^ (x >> _WORD(27))) * _MULTIPLIERS[1]
    return x ^ (x >> _WORD(31))


def row_hashes(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Hash rows of columns [N, ...] to [N] uint64; -0.0 and 0.0 differ, as their bytes do."""
    total, first = None, 1
    for column in columns:
        words = _words(column)
        keys = mix(np.arange(first, first + words.shape[1], dtype=_WORD) * _GOLDEN) | _WORD(1)
        first += words.shape[1]
        # Words are mixed before they are weighed: a change of two signs alone would cancel in a plain weighted sum.
        part = (((words ^ (words >> _WORD(32))) * _MULTIPLIERS[0] >> _WORD(7)) ^ words) @ keys
        total = part if total is None else total + part
    assert total is not None, "There is no column."
    return mix(total)


def _words(column: np.ndarray) -> np.ndarray:
    """View the bytes of each row as [N, W] uint64, padded with zeros."""
    flat = np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8)
    if short := -flat.shape[1] % 8:
        flat = np.pad(flat, ((0, 0), (0, short)))
    return flat.view(_WORD)


def ordered_sums(hashes: np.ndarray, position: np.ndarray, segment: np.ndarray, n_segments: int) -> np.ndarray:
    """Hash each segment's rows in their order, [n_segments] uint64; sums of parts of a segment add up."""
    total = np.zeros(n_segments, _WORD)
    if len(hashes):
        starts = np.flatnonzero(np.r_[True, np.diff(segment) != 0])
        total[segment[starts]] = np.add.reduceat(mix(hashes + position.astype(_WORD) * _GOLDEN), starts)
    return total


_BYTES = 1 << 25  # of a piece's rows; fewer rows of images than of vectors are read at once


@dataclass(frozen=True)
class Piece:
    """Rows `start` … `start + n - 1` in [before, before + n) of the arrays; up to one more row lies on either side."""

    start: int
    before: int
    n: int
    columns: Mapping[str, np.ndarray]
    episode: np.ndarray  # [n]
    position: np.ndarray  # [n]: step in the episode
    closing: np.ndarray  # [n] bool, by the table of episodes

    def rows(self, name: str, shift: int = 0) -> np.ndarray:
        """Take [n, ...] of a column, with shift 1 one row later (fewer at the very end of the data)."""
        return self.columns[name][self.before + shift : self.before + shift + self.n]


def n_pieces(dataset: Dataset) -> int:
    """Count the calls of `advance` that `survey` makes."""
    return -(-dataset.n_rows // _rows_at_once(dataset))


def _rows_at_once(dataset: Dataset) -> int:
    wide = sum(np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in dataset.kinds.values())
    return max(1, min(BLOCK, _BYTES // max(wide, 1)))


def pieces(dataset: Dataset) -> Iterator[Piece]:
    steps, first, rows = np.asarray(dataset.episodes.steps, np.int64), first_rows(dataset), dataset.rows()
    at_once = _rows_at_once(dataset)
    for start in range(0, rows.n, at_once):
        stop = min(start + at_once, rows.n)
        begin, end = max(start - 1, 0), min(stop + 1, rows.n)
        columns = {name: rows.read(name, begin, end) for name in rows.names()}
        row = np.arange(start, stop)
        a, b = np.searchsorted(first, [start, stop - 1], side="right")
        episode = np.repeat(np.arange(a - 1, b), np.diff(np.r_[start, first[a:b], stop]))
        position = row - first[episode]
        yield Piece(start, start - begin, stop - start, columns, episode, position, position == steps[episode])


def first_rows(dataset: Dataset) -> np.ndarray:
    """Return the logical row that each episode begins with, [E] int64."""
    rows = np.asarray(dataset.episodes.steps, np.int64) + 1
    return np.cumsum(rows) - rows


N = 20_000
N_WIDE = 5_000  # where an observation has more than WIDE entries
WIDE = 256  # entries of an observation that are kept as they are; of more, random projections are
PROJECTIONS = 64
FIRST = 256  # episodes whose first observation is kept
ONE_HOT = 64  # kinds, in all entries of a column; more are left as numbers


@dataclass(frozen=True)
class Sample:
    """M transitions in the order of the data.

    Where `inner` is false a transition is the first or last of its episode, and a reward beside it is another episode's.
    """

    state: np.ndarray  # [M, D] float32: observations, or projections of them
    after: np.ndarray  # [M, D]: the next observation
    action: np.ndarray  # [M, A] float32; numbers of kinds as zeros and a one
    label: np.ndarray | None  # [M] int64: the discrete action; None for others
    continuous: bool  # whether actions are real numbers
    reward: np.ndarray  # [M, 3] float64: of the step before, of this one, of the step after
    episode: np.ndarray  # [M] int64
    inner: np.ndarray  # [M] bool
    raw: dict[str, np.ndarray]  # observation columns that are vectors, as they are
    following: dict[str, np.ndarray]  # the same columns one row later
    first: np.ndarray  # [min(E, 256), D]: what episodes began with

    def __len__(self) -> int:
        return len(self.episode)


def chosen(n: int, m: int, name: str) -> np.ndarray:
    """Choose one number from each of m equal parts of 0 … n - 1, ascending and always the same: [min(n, m)] int64."""
    if n <= m:
        return np.arange(n)
    from ..random import fold, root_key, uniform  # of torch, which takes a second to import

    edges = np.arange(m + 1) * n // m
    draws = uniform(fold(root_key(0), f"doctor {name}"), (m,)).double().numpy()
    return edges[:-1] + np.floor(draws * np.diff(edges)).astype(np.int64)


class Sampler:
    """Gathers a `Sample` while pieces go by."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        sizes = {name: int(np.prod(shape, dtype=np.int64)) for name, (_, shape) in dataset.kinds.items()}
        self._names = sorted(name for name in sizes if name.partition("/")[0] == "observation")
        width = sum(sizes[name] for name in self._names)
        index = chosen(dataset.n_transitions, N_WIDE if width > WIDE else N, "sample")
        steps = np.asarray(dataset.episodes.steps, np.int64)
        before = np.searchsorted(np.cumsum(steps), index, side="right")  # episodes before, each with one closing row
        self._rows = index + before
        self._leaves = {**space_columns(dataset.spec.observation), "action": dataset.spec.action}
        self._projection: dict[str, np.ndarray] = {}
        if width > WIDE:
            from ..random import fold, normal, root_key

            for name in self._names:
                dtype, shape = dataset.kinds[name]
                size = _numbers(np.zeros((1, *shape), dtype), self._leaves.get(name)).shape[1]
                draws = normal(fold(root_key(0), f"doctor {name}"), (size, PROJECTIONS)).numpy()
                self._projection[name] = draws / np.sqrt(size)
        self._vectors = [name for name in self._names if len(dataset.kinds[name][1]) <= 1 and sizes[name] <= WIDE]
        self._parts: list[dict[str, np.ndarray]] = []
        self._first: list[np.ndarray] = []

    def add(self, piece: Piece) -> None:
        if len(begins := np.flatnonzero((piece.position == 0) & (piece.episode < FIRST))):
            self._first.append(self._features(piece, begins + piece.before))
        a, b = np.searchsorted(self._rows, [piece.start, piece.start + piece.n])
        if a == b:
            return
        local = self._rows[a:b] - piece.start
        at = local + piece.before
        reward = piece.columns["reward"].astype(np.float64)
        position, episode = piece.position[local], piece.episode[local]
        steps = np.asarray(self._dataset.episodes.steps)[episode]
        self._parts.append(
            {
                "state": self._features(piece, at),
                "after": self._features(piece, at + 1),
                "action": piece.columns["action"][at],
                "reward": np.stack([reward[np.maximum(at - 1, 0)], reward[at], reward[at + 1]], 1),
                "episode": episode,
                "inner": (position > 0) & (position < steps - 1),
                **{f"raw {name}": piece.columns[name][at] for name in self._vectors},
                **{f"following {name}": piece.columns[name][at + 1] for name in self._vectors},
            }
        )

    def _features(self, piece: Piece, at: np.ndarray) -> np.ndarray:
        parts: list[np.ndarray] = []
        for name in self._names:
            values = piece.columns[name][at]
            flat = _numbers(values, self._leaves.get(name))
            if values.dtype == np.uint8 and values.ndim > 2:
                flat /= 255
            parts.append(flat @ self._projection[name].astype(np.float32) if name in self._projection else flat)
        return np.concatenate(parts, 1)

    def result(self) -> Sample:
        whole = {key: np.concatenate([part[key] for part in self._parts]) for key in self._parts[0]}
        action, leaf = whole["action"], self._leaves["action"]
        return Sample(
            whole["state"],
            whole["after"],
            _numbers(action, leaf),
            action.astype(np.int64) - leaf.start if isinstance(leaf, Discrete) and action.ndim == 1 else None,
            isinstance(leaf, Box),
            whole["reward"],
            whole["episode"],
            whole["inner"],
            {name: whole[f"raw {name}"] for name in self._vectors},
            {name: whole[f"following {name}"] for name in self._vectors},
            np.concatenate(self._first),
        )


def _numbers(values: np.ndarray, leaf: Leaf | None) -> np.ndarray:
    """Flatten values [N, ...] to [N, D] float32: few kinds as zeros and a one, all else as it is."""
    nvec = (leaf.n,) if isinstance(leaf, Discrete) else leaf.nvec if isinstance(leaf, MultiDiscrete) else ()
    flat = values.reshape(len(values), -1)
    if nvec and leaf.start:  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        flat = flat - np.asarray(leaf.start)  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    if not nvec or sum(nvec) > ONE_HOT or len(nvec) != flat.shape[1]:
        return flat.astype(np.float32)
    return np.concatenate([flat[:, k, None] == np.arange(n) for k, n in enumerate(nvec)], 1).astype(np.float32)
