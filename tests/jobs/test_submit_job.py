"""`d3ray submit`, from a real command to a real cluster that has d3ray's dependencies but not d3ray."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.errors import StorageError
from d3ray.platform.cluster import Cluster, SubmittedJob, staged_package

from ..platform.ray_head import RayHead, ray_head

D3RAY = [sys.executable, "-m", "d3ray.jobs"]


@pytest.fixture(scope="module")
def head() -> Generator[RayHead]:
    with ray_head() as running:
        yield running


def submit(head: RayHead, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**head.environment(), **variables}
    return subprocess.run([*D3RAY, "submit", *arguments], env=environment, capture_output=True, text=True, timeout=200, check=False)


def test_a_job_runs_with_the_d3ray_that_was_sent(head: RayHead, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("dataset: d3ray/cartpole-replay\nformat: json\n")
    done = submit(head, "inspect", "--config", str(config))
    assert done.returncode == 0, done.stderr
    came_from = re.search(r"^d3ray \S+ from (\S+)$", done.stdout, re.MULTILINE)
    assert came_from, done.stdout
    assert "py_modules_files" in came_from[1]
    (found,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert found["name"] == "d3ray/cartpole-replay"
    assert found["n_transitions"] == 48_000
    assert re.search(r"^Sending d3ray \S+ of \S+ to http://127\.0\.0\.1:", done.stderr)
    assert "INFO" not in done.stderr


def test_a_submitted_training_ends_with_the_metrics_of_a_local_one(head: RayHead, tmp_path: Path) -> None:
    settings = ["d3ray/cartpole-replay", "algorithm=DQN", "algorithm.encoder.hidden_units=[16]", "algorithm.learning_rate=1e-3"]
    settings += [
        "name=same",
        "seeds=[3, 4]",
        "n_steps=40",
        "n_steps_per_epoch=20",
        "evaluation=CartPole-v1",
        "evaluation.episodes=3",
    ]
    sent = submit(head, "check_cluster=false", "train", *settings, f"storage={tmp_path / 'sent'}")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    here = subprocess.run(
        [*D3RAY, "train", *settings, f"storage={tmp_path / 'here'}"], capture_output=True, text=True, timeout=200, check=False
    )
    assert here.returncode == 0, here.stderr
    ended = [trained(tmp_path / where / "same") for where in ("sent", "here")]
    assert ended[0] == ended[1]
    assert {seed for seed, _ in ended[0]} == {"3", "4"}
    assert all("evaluation/return" in metrics and "train/critic_loss" in metrics for _, metrics in ended[0])


def trained(experiment: Path) -> list[tuple[str, dict[str, float]]]:
    """Seeds and their last metrics, without those that are about the clock."""
    statuses = [json.loads(file.read_text()) for file in sorted(experiment.glob("trials/*/status.json"))]
    ended = [(seed, about["metrics"]) for status in statuses for seed, about in status.items()]
    return [(seed, {name: value for name, value in metrics.items() if not name.startswith("time/")}) for seed, metrics in ended]


def test_the_exit_status_is_that_of_the_job(head: RayHead) -> None:
    done = submit(head, "check_cluster=false", "inspect", "/no/such/dataset")
    assert done.returncode == 2
    assert "There is no dataset folder '/no/such/dataset'" in done.stdout
    assert done.stderr.endswith("failed with exit status 2.\n")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"RAY_AUTH_TOKEN": "wrong" * 8}, "refuses the token"),
        ({"RAY_AUTH_MODE": "disabled"}, "asks for a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"),
        ({"RAY_ADDRESS": "http://127.0.0.1:1"}, "http://127.0.0.1:1 cannot be reached"),
    ],
)
def test_a_cluster_that_does_not_let_us_in_is_refused_in_one_sentence(
    head: RayHead, variables: dict[str, str], sentence: str
) -> None:
    done = submit(head, "inspect", "d3ray/cartpole-replay", **variables)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_arguments_are_checked_before_anything_is_sent(head: RayHead) -> None:
    done = submit(head, "inspect", "d3ray/cartpole-replay", "fromat=json")
    assert done.returncode == 2
    assert done.stderr == "d3ray inspect has no setting 'fromat'; did you mean 'format'?\n"


def test_ctrl_c_leaves_the_job_and_says_how_to_stop_it(head: RayHead, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["submit", "check_cluster=false", "collect", "Pendulum-v1", str(head.folder / "left"), "n_steps=100_000_000"]
    process = subprocess.Popen(
        [*D3RAY, *command],
        env=head.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "collecting:" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    job = re.search(r"To stop it: ray job stop (\S+) --address (\S+)", errors)
    assert job, errors
    assert f"ray job logs --follow {job[1]} --address {job[2]}" in errors
    for name, value in head.environment().items():
        if name.startswith("RAY_"):
            monkeypatch.setenv(name, value)
    cluster = Cluster()
    assert cluster.client.get_job_status(job[1]).value == "RUNNING"
    end = cluster.stop(SubmittedJob(job[1], job[2]))
    assert (end.status, end.exit_status) == ("STOPPED", 130)
    log = cluster.client.get_job_logs(job[1])
    assert "Interrupted; nothing half-made was kept." in log  # it was interrupted, not killed
    assert list(head.folder.glob("*left*")) == []


def test_ctrl_c_asks_at_a_terminal_and_stops_the_job(head: RayHead) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*D3RAY, "submit", "check_cluster=false", "collect", "Pendulum-v1", str(head.folder / "asked"), "n_steps=100_000_000"],
        env=head.environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        _read_until(ours, "collecting:")
        process.send_signal(signal.SIGINT)
        assert re.search(r"Stop raysubmit_\w+ as well\? \[y/N\] $", _read_until(ours, "[y/N] "))
        os.write(ours, b"y\n")
        _read_until(ours, "stopped with exit status 130")
        assert process.wait(60) == 130
    finally:
        process.kill()
        os.close(ours)


def _read_until(terminal: int, words: str) -> str:
    seen, deadline = "", time.monotonic() + 120
    while words not in seen:
        assert select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0], seen
        try:
            seen += os.read(terminal, 4096).decode(errors="replace")
        except OSError as error:  # Linux says so when the other side is closed
            raise AssertionError(seen) from error
    return seen


def test_what_the_cluster_lacks_is_named(head: RayHead, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in head.environment().items():
        if name.startswith("RAY_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr("d3ray.platform.cluster.requirements", lambda: ["no-such-thing>=3", "numpy>=99", "ray>=2"])
    with staged_package() as staged, pytest.raises(StorageError) as refused:
        Cluster(head.address).check(staged)
    assert str(refused.value) == (
        f"The cluster {head.address} lacks what d3ray needs: no-such-thing>=3, numpy>=99 (it has {np.__version__})."
    )
