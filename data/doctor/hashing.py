"""A 64-bit hash of each row of some columns, by array arithmetic: equal rows have equal hashes, and others do not in practice."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..seeds import GOLDEN, SPLITMIX

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
