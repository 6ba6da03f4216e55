"""A store whose objects are read once, as long as nobody else changes what lies in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock, RLock

from .base import Found, Readable, Store, side_by_side

_SMALL = 1 << 18  # bytes of an object that is kept


class Remembering:
    """Another store, which from `remember` to `forget` is asked for each small object of a folder once, and for many at once.

    One listing tells what there is, so what is not there costs nothing. What is asked of one folder is soon asked of those beside
    it: an object is read together with those of its name there, and with those of its kind in its own folder. What is written goes
    to the store at once and is remembered too. Versions are always asked of the store: whoever writes in place of one wants to know
    what others do.

    Args:
        store: The other one.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._lock, self._reading = store, RLock(), Lock()
        self._folder: str | None = None  # that is remembered
        self._done: frozenset[str] | None = None  # folders in it, where only those are; None: all of it is
        self._found: dict[str, Found] = {}
        self._contents: dict[str, bytes] = {}
        self._below: dict[str, dict[str, bool]] = {}  # by folder the names in it, and whether they are folders

    def remember(self, folder: str) -> None:
        """Remember a folder, which nobody else changes from here on. What is still the same is not read again."""
        found = self._store.walk(folder)
        with self._lock:
            before, contents = self._found, self._contents
            self._folder, self._done, self._found, self._contents, self._below = folder, None, {}, {}, {}
            for one in found:
                self._add(one)
                if one.version and one.key in contents and before[one.key].version == one.version:
                    self._contents[one.key] = contents[one.key]

    def forget(self, done: Iterable[str] = ()) -> None:
        """Let others change it from here on, but for some folders in it."""
        with self._lock:
            self._done = frozenset(done)

    def _knows(self, key: str) -> bool:
        if self._folder is None or not f"{key}/".startswith(f"{self._folder}/"):
            return False
        return self._done is None or (bool(self._done) and any(above in self._done for above in self._above(key)))

    def _above(self, key: str) -> Iterator[str]:
        """Yield an object or folder, and the folders that it lies in."""
        while key != self._folder:
            yield key
            key = key.rpartition("/")[0]

    def _add(self, one: Found) -> None:
        self._found[one.key] = one
        for name in self._above(one.key):
            folder, _, last = name.rpartition("/")
            self._below.setdefault(folder, {})[last] = name != one.key

    def _wrote(self, key: str, content: bytes | None) -> None:
        """Note that an object was written; what it holds where that is known."""
        with self._lock:
            if self._knows(key):
                self._add(Found(key, len(content or b""), None))
            self._contents.pop(key, None)
            if content is not None and self._knows(key):
                self._contents[key] = content

    def _deleted(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self._contents.pop(key, None)
                if self._found.pop(key, None) is None:
                    continue
                name = key
                while name != self._folder and not self._below.get(name):  # folders that nothing is left in are none
                    self._below.pop(name, None)
                    name, _, below = name.rpartition("/")
                    self._below.get(name, {}).pop(below, None)

    # ---- what is read

    def read(self, key: str) -> bytes:
        if (kept := self._kept(key)) is None:
            with self._reading:  # whoever asks meanwhile finds here what it would ask for
                if self._knows(key) and (kept := self._kept(key)) is None:
                    self._read_like(key)
                    kept = self._kept(key)
        return self._store.read(key) if kept is None else kept

    def _kept(self, key: str) -> bytes | None:
        """Return what an object holds, where that is remembered; None where it is to be asked for."""
        with self._lock:
            if not self._knows(key):
                return None
            if key not in self._found:
                raise FileNotFoundError(key)
            return self._contents.get(key)

    def _read_like(self, key: str) -> None:
        """Read an object with others that are asked for soon."""
        with self._lock:
            wanted = self._like(key)
        contents = side_by_side(self._read, wanted)
        with self._lock:
            for one, content in zip(wanted, contents, strict=True):
                if content is not None and one in self._found:  # else it was deleted meanwhile; what was written stays
                    self._contents.setdefault(one, content)

    def _read(self, key: str) -> bytes | None:
        try:
            return self._store.read(key)
        except FileNotFoundError:
            return None

    def _like(self, key: str) -> list[str]:
        """List the small objects that are read with one."""
        folder, _, name = key.rpartition("/")
        above, ending = folder.rpartition("/")[0], name.rpartition(".")[2]
        beside = [f"{above}/{one}/{name}" for one, is_folder in self._below.get(above, {}).items() if is_folder]
        beside = [one for one in beside if self._knows(one)]
        if ending == "jsonl":
            beside += [f"{folder}/{one}" for one in self._below[folder] if one.endswith(ending)]
        found = [self._found[one] for one in dict.fromkeys([*beside, key]) if one in self._found and one not in self._contents]
        return [one.key for one in found if one.size <= _SMALL or one.key == key]

    def look(self, keys: Sequence[str]) -> list[Found | None]:
        with self._lock:
            known = {key: self._found.get(key) for key in keys if self._knows(key)}
        asked = [key for key in keys if key not in known or ((one := known[key]) is not None and one.written is None)]
        known |= dict(zip(asked, self._store.look(asked), strict=True)) if asked else {}
        return [known[key] for key in keys]

    def list(self, folder: str) -> tuple[list[str], list[Found]]:
        with self._lock:
            if not self._knows(folder):
                return self._store.list(folder)
            names = self._below.get(folder, {})
            files = [self._found[f"{folder}/{name}"] for name, is_folder in names.items() if not is_folder]
            return [name for name, is_folder in names.items() if is_folder], files

    def walk(self, folder: str) -> list[Found]:
        with self._lock:
            if not self._knows(folder):
                return self._store.walk(folder)
            return self._walk(folder)

    def _walk(self, folder: str) -> list[Found]:
        found: list[Found] = []
        for name, is_folder in self._below.get(folder, {}).items():
            found += self._walk(f"{folder}/{name}") if is_folder else [self._found[f"{folder}/{name}"]]
        return found

    # ---- what goes to the store

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        return self._store.read_versioned(key)

    def write(self, key: str, content: bytes) -> None:
        self._store.write(key, content)
        self._wrote(key, content)

    def create(self, key: str, content: bytes) -> str | None:
        version = self._store.create(key, content)
        self._wrote(key, None if version is None else content)
        return version

    def replace(self, key: str, content: bytes, version: str) -> str | None:
        new = self._store.replace(key, content, version)
        self._wrote(key, None if new is None else content)
        return new

    def upload(self, file: Path, key: str) -> None:
        self._store.upload(file, key)
        self._wrote(key, None)

    def copy(self, key: str, to: str) -> None:
        self._store.copy(key, to)
        self._wrote(to, None)

    def download(self, key: str, target: Path) -> None:
        self._store.download(key, target)

    def open(self, key: str) -> Readable:
        return self._store.open(key)

    def make(self, folder: str) -> None:
        self._store.make(folder)

    def delete(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        self._store.delete(keys)
        self._deleted(keys)

    def delete_folder(self, folder: str) -> None:
        self._store.delete_folder(folder)
        with self._lock:
            self._deleted([one.key for one in self._walk(folder)])
