"""Folders of the results storage, local or behind a URI: small files, checkpoints, locks."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from filelock import FileLock, Timeout

from ...algos.saving.checkpoint import checkpoint_name, checkpoint_step, read_checkpoint, write_checkpoint
from ...algos.saving.parts import MANIFEST, rename_parts
from ...data.errors import StorageError
from ...data.storage.claims import scratch_names
from ...data.storage.files import Place, storage_errors, write_atomically
from ...data.storage.json_text import parse_json
from ...data.storage.stores.base import side_by_side
from ...data.storage.stores.remembering import Remembering
from ...data.uris import label

if TYPE_CHECKING:  # torch takes a second, and a command that only looks needs none
    from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")
_COMMIT_SECONDS = 120.0  # longest wait for another writer's rename
_HUNG_SECONDS = 10.0  # a rename takes far less: a worker that holds up its successor for longer hangs


class Folder(Place):
    """A folder with folders below it: `storage / "experiment"`."""

    def __init__(self, where: str | Path, mark: str = "") -> None:
        super().__init__(where, mark)
        if self.local is None:
            self._store = Remembering(self._store)

    def __truediv__(self, name: str) -> Folder:
        if self.local is not None:
            return Folder(self.local / name)
        below = Folder.__new__(Folder)  # on the same connection: finding a bucket's region is a request
        below.local, below.name, below.mark = None, self.address(name), self.mark
        below._store, below._root = self._store, self._at(name)
        return below

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self.name,)

    def remember(self) -> None:
        """From here on nobody else changes what lies in it: of an object store, it is read once. On a disk it is read as ever.

        It holds for this folder and those that were made of it by `/`, until `forget`. Raises StorageError.
        """
        if self.local is None and isinstance(self._store, Remembering):
            with storage_errors("listed", self.name):
                self._store.remember(self._root)

    def forget(self, done: Iterable[Folder] = ()) -> None:
        """From here on others may change what lies in it, but for some folders in it."""
        if self.local is None and isinstance(self._store, Remembering):
            self._store.forget(folder._root for folder in done)

    def beside(self, name: str) -> Folder:
        place, mark, options = self.name.partition("?")
        return Folder(f"{place.rpartition('/')[0]}/{name}{mark}{options}")

    @property
    def above(self) -> Folder:
        place, mark, options = self.name.partition("?")
        return Folder(f"{place.rpartition('/')[0] or '/'}{mark}{options}")

    @property
    def label(self) -> str:
        return label(self.name)

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Apply work on small files to each item: in turn on a disk, side by side in an object store."""
        return side_by_side(work, items) if self.local is None else [work(item) for item in items]

    def read_json(self, name: str) -> Any:
        """Read a JSON file, None if it is missing. Raises StorageError if it is not JSON."""
        if (content := self.read(name)) is None:
            return None
        try:
            return parse_json(content)
        except ValueError:
            raise StorageError(f"{self.address(name)} is damaged: it is not JSON.") from None

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file, whole or not there; the folder is made where it is missing."""
        self.write(name, json_bytes(value))

    def write(self, name: str, content: bytes) -> None:
        """A file that is whole or not there; the folder is made where it is missing."""
        with storage_errors("written", self.address(name)):
            if self.local is not None:
                self.local.mkdir(parents=True, exist_ok=True)
                write_atomically(self.local / name, content)
                return
        super().write(name, content)

    def written(self, name: str) -> float | None:
        """When a file was written, in seconds since 1970 by the clock of the storage; None where it is missing, or nobody knows."""
        with storage_errors("read", self.address(name)):
            if self.local is not None:
                path = self.local / name
                return path.stat().st_mtime if path.exists() else None
            (found,) = self._store.look([self._at(name)])
            return None if found is None else found.written

    def remove(self) -> None:
        """Deletes the folder and all that is in it; a local one disappears at once."""
        with storage_errors("deleted", self.name):
            if self.local is None:
                self._store.delete_folder(self._root)
            elif self.local.exists():
                aside = self.local.with_name(f".deleted-{self.local.name}-{uuid4().hex[:8]}")
                self.local.rename(aside)
                shutil.rmtree(aside)

    # ---- trees, for policy packages

    def put_tree(self, source: Path, name: str) -> None:
        """Moves a local folder of files and folders to `name`, replacing what is there.

        An object store cannot rename a folder. What is there stays until all of the new one has been sent, which its own copies
        then replace; for those few requests a reader may find parts of both, which the hashes in a manifest tell.
        """
        target = self / name
        if target.local is not None:
            target.remove()
            with storage_errors("written", target.name):
                target.local.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target.local)
            return
        names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        if earlier := target.tree():
            sent = self / f".new-{uuid4().hex[:8]}-{name}"
            try:
                side_by_side(lambda name: sent.put(source / name, name), names)
                with storage_errors("written", target.name):
                    _in_order(lambda name: target._store.copy(sent._at(name), target._at(name)), names)
                target.delete(set(earlier) - set(names))
            finally:
                with suppress(StorageError):  # a store that is away: they lie there, hidden
                    sent.remove()
        else:
            _in_order(lambda name: target.put(source / name, name), names)
        shutil.rmtree(source)

    @contextmanager
    def scratch(self) -> Generator[Path]:
        """A folder on this machine from which `put_tree` is a rename where that is possible; gone when the context ends."""
        where = None if self.local is None else str(self.local)
        if self.local is not None:
            with storage_errors("written", self.name):
                self.local.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=where, ignore_cleanup_errors=True) as made:
            yield Path(made)

    # ---- checkpoints

    def checkpoint_steps(self) -> list[int]:
        """Steps of the checkpoints in this folder, ascending; in an object store one counts once its manifest is there."""
        if self.local is not None:
            names = self.names()
        else:  # one request
            names = [name.removesuffix(f"/{MANIFEST}") for name in self.tree() if name.endswith(f"/{MANIFEST}")]
        return sorted(step for name in names if (step := checkpoint_step(Path(name))) is not None)

    def read_checkpoint(self, step: int) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, bytes]]:
        """Tensors, meta and further parts. Raises StorageError when it is not whole."""
        with (self / checkpoint_name(step)).as_local() as folder:
            return read_checkpoint(folder)

    def write_checkpoint(
        self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], before_rename: Callable[[], None]
    ) -> None:
        """A checkpoint under `name`, whole or not there. `before_rename` is called when only the last move is left.

        One that is there stays whole until then. In an object store the last move is the manifest's, which names files of its own.
        """
        if self.local is not None:
            write_checkpoint(self.local / name, tensors, meta, before_rename=before_rename)
            return
        with tempfile.TemporaryDirectory(prefix=scratch_names("file")) as scratch:
            source, target = Path(scratch) / name, self / name
            write_checkpoint(source, tensors, meta)
            earlier, parts = target.names(), rename_parts(source)
            try:
                for part in parts:
                    target.put(source / part, part)
                target.write_checked(MANIFEST, (source / MANIFEST).read_bytes(), before_rename)
            except BaseException:
                with suppress(StorageError):  # a store that is away: they lie there unnamed until the next checkpoint of the name
                    target.delete(parts)
                raise
            target.delete(file for file in earlier if file != MANIFEST)

    # ---- one of many writers

    def versioned(self, name: str) -> tuple[bytes, str] | None:
        """A file's content and its version, in an object store; None where it is missing."""
        with storage_errors("read", self.address(name)):
            try:
                return self._store.read_versioned(self._at(name))
            except FileNotFoundError:
                return None

    def write_version(self, name: str, content: bytes, version: str | None) -> str | None:
        """A file in place of one version, or where there is none, in an object store, which decides between many that try.

        Returns:
            The new version; None, and nothing is written, where another one is there by now.
        """
        with storage_errors("written", self.address(name)):
            if version is None:
                return self._store.create(self._at(name), content)
            return self._store.replace(self._at(name), content, version)

    def write_checked(self, name: str, content: bytes, check: Callable[[], None]) -> None:
        """A file, unless `check` raises; who passed it and is late overwrites nothing that was written since.

        On a disk both happen under `commit_lock`. In an object store the file is written in place of the version that was there
        before `check`: so what a worker writes is never replaced by one whose turn was over before it began.
        """
        if self.local is not None:
            with self.commit_lock():
                check()
                self.write(name, content)
            return
        while True:
            there = self.versioned(name)
            check()
            if self.write_version(name, content, None if there is None else there[1]) is not None:
                return

    @contextmanager
    def commit_lock(self, *, take_over: bool = False) -> Generator[None]:
        """Held by a trial's writer from looking at the attempt number until its rename. Local folders only; elsewhere nothing.

        Args:
            take_over: Whether a holder that does not let go is passed by, as one that was stopped with its machine. Whoever does so
                must clear away what the other would rename.
        """
        if self.local is None:
            yield
            return
        file = self.local / ".commit.lock"
        lock = FileLock(file, timeout=_HUNG_SECONDS if take_over else _COMMIT_SECONDS)
        try:
            lock.acquire()
        except Timeout:
            if not take_over:
                raise StorageError(f"{self.name} is held by another writer since {_COMMIT_SECONDS:.0f} s.") from None
            file.unlink(missing_ok=True)  # who hangs keeps the old file's lock, and everybody else asks for the new one's
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _in_order(move: Callable[[str], None], names: Iterable[str]) -> None:
    """Files side by side, and the manifest, which makes them whole, in the end."""
    names = list(names)
    side_by_side(move, [name for name in names if name != MANIFEST])
    for name in [name for name in names if name == MANIFEST]:
        move(name)


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode()
