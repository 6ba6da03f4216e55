"""DQN Replay's checkpoints: a Dopamine replay buffer of Atari frames, each of its arrays in a gzip file of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from ..config import setting
from ..errors import DataError
from ..seeds import fold, integers, root_key
from ..storage.checks import finite
from ..storage.files import sha256_of
from ..storage.steps import StepTable, concat_steps, first_steps, steps_from_rows
from .arrays import Array, flags, native, one_column, same_rows
from .format import Imported, StepFormat
from .untrusted.archives import damaged, head, npy_header, open_gzip, read_npy
from .untrusted.unpacking import needs, unpacking

FILE = re.compile(r"\$store\$_(observation|action|reward|terminal)_ckpt\.(\d+)\.gz")
NAMES = ("observation", "action", "reward", "terminal")
NPY = b"\x93NUMPY"
CHUNK = 1 << 24  # bytes of frames unpacked at once


class DQNReplay(StepFormat):
    """Steps of one checkpoint, oldest first. Frames are unpacked as they are read, into the memory they stay in.

    A checkpoint is `$store$_observation_ckpt.K.gz` [N, 84, 84] uint8, and beside it the same for action, reward and terminal, each
    a NumPy array inside gzip. Observations become [N, 1, 84, 84]: single frames, once each, to be stacked when they are drawn.
    A checkpoint of a million frames needs 7 GB of memory.

    Traps, and what is done:
    - Dopamine writes rows of zeros before each episode (3 of them, `padding`) so that its stacks of frames find something there.
      They are no steps: up to so many rows behind an end that are zero in every array are left out.
    - The buffer is a ring, and DQN Replay was written when one row was still to come: by `add_count_ckpt.K.gz` that row was never
      written, or is a round older. The first is left out, the second becomes the last episode. Without that file, rows are
      taken as they lie, and a note says so.
    - Rewards are those that the agent learned from, clipped to [-1, 1].
    - `terminal` ends an episode. The next frame is not stored then, so the final observation is missing. So it is at the last
      row of a checkpoint, which truncates its episode.
    - Dopamine sets terminal also after 27,000 steps: `timeout_at=27000`.

    Source: DQN Replay (Agarwal et al. 2020, arXiv:1907.04543), `batch_rl/baselines/replay_memory/logged_replay_buffer.py`, and
    Dopamine, `dopamine/replay_memory/circular_replay_buffer.py`.
    """

    name = "dqn_replay"
    description = "DQN Replay's checkpoints, $store$_observation_ckpt.N.gz and beside it"
    padding: int = setting(3, "rows of zeros before each episode that are none of its steps: a stack of 4 frames less one", ge=0)
    share: float | None = setting(
        None,
        "part of the steps that is kept: whole episodes, drawn by the checkpoint's number, the last of which is cut; so d3rlpy's "
        "get_atari_transitions takes 1 % of each of a game's 50 checkpoints",
        gt=0,
        le=1,
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_dir():
            return bool(cls.parts(path))
        return FILE.fullmatch(path.name) is not None and head(path, 6, unpacked=True) == NPY

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        """List the observation files by number: each stands for its checkpoint."""
        found = {int(m[2]): p for p in folder.iterdir() if (m := FILE.fullmatch(p.name)) and m[1] == NAMES[0]}
        return [found[k] for k in sorted(found)]

    def read(self, path: Path) -> Imported:
        group, notes, source, share = _group(path), list[str](), str(path), self.share
        arrays = {name: _small(group[name]) for name in NAMES[1:]}
        with damaged(source), unpacking() as now, open_gzip(path) as stream:
            now.share = 1  # frames are read into the memory that they stay in; those that are drawn are copied twice
            shape = _header(path, stream)
            needs(source, int(math.prod(shape) * (1 + 2 * (share or 0))))
            n = same_rows(str(path.parent), observation=np.broadcast_to(np.uint8(0), shape), **arrays)
            terminal = flags(str(group["terminal"]), "terminal", arrays["terminal"])
            blank = ~terminal & (arrays["action"] == 0) & (arrays["reward"] == 0)
            rows = _Rows(shape[1:], terminal, blank, _stretches(n, group, notes), self.padding)
            for start, frames in _chunks(path, stream, shape):
                rows.add(start, frames)
        if not rows.n:
            raise DataError(f"{path} has no steps.")
        if left := int(rows.padding.sum()):
            notes.append(f"{left} rows of zeros before episodes were left out: they are Dopamine's padding, no steps.")
        origin, closing = rows.origin[: rows.n], rows.closing[: rows.n]
        ended, steps = terminal[origin] & ~closing, ~closing
        cut = np.r_[closing[1:], False] & steps & ~ended
        ended[steps], cut[steps] = self.limited(source, ended[steps], cut[steps], notes, may_cut=False)
        action = self.actions(source, arrays["action"])[origin]
        with np.errstate(over="ignore"):  # what is too large is found below
            reward = arrays["reward"].astype(np.float32)[origin]
        finite(f"In {path}, rewards", reward, found="a number that is not finite as float32")
        action[closing], reward[closing] = 0, 0
        frames = rows.frames[: rows.n]
        columns = {"observation": frames[:, None] if frames.ndim == 3 else frames, "action": action, "reward": reward}
        columns |= {"terminated": ended, "truncated": cut, "closing": closing}
        table = steps_from_rows(columns, np.array(rows.recorded))
        if share is not None:
            whole, table = table.n_transitions, _drawn(table, share, path)
            notes.append(f"{table.n_transitions:,} of {whole:,} steps were drawn, by whole episodes.")
        others = {file.name: sha256_of(file) for name, file in group.items() if name != NAMES[0]}
        return Imported(table, notes=[*notes, *self.on_ends(table, limits_known=False)], provenance={"others": others})


def _drawn(table: StepTable, share: float, path: Path) -> StepTable:
    """Draw a share of a checkpoint's steps: whole episodes in random order, the last one cut."""
    wanted = max(int(share * table.n_transitions), 1)
    key = fold(fold(root_key(0), "dqn replay"), int(FILE.fullmatch(path.name)[2]))  # pyright: ignore[reportOptionalSubscript]
    order = np.argsort(integers(key, table.n_episodes, 1 << 62), kind="stable")
    n = int(np.searchsorted(table.steps[order].cumsum(), wanted)) + 1
    return first_steps(concat_steps([table.slice(int(k), int(k) + 1) for k in order[:n]]), wanted)


class _Rows:
    """Rows with closing rows, filled as frames come; padding is left out."""

    def __init__(
        self, frame: tuple[int, ...], terminal: Array, blank: Array, stretches: list[tuple[int, int]], padding: int
    ) -> None:
        n, self._most = len(terminal), padding
        self._terminal, self._blank, self._stretches = terminal, blank, stretches
        begins = np.r_[True, terminal[:-1]]
        begins[[start for start, _ in stretches]] = True
        self._since = np.arange(n) - np.maximum.accumulate(np.where(begins, np.arange(n), 0))  # rows since an episode began
        room = n + int(terminal.sum()) + len(stretches)
        self.n = 0
        self.frames = np.empty((room, *frame), np.uint8)
        self.origin = np.zeros(room, np.int64)  # which row of the file it is, or repeats
        self.closing = np.zeros(room, bool)
        self.recorded: list[bool] = []
        self.padding = np.zeros(n, bool)
        self._first: Array | None = None

    def add(self, start: int, frames: Array) -> None:
        if start == 0:
            self._first = frames[0].copy()
        for begin, stop in self._stretches:
            a, b = max(begin, start), min(stop, start + len(frames))
            if a < b:
                self._add(np.arange(a, b), frames[a - start : b - start])
                if b == stop:
                    self._cut(older=begin > 0)

    def _add(self, rows: Array, frames: Array) -> None:
        maybe = self._blank[rows] & (self._since[rows] < self._most)
        zero = rows[maybe][~frames[maybe].any(tuple(range(1, frames.ndim)))]
        for k in range(self._most):  # padding begins where the episode does and has no gap
            at = zero[self._since[zero] == k]
            self.padding[at] = self.padding[at - 1] if k else True
        keep = ~self.padding[rows]
        ends = self._terminal[rows[keep]]
        place = self.n + np.arange(len(ends)) + np.cumsum(ends) - ends
        self.frames[place], self.origin[place] = frames[keep], rows[keep]
        self._close(place[ends] + 1)
        self.n += len(ends) + int(ends.sum())

    def _cut(self, *, older: bool) -> None:
        """End the episode where rows that follow each other in the file do not in time."""
        if not self.n or self.closing[self.n - 1]:
            return
        self._close(np.array([self.n]))
        if older and self._first is not None and not self.padding[0]:
            self.frames[self.n], self.recorded[-1] = self._first, True
        self.n += 1

    def _close(self, places: Array) -> None:
        self.frames[places], self.origin[places] = self.frames[places - 1], self.origin[places - 1]
        self.closing[places] = True
        self.recorded += [False] * len(places)


def _group(path: Path) -> dict[str, Path]:
    match = FILE.fullmatch(path.name)
    if match is None or match[1] != NAMES[0]:
        raise DataError(f"{path} is not $store$_observation_ckpt.N.gz: name a checkpoint's file of observations, or the folder.")
    group = {name: path.with_name(f"$store$_{name}_ckpt.{match[2]}.gz") for name in NAMES}
    for name, file in group.items():
        if not file.exists():
            raise DataError(f"{path.parent} lacks {file.name}, the checkpoint's {name}s.")
    count = path.with_name(f"add_count_ckpt.{match[2]}.gz")
    return group | ({"add_count": count} if count.exists() else {})


def _small(path: Path) -> Array:
    with damaged(str(path)), open_gzip(path) as stream:
        array = read_npy(stream, str(path))
    return native(one_column(str(path), path.name, array) if array.ndim else array)


def _header(path: Path, stream: IO[bytes]) -> tuple[int, ...]:
    """Read the shape of the frames; the stream is at the first of them then."""
    shape, fortran, dtype = npy_header(stream)
    if len(shape) < 2 or 0 in shape or fortran or dtype != np.uint8:
        raise DataError(f"{path} holds {dtype} of shape {list(shape)}{' by columns' if fortran else ''}, not frames of bytes.")
    return shape


def _stretches(n: int, group: dict[str, Path], notes: list[str]) -> list[tuple[int, int]]:
    """Return stretches of rows that follow each other in time: of this round, then of what is left of the round before."""
    if "add_count" not in group:
        notes.append("There is no add_count file: rows were taken as they lie, though the last one may be from a round before.")
        return [(0, n)]
    written = int(_small(group["add_count"]).reshape(-1)[0])
    at = written % n
    if not written:
        raise DataError(f"{group['add_count']} says that nothing was written.")
    if written < n:
        notes.append(f"{n - written} rows were never written (add_count) and were left out.")
        return [(0, written)]
    if at:
        notes.append(f"{n - at} rows are from the round before (add_count); they come last, as episodes of their own.")
    return [(0, at), (at, n)] if at else [(0, n)]


def _chunks(path: Path, stream: IO[bytes], shape: tuple[int, ...]) -> Iterator[tuple[int, Array]]:
    size = math.prod(shape[1:])
    step = max(CHUNK // size, 1)
    for start in range(0, shape[0], step):
        rows = min(step, shape[0] - start)
        data = stream.read(rows * size)
        if len(data) < rows * size:
            raise DataError(f"{path} is cut short: it ends in row {start + len(data) // size} of {shape[0]}.")
        yield start, np.frombuffer(data, np.uint8).reshape(rows, *shape[1:])
