"""Tianshou's replay buffers: the HDF5 file of `save_hdf5`, or a pickle of the buffer, of which no code is run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np

from ..errors import DataError
from ..storage.steps import steps_from_arrays
from .arrays import Array, flags, one_column, same_rows
from .format import RENAME, Imported, Plan, StepFormat, row_stretches, where
from .hdf5.arrays import arrays_below, attribute, find, find_group, is_hdf5, listed, open_hdf5, read_rows, scalar
from .untrusted import restricted_pickle
from .untrusted.archives import head
from .untrusted.restricted_pickle import KeptObject
from .untrusted.values import leaves, names_in, plain

ROWS, _KIND = "_meta", "__data_type__"  # the rows of a buffer, a Batch; what an array was before it was written
NAMES = {  # d3ray's word: Tianshou's
    "observations": ("obs",),
    "actions": ("act",),
    "rewards": ("rew",),
    "next_observations": ("obs_next",),
    "terminated": ("terminated", "done"),  # before version 0.5 `done` alone
    "truncated": ("truncated",),
}
REQUIRED = ("observations", "actions", "rewards", "terminated")
_BUFFERS = {
    **dict.fromkeys(("base", "buffer_base"), ("ReplayBuffer",)),
    "prio": ("PrioritizedReplayBuffer",),
    "her": ("HERReplayBuffer",),
    "cached": ("CachedReplayBuffer",),
    "manager": ("ReplayBufferManager", "PrioritizedReplayBufferManager", "HERReplayBufferManager"),
    "vecbuf": ("VectorReplayBuffer", "PrioritizedVectorReplayBuffer", "HERVectorReplayBuffer"),
}
_CLASSES: dict[tuple[str, str], Any] = {
    **{(f"tianshou.data.buffer.{module}", name): KeptObject for module, names in _BUFFERS.items() for name in names},
    ("tianshou.data.batch", "Batch"): KeptObject,
    ("tianshou.data.utils.segtree", "SegmentTree"): KeptObject,
    ("numpy.random._pickle", "__randomstate_ctor"): KeptObject,
    ("numpy.random._pickle", "__bit_generator_ctor"): KeptObject,
    ("numpy.random._mt19937", "MT19937"): KeptObject,
}


class Tianshou(StepFormat):
    """Steps of a Tianshou replay buffer, the oldest first, those of each environment together.

    Reads obs [N, ...] (or a group of such arrays), act, rew, terminated, truncated (in versions before 0.5 done, which becomes
    terminated), obs_next where it was kept, and info/*: each array of N numbers becomes the column `info/NAME`.

    Traps, and what is done:
    - A buffer has room for more rows than it holds: only those that were filled are read.
    - A full one goes on at its beginning: the oldest row comes first, and what is left of its episode is an episode.
    - A buffer of several environments has a part for each, and each part's last episode ends as truncated.
    - An episode ends at terminated, truncated, the last row of its part, and where obs_next is not the next row's obs.
    - Without obs_next (ignore_obs_next) final observations are missing.
    - With stack_num above 1 observations are the frames that stacks are made of: `sampler.frames` makes them again.
    - A pickle names Tianshou's classes; what they hold is read, and none of them is imported. Tensors in it are refused.

    Source: Tianshou 2.0.1, `tianshou/data/buffer/buffer_base.py`, `manager.py` and `tianshou/data/utils/converter.py`.
    """

    name = "tianshou"
    description = "Tianshou's replay buffers, of save_hdf5 or pickled"
    rename: Mapping[str, str] = RENAME

    @classmethod
    def detect(cls, path: Path) -> bool:
        if not is_hdf5(path):
            start = head(path, 256, unpacked=True)
            return start[:1] == b"\x80" and b"tianshou.data.buffer" in start
        with open_hdf5(path) as file:
            rows = find_group(file, ROWS)
            return rows is not None and {"obs", "act"} <= set(rows)

    def plan(self, path: Path, n_bytes: int | None) -> Plan:
        source = str(path)
        with _open(path, self.rename) as buffer:
            rows, last = buffer.order()
            end_names = [word for word in ("terminated", "truncated") if word in buffer.found]
            ends = {word: flags(source, name := buffer.found[word], buffer.read(name, _runs(rows))) for word in end_names}
            row_bytes = sum(a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in buffer.columns.values())
            stack, notes = buffer.state("stack_num"), list(buffer.notes)
        truncated = ends.get("truncated", np.zeros(len(rows), bool))
        terminated = ends["terminated"] & ~truncated if buffer.found["terminated"] == "done" else ends["terminated"]
        if isinstance(stack, int) and stack > 1:
            notes.append(
                f"The buffer stacked {stack} frames when it was asked: observations are frames, train with sampler.frames={stack}."
            )
        terminated, truncated = self.limited(source, terminated, (truncated | last) & ~terminated, notes, may_cut=False)
        stretches = row_stretches(terminated | truncated, n_bytes // row_bytes if n_bytes and is_hdf5(path) else None)
        return Plan(
            tuple(partial(self._read, path, one.start, _runs(rows[one]), terminated[one], truncated[one]) for one in stretches),
            tuple(row_bytes * (one.stop - one.start) for one in stretches),
            notes=tuple(notes),
            said=partial(self.on_ends, limits_known="truncated" in ends),
        )

    def _read(self, path: Path, start: int, runs: list[slice], terminated: Array, truncated: Array) -> Imported:
        source = where(path, start)
        with _open(path, self.rename) as buffer:
            found = buffer.found
            steps = steps_from_arrays(
                plain(buffer.tree(found["observations"], runs)),
                self.actions(source, buffer.read(found["actions"], runs)),
                one_column(source, found["rewards"], buffer.read(found["rewards"], runs)),
                terminated,
                truncated,
                next_observations=plain(buffer.tree(found["next_observations"], runs)) if "next_observations" in found else None,
                extra={name: buffer.read(name, runs) for name in buffer.infos},
                source=source,
            )
        return Imported(steps)


@dataclass(frozen=True)
class _Buffer:
    """A buffer, in a file or in memory."""

    source: str
    columns: Mapping[str, Any]  # of its rows, by their names in the Batch, groups joined by "/": N rows each, filled or not
    found: Mapping[str, str]  # the name of each of d3ray's words that is there; of a group, its own
    infos: list[str]  # columns beside these, of a number a row
    notes: list[str]  # sentences on what is not read
    state: Callable[[str], Any]  # what the buffer says of itself by such a name: a number, an array, or None

    def order(self) -> tuple[Array, Array]:
        """Order the filled rows, environment by environment and there the oldest first, and mark the last of each [N]."""
        size = len(self.columns[self.found["rewards"]])
        offset, length, newest = (_whole(self.state(name)) for name in ("_offset", "_lengths", "last_index"))
        if offset is None or length is None or newest is None:
            index = self.state("_insertion_idx")
            begin = self.state("_index") if index is None else index
            offset, length, newest = np.array([0]), _whole(self.state("_size")), np.array([(begin or 0) - 1])
        if length is None or not len(offset) == len(length) == len(newest):
            raise DataError(f"{self.source} does not say which of its rows are filled.")
        parts: list[Array] = []
        for first, n, at, stop in zip(offset, length, newest, np.append(offset[1:], size), strict=True):
            if not 0 <= n <= stop - first or not 0 <= first <= stop <= size:
                raise DataError(f"{self.source} says that {n} rows are filled, and has room for {stop - first} there.")
            parts.append(first + (np.arange(n) + (at - first + 1 if n == stop - first else 0)) % max(n, 1))
        rows, last = np.concatenate(parts), np.cumsum([len(part) for part in parts if len(part)]) - 1
        if not len(rows):
            raise DataError(f"{self.source} has no steps: none of its {size} rows is filled.")
        return rows, np.isin(np.arange(len(rows)), last)

    def read(self, name: str, runs: Sequence[slice]) -> Array:
        column = self.columns[name]
        parts = [read_rows(column, name, run) if isinstance(column, h5py.Dataset) else column[run] for run in runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def tree(self, name: str, runs: Sequence[slice]) -> dict[str, Array]:
        """Read the arrays of an observation, by key; "" of a plain one."""
        return {column.removeprefix(name).removeprefix("/"): self.read(column, runs) for column in _inside(name, self.columns)}


def _runs(rows: Array) -> list[slice]:
    """Group rows that follow each other into slices."""
    first = np.flatnonzero(np.append(True, np.diff(rows) != 1))
    return [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, first[1:])]


def _inside(name: str, columns: Mapping[str, Any]) -> list[str]:
    return [column for column in columns if column == name or column.startswith(f"{name}/")]


def _whole(value: Any) -> Array | None:
    return None if value is None else np.asarray(value, np.int64).reshape(-1)


@contextmanager
def _open(path: Path | str, rename: Mapping[str, str]) -> Generator[_Buffer]:
    source = str(path)
    if not is_hdf5(Path(path)):
        held = restricted_pickle.load(path, names=_CLASSES)
        state = held.state if isinstance(held, KeptObject) else None
        batch = state.get(ROWS) if isinstance(state, dict) else None
        if not isinstance(batch, KeptObject) or not isinstance(batch.state, dict):
            raise DataError(f"{source} is no pickle of one of Tianshou's buffers with steps in it.")
        yield _buffer(source, _columns(source, batch.state), cast("dict[str, Any]", state).get, rename)
        return
    with open_hdf5(path) as file:
        rows = find_group(file, ROWS)
        if rows is None:
            raise DataError(f"{source} is not a Tianshou file: it has no {ROWS!r}, only {listed(file)}.")
        columns = dict(sorted(arrays_below(rows, f"{source}: {ROWS!r}")))

        def said(name: str) -> Any:
            if (value := attribute(file, name)) is not None:
                return np.asarray(value).item()
            return read_rows(array, name) if (array := find(file, name)) is not None and array.shape else scalar(file, name)

        yield _buffer(source, columns, said, rename)


def _columns(source: str, batch: Mapping[str, Any]) -> dict[str, Array]:
    """Flatten a Batch's state to arrays by path; lists of objects are left where they are."""
    found: dict[str, Array] = {}
    for name, value in batch.items():
        held = value.state if isinstance(value, KeptObject) else value
        if isinstance(held, dict):
            found |= {f"{name}/{key}": column for key, column in _columns(source, held).items()}
        elif isinstance(held, np.ndarray):
            found |= {str(name): column for column in leaves(source, str(name), held).values()}
    return found


def _buffer(source: str, there: Mapping[str, Any], state: Callable[[str], Any], rename: Mapping[str, str]) -> _Buffer:
    tops = dict.fromkeys(name.partition("/")[0] for name in there)
    found = names_in([*tops, *there], NAMES, REQUIRED, source, rename, "tianshou")
    needed = {name: there[name] for word in found.values() for name in _inside(word, there)}
    for name, column in needed.items():
        if isinstance(column, h5py.Dataset) and attribute(column, _KIND) == "pickled_ndarray":
            raise DataError(f"{source}: {name!r} holds Python objects, not numbers.")
    n = same_rows(source, **needed)
    infos = {name: a for name, a in there.items() if name.startswith("info/") and a.shape == (n,) and a.dtype.kind in "biuf"}
    left = sorted(there.keys() - needed.keys() - infos.keys() - {"done"})
    said = [f"Left out: {', '.join(left[:8])}{' and more' if len(left) > 8 else ''}."] if left else []
    return _Buffer(source, needed | infos, found, list(infos), said, state)
