"""Writing a log: decisions of one process, durable before they are answered, in files that are closed by size and age."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ..errors import ConfigError, DataError, StorageError, did_you_mean
from ..spec import Spec
from ..storage.files import Place, storage_errors
from .layout import CLOSED, OPEN, Kind, LogFile, LogFolder, file_of, new_writer
from .schema import ROLES, arrow_column, decision_schema, fitted, flat_column
from .stream import GrowingFile, adopt_all

_LOG = logging.getLogger(__name__)
ROTATE_BYTES, ROTATE_SECONDS = 1 << 26, 600.0


class LogWriter:
    """Appends record batches to files of its own, which nobody else writes; for several threads.

    A thread closes files that are old enough, closes those of dead writers, and puts closed files of a spool into their log, those
    of a writer in order. What cannot be put there now is tried again.

    Args:
        log: The log's folder, prepared.
        kind: Which of its folders.
        schema: The columns.
        rotate_bytes: A file of so many is closed.
        rotate_seconds: A file that has been open for so long is closed.
        fsync: Wait for the disk at every append, so that a power cut loses nothing either.
    """

    def __init__(self, log: LogFolder, kind: Kind, schema: Any, *, rotate_bytes: int, rotate_seconds: float, fsync: bool) -> None:
        for name, value in (("rotate_bytes", rotate_bytes), ("rotate_seconds", rotate_seconds)):
            if not value > 0:
                raise ConfigError(f"{name} is {value}; it is above 0.")
        self.log, self.name = log, new_writer()
        self.kind: Kind = kind
        self._schema, self._fsync = schema, fsync
        self._rotate_bytes, self._rotate_seconds = rotate_bytes, rotate_seconds
        self._file: GrowingFile | None = None
        self._number, self._opened = 0, 0.0
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._closed = False
        self.unsent = ""  # why files of the spool are not in the log, in a sentence; empty where all are
        self._keeper = threading.Thread(target=self._keep, name="decision log", daemon=True)
        self._keeper.start()

    def append(self, batch: Any) -> None:
        """Append rows; they are in the file when this returns. Raises StorageError, after which they are not."""
        with self._lock, storage_errors("written", self.log.folder(self.kind)):
            if self._closed:
                raise StorageError(f"The log {self.log.place} was closed by this process.")
            file = self._file or self._new_file()
            try:
                file.append(batch.serialize())
            except OSError:
                self._file = None  # a later append begins a new one, whatever became of this
                self._number += 1
                file.abandon()
                raise
            if file.size >= self._rotate_bytes:
                with suppress(OSError):  # the rows are there; another closes the file, as a dead writer's
                    self._roll()

    def close(self) -> None:
        """Close the file, and put what is in a spool into the log. Raises StorageError."""
        self._ended.set()
        self._keeper.join()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with storage_errors("written", self.log.folder(self.kind)):
                self._roll()
        self._send()
        if self.unsent:
            raise StorageError(self.unsent)

    def _new_file(self) -> GrowingFile:
        path = self.log.folder(self.kind) / f"{LogFile(self.name, self._number).stem}{OPEN}"
        self._file, self._opened = GrowingFile(path, self._schema, fsync=self._fsync), time.monotonic()
        return self._file

    def _roll(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._number += 1
            file.close()

    def _keep(self) -> None:
        pause = min(self._rotate_seconds / 2, 5.0)
        while True:
            with suppress(OSError):  # tried again; an append says what is wrong
                adopt_all(self.log.folder(self.kind))
                with self._lock:
                    if self._file is not None and time.monotonic() - self._opened >= self._rotate_seconds:
                        self._roll()
            self._send()
            if self._ended.wait(pause):
                return

    def _send(self) -> None:
        if self.log.spooled:
            try:
                send(self.log, self.kind)
                self.unsent = ""
            except StorageError as error:
                if not self.unsent:
                    _LOG.warning("%s It stays in %s and is tried again.", error, self.log.local)
                self.unsent = str(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def send(log: LogFolder, kind: Kind) -> None:
    """Put closed files of a spool into the log, a writer's in order, and remove them. Again is harmless. Raises StorageError."""
    place, folder = Place(log.place.address(kind)), log.folder(kind)
    found = sorted(file for name in Place(folder).names() if (file := file_of(name)))
    growing = {file.writer: file.number for file, suffix in reversed(found) if suffix == OPEN}  # the first of each writer
    for file, suffix in found:
        if suffix == CLOSED and file.number < growing.get(file.writer, file.number + 1):
            with suppress(FileNotFoundError):  # another writer of this machine was first
                place.put(folder / f"{file.stem}{suffix}", f"{file.stem}{suffix}")


@dataclass(frozen=True)
class DecisionRows:
    """Decisions of N requests that were answered together.

    Attributes:
        version: Of the policy that acted, one for all or one each.
        role: `champion`, `canary`, `fallback` or `shadow`, one for all or one each.
        episode: Keys, one each. None: the decision is an episode of one step of its own, whose key is its id.
        alone: Which others are episodes of one step of their own, under a key that the service made.
        step: Within the episode, from 0, one each.
        observation: As the spec has it, raw: [N, ...], or (nested) dicts and tuples of such arrays.
        action: [N, ...], raw.
        log_prob: [N]: of the action, under what acted; NaN where there is no density. None: nowhere.
        legal: [N, n] flags of discrete actions, or a list with None where all are legal. None: all are everywhere.
        value: [N], NaN where none is known. None: nowhere.
        reason: Why the fallback acted, one each. None: nowhere.
        time: Of all, seconds since 1970. None: now.
    """

    version: str | Sequence[str]
    role: str | Sequence[str]
    episode: Sequence[str | None]
    step: Sequence[int] | np.ndarray
    observation: Any
    action: Any
    log_prob: Any = None
    legal: Any = None
    value: Any = None
    reason: Sequence[str | None] | None = None
    time: float | None = None
    alone: bool | Sequence[bool] = False


class DecisionWriter:
    """Writes the decisions of one process, as one policy of a service.

    Args:
        where: The log: a folder, new or one of the same spaces, or a URI.
        spec: Spaces of the policy's observations and actions.
        policy: Its name in the service.
        rotate_bytes, rotate_seconds: When a file is closed.
        fsync: Wait for the disk at every append.
        spool: Where files of a log behind a URI lie until they are closed; see `LogFolder`.

    Raises:
        DataError: the folder is the log of another problem.
        StorageError: it cannot be written.
    """

    def __init__(
        self,
        where: str | Path,
        spec: Spec,
        *,
        policy: str,
        rotate_bytes: int = ROTATE_BYTES,
        rotate_seconds: float = ROTATE_SECONDS,
        fsync: bool = False,
        spool: str | Path | None = None,
    ) -> None:
        log = LogFolder(where, spool)
        self.spec, self.policy = log.prepare(spec).spec, policy
        self._schema = decision_schema(self.spec)
        self._files = LogWriter(
            log, "decisions", self._schema, rotate_bytes=rotate_bytes, rotate_seconds=rotate_seconds, fsync=fsync
        )
        self._count, self._counting = 0, threading.Lock()

    def append(self, rows: DecisionRows) -> list[str]:
        """Write decisions and return their ids; they are in the log when this returns.

        Raises DataError where they are not of the spec or hold NaN, StorageError where they cannot be written: then none is.
        """
        n = len(rows.episode)
        if not n:
            return []
        with self._counting:
            first, self._count = self._count, self._count + n
        ids = [f"{self._files.name}-{k}" for k in range(first, first + n)]
        self._files.append(self._batch(rows, ids))
        return ids

    @property
    def unsent(self) -> str:
        """Why closed files of the spool are not in the log; empty where they are."""
        return self._files.unsent

    def close(self) -> None:
        """Close the last file. Raises StorageError where files of a spool cannot be put into the log; they stay in the spool."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _batch(self, rows: DecisionRows, ids: list[str]) -> Any:
        n = len(ids)
        shown = fitted(self.spec, rows.observation, rows.action)
        roles, versions = _each(rows.role, n), _each(rows.version, n)
        if unknown := set(roles) - set(ROLES):
            raise DataError(f"There is no role {min(unknown)!r}{did_you_mean(min(unknown), ROLES)}")
        step = np.asarray(rows.step)
        if step.shape != (n,) or step.dtype.kind not in "iu" or (step < 0).any():
            raise DataError(f"step is {step.tolist()}; {n} whole numbers from 0 on are needed.")
        when = datetime.now(UTC) if rows.time is None else datetime.fromtimestamp(rows.time, UTC)
        columns: dict[str, Any] = {
            "id": ids,
            "policy": [self.policy] * n,
            "version": versions,
            "role": roles,
            "episode": [own if key is None else key for key, own in zip(rows.episode, ids, strict=True)],
            "step": step,
            "alone": [key is None or own for key, own in zip(rows.episode, _each(rows.alone, n), strict=True)],
            "time": [when] * n,
            "reason": [None] * n if rows.reason is None else list(rows.reason),
            "log_prob": _numbers("log_prob", rows.log_prob, n),
            "value": _numbers("value", rows.value, n),
        }
        arrays = {name: pa.array(values, self._schema.field(name).type) for name, values in columns.items()}
        arrays |= {name: arrow_column(column) for name, column in shown.items()}
        if self.spec.discrete:
            arrays["legal"] = flat_column(self._legal(rows.legal, n), self._schema.field("legal").type)
        if odd := [name for name, column in arrays.items() if len(column) != n]:
            raise DataError(f"{odd[0]} has {len(arrays[odd[0]])} rows, and there are {n} episodes.")
        return pa.record_batch([arrays[name] for name in self._schema.names], schema=self._schema)

    def _legal(self, legal: Any, n: int) -> list[np.ndarray | None]:
        masks = [None if mask is None else np.asarray(mask) for mask in ([None] * n if legal is None else legal)]
        for mask in masks:
            if mask is not None and (mask.shape != (self.spec.n_actions,) or ((mask != 0) & (mask != 1)).any()):
                raise DataError(f"legal is {mask.tolist()}; {self.spec.n_actions} flags are needed, 0 or 1.")
        return [None if mask is None else mask.astype(np.uint8) for mask in masks]


def _each(value: Any, n: int) -> list[Any]:
    return [value] * n if isinstance(value, str | bool) else list(value)


def _numbers(name: str, values: Any, n: int) -> Any:
    """Float32 [N], null where a number is NaN. Raises DataError of infinity: a probability above 0 has no such logarithm."""
    array = np.full(n, np.nan) if values is None else np.asarray(values, np.float64)
    if np.isinf(array).any():
        raise DataError(f"{name} holds infinity.")
    return pa.array(array.astype(np.float32), pa.float32(), from_pandas=True)
