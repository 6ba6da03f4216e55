"""A local database of MLflow: made by MLflow once a machine, and copied from there.

MLflow makes one by all the migrations that it has ever had, one after another and each with syncs of the disk, about a thousand: a
second of work, and 3 to 60 seconds of waiting for a disk that others use too. To copy an empty one takes hundredths.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from ...data.node_maps.cache import cache_root


def make_database(database: Path) -> None:
    """An empty database where there is none; no experiment is in it, not even MLflow's own.

    It is made aside and renamed: MLflow cannot go on with one that a full disk or a kill left half made. One process at a time may.

    Raises:
        OSError, sqlite3.Error: it cannot be written.
    """
    for left in database.parent.glob(f".{database.name}.new-*"):
        left.unlink()
    aside = database.with_name(f".{database.name}.new-{uuid4().hex[:8]}")
    try:
        if (empty := _empty_one()) is None:
            _migrate(aside)
            _sync(aside)
        else:
            _copy(empty, aside)
        aside.rename(database)
    finally:
        for left in database.parent.glob(f"{aside.name}*"):
            left.unlink()


def _empty_one() -> Path | None:
    """The one that is copied, in the cache under the version of MLflow that made it; None where it cannot be kept there."""
    kept = cache_root() / "mlflow" / f"{version('mlflow')}.db"
    if kept.exists():
        return kept
    with suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".new-") as folder:
            made, whole = Path(folder) / "made.db", Path(folder) / "whole.db"
            _migrate(made)
            _copy(made, whole)
            whole.replace(kept)
        return kept
    return None


def _migrate(database: Path) -> None:
    """Has MLflow make it. Of MLflow's own experiment the folder of artifacts belongs to the place where it is opened."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy import Engine, event
    from sqlalchemy.exc import SQLAlchemyError

    event.listen(Engine, "connect", _unsynced)
    try:
        MlflowClient(f"sqlite:///{database}")
    except (MlflowException, SQLAlchemyError) as error:
        raise sqlite3.OperationalError(str(error)) from error
    finally:
        event.remove(Engine, "connect", _unsynced)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM experiments")


def _unsynced(connection: Any, _: object) -> None:
    """Turn off syncing: after a power cut the work is done anew, and only the finished file has to be on the disk."""
    connection.execute("PRAGMA synchronous=off")


def _copy(there: Path, here: Path) -> None:
    """On the disk when it returns, so that a rename after it leaves the whole file or none."""
    shutil.copyfile(there, here)
    _sync(here)


def _sync(database: Path) -> None:
    with database.open("rb") as file:
        os.fsync(file.fileno())
