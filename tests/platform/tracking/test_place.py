"""Where an experiment's runs are: there they stay, and what else lies in a storage neither moves them nor ends a command."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.locks import Lock
from d3ray.platform.tracking.delivery import Delivery, deliver
from d3ray.platform.tracking.place import keep_place, recorded_place
from d3ray.platform.tracking.runs import Tracking
from d3ray.platform.tracking.settling import settle

from .test_tracking import CONFIGURATION, DATASET, Case, free_port, storage, tracking

__all__ = ["storage", "tracking"]  # fixtures


@pytest.fixture
def team(tmp_path: Path, storage: Path, tracking: Tracking, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a database elsewhere, that stands for a team's server; `results` below `tmp_path` has one of its own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    for copied in (tmp_path / "team.db", tmp_path / "results" / "mlflow.db"):
        copied.parent.mkdir(exist_ok=True)
        with closing(sqlite3.connect(storage / "mlflow.db")) as made, closing(sqlite3.connect(copied)) as copy:
            made.backup(copy)  # making one takes seconds
    return f"sqlite:///{tmp_path / 'team.db'}"


def died(folder: Path, name: str, tracking: Tracking, *steps: int) -> Case:
    """An experiment whose command was killed after it had delivered."""
    case = Case(folder, name)
    keep_place(case.experiment, tracking.place)
    case.train(*steps)
    case.deliver(tracking)
    case.experiment.close()
    return case


def statuses(case: Case, tracking: Tracking) -> set[str]:
    return {run.info.status for run in case.runs(tracking).values()}


def note(case: Case) -> Any:
    return case.experiment.folder.read_json("tracking.json")


def test_a_dead_experiment_is_told_of_where_its_runs_are(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results = tmp_path / "results"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", team)
    case = died(results, "first", Tracking.open(str(results)), 10)
    kept = note(case)
    assert (kept["uri"], kept["experiment"], kept["in_storage"]) == (team, "d3ray", False)
    case.train(20)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    here = Tracking.open(str(results))
    assert settle(str(results), here) == []
    assert case.runs(here) == {}
    assert note(case) == kept
    assert case.experiment.state["status"] == "RUNNING"
    assert f"'first' has ended, which its runs in MLflow's experiment 'd3ray' at {team} do not say yet" in caplog.text
    caplog.clear()
    there = Tracking.open(str(results), recorded_place(str(results), "first"))
    assert statuses(case, there) == {"RUNNING"}
    assert settle(str(results), there) == ["first"]
    assert statuses(case, there) == {"KILLED"}
    assert case.history(there) == [(10, 10.0), (20, 20.0)]
    assert settle(str(results), here) == []
    assert caplog.text == ""


def test_a_dead_experiment_waits_for_a_server_that_goes_away_meanwhile(team: str, tmp_path: Path) -> None:
    results = tmp_path / "results"
    here = Tracking.open(str(results))
    case = died(results, "waiting", here, 10)
    with closing(sqlite3.connect(results / "mlflow.db")) as database:
        database.execute("ALTER TABLE tags RENAME TO away")
    assert settle(str(results), here) == []
    assert case.experiment.state["status"] == "RUNNING"  # as far as anybody has been told
    with closing(sqlite3.connect(results / "mlflow.db")) as database:
        database.execute("ALTER TABLE away RENAME TO tags")
    assert settle(str(results), Tracking.open(str(results))) == ["waiting"]
    assert statuses(case, Tracking.open(str(results))) == {"KILLED"}


def test_another_name_of_mlflows_experiment_makes_no_second_set_of_runs(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    case = died(results, "named", Tracking.open(str(results)), 10)
    run = case.runs(first := Tracking.open(str(results)))["0"].info.run_id
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "another")
    other = Tracking.open(str(results))
    assert other.name == "another"
    assert settle(str(results), other) == []
    again = Tracking.open(str(results), note(case))  # as --resume
    assert again.place == first.place
    assert settle(str(results), again) == ["named"]
    assert case.runs(other) == {}
    assert case.runs(again)["0"].info.run_id == run
    assert statuses(case, again) == {"KILLED"}


def test_an_experiment_goes_on_where_it_began_unless_another_server_is_named(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results = tmp_path / "results"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", team)
    case = died(results, "moved", before := Tracking.open(str(results)), 10)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert Tracking.open(str(results), note(case)).place == before.place
    assert Tracking.open(str(results)).place["in_storage"]  # a new one goes into the storage
    own = f"sqlite:///{results / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", own)
    now = Tracking.open(str(results), note(case))
    assert now.place["uri"] == own
    assert caplog.text == ""
    keep_place(case.experiment, now.place)
    assert f"The runs of 'moved' are at {team}; MLFLOW_TRACKING_URI names {own}, which gets all of them now" in caplog.text
    assert "run" not in note(case)
    case.train(20)
    case.deliver(now)
    assert case.history(now) == [(10, 10.0), (20, 20.0)]
    assert case.history(before) == [(10, 10.0)]
    caplog.clear()
    keep_place(case.experiment, now.place)
    assert caplog.text == ""


def test_a_server_that_has_got_no_more_than_the_experiments_own_run_gets_the_rest(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted of a trial that has ended is of the server before."""
    results = tmp_path / "results"
    case = Case(results, "told")
    case.train(10)
    case.trial.settle({0: {"status": "FINISHED", "step": 10, "metrics": {}}})
    case.deliver(Tracking.open(str(results)))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", team)
    there = Tracking.open(str(results), note(case))
    keep_place(case.experiment, there.place)
    deliver(there, case.experiment, [])  # there its command was killed
    again = Tracking.open(str(results), note(case))
    case.deliver(again)
    assert case.history(again) == [(10, 10.0)]


def test_a_storage_that_was_moved_has_its_runs_in_its_own_database(team: str, tmp_path: Path) -> None:
    died(tmp_path / "results", "far", Tracking.open(str(tmp_path / "results")), 10)
    shutil.copytree(tmp_path / "results", copied := tmp_path / "copied")
    opened = Tracking.open(str(copied), recorded_place(str(copied), "far"))
    assert opened.uri == f"sqlite:///{copied / 'mlflow.db'}"
    assert settle(str(copied), opened) == ["far"]
    assert settle(str(tmp_path / "results"), Tracking.open(str(tmp_path / "results"))) == ["far"]  # the original was left alone


def test_a_server_of_an_experiment_that_is_away_is_named(team: str, tmp_path: Path) -> None:
    place = {"uri": f"http://127.0.0.1:{free_port()}", "experiment": "d3ray", "in_storage": False}
    with pytest.raises(ConfigError, match=r"name it with user and password, or another one, in MLFLOW_TRACKING_URI"):
        Tracking.open(str(tmp_path / "results"), place)


def test_neighbours_that_cannot_be_read_or_locked_are_passed_over(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged ones, ones of another version, and those of another user, whose lock only that user can take."""
    results = tmp_path / "results"
    here = Tracking.open(str(results))
    case = died(results, "whole", here, 10)
    for name, about in (("broken", "{"), ("strange", "[]"), ("empty", "{}")):
        (results / name).mkdir()
        (results / name / "experiment.json").write_text(about)
    theirs = Case(results, "theirs")
    running = Case(results, "running")
    theirs.experiment.close()
    acquire = Lock.acquire

    def of_another_user(self: Lock, *, wait: bool = False) -> bool:
        if self.folder.label in ("theirs", "running"):
            raise StorageError(f"{self.folder} cannot be written: permission denied.")
        return acquire(self, wait=wait)

    monkeypatch.setattr(Lock, "acquire", of_another_user)
    with caplog.at_level(logging.WARNING, "d3ray"):
        assert settle(str(results), here) == ["whole"]
    assert statuses(case, here) == {"KILLED"}
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert not [line for line in said if "\n" in line or "'running'" in line]
    for name, why in (
        ("broken", "experiment.json is damaged: it is not JSON."),
        ("empty", "KeyError: 'name'."),
        ("strange", "TypeError: "),
        ("theirs", "theirs cannot be written: permission denied."),
    ):
        assert [line for line in said if f"The experiment {name!r} in the same storage is passed over. " in line and why in line]
    assert theirs.experiment.state["status"] == "RUNNING"
    running.experiment.close()


def test_runs_of_what_was_replaced_are_deleted_however_late(tracking: Tracking, storage: Path) -> None:
    case = died(storage, "replaced", tracking, 10)
    assert case.runs(tracking).keys() == {"parent", "0"}
    Experiment.begin(str(storage), "replaced", CONFIGURATION, DATASET, replace=True).close()  # killed before it says so
    again = Experiment.begin(str(storage), "replaced", CONFIGURATION, DATASET, resume=True)
    with Delivery(tracking, again, []) as delivery:
        delivery.start(runs=True)
        again.set_state("FINISHED")
        assert delivery.finish() == ""
    assert {name: run.data.tags["d3ray.key"] for name, run in case.runs(tracking).items()} == {"parent": again.key}
    assert again.replaced == []
    again.close()
