"""A database that is copied is the one that MLflow would have made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import StorageError
from d3ray.platform.tracking import database
from d3ray.platform.tracking.runs import Tracking


def content(file: Path) -> dict[str, Any]:
    """The schema and the rows of every table; what was planned or written when, and where it lies, left out.

    A statement is its lines in order of the alphabet: Alembic keeps a table's constraints in sets, whose order is chance.
    """
    with closing(sqlite3.connect(file)) as connection:
        statements = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name"
        ).fetchall()
        schema = [(kind, name, sorted(line.strip(" \t,") for line in (sql or "").splitlines())) for kind, name, sql in statements]
        tables = [name for kind, name, _ in schema if kind == "table"]
        found: dict[str, Any] = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
        found["experiments"] = connection.execute("SELECT experiment_id, name, artifact_location FROM experiments").fetchall()
    place = str(file.parent)
    return {"schema": schema, **{name: [str(row).replace(place, "HERE") for row in rows] for name, rows in found.items()}}


@pytest.mark.long
def test_a_copy_is_what_mlflow_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    made: list[Path] = []
    migrate = database._migrate
    monkeypatch.setattr(database, "_migrate", lambda file: (made.append(file), migrate(file)))
    for name in ("first", "second"):
        tracking = Tracking.open(str(tmp_path / name))
        run = tracking.client.create_run(tracking.experiment_id)
        assert run.info.artifact_uri.startswith((tmp_path / name / "mlartifacts").as_uri())
        tracking.client.delete_run(run.info.run_id)
    assert len(made) == 1  # in the cache
    assert [file.name for file in (tmp_path / "cache/mlflow").iterdir()] == [f"{__import__('mlflow').__version__}.db"]
    (tmp_path / "plain").mkdir()
    client = MlflowClient(f"sqlite:///{tmp_path / 'plain/mlflow.db'}")
    client.create_experiment("d3ray", (tmp_path / "plain/mlartifacts").as_uri())
    Tracking.open(str(tmp_path / "third"))
    ours, theirs = (content(tmp_path / name / "mlflow.db") for name in ("third", "plain"))
    assert ours == theirs
    assert any("HERE/mlartifacts" in row for row in ours["experiments"])


def test_without_a_cache_it_is_made_where_it_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    tracking = Tracking.open(str(tmp_path / "results"))
    assert tracking.client.get_experiment(tracking.experiment_id).name == "d3ray"
    assert not list((tmp_path / "results").glob(".mlflow.db.new-*"))

    def full(there: Path, here: Path) -> None:
        here.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(database, "_copy", full)
    monkeypatch.setattr(database, "_empty_one", lambda: tmp_path / "empty.db")
    with pytest.raises(StorageError, match="cannot be written: no space left on device"):
        Tracking.open(str(tmp_path / "full"))
    assert [file.name for file in (tmp_path / "full").iterdir()] == [".mlflow.db.lock"]
