"""Draws from data that no machine can map: block after block of slices from everywhere, read ahead while a block is drawn from.

A block is whole episodes in memory, and what is drawn from it is drawn by the sampler that draws from any dataset: windows of n
steps, stacks of frames and stretches are right at its borders because no episode crosses them.

What a stream is not: uniform over all data at every step. Each transition comes once an epoch, and in a batch are those of the
slices that are in memory then. All seeds of a stack see the same blocks, each in an order of its own within them, so row k of a
stack draws what seed k draws alone, and blocks are read once for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..batch import joined
from ..episodes import Episodes
from ..errors import ConfigError, DataError
from ..random import fold, permute
from ..recording import Recording
from ..storage.costs import COST
from ..storage.episode_table import EpisodeTable
from ..storage.rows import EpisodeRows, Memory
from .base import Experience, Sampler, needed_names
from .returns import COSTS, MADE
from .sequences import SequenceSampler
from .slices import Block, Slices
from .transitions import TransitionSampler
from .windows import Place, Until, Windows, drawable_steps

_MB = 1 << 20
_PIECE = 1 << 22  # bytes read at once: what is copied on the way takes no more
_ASKED = 16  # pieces that an object store is asked for at once


class Position(NamedTuple):
    """Where a stream is: before the batch `batch` of the block `block` of the epoch `epoch`, all counted from 0."""

    epoch: int
    block: int
    batch: int


class StreamSampler:
    """Transitions of a dataset, or stretches of its episodes, each once an epoch, from slices that are read one block ahead.

    The transitions of epoch after epoch make one stream, as `EpochSampler`'s do: step k takes numbers k B … k B + B - 1 of it. An
    epoch takes the slices in an order of its own, block by block, and a block's transitions in an order of each seed's. Where the
    stream is at a step follows from that alone: nothing has to be kept to go on from there.

    Args:
        dataset: Where from. Of folders only what is drawn from is read, in place; their shards must not be compressed.
        batch_size: B.
        seed: One, or a sequence of S seeds.
        length: T of the stretches that are drawn, as `SequenceSampler`'s; None: single transitions are.
        memory: MB for two blocks: the one that is drawn from and the one that is read meanwhile.
        slices: Of a block, about: stretches of whole episodes that lie back to back. The more, the nearer to uniform.
        order: The seed of the order of slices, which all seeds share.
        **options: As `TransitionSampler`'s, or with `length` as `SequenceSampler`'s.

    Raises:
        ConfigError: it is no dataset, or an episode is longer than a block.
        DataError: nothing can be drawn, a column is missing, or shards are compressed; while drawing, a shard is damaged.
        StorageError: while drawing, a shard cannot be read.

    Attributes:
        windows: The order of the slices.
    """

    grows: ClassVar = False

    def __init__(
        self,
        dataset: Experience,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        length: int | None = None,
        memory: int = 1024,
        slices: int = 256,
        order: int = 0,
        **options: Any,
    ) -> None:
        if not isinstance(dataset, Recording):
            raise ConfigError("A stream is of a dataset: a replay buffer is in memory, and changes while it is drawn from.")
        if batch_size < 1 or memory < 1 or slices < 2:
            raise ConfigError(f"batch_size is {batch_size}, memory {memory} MB and slices {slices}; they are at least 1, 1 and 2.")
        self.source, self.batch_size, self._length = dataset, batch_size, length
        self._seed, self._options = seed, options
        self.n_seeds = 1 if isinstance(seed, int) else len(seed)
        looks: Any = {
            "td_steps": options.get("td_steps", 1) if length is None else 1,
            "bootstrap": options.get("bootstrap", length is None),
            "until": options.get("until", "observation"),
        }
        drawable, _ = drawable_steps(dataset.episodes, **looks)
        if not drawable.any():
            raise DataError(f"The dataset {dataset.name!r} has no transition that can be drawn.")
        self._first_number = np.cumsum(drawable) - drawable
        self._reader = _Reader(
            dataset,
            needed_names(
                dataset.kinds, [COST if n == COSTS else n for n in options.get("extra", ()) if n == COSTS or n not in MADE]
            ),
        )
        rows = memory * _MB // 2 // self._reader.row_bytes
        self.windows = Slices(dataset.episodes, drawable, rows, slices, order)
        self._reader.make_room(min(rows, self.windows.n_rows))
        self._drawn: tuple[Block, _Transitions | _Stretches] | None = None
        self._next = 0

    @property
    def n_windows(self) -> int:
        return self.windows.n

    def between_epochs(self, epoch: int) -> None:
        """Do nothing: a dataset does not change."""

    def position(self, step: int) -> Position:
        block = self.windows.at(step * self.batch_size)
        return Position(block.epoch, block.number, step - -(-block.start // self.batch_size))

    def sample(self, step: int | None = None, size: int | None = None) -> Any:
        """Draw the batch of a step, `Batch` or `Sequences`; see `TransitionSampler.sample`."""
        if step is None:
            step, self._next = self._next, self._next + 1
        place, stop = step * self.batch_size, step * self.batch_size + (size or self.batch_size)
        block, sampler = self._drawn_from(place)
        if stop <= block.stop and size is None:
            return sampler.sample(step - sampler.first_step)
        parts: list[Any] = []
        while True:  # a batch in which blocks meet has some of each
            until = min(stop, block.stop)
            parts.append(sampler.at(sampler.numbers_at(torch.arange(place, until))))
            if until == stop:
                return joined(parts)
            place = until
            block, sampler = self._drawn_from(place)

    def _drawn_from(self, place: int) -> tuple[Block, Any]:
        """Return the block with a place of the stream, and what draws from it."""
        if self._drawn is None or not self._drawn[0].start <= place < self._drawn[0].stop:
            block = self.windows.at(place)
            self._drawn = None  # what was drawn from is overwritten
            recording = self._reader.read(block.episodes)
            within = _Within(block, self._first_number[block.episodes])
            self._drawn = block, self._over(recording, within)
            self._reader.read_ahead(self.windows.after(block).episodes)
        return self._drawn

    def _over(self, recording: Recording, within: _Within) -> _Transitions | _Stretches:
        if self._length is None:
            return _Transitions(within, recording, self.batch_size, self._seed, **self._options)
        return _Stretches(within, recording, self.batch_size, self._length, self._seed, **self._options)


# ---- within a block


@dataclass(frozen=True)
class _Within:
    """Block that a sampler draws from, and its transitions' numbers."""

    block: Block
    first_number: np.ndarray  # [E] of each episode, what the dataset calls its first transition


class _BlockWindows(Windows):
    """Windows of a block, called by their numbers in the dataset."""

    def __init__(self, recording: Recording, first_number: np.ndarray, td_steps: int, **options: Any) -> None:
        super().__init__(recording, td_steps, **options)
        shift = torch.from_numpy(first_number - (np.cumsum(self.drawable) - self.drawable))
        self._shift = shift.to(self._offset.device)

    def locate(self, index: Tensor, *, before: bool = False) -> Place:
        place = super().locate(index, before=before)
        named = index + self._shift[self._episode(index)]
        return Place(named, place.rows, place.left, place.before, place.step)


class _BlockSampler(Sampler):
    """Draws a block's part of the stream; places are those of the stream, and steps count the batches that it has as a whole."""

    _within: _Within

    @property
    def first_step(self) -> int:
        """The stream's step of the first batch that lies in the block."""
        return -(-self._within.block.start // self.batch_size)

    def _open_windows(
        self, td_steps: int = 1, bootstrap: bool = True, frames: int = 1, until: Until = "observation", ahead: int = 0
    ) -> Any:
        options: Any = {"bootstrap": bootstrap, "until": until, "device": self.columns_device}
        return _BlockWindows(self.source, self._within.first_number, td_steps, **options)

    def _draw(self, steps: Tensor) -> Tensor:
        """Draw [len(steps), (S,) B]; zeros of steps that the block has no more: steps are drawn by the hundred."""
        n, b = self._within.block.stop // self.batch_size - self.first_step, self.batch_size
        there = steps[steps < n] + self.first_step
        found = self.numbers_at(there[:, None] * b + torch.arange(b, device=steps.device))
        return torch.cat((found, found.new_zeros(len(steps) - len(there), *found.shape[1:])))

    def numbers_at(self, places: Tensor) -> Tensor:
        """Return what lies at places [..., n] of the stream, as numbers within the block: [..., (S,) n] int64."""
        block, n = self._within.block, self.n_windows
        places = (places.to(self._key.device) - block.start) % n
        key = fold(fold(self._key, block.epoch), block.number)
        return permute(key[..., None], places if key.ndim == 0 else places[..., None, :], n)


class _Transitions(_BlockSampler, TransitionSampler):
    def __init__(self, within: _Within, *given: Any, **options: Any) -> None:
        self._within = within
        super().__init__(*given, **options)


class _Stretches(_BlockSampler, SequenceSampler):
    def __init__(self, within: _Within, *given: Any, **options: Any) -> None:
        self._within = within
        super().__init__(*given, **options)


# ---- reading


class _Reader:
    """Reads columns of a dataset's episodes into memory, one set while another is used."""

    def __init__(self, dataset: Recording, names: Sequence[str]) -> None:
        self._dataset, self._names, self._table = dataset, tuple(names), dataset.source.in_place()
        self._widths = {n: int(np.prod(s, dtype=np.int64)) * np.dtype(t).itemsize for n, (t, s) in dataset.kinds.items()}
        self._rows = 0
        self._rooms: list[dict[str, np.ndarray]] = []  # two at most, each used again and again, so that memory has a bound
        self._have: tuple[np.ndarray, Recording, int] | None = None  # what is used: episodes, and in which room they are
        self._ahead: tuple[np.ndarray, Future[Recording], int] | None = None
        self._thread: ThreadPoolExecutor | None = None
        remote = any(folder.place.local is None for folder in dataset.folders)
        self._asking = ThreadPoolExecutor(_ASKED, "stream") if remote else None  # a disk is as fast for one

    @property
    def row_bytes(self) -> int:
        return sum(self._widths[name] for name in self._names)

    def make_room(self, rows: int) -> None:
        """Say how many rows are read at once, at most."""
        self._rows = rows

    def read(self, episodes: np.ndarray) -> Recording:
        """Return these episodes [E], until the next call; those that were read ahead are there."""
        if self._have is not None and np.array_equal(self._have[0], episodes):
            return self._have[1]
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            found = ahead[1].exception()  # its room is free then, whatever came of it
            if np.array_equal(ahead[0], episodes):
                if found is not None:
                    raise found
                self._have = ahead[0], ahead[1].result(), ahead[2]
                return self._have[1]
        self._have = episodes, self._into(0, episodes), 0
        return self._have[1]

    def read_ahead(self, episodes: np.ndarray) -> None:
        """Begin to read what is wanted next, in a thread of its own."""
        assert self._have is not None
        if np.array_equal(self._have[0], episodes) or self._ahead is not None:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "stream ahead")
        room = 1 - self._have[2]
        self._ahead = episodes, self._thread.submit(self._into, room, episodes), room

    def _into(self, room: int, episodes: np.ndarray) -> Recording:
        while len(self._rooms) <= room:
            kinds = {name: self._dataset.kinds[name] for name in self._names}
            self._rooms.append({name: np.empty((self._rows, *shape), dtype) for name, (dtype, shape) in kinds.items()})
        table = self._dataset.episodes
        first, steps = np.asarray(table.first_row)[episodes], np.asarray(table.steps, np.int64)[episodes]
        rows = EpisodeRows(self._table, first, steps)
        columns = {name: column[: rows.n] for name, column in self._rooms[room].items()}

        def copy(part: tuple[str, int, int]) -> None:
            name, start, stop = part
            columns[name][start:stop] = rows.read(name, start, stop)

        def parts(name: str) -> list[tuple[str, int, int]]:
            step = max(1, _PIECE // self._widths[name])
            return [(name, start, min(start + step, rows.n)) for start in range(0, rows.n, step)]

        run: Callable[..., Any] = map
        if self._asking is not None:
            rows.read("reward", 0, 1)  # where rewards are worked out first, one thread does it
            run = self._asking.map
        for _ in run(copy, [part for name in self._names for part in parts(name)]):
            pass
        terminated, last = np.asarray(table.terminated)[episodes], np.cumsum(steps + 1) - 2
        if not np.array_equal(columns["terminated"][last], terminated):
            raise DataError(f"{self._dataset.name!r} is damaged: its episodes do not end where its table of them says.")
        recorded = np.asarray(table.final_recorded)[episodes]
        source, begins = Memory(columns), np.cumsum(steps + 1) - (steps + 1)
        table = EpisodeTable(begins, steps, terminated, recorded, np.zeros(len(steps)))
        found = Episodes(table, source, self._dataset.spec)
        return Recording(source, found, name=self._dataset.name, spec=self._dataset.spec)
