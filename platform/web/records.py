"""What only the page knows, in one SQLite file: unfinished uploads, the queue, projects, accounts.

Experiments, datasets and results are not in it: they are the storage's, and whoever deletes this file loses none of them.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TABLES = """
create table upload (id text primary key, name text not null, size integer not null, begun real not null);
create table project (name text primary key, made real not null);
create table member (project text not null references project(name) on delete cascade on update cascade,
    kind text not null, name text not null, primary key (project, kind, name));
create table waiting (name text primary key, job text not null, config text not null, project text not null, asked real not null,
    reason text not null);
create table person (name text primary key, password text not null, role text not null);
create table session (token text primary key, person text not null references person(name) on delete cascade, until real not null);
"""
_CHANGES = (_TABLES, "alter table upload add column person text not null default '';")  # each makes the file's next version


@dataclass(frozen=True)
class Upload:
    """A file that is coming in, or has come: what the browser calls it, its size in bytes, and whose it is."""

    id: str
    name: str
    size: int
    begun: float
    person: str


_BESIDE = ("uploads", "sources")  # what else the page keeps in its folder


@dataclass(frozen=True)
class Waiting:
    """An experiment that is to begin once there is room; `reason` says why it could not."""

    name: str
    job: str
    config: dict[str, Any]
    project: str
    asked: float
    reason: str = ""


class Records:
    """The file; each call opens it anew, so that any thread may. It is for its owner alone, as is what SQLite puts beside it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        folder = file.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if all(one.name in _BESIDE or one.name.startswith(file.name) for one in folder.iterdir()):  # it is the page's own
            folder.chmod(0o700)
        file.touch(mode=0o600)
        for one in folder.glob(f"{file.name}*"):
            with suppress(FileNotFoundError):  # a journal's change has ended meanwhile
                one.chmod(0o600)
        with self._open() as db:
            version = db.execute("pragma user_version").fetchone()[0]
            for k, change in enumerate(_CHANGES[version:], version + 1):
                db.executescript(f"begin; {change} pragma user_version = {k}; commit;")

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        db = sqlite3.connect(self._file, timeout=10)
        try:
            db.execute("pragma foreign_keys = on")
            with db:
                yield db
        finally:
            db.close()

    def _run(self, statement: str, *values: Any) -> int:
        """How many rows it has changed."""
        with self._open() as db:
            return db.execute(statement, values).rowcount

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._open() as db:
            return db.execute(query, values).fetchall()

    def _row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        return next(iter(self._rows(query, *values)), None)

    # ---- uploads

    def add_upload(self, upload: Upload) -> None:
        self._run("insert into upload values (?, ?, ?, ?, ?)", upload.id, upload.name, upload.size, upload.begun, upload.person)

    def uploads(self) -> list[Upload]:
        """All of them, those first that were begun first."""
        return [Upload(*row) for row in self._rows("select id, name, size, begun, person from upload order by begun")]

    def upload(self, id: str) -> Upload | None:
        row = self._row("select id, name, size, begun, person from upload where id = ?", id)
        return None if row is None else Upload(*row)

    def forget_upload(self, id: str) -> None:
        self._run("delete from upload where id = ?", id)

    # ---- the queue

    def wait(self, one: Waiting) -> None:
        """Puts it at the end of the queue, or keeps why it could not begin."""
        row = (one.name, one.job, json.dumps(one.config), one.project, one.asked, one.reason)
        self._run("insert or replace into waiting values (?, ?, ?, ?, ?, ?)", *row)

    def waiting(self) -> list[Waiting]:
        rows = self._rows("select name, job, config, project, asked, reason from waiting order by asked")
        return [Waiting(name, job, json.loads(config), project, asked, why) for name, job, config, project, asked, why in rows]

    def leave(self, name: str) -> bool:
        """Takes it out of the queue; whether it was there."""
        return self._run("delete from waiting where name = ?", name) > 0

    # ---- projects

    def add_project(self, name: str) -> bool:
        """Tell if it is new."""
        return self._run("insert or ignore into project values (?, ?)", name, time.time()) > 0

    def delete_project(self, name: str) -> None:
        """Deletes it; what it held stays."""
        self._run("delete from project where name = ?", name)

    def projects(self) -> list[str]:
        return [name for (name,) in self._rows("select name from project order by made")]

    def put(self, project: str, kind: str, name: str) -> None:
        """Puts a dataset or an experiment into a project."""
        self._run("insert or ignore into member values (?, ?, ?)", project, kind, name)

    def take_out(self, kind: str, name: str, project: str | None = None) -> None:
        """Takes it out of a project, or of all."""
        self._run("delete from member where kind = ? and name = ? and ? in (project, '')", kind, name, project or "")

    def members(self, project: str, kind: str) -> set[str]:
        return {name for (name,) in self._rows("select name from member where project = ? and kind = ?", project, kind)}

    # ---- accounts

    def keep_person(self, name: str, password: str, role: str) -> None:
        """An account, by the hash of its password; sessions of an earlier one end."""
        with self._open() as db:
            db.execute("insert or replace into person values (?, ?, ?)", (name, password, role))
            db.execute("delete from session where person = ?", (name,))

    def person(self, name: str) -> tuple[str, str] | None:
        """Hash of the password, and role."""
        found = self._row("select password, role from person where name = ?", name)
        return None if found is None else (found[0], found[1])

    def people(self) -> list[tuple[str, str]]:
        """Names and roles."""
        return [(name, role) for name, role in self._rows("select name, role from person order by name")]

    def delete_person(self, name: str) -> None:
        self._run("delete from person where name = ?", name)

    def keep_session(self, token: str, person: str, now: float, seconds: float) -> None:
        """A session, by the hash of its token, for so many seconds; those that have run out are forgotten."""
        with self._open() as db:
            db.execute("delete from session where until <= ?", (now,))
            db.execute("insert into session values (?, ?, ?)", (token, person, now + seconds))

    def session(self, tokens: tuple[str, str], now: float) -> tuple[str, str] | None:
        """Name and role of whose it is that is kept as either, while it lasts."""
        asked = "select name, role from session join person on person = name where token in (?, ?) and until > ?"
        found = self._row(asked, *tokens, now)
        return None if found is None else (found[0], found[1])

    def end_session(self, tokens: tuple[str, str]) -> None:
        self._run("delete from session where token in (?, ?)", *tokens)
