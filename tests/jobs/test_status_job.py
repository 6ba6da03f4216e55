"""`d3ray status` beside a real `d3ray train` that runs, and after it was killed; its files; the lines of its log."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.jobs.results.status import StatusConfig, run
from d3ray.jobs.views import live_view
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import lines
from d3ray.platform.tracking.metric_files import MetricFiles
from d3ray.platform.tracking.runs import Tracking
from d3ray.platform.tracking.settling import settle

from ..platform.results.fake_status import begin, write_trial

TRAIN = ["d3ray/cartpole-replay", "algorithm=DQN", "algorithm.preset=small", "n_steps=400000", "n_steps_per_epoch=200"]
MORE = ["seeds=[0, 1]", "evaluation.episodes=1", "evaluation.every=400", "loggers=[csv, tensorboard]", "name=real"]


def until(condition: Callable[[], Any], process: subprocess.Popen[bytes], log: Path, seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, log.read_text()
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a command with all of its session: Ray's workers are in groups of their own, and would go on for a moment."""
    deadline = time.monotonic() + 60
    while left := [int(one.name) for one in Path("/proc").glob("[0-9]*") if session(int(one.name)) == process.pid]:
        assert time.monotonic() < deadline
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.05)
    process.wait()


def session(pid: int) -> int | None:
    """The session of a process that lives."""
    try:
        state, _, _, number = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state == "Z" else int(number)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_real_one_while_it_runs_and_after_it_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage, log = tmp_path / "results", tmp_path / "log.txt"
    environment = {name: value for name, value in os.environ.items() if name not in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")}
    with log.open("wb") as file:
        command = [sys.executable, "-m", "d3ray.jobs", "train", *TRAIN, *MORE, f"storage={storage}"]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)

    def view() -> Any:
        try:
            return run(StatusConfig(experiment="real", storage=str(storage))).experiments["real"]
        except ConfigError:
            return None

    try:
        until(view, process, log)  # from the moment on that there is one
        shown = until(lambda: (found := view()) and found.eta is not None and found.best is not None and found, process, log)
        assert shown.state == "RUNNING"
        assert {trial.state for trial in shown.trials} <= {"RUNNING", "PENDING"}
        assert 0 < shown.share < 1
        assert shown.rate > 0
        until(lambda: "% of 2 seeds of 400,000 updates" in log.read_text(), process, log)
    finally:
        end(process)
    assert "\x1b" not in log.read_text()  # no control characters in a log
    assert "\r" not in log.read_text()

    until_dead = time.monotonic() + 60
    while (dead := view()).state == "RUNNING":
        assert time.monotonic() < until_dead
        time.sleep(0.1)
    assert (dead.state, dead.reason) == ("KILLED", "its command died")
    assert {trial.state for trial in dead.trials} <= {"KILLED", "PENDING"}
    assert run_command("status", ["real", f"storage={storage}"]) == 0
    said = capsys.readouterr().out
    assert re.match(r"real  killed  after \d", said)
    assert "Its command died." in said
    assert f"d3rayresumerealstorage={storage}" in "".join(said.split())  # the path is longer than a line
    assert run_command("status", ["real", f"storage={storage}", "format=json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "KILLED"
    assert [trial["step"] for trial in told["trials"]] == [trial.step for trial in dead.trials]

    assert settle(str(storage), Tracking.open(str(storage))) == ["real"]  # the next command that looks
    experiment = Experiment.look(str(storage), "real")
    for trial in experiment.trials():
        (seed,) = trial.seeds
        folder = storage / "real" / "csv" / trial.identity / f"seed-{seed}"
        table = folder / "evaluation" / "return.csv"  # missing where it was killed before its first evaluation
        rows = table.read_text().splitlines() if table.exists() else []
        there = [line for line in lines(trial.outbox(seed), -1, trial.committed) if "evaluation/return" in line.metrics]
        assert rows == [f"{line.step // 200},{line.step},{line.metrics['evaluation/return']!r}" for line in there]
    assert any((storage / "real" / "csv").rglob("evaluation/return.csv"))
    written = {path: path.read_bytes() for path in (storage / "real" / "tensorboard").rglob("events*")}
    (experiment.folder / "tensorboard").remove()
    MetricFiles(experiment, ("tensorboard",)).update(experiment.trials())
    assert written == {path: path.read_bytes() for path in written}


def test_every_experiment_of_a_storage_in_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    done = begin(tmp_path, "done")
    write_trial(done, (0, 1), epochs=[(1000, now - 5, {0: 1.0, 1: 3.0})], ended="FINISHED")
    done.set_state("FINISHED")
    running = begin(tmp_path, "running")
    write_trial(running, (0,), epochs=[(500, now - 5, {})])
    begin(tmp_path, "damaged").folder.write("state.json", b"{")
    assert run_command("status", [f"storage={tmp_path}"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("damaged: ")
    assert said[0].endswith("state.json is damaged: it is not JSON.")
    assert re.fullmatch(
        r"done: finished, 100 %, 1 finished, best evaluation/return 2\.000, interval below 95 % \[1, 3\], 2 seeds", said[1]
    )
    assert said[2] == "running: running, 50 %, 1 running"
    assert run_command("status", [f"storage={tmp_path}", "format=json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["damaged", "done", "running"]


def test_watch_follows_until_the_experiment_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,), epochs=[(500, time.time() - 5, {0: 1.0})])

    said, say = threading.Event(), live_view.line

    def line(view: Any) -> str:
        said.set()
        return say(view)

    def finish() -> None:
        assert said.wait(60)
        trial.settle({0: {"status": "FINISHED", "step": 1000, "metrics": {"evaluation/return": 7.0}}})
        experiment.set_state("FINISHED")

    monkeypatch.setattr(live_view, "line", line)
    finisher = threading.Thread(target=finish, daemon=True)
    finisher.start()
    assert run_command("status", ["one", f"storage={tmp_path}", "watch=true"]) == 0
    finisher.join()
    told = capsys.readouterr()
    assert "one: 50 % of 1 seed of 1,000 updates" in told.err
    assert "one: seed 0 finished at step 1,000, evaluation/return 7.000" in told.err
    assert told.out.startswith("one  finished  took")


def test_what_cannot_be_told_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("status", [f"storage={tmp_path}"]) == BAD_INPUT
    assert capsys.readouterr().err == f"There are no experiments in {tmp_path}; storage=FOLDER names another place.\n"
    begin(tmp_path, "pendulum")
    assert run_command("status", ["pendulm", f"storage={tmp_path}"]) == BAD_INPUT
    assert capsys.readouterr().err == f"There is no experiment 'pendulm' in {tmp_path}; did you mean 'pendulum'?\n"
    assert run_command("status", [f"storage={tmp_path}", "watch=true"]) == BAD_INPUT
    assert capsys.readouterr().err == "watch follows one experiment: name it.\n"
