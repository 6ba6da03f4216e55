"""Entries of the catalog: what is known of a dataset that has a name, and where it is had.

They come from the JSON files beside this one, each of which lists its sources, and from those that `D3RAY_CATALOG` names
(several with the path separator between them), which add entries, replace those of the same name, and may name mirrors:

    {"mirrors": {"http://rail.eecs.berkeley.edu/datasets/": "https://mirror.example/d4rl/"},
     "defaults": {"licence": "MIT"},
     "entries": {"team/arm": {"files": [{"url": "s3://bucket/arm.hdf5", "sha256": "…"}], "format": "d4rl"},
                 "team/walk": {"folder": "s3://bucket/walk"}}}

An entry has files, a `folder`, or a `recipe` or `script` that makes it (`recipe.py`). A size or a hash stands there only where its
publisher gives it. The scores that are 0 and 100 are in `references.json`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import unquote, urlsplit

from pydantic import Field, ValidationError, model_validator

from ..config import Config, explain, setting
from ..errors import ConfigError
from ..spec import Environment
from ..storage.files import storage_errors
from ..storage.json_text import parse_json
from ..storage.manifest import MANIFEST
from .recipe import Recipe, Script

VARIABLE = "D3RAY_CATALOG"
_HERE = Path(__file__).parent
_SHIPPED = _HERE.parent / "shipped"
_NAME = r"^[\w.-]+(/[\w.-]+)+$"


class RemoteFile(Config):
    """One file to download."""

    url: str = Field(description="http, https, or what pyarrow.fs opens", min_length=1)
    name: str = setting("", "its place in the dataset's folder; empty: the last part of the URL")
    bytes: int | None = setting(None, "its size where that is published", ge=0)
    sha256: str | None = setting(None, "its SHA-256 where that is published", pattern=r"^[0-9a-f]{64}$")

    @property
    def place(self) -> str:
        return self.name or unquote(urlsplit(self.url).path.rpartition("/")[2])

    @model_validator(mode="after")
    def _stays_inside(self) -> Self:
        if self.place.startswith("/") or not self.place or {"..", ""} & set(self.place.split("/")):
            raise ValueError(f"the file of {self.url} needs a name within a folder, not {self.place!r}")
        return self


class Entry(Config):
    """A dataset: files to download and import, a folder that is one already, or a recipe or script that makes it."""

    files: tuple[RemoteFile, ...] = ()
    folder: str | None = setting(None, "folder or URI of a d3ray dataset")
    recipe: Recipe | None = setting(None, "how an agent makes it in its environment")
    script: Script | None = setting(None, "how a script of OGBench's makes it")
    format: str | None = setting(None, "importer; null: found out from each file")
    options: dict[str, Any] = Field(default_factory=dict, description="of the importer")
    environment: Environment | None = setting(None, "where the steps were taken, or gymnasium's nearest to it")
    action_range: tuple[float, float] | None = setting(None, "bounds of each entry of a continuous action")
    downloads: str = setting("", "name of the dataset whose downloads it shares, of which it is made too; empty: its own")
    licence: str | None = setting(None, "of the data, as SPDX calls it, where its publisher says so")
    about: str = setting("", "one line")

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if [bool(self.files), *(one is not None for one in (self.folder, self.recipe, self.script))].count(True) != 1:
            raise ValueError("an entry has files, a folder, a recipe or a script, and one of them")
        if self.making is not None and self.environment is None:
            raise ValueError("a recipe needs the environment to make the dataset in")
        if len({file.place for file in self.files}) < len(self.files):
            raise ValueError("two files of an entry have one name")
        return self

    @property
    def making(self) -> Recipe | Script | None:
        """What makes it on this machine."""
        return self.recipe or self.script

    @property
    def bytes(self) -> int | None:
        """Size of all files; None where one is not published."""
        sizes = [file.bytes for file in self.files]
        return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None

    @property
    def files_key(self) -> str:
        """Hash of the files."""
        return _key([[file.url, file.place, file.sha256] for file in self.files])

    @property
    def key(self) -> str:
        """Hash of all that makes the dataset."""
        told = self.model_dump(mode="json", exclude={"about", "downloads", "licence", "recipe", "script"})
        told |= {"recipe": self.recipe.told()} if self.recipe else {"script": self.script.told()} if self.script else {}
        return _key(told)

    @property
    def run_key(self) -> str:
        """Hash of what recipes that share a run have in common."""
        if self.script is not None:
            return _key(self.script.run)
        environment = self.environment and self.environment.model_dump(mode="json")
        return _key([environment, self.recipe and self.recipe.run])


class Family(Config):
    """Entries that differ in a few words: in names `{word}` stands for a key of the word's values, elsewhere for its value.

    A word's values are a mapping, a list (key and value are the same), or whole numbers such as "1..50" or "000..099". What an
    entry lists may say `each: {word: values}`: it stands there once for each of them.
    """

    name: str
    values: dict[str, dict[str, str] | tuple[str, ...] | str]
    entry: dict[str, Any]

    @functools.cached_property
    def words(self) -> dict[str, Mapping[str, str]]:
        return {word: _values(values) for word, values in self.values.items()}

    def __len__(self) -> int:
        return functools.reduce(lambda n, values: n * len(values), self.words.values(), 1)

    def names(self) -> Iterator[str]:
        found = [self.name]
        for word, values in self.words.items():
            found = [name.replace(f"{{{word}}}", key) for name in found for key in values]
        yield from found

    def find(self, name: str) -> dict[str, Any] | None:
        """Return what an entry of that name says; None where the family has none."""
        match = self._pattern.fullmatch(name)
        if match is None:
            return None
        chosen = {word: values[match[word]] for word, values in self.words.items()}
        return _filled(self.entry, chosen)

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        pattern = re.escape(self.name)
        for word, values in self.words.items():
            choices = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
            pattern = pattern.replace(rf"\{{{word}\}}", f"(?P<{word}>{choices})")
        return re.compile(pattern)


class Shelf(Config):
    """One file of the catalog."""

    sources: tuple[str, ...] = setting((), "where what it says comes from")
    base: str = setting("", "what a URL without a scheme is appended to")
    mirrors: dict[str, str] = Field(default_factory=dict, description="beginnings of URLs, and what is asked in their place")
    defaults: dict[str, Any] = Field(default_factory=dict, description="of every entry of the file")
    entries: dict[str, dict[str, Any]] = Field(default_factory=dict)
    families: tuple[Family, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _family_entries(cls, raw: Any) -> Any:
        """Take all but `name` and `values` of a family for what its entries say."""
        if not isinstance(raw, dict) or not isinstance(raw.get("families"), list):
            return raw
        own = ("name", "values")
        split = [
            {**{k: f[k] for k in own if k in f}, "entry": {k: v for k, v in f.items() if k not in own}}
            if isinstance(f, dict)
            else f
            for f in raw["families"]
        ]
        return {**raw, "families": split}

    def entry(self, said: Mapping[str, Any], mirrors: Mapping[str, str]) -> Entry:
        """Fill in defaults, whole URLs and mirrors. Raises ValidationError."""
        whole = {**self.defaults, **said}
        if isinstance(whole.get("files"), list | tuple):
            whole["files"] = [
                {**file, "url": _mirrored(file["url"] if "://" in file["url"] else self.base + file["url"], mirrors)}
                if isinstance(file, dict) and isinstance(file.get("url"), str)
                else file
                for file in whole["files"]
            ]
        return Entry.model_validate(whole)


class Catalog:
    """All shelves; of two entries of one name the later counts."""

    def __init__(self, shelves: Mapping[str, Shelf]) -> None:
        self.shelves = shelves
        self.mirrors = {old: new for shelf in shelves.values() for old, new in shelf.mirrors.items()}
        self._entries = {name: (where, said) for where, shelf in shelves.items() for name, said in shelf.entries.items()}

    def find(self, name: str) -> Entry | None:
        """Return the entry of that name. Raises ConfigError where what stands there is no entry."""
        if name in self._entries:
            where, said = self._entries[name]
            return self._entry(where, name, said)
        for where, shelf in reversed(list(self.shelves.items())):
            for family in shelf.families:
                if (said := family.find(name)) is not None:
                    return self._entry(where, name, said)
        return None

    @property
    def families(self) -> list[Family]:
        return [family for shelf in self.shelves.values() for family in shelf.families]

    def single_names(self) -> list[str]:
        """List the entries that belong to no family."""
        return list(self._entries)

    def names(self) -> Iterator[str]:
        yield from self._entries
        yield from (name for family in self.families for name in family.names() if name not in self._entries)

    def _entry(self, where: str, name: str, said: Mapping[str, Any]) -> Entry:
        if not re.fullmatch(_NAME, name) or ".." in name:
            raise ConfigError(f"{where}: {name!r} is no name of a dataset; write it as GROUP/NAME.")
        try:
            return self.shelves[where].entry(said, self.mirrors)
        except ValidationError as error:
            raise ConfigError(explain(Entry, error, f"{where}: {name}")) from None


def catalog() -> Catalog:
    """Return the catalog as it stands now. Raises ConfigError or StorageError for a file that `D3RAY_CATALOG` names."""
    own = tuple(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    stamps: list[tuple[str, int]] = []
    for path in own:
        with storage_errors("read", f"{path}, which {VARIABLE} names,"):
            stamps.append((path, Path(path).expanduser().stat().st_mtime_ns))
    return _read(tuple(stamps))


def name_catalogs_absolutely() -> None:
    """Name the files of `D3RAY_CATALOG` by absolute paths, for processes that this one starts and that lie in other folders."""
    if said := os.environ.get(VARIABLE):
        paths = (str(Path(path).expanduser().absolute()) if path else path for path in said.split(os.pathsep))
        os.environ[VARIABLE] = os.pathsep.join(paths)


@functools.lru_cache(maxsize=4)
def _read(own: tuple[tuple[str, int], ...]) -> Catalog:
    shelves = {"d3ray": Shelf(entries={f"d3ray/{folder.name}": _shipped(folder) for folder in shipped_folders()})}
    for file in sorted(_HERE.glob("*.json")):
        if file.name != "references.json":
            shelves[file.name] = Shelf.model_validate_json(file.read_bytes())
    for path, _ in own:
        shelves[path] = _own(Path(path).expanduser())
    return Catalog(shelves)


def shipped_folders() -> list[Path]:
    return [manifest.parent for manifest in sorted(_SHIPPED.glob(f"*/{MANIFEST}"))]


def _shipped(folder: Path) -> dict[str, Any]:
    environment = parse_json((folder / MANIFEST).read_bytes())["environment"]
    return {"folder": str(folder), "environment": environment, "licence": "MIT", "about": "comes with d3ray"}


def _own(path: Path) -> Shelf:
    with storage_errors("read", f"{path}, which {VARIABLE} names,"):
        content = path.read_bytes()
    try:
        raw = parse_json(content)
    except ValueError as error:
        raise ConfigError(f"{path}, which {VARIABLE} names, is not JSON: {error}.") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}, which {VARIABLE} names, is no catalog: it must be an object with entries.")
    shelf = Shelf.checked(raw, title=str(path))
    checked = Catalog({str(path): shelf})
    for name in checked.single_names():
        checked.find(name)
    return shelf


def _values(values: Mapping[str, str] | tuple[str, ...] | str) -> Mapping[str, str]:
    if isinstance(values, str):
        first, _, last = values.partition("..")
        numbers = [str(k).zfill(len(first)) for k in range(int(first), int(last) + 1)]
        return {number: number for number in numbers}
    return values if isinstance(values, Mapping) else {value: value for value in values}


def _filled(said: Any, chosen: Mapping[str, str]) -> Any:
    """Replace the words of a family in all texts of `said`."""
    if isinstance(said, str):
        for word, value in chosen.items():
            said = said.replace(f"{{{word}}}", value)
        return said
    if isinstance(said, Mapping):
        return {key: _filled(value, chosen) for key, value in said.items()}
    return [_filled(one, chosen) for value in said for one in _each(value)] if isinstance(said, list | tuple) else said


def _each(said: Any) -> list[Any]:
    """Repeat what is listed for each value of its word."""
    if not isinstance(said, Mapping) or "each" not in said:
        return [said]
    once = {key: value for key, value in cast("Mapping[str, Any]", said).items() if key != "each"}
    ((word, values),) = said["each"].items()
    return [_filled(once, {word: value}) for value in _values(values).values()]


def _mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """Replace the longest beginning of the URL that has a mirror."""
    old = max((old for old in mirrors if url.startswith(old)), key=len, default=None)
    return url if old is None else mirrors[old] + url.removeprefix(old)


def _key(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
