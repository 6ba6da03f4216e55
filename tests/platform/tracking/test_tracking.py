"""Delivery to MLflow: every number once, every run once, honest statuses, and a server that goes away."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
import torch

from d3ray.data.errors import ConfigError
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import Writer
from d3ray.platform.tracking.delivery import Delivery, deliver
from d3ray.platform.tracking.runs import ServerAwayError, Tracking, check_tracking
from d3ray.platform.tracking.settling import settle

from .many_runs import SWEEP, score, write_trial

CONFIGURATION = {"algorithm": {"name": "DQN", "gamma": 0.9}, "n_steps": 40}
DATASET = {
    "name": "tiny",
    "fingerprint": "f" * 64,
    "source": "/data/tiny",
    "n_transitions": 10,
    "n_episodes": 1,
    "environment": None,
    "schema": {"reward": ["float32"]},
}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def tracking(storage: Path) -> Tracking:
    return Tracking.open(str(storage))


class Case:
    """An experiment with one trial of some seeds, written by hand."""

    def __init__(self, storage: Path, name: str, seeds: tuple[int, ...] = (0,)) -> None:
        self.experiment = Experiment.begin(str(storage), name, CONFIGURATION, DATASET)
        self.experiment.set_state("RUNNING")
        self.trial = self.experiment.trial(CONFIGURATION, seeds)

    def train(self, *steps: int, scale: float = 1.0, commit: bool = True) -> None:
        writer = Writer(self.trial)
        boxes = writer.begin_outboxes()
        for step in steps:
            for seed, box in boxes.items():
                box.add(step, {"train/loss": scale * step + seed, "evaluation/return": 1.0})
            if commit:
                writer.commit(step, {"w": torch.zeros(1)}, {"step": step}, list(boxes.values()), 2)
            else:
                for box in boxes.values():
                    box.write(step)

    def deliver(self, tracking: Tracking) -> None:
        deliver(tracking, self.experiment, [Trial(self.trial.folder)])

    def runs(self, tracking: Tracking) -> dict[str, Any]:
        found = tracking.client.search_runs([tracking.experiment_id], f"tags.`d3ray.experiment` = '{self.experiment.name}'")
        by_name = {run.data.tags.get("d3ray.seed", "parent"): run for run in found}
        assert len(by_name) == len(found)  # none twice
        return by_name

    def history(self, tracking: Tracking, seed: int = 0) -> list[tuple[int, float]]:
        run = self.runs(tracking)[str(seed)]
        return [(m.step, m.value) for m in tracking.client.get_metric_history(run.info.run_id, "train/loss")]


def test_runs_say_what_they_are(tracking: Tracking, storage: Path) -> None:
    case = Case(storage, "what", (0, 1))
    case.train(10)
    case.deliver(tracking)
    runs = case.runs(tracking)
    assert runs.keys() == {"parent", "0", "1"}
    for seed in (0, 1):
        data = runs[str(seed)].data
        assert data.tags["mlflow.parentRunId"] == runs["parent"].info.run_id
        assert data.tags["d3ray.key"] == case.trial.runs[seed]
        assert data.params.items() >= {"seed": str(seed), "algorithm": "DQN", "algorithm.gamma": "0.9", "n_steps": "40"}.items()
        (data_input,) = runs[str(seed)].inputs.dataset_inputs
        assert (data_input.dataset.name, data_input.dataset.digest) == ("tiny", "f" * 36)
        assert case.history(tracking, seed) == [(10, 10.0 + seed)]


def test_metrics_wait_for_their_checkpoint_and_are_never_doubled(tracking: Tracking, storage: Path) -> None:
    case = Case(storage, "once")
    case.train(10, 20)
    case.train(30, commit=False)  # killed before the checkpoint of 30
    case.deliver(tracking)
    assert case.history(tracking) == [(10, 10.0), (20, 20.0)]
    case.train(30, 40, scale=3.0)  # trained again, with other numbers
    case.deliver(tracking)
    case.deliver(tracking)
    assert case.history(tracking) == [(10, 10.0), (20, 20.0), (30, 90.0), (40, 120.0)]
    newest = case.trial.folder.local
    assert newest is not None
    for step in (30, 40):  # both are damaged after their metrics were delivered: training goes back, metrics do not
        (newest / f"checkpoints/step-{step:09d}/meta.json").write_text("{")
    writer = Writer(case.trial)
    boxes = writer.begin_outboxes()
    assert writer.newest() is None
    boxes[0].add(40, {"train/loss": -1.0})
    writer.commit(40, {"w": torch.zeros(1)}, {}, list(boxes.values()), 2)
    case.deliver(tracking)
    assert case.history(tracking)[-1] == (40, 120.0)


def test_a_crash_anywhere_in_a_delivery_doubles_nothing(tracking: Tracking, storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call to MLflow is made, and the process dies right after it; a new process delivers again."""
    case = Case(storage, "crash", (0, 1))
    case.train(10, 20)
    calls = ("create_run", "log_batch", "log_inputs", "set_terminated")
    died: set[str] = set()

    class Died(BaseException):
        pass

    for name in calls:
        fresh = Tracking.open(str(storage))
        real = getattr(fresh.client, name)

        def die(*args: Any, _real: Any = real, _name: str = name, **kwargs: Any) -> None:
            _real(*args, **kwargs)
            died.add(_name)
            raise Died

        with monkeypatch.context() as patch:
            patch.setattr(fresh.client, name, die)
            if name == "set_terminated":
                case.trial.settle({seed: {"status": "FAILED", "reason": "of a reason", "step": 20} for seed in (0, 1)})
            with pytest.raises(Died):
                deliver(fresh, case.experiment, [Trial(case.trial.folder)])
    assert died == set(calls)
    case.deliver(Tracking.open(str(storage)))
    case.trial.folder.delete(["delivered.json"])  # and what it had noted is lost
    case.deliver(Tracking.open(str(storage)))
    runs = case.runs(tracking)
    assert len(runs) == 3
    for seed in (0, 1):
        assert case.history(tracking, seed) == [(10, 10.0 + seed), (20, 20.0 + seed)]
        assert runs[str(seed)].info.status == "FAILED"
        assert runs[str(seed)].data.tags["d3ray.reason"] == "of a reason"


def test_what_failed_twice_and_then_finishes_is_told_of_each_attempt(tracking: Tracking, storage: Path) -> None:
    case = Case(storage, "again")
    for attempt in (1, 2):  # the second for the same reason as the first
        case.train(10 * attempt)
        case.trial.settle({0: {"status": "FAILED", "reason": "of a reason", "step": 10}})
        case.deliver(Tracking.open(str(storage)))
        run = case.runs(tracking)["0"]
        assert case.history(tracking)[-1] == (10 * attempt, 10.0 * attempt)
        assert run.info.status == "FAILED"
        assert run.data.tags.items() >= {"d3ray.attempt": str(attempt), "d3ray.reason": "of a reason"}.items()
        case.trial.reopen()
    case.train(30)
    case.trial.settle({0: {"status": "FINISHED", "step": 30, "metrics": {}}})
    case.deliver(Tracking.open(str(storage)))
    run = case.runs(tracking)["0"]
    assert run.info.status == "FINISHED"
    assert run.data.tags["d3ray.attempt"] == "3"
    assert "d3ray.reason" not in run.data.tags


def test_a_configuration_is_scored_once_and_over_all_its_seeds(tracking: Tracking, storage: Path) -> None:
    experiment = Experiment.begin(str(storage), "scored", {**SWEEP, "seeds": [0, 1, 2]}, DATASET)
    experiment.set_state("RUNNING")
    for seed in (0, 1, 2):  # a command each
        write_trial(experiment, 0, seed)
        deliver(Tracking.open(str(storage)), experiment, experiment.trials())
    deliver(Tracking.open(str(storage)), experiment, experiment.trials())
    runs = tracking.client.search_runs([tracking.experiment_id], "tags.`d3ray.experiment` = 'scored'")
    scores = {"seed": "configuration/objective", "sweep": "objective"}
    kinds = [run.data.tags["d3ray.kind"] for run in runs]
    assert sorted(kinds) == ["seed", "seed", "seed", "sweep"]
    for run, kind in zip(runs, kinds, strict=True):
        (only,) = tracking.client.get_metric_history(run.info.run_id, scores[kind])
        assert only.value == pytest.approx(sum(score(0, seed) for seed in (0, 1, 2)) / 3)


def test_the_next_command_settles_what_died(tracking: Tracking, storage: Path) -> None:
    dead, alive = Case(storage, "dead"), Case(storage, "alive")
    for case in (dead, alive):
        case.train(10)
        case.deliver(tracking)
    dead.train(20)
    dead.experiment.close()  # as the lock of a killed process
    settled = settle(str(storage), Tracking.open(str(storage)))
    assert "dead" in settled
    assert "alive" not in settled
    assert {run.info.status for run in dead.runs(tracking).values()} == {"KILLED"}
    assert {run.info.status for run in alive.runs(tracking).values()} == {"RUNNING"}
    assert dead.history(tracking) == [(10, 10.0), (20, 20.0)]
    dead.experiment.set_state("RUNNING")  # and it goes on
    dead.deliver(Tracking.open(str(storage)))
    assert {run.info.status for run in dead.runs(tracking).values()} == {"RUNNING"}


@pytest.mark.long
def test_two_processes_create_one_database(tmp_path: Path) -> None:
    script = "import sys; from d3ray.platform.tracking.runs import Tracking; print(Tracking.open(sys.argv[1]).experiment_id)"
    both = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=120)[0] for process in both] == ["1\n", "1\n"]
    assert (tmp_path / "mlflow.db").read_bytes()[18:20] == b"\x02\x02"  # SQLite's write-ahead log


def test_results_elsewhere_need_a_tracking_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    check_tracking(str(tmp_path))
    with pytest.raises(ConfigError, match=r"MLFLOW_TRACKING_URI must name .* s3://bucket/results is not on this machine"):
        check_tracking("s3://bucket/results")
    with pytest.raises(ConfigError, match=r"MLFLOW_TRACKING_URI must name .* the cluster has 3 nodes"):
        check_tracking(str(tmp_path), nodes=3)


def test_a_server_that_is_not_there_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(ConfigError, match=rf"does not answer: .* Start it .*, or unset it to use {tmp_path}/mlflow\.db\.$"):
        Tracking.open(str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"Start it \(mlflow server\), or correct MLFLOW_TRACKING_URI: a storage behind a URI has no"
    ):
        Tracking.open("fsspec+memory://results")
    assert time.monotonic() - began < 20
    assert list(tmp_path.iterdir()) == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Forwarder(socketserver.ThreadingTCPServer):
    """A way to a server that can be closed and opened again."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, to: int) -> None:
        self.to, self.open = to, set[socket.socket]()
        super().__init__(("127.0.0.1", port), _Forward)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self.open):  # kept alive by the client
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Forward(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Forwarder)
        with socket.create_connection(("127.0.0.1", self.server.to)) as there:
            self.server.open |= {there, self.request}
            back = threading.Thread(target=_copy, args=(there, self.request), daemon=True)
            back.start()
            _copy(self.request, there)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def server(tmp_path: Path, storage: Path, tracking: Tracking) -> Iterator[int]:
    """A real MLflow server on a database that exists already; its port."""
    store, port = tmp_path / "server", free_port()
    store.mkdir()
    with closing(sqlite3.connect(storage / "mlflow.db")) as made, closing(sqlite3.connect(store / "mlflow.db")) as copy:
        made.backup(copy)  # creating one takes seconds
    uri = f"sqlite:///{store / 'mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--artifacts-destination", str(store / "a")]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.mark.long
def test_an_outage_stalls_nothing_and_loses_nothing(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("D3RAY_DELIVERY_SECONDS", "1")
    way = Forwarder(port, server)
    tracking = Tracking.open(str(tmp_path))
    case = Case(tmp_path, "outage")
    with Delivery(tracking, case.experiment, [case.trial]) as delivery:
        delivery.start(runs=True)
        case.train(10)
        until(lambda: case.trial.delivered.get(0, {}).get("step") == 10)
        way.end()
        case.train(20)  # training goes on
        until(lambda: delivery.trouble != "")
        with pytest.raises(ServerAwayError):
            case.deliver(tracking)
        case.experiment.set_state("FINISHED")
        assert " delivers the rest" in delivery.finish()
    way = Forwarder(port, server)
    try:
        with Delivery(tracking, case.experiment, [case.trial]) as again:
            again.start(runs=False)
            assert again.finish() == ""
        assert case.history(tracking) == [(10, 10.0), (20, 20.0)]
        assert case.runs(tracking)["parent"].info.status == "FINISHED"
    finally:
        way.end()


@pytest.mark.slow
def test_mlflow_checks_who_asks(tmp_path: Path, storage: Path, tracking: Tracking) -> None:
    """The command that jobs print: it listens on loopback only, and refuses another site's page in the user's browser."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking.uri, "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    )
    try:
        url = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/get?experiment_id={tracking.experiment_id}"
        until(lambda: answer(url) == 200, 240)
        assert answer(url, {"Host": "evil.example"}) == 403
        search = f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search"
        assert answer(search, {"Origin": "http://evil.example"}, {"experiment_ids": [tracking.experiment_id]}) == 403
        assert answer(search, {}, {"experiment_ids": [tracking.experiment_id]}) == 200
        with socket.socket() as probe:  # a loopback address of its own stands for the other ways to this machine
            assert probe.connect_ex(("127.0.0.2", port)) != 0
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def answer(url: str, headers: dict[str, str] | None = None, body: Any = None) -> int:
    """The status of a request; 0 where nobody listens."""
    try:
        if body is None:
            return requests.get(url, headers=headers, timeout=60).status_code
        return requests.post(url, headers=headers, json=body, timeout=60).status_code
    except requests.ConnectionError:
        return 0


def until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_folder_labels() -> None:
    assert (Folder("/a/b") / "c").label == "c"
