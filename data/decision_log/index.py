"""What is in a log, by its keys: an index in a temporary file, filled from the log and brought up to it as that grows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from .layout import CLOSED, OPEN, Kind, LogFile, LogFolder, file_of
from .schema import ACTED
from .stream import messages


class StepKey(NamedTuple):
    """A step of an episode."""

    policy: str
    episode: str
    step: int

    def __str__(self) -> str:
        return f"step {self.step} of episode {self.episode!r}"


@dataclass
class _Seen:
    size: int = 0  # bytes whose messages were read
    schema: Any = None
    closed: bool = False


class Tail:
    """Rows of local files, each once, as they come."""

    def __init__(self, log: LogFolder, kind: Kind) -> None:
        self._folder = log.folder(kind)
        self._seen: dict[LogFile, _Seen] = {}

    def new(self) -> Iterator[Any]:
        """Read what has come since the last call, as an Arrow table of each file. Raises OSError."""
        names = sorted({path.name for _ in range(2) for path in self._folder.iterdir()})  # twice: see `LogFolder.files`
        for file in sorted({found[0] for name in names if (found := file_of(name))}):
            seen = self._seen.setdefault(file, _Seen())
            for suffix in () if seen.closed else (OPEN, CLOSED):
                with suppress(FileNotFoundError), (self._folder / f"{file.stem}{suffix}").open("rb") as stream:
                    stream.seek(seen.size)
                    rows = messages(pa.py_buffer(stream.read()), seen.schema)
                    seen.schema, seen.closed = rows.schema, suffix == CLOSED
                    seen.size += rows.size
                    if rows.batches:
                        yield pa.Table.from_batches(rows.batches, rows.schema).combine_chunks()
                    break


class LogIndex:
    """Decisions that were acted on, and outcomes, by step and by id. Not for several threads at once."""

    def __init__(self) -> None:
        self._base = sqlite3.connect("", check_same_thread=False, isolation_level=None)  # in a file that nobody else sees
        for statement in _TABLES:
            self._base.execute(statement)

    def add_decisions(self, table: Any) -> None:
        """Add rows of a log; shadows are left out, and so are rows that are there."""
        columns = [table[name].to_pylist() for name in ("role", "id", "policy", "episode", "step")]
        rows = [row[1:] for row in zip(*columns, strict=True) if row[0] in ACTED]
        self._base.execute("begin")
        self._base.executemany("insert or ignore into decisions values (?, ?, ?, ?)", rows)
        self._base.execute("commit")

    def steps(self, policy: str | None, episode: str, step: int) -> list[StepKey]:
        """Find steps by their numbers: one, or one of each policy where None is given."""
        found = self._base.execute(_STEPS, (episode, step))
        return [key for row in found if policy in (None, (key := StepKey(*row)).policy)]

    def decision(self, id: str) -> StepKey | None:
        """Find the step of a decision."""
        row = self._base.execute("select policy, episode, step from decisions where id = ?", (id,)).fetchone()
        return None if row is None else StepKey(*row)

    def add_outcomes(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Add outcomes as their key, what they say and their status; those that are there are left."""
        self._base.executemany("insert or ignore into outcomes values (?, ?, ?)", rows)

    def outcomes(self, key: str) -> dict[str, str]:
        """Return what outcomes of a key say, and the status of each."""
        return dict(self._base.execute("select said, status from outcomes where key = ?", (key,)).fetchall())

    def close(self) -> None:
        """Remove it."""
        self._base.close()


_STEPS = "select distinct policy, episode, step from decisions where episode = ? and step = ?"
_TABLES: tuple[Any, ...] = (
    "pragma journal_mode = off",
    "pragma synchronous = off",
    "create table decisions (id text primary key, policy text, episode text, step integer) without rowid",
    "create index steps on decisions (episode, step, policy)",
    "create table outcomes (key text, said text, status text, primary key (key, said)) without rowid",
)
