"""In which order a stream goes through a dataset: slices of whole episodes, epoch after epoch in blocks of slices from everywhere.

All of it follows from the table of episodes, the settings and a seed: where the stream is at a step takes no reading, and nothing
has to be remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from ..errors import ConfigError
from ..seeds import fold, many_integers, root_key
from ..storage.episode_table import EpisodeTable
from ..storage.rows import ranges

_EPOCHS = 2  # whose order is known at a time: the present one's, and the next one's


@dataclass(frozen=True, eq=False)
class Block:
    """Block of episodes in memory at once, and its places in the stream.

    Attributes:
        epoch: From 0.
        number: Within the epoch, from 0.
        start, stop: The stream's places that are drawn from it, counted through all epochs.
        episodes: [E] int64, in the order of their rows.
    """

    epoch: int
    number: int
    start: int
    stop: int
    episodes: np.ndarray


class Slices:
    """A dataset cut into slices of whole episodes that lie back to back, and the order in which a stream takes them.

    In every epoch each slice comes once. Blocks of about as many slices, and as many rows, follow each other.

    Args:
        episodes: Of the dataset.
        drawable: [E] int64, how many transitions of each may be drawn; an episode of none is never read.
        rows: That a block may have, closing rows included.
        slices: That a block has, about.
        order: The seed of the order.

    Attributes:
        n: Transitions that may be drawn, each once in an epoch.
        size: Names of transitions lie below it.
        n_rows: Of an epoch, closing rows included.

    Raises:
        ConfigError: an episode is longer than a block.
    """

    def __init__(self, episodes: EpisodeTable, drawable: np.ndarray, rows: int, slices: int, order: int) -> None:
        first_row, length = np.asarray(episodes.first_row, np.int64), np.asarray(episodes.steps, np.int64) + 1
        by_row = np.argsort(first_row, kind="stable")
        self._episodes = by_row[drawable[by_row] > 0]
        length, drawn = length[self._episodes], drawable[self._episodes]
        if (longest := int(length.max(initial=0))) + rows // slices > rows:
            raise ConfigError(f"An episode has {longest:,} rows, and a block of the stream room for {rows:,}: raise its memory.")
        slice_of = (np.cumsum(length) - length) // max(1, rows // slices)  # a slice has less than an episode more than its share
        begins = np.flatnonzero(np.diff(slice_of, prepend=-1))  # of each slice its first episode, among those that are read
        self._begins, self._ends = begins, np.append(begins[1:], len(length))
        self._rows, self._drawn = np.add.reduceat(length, begins), np.add.reduceat(drawn, begins)
        total, largest = int(length.sum()), int(self._rows.max())
        self.n = self.size = int(drawn.sum())
        self.n_rows = total
        self._n_blocks = 1 if total <= rows else min(len(begins), -(-total // max(1, rows - largest)))
        self._capacity, self._key = rows, fold(root_key(order), "stream")
        self._epochs: OrderedDict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = OrderedDict()

    def at(self, place: int) -> Block:
        """Find the block that has a place of the stream."""
        epoch, within = divmod(place, self.n)
        _, _, ends = self._epoch(epoch)
        return self.block(epoch, int(np.searchsorted(ends, within, side="right")))

    def after(self, block: Block) -> Block:
        return self.at(block.stop)

    def block(self, epoch: int, number: int) -> Block:
        order, cuts, ends = self._epoch(epoch)
        mine = np.sort(order[cuts[number] : cuts[number + 1]])
        episodes = self._episodes[ranges(self._begins[mine], (self._ends - self._begins)[mine])]
        start = int(ends[number - 1]) if number else 0
        return Block(epoch, number, epoch * self.n + start, epoch * self.n + int(ends[number]), episodes)

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the slices in order, where each block begins and ends among them, and the places below which blocks end."""
        if epoch not in self._epochs:
            while len(self._epochs) >= _EPOCHS:
                self._epochs.popitem(last=False)
            order = np.argsort(many_integers(fold(self._key, epoch), len(self._rows), 1 << 62), kind="stable")
            ends = np.cumsum(self._rows[order])
            cuts = _fill(ends, self._capacity, self._n_blocks)
            self._epochs[epoch] = order, cuts, np.cumsum(self._drawn[order])[cuts[1:] - 1]
        return self._epochs[epoch]


def _fill(ends: np.ndarray, capacity: int, n_blocks: int) -> np.ndarray:
    """Cut slices, below whose ends [S] so many rows lie, into about `n_blocks` blocks that fit: [blocks + 1] int64."""
    cuts, share = [0], int(ends[-1]) / n_blocks
    while cuts[-1] < len(ends):
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        even = int(np.searchsorted(ends, share * len(cuts)))  # with this slice the share of all blocks so far is full
        most = int(np.searchsorted(ends, before + capacity, side="right")) - 1
        cuts.append(max(cuts[-1], min(even, most, len(ends) - 1)) + 1)
    return np.asarray(cuts)
