"""Where a decision log has what: `service.json`, `decisions/` and `outcomes/`, whose files name who wrote them and in which order.

A file is `WRITER-NUMBER.open` while it is written and `WRITER-NUMBER.arrows` once it is closed, and is renamed once. A writer has
one file open at a time, and numbers count from 0. Readers see of each writer what it wrote first, never a later part alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import pyarrow as pa
from pydantic import ValidationError

from ..config import Config
from ..errors import DataError, StorageError
from ..node_maps.cache import cache_root
from ..spec import Spec, shapes_of
from ..storage.files import Place, storage_errors, write_atomically
from ..storage.json_text import parse_json
from .schema import decision_schema, outcome_schema, type_names

ABOUT = "service.json"
FORMAT, VERSION = "d3ray decision log", 1
Kind = Literal["decisions", "outcomes"]
OPEN, CLOSED = ".open", ".arrows"
_NAME = re.compile(r"(\d{8}T\d{12}-[0-9a-f]{8})-(\d{6})(\.open|\.arrows)")


class LogFile(NamedTuple):
    """A file of a log; sorted, those of a writer are in the order in which they were written."""

    writer: str
    number: int

    @property
    def stem(self) -> str:
        return f"{self.writer}-{self.number:06d}"


def new_writer() -> str:
    """Name a writer: the microsecond in which it began, so that a later one comes later, and eight digits by chance."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"


def file_of(name: str) -> tuple[LogFile, str] | None:
    """Take the name of a file apart, its suffix last; None where it is no file of a log."""
    match = _NAME.fullmatch(name)
    return None if match is None else (LogFile(match[1], int(match[2])), match[3])


class About(Config):
    """Content of `service.json`."""

    format: Literal["d3ray decision log"] = FORMAT
    version: Literal[1] = VERSION
    spec: Spec
    decisions: dict[str, str]  # types of the columns by their names, for who reads the files without d3ray
    outcomes: dict[str, str]

    @classmethod
    def of(cls, spec: Spec) -> Self:
        decisions, outcomes = type_names(decision_schema(spec)), type_names(outcome_schema(spec))
        return cls(spec=spec, decisions=decisions, outcomes=outcomes)


class LogFolder:
    """A log, on a disk or behind a URI. Nothing is opened or made until it is asked for.

    Args:
        where: Folder or URI.
        spool: Of a log behind a URI, the local folder where files are written until they are closed and put there. None: one
            below the cache folder, the same for every process of this machine that writes to that URI.

    Attributes:
        place: The log.
        local: The folder on this machine into which files are written: the log's own, or the spool.
    """

    def __init__(self, where: str | Path, spool: str | Path | None = None) -> None:
        self.place = Place(where)
        own = hashlib.sha256(self.place.name.encode()).hexdigest()[:16]
        self.local = self.place.local or (Path(spool) if spool else cache_root() / "spool" / own).expanduser().absolute()

    @property
    def spooled(self) -> bool:
        """True where files lie in a spool before they are in the log."""
        return self.place.local is None

    def folder(self, kind: Kind) -> Path:
        """Return the folder on this machine into which files of a kind are written."""
        return self.local / kind

    def read_about(self) -> About:
        """Read `service.json`. Raises DataError where the folder is no log, or one of a later d3ray."""
        return about_of(self.place.read(ABOUT), self.place)

    def prepare(self, spec: Spec) -> About:
        """Make the folders, and `service.json` where there is none. Raises DataError where the log is one of another problem."""
        for place in [self.place, Place(self.local)] if self.spooled else [self.place]:
            for kind in ("decisions", "outcomes"):
                Place(place.address(kind)).make()
            if place.read(ABOUT) is None:
                content = About.of(spec).model_dump_json(indent=1).encode()
                if place.local is None:
                    place.write(ABOUT, content)
                else:
                    _write_once(place.local / ABOUT, content)
            found = about_of(place.read(ABOUT), place)
            if difference := _difference(found, spec):
                raise DataError(f"{place} is the log of another problem: {difference}; give the service a folder of its own.")
        return self.read_about()

    def files(self, kind: Kind) -> list[LogFile]:
        """List the files that hold something, a writer's in order. Two looks, since one may miss a file that is just renamed."""
        place = Place(self.place.address(kind))
        named = {found[0] for _ in range(2 if place.local else 1) for name in place.names() if (found := file_of(name))}
        return sorted(named)

    def content(self, kind: Kind, file: LogFile) -> tuple[Any, bool] | None:
        """Read a file, and tell whether it is closed; None where it is gone. A closed one on a disk is mapped."""
        for suffix in (OPEN, CLOSED) if not self.spooled else (CLOSED,):  # in this order: it may be renamed between the two
            name = f"{kind}/{file.stem}{suffix}"
            if self.place.local is None:
                if (found := self.place.read(name)) is not None:
                    return pa.py_buffer(found), True
                continue
            with storage_errors("read", self.place.address(name)), suppress(FileNotFoundError):
                path = self.place.local / name
                if suffix == OPEN or not path.stat().st_size:  # may become shorter, which a map does not survive
                    return pa.py_buffer(path.read_bytes()), suffix == CLOSED
                with pa.memory_map(str(path)) as mapped:
                    return mapped.read_buffer(), True
        return None


def is_log(path: Path) -> bool:
    """Tell whether a local folder is a decision log."""
    with suppress(OSError, ValueError):
        found: Any = parse_json((path / ABOUT).read_bytes())
        return isinstance(found, dict) and found.get("format") == FORMAT
    return False


def about_of(content: bytes | None, where: object) -> About:
    """Parse what `service.json` holds. Raises DataError."""
    if content is None:
        raise DataError(f"{where} is no decision log: it has no {ABOUT}.")
    try:
        return About.model_validate_json(content)
    except ValidationError as error:
        raw: Any = None
        with suppress(ValueError):
            raw = parse_json(content)
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise DataError(f"{where} is no decision log: {ABOUT} does not say so.") from None
        if raw.get("version") != VERSION:
            raise DataError(f"{where} has log version {raw.get('version')}; this d3ray reads version {VERSION}.") from None
        first = error.errors()[0]
        raise DataError(f"{ABOUT} of {where} is damaged: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}.") from None


def _difference(found: About, spec: Spec) -> str:
    ours, theirs = shapes_of(found.spec), shapes_of(spec)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return f"its {name} is {_say(ours.get(name))} and the policy's {_say(theirs.get(name))}"
    wanted = About.of(spec)
    for name in found.decisions.keys() & wanted.decisions.keys():
        if found.decisions[name] != wanted.decisions[name]:
            return f"its {name} is {found.decisions[name]} and the policy's {wanted.decisions[name]}"
    if found.spec.action_mask != spec.action_mask:
        which = ("the policy knows no mask of legal actions and it", "it knows no mask of legal actions and the policy")
        return f"{which[spec.action_mask]} does"
    return ""


def _say(shape: tuple[Any, ...] | None) -> str:
    """Write one entry of `shapes_of`."""
    if shape is None:
        return "not there"
    size, n, nvec, start = shape
    first = f" from {start}" if start else ""
    return f"one of {n}{first}" if n and not size else f"of {list(nvec)} kinds{first}" if nvec else f"of shape {list(size)}"


def _write_once(path: Path, content: bytes) -> None:
    """Write a file that is whole or not there, unless another process was first."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with storage_errors("written", path):
            write_atomically(aside, content)
            with suppress(FileExistsError):
                os.link(aside, path)
    except StorageError:
        if not path.exists():  # on a disk without links the last of two writes counts, of the same content in all likelihood
            with storage_errors("written", path):
                write_atomically(path, content)
    finally:
        aside.unlink(missing_ok=True)
