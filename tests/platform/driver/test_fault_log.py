"""Deaths of workers go into the experiment's `faults.log`; whatever else Tune says is printed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from d3ray.data.errors import StorageError
from d3ray.platform.driver.fault_log import FILE, FaultLog
from d3ray.platform.storage.folders import Folder

CONTROLLER = logging.getLogger("ray.tune.execution.tune_controller")


@pytest.fixture
def printed() -> Iterator[list[logging.LogRecord]]:
    """What Tune's loggers pass on. Ray decides anew in each process whether it comes as far as the root's handlers."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("ray.tune").addHandler(handler)
    yield records
    logging.getLogger("ray.tune").removeHandler(handler)


def said_of(error: Exception) -> None:
    CONTROLLER.error(f"Trial task failed for trial {1}", exc_info=error)  # as Tune writes it


def test_only_deaths_of_workers_are_taken_out(tmp_path: Path, printed: list[logging.LogRecord]) -> None:
    with FaultLog(Folder(tmp_path)):
        said_of(ActorDiedError())
        said_of(ActorUnavailableError("the node went away", b"1" * 16))
        logging.getLogger("ray.tune.tune").error("Trials did not complete: %s", ["one"])
        logging.getLogger("ray.tune.tune").error("Experiment state snapshotting failed:", exc_info=OSError("no room"))
        assert printed == []
        said_of(RuntimeError("a fault that nobody knows"))
        CONTROLLER.error("Something else")
    assert [record.getMessage() for record in printed] == ["Trial task failed for trial 1", "Something else"]
    kept = (tmp_path / FILE).read_text()
    assert kept.count("tune_controller: Trial task failed for trial 1\n") == 2
    assert "ActorDiedError" in kept
    assert "the node went away" in kept
    assert kept.endswith("ray.tune.tune: Trials did not complete: ['one']\n")
    said_of(ActorDiedError())
    assert len(printed) == 3  # once the run is over, as ever


def test_what_cannot_be_kept_is_printed(tmp_path: Path, printed: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StorageError("no room")

    monkeypatch.setattr(Folder, "write", full)
    with FaultLog(Folder(tmp_path)):
        said_of(ActorDiedError())
    assert len(printed) == 1
