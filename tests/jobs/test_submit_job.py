"""`d3ray submit`, from a real command to a real cluster that has d3ray's dependencies but not d3ray."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import experiments
from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.api.handle import ExperimentHandle
from d3ray.platform.cluster.jobs import Cluster
from d3ray.platform.cluster.staging import cargo
from d3ray.platform.surroundings import git_state

from ..platform.cluster.ray_head import RayHead, ray_head
from ..platform.leaks import files_below
from .test_web import SAME, Page

pytestmark = pytest.mark.long

D3RAY = [sys.executable, "-m", "d3ray.jobs"]
LONG = ["collect", "Pendulum-v1", "n_steps=3_000_000"]  # a minute or two, and no more memory than a small dataset
SECRET = "correct-horse-battery-staple"
PLUGIN = """
import hashlib, os, pathlib
from d3ray.algos.values.dqn import DQN
from d3ray.algos.registry import register_algorithm

@register_algorithm
class LabDQN(DQN):
    "DQN by another name."

if "D3RAY_SUBMITTED" in os.environ:  # what each of the job's processes finds
    seen = pathlib.Path(os.environ["LAB_FOLDER"], f"{os.getpid()}")
    seen.write_text(hashlib.sha256(os.environ["LAB_PASSWORD"].encode()).hexdigest() + " " + __file__)
"""


@pytest.fixture(scope="module")
def head() -> Generator[RayHead]:
    with ray_head() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_job_is_left(head: RayHead) -> Generator[None]:
    yield
    assert head.stop_jobs() == []


def d3ray(head: RayHead, *arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**head.environment(), **variables}
    return subprocess.run([*D3RAY, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


def submit(head: RayHead, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return d3ray(head, "submit", *arguments, **options)


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


@pytest.mark.slow
def test_a_submitted_benchmark_takes_its_suite_along(head: RayHead, tmp_path: Path) -> None:
    suite = tmp_path / "ours.yaml"
    entries = [{"name": "BC", "action_scaler": "min_max"}, {"name": "TD3PlusBC", "action_scaler": "min_max", "label": "ours"}]
    about = {"datasets": ["d3ray/pendulum-replay"], "algorithms": entries, "n_steps": 20, "n_steps_per_epoch": 10}
    suite.write_text(json.dumps({**about, "evaluation": {"episodes": 1}}))
    done = submit(head, "benchmark", str(suite), f"storage={tmp_path / 'there'}")
    assert done.returncode == 0, done.stderr
    alone = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [*D3RAY, "benchmark", str(suite), f"storage={tmp_path / 'here'}"]
    here = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=300, check=False)
    assert here.returncode == 0, here.stderr
    scores = [(tmp_path / where / "ours" / "report" / "scores.csv").read_text() for where in ("here", "there")]
    assert scores[0] == scores[1]
    assert [line.split(",")[2] for line in scores[0].splitlines()[1:]] == ["BC", "ours"]


def test_a_submitted_training_ends_with_the_metrics_of_a_local_one(head: RayHead, tmp_path: Path) -> None:
    """With an algorithm of a plugin, which travels, and a secret, which the job and its trial have and nobody is shown."""
    lab, seen = tmp_path / "here" / "lab", tmp_path / "seen"
    lab.mkdir(parents=True)
    seen.mkdir()
    (lab / "__init__.py").touch()
    (lab / "networks.py").write_text(PLUGIN)
    settings = ["d3ray/cartpole-replay", "algorithm=LabDQN", "algorithm.encoder.hidden_units=[16]", "algorithm.learning_rate=1e-3"]
    settings += ["name=same", "seeds=[3, 4]", "n_steps=40", "n_steps_per_epoch=20", "plugins=[./lab/networks.py]"]
    settings += ["evaluation=CartPole-v1", "evaluation.episodes=3"]
    git = ["git", "-C", str(tmp_path / "here"), "-c", "user.name=lab", "-c", "user.email=lab@localhost"]
    for arguments in (["init", "-q", "-b", "work"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *arguments], check=True)
    options = ["check_cluster=false", f"env.LAB_FOLDER={seen}", "secrets=[LAB_PASSWORD]"]
    with commands_seen() as commands:
        sent = submit(
            head, *options, "train", *settings, f"storage={tmp_path / 'sent'}", cwd=tmp_path / "here", LAB_PASSWORD=SECRET
        )
    assert sent.returncode == 0, sent.stdout + sent.stderr
    here = subprocess.run(
        [*D3RAY, "train", *settings, f"storage={tmp_path / 'local'}"],
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert here.returncode == 0, here.stderr
    states = [json.loads((tmp_path / where / "same" / "surroundings.json").read_text())[0]["git"] for where in ("sent", "local")]
    assert states[0] == states[1] == git_state(tmp_path / "here")
    ended = [trained(tmp_path / where / "same") for where in ("sent", "local")]
    assert ended[0] == ended[1]
    assert {seed for seed, _ in ended[0]} == {"3", "4"}
    assert all("evaluation/return" in metrics and "train/critic_loss" in metrics for _, metrics in ended[0])
    found = [file.read_text().split() for file in seen.iterdir()]
    assert len(found) >= 2  # the job, and the trial's worker
    assert {digest for digest, _ in found} == {hashlib.sha256(SECRET.encode()).hexdigest()}
    assert all("py_modules_files" in place for _, place in found)
    assert_nowhere(SECRET, head, commands, tmp_path / "sent")
    assert_nowhere(head.token, head, commands, tmp_path / "sent")


def assert_nowhere(secret: str, head: RayHead, commands: set[bytes], storage: Path) -> None:
    """Not in what Ray lists, nor its logs, nor the list of processes, nor what a training leaves, MLflow's database included."""
    assert secret not in json.dumps(head.ask("/api/jobs/"))
    assert not [command for command in commands if secret.encode() in command]
    kept = files_below(head.folder.parent / "ray", storage)
    assert {"mlflow.db", "status.json", "dashboard.log"} <= {file.name for file, _ in kept}
    holding = [file for file, content in kept if secret.encode() in content]
    # what the job itself was given, which only its owner can read
    assert [file for file in holding if not (file.name == "secrets.json" and file.stat().st_mode & 0o077 == 0)] == []


@contextmanager
def commands_seen() -> Generator[set[bytes]]:
    """The command lines of all processes of this machine, looked at again and again, as another user could with `ps`."""
    seen, over = set[bytes](), threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(file.read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def trained(experiment: Path) -> list[tuple[str, dict[str, float]]]:
    """Seeds and their last metrics, without those that are about the clock."""
    statuses = [json.loads(file.read_text()) for file in sorted(experiment.glob("trials/*/status.json"))]
    ended = [(seed, about["metrics"]) for status in statuses for seed, about in status.items()]
    return [(seed, {name: value for name, value in metrics.items() if not name.startswith("time/")}) for seed, metrics in ended]


def test_a_job_goes_on_without_the_command_that_sent_it(head: RayHead) -> None:
    """From another shell it is listed, its log is shown, and waiting for it ends with its exit status."""
    sent = submit(head, "check_cluster=false", "wait=false", "inspect", "/no/such/dataset")
    assert sent.returncode == 0, sent.stderr
    job = re.search(r"^(inspect-[0-9a-f]{8}) runs on http://127", sent.stdout)
    assert job, sent.stdout
    assert f"d3ray jobs wait {job[1]} address={head.address}" in sent.stdout
    waited = d3ray(head, "jobs", "wait")  # the newest
    assert waited.returncode == 2, waited.stderr
    assert waited.stderr.endswith(f"{job[1]} failed with exit status 2.\n")
    log = d3ray(head, "jobs", "logs", job[1])
    assert "There is no dataset folder '/no/such/dataset'" in log.stdout
    assert log.returncode == 0
    (listed,) = [row for row in json.loads(d3ray(head, "jobs", "format=json").stdout) if row["id"] == job[1]]
    assert (listed["status"], listed["command"]) == ("FAILED", "d3ray inspect /no/such/dataset")
    unknown = d3ray(head, "jobs", "stop", f"{job[1]}0")
    assert unknown.returncode == 2
    assert unknown.stderr == f"The cluster {head.address} has no job '{job[1]}0'; did you mean '{job[1]}'?\n"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"RAY_AUTH_TOKEN": "wrong" * 8}, "refuses the token of RAY_AUTH_TOKEN, which has to be the cluster's own"),
        ({"RAY_AUTH_MODE": "disabled"}, "asks for a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"),
        (
            {"RAY_ADDRESS": "http://127.0.0.1:1"},
            "http://127.0.0.1:1 cannot be reached: nothing answers there; open its tunnel first",
        ),
        (
            {"RAY_ADDRESS": "127.0.0.1:1"},
            "127.0.0.1:1 cannot be reached; its job server is named with http://, as http://127.0.0.1:8265",
        ),
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


def test_ctrl_c_leaves_the_job_and_says_how_to_stop_it(head: RayHead) -> None:
    command = ["submit", "check_cluster=false", *LONG, f"target={head.folder / 'left'}"]
    with subprocess.Popen(
        [*D3RAY, *command],
        env=head.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert any("collecting:" in line for line in process.stdout), process.communicate(timeout=60)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    job = re.search(r"To stop it: d3ray jobs stop (\S+) address=(\S+)", errors)
    assert job, errors
    assert f"d3ray jobs logs {job[1]} address={job[2]}" in errors
    assert head.ask(f"/api/jobs/{job[1]}")["status"] == "RUNNING"
    stopped = d3ray(head, "jobs", "stop", job[1], f"address={job[2]}")
    assert stopped.stdout.startswith(f"{job[1]} is stopped.\n"), stopped.stderr
    assert d3ray(head, "jobs", "wait", job[1]).returncode == 130
    log = head.ask(f"/api/jobs/{job[1]}/logs")["logs"]
    assert "Interrupted; nothing half-made was kept." in log  # it was interrupted, not killed
    assert list(head.folder.glob("*left*")) == []


@pytest.mark.slow
def test_ctrl_c_asks_at_a_terminal_and_stops_the_job(head: RayHead) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*D3RAY, "submit", "check_cluster=false", *LONG, f"target={head.folder / 'asked'}"],
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
        assert re.search(r"Stop collect-\w+ as well\? \[y/N\] $", _read_until(ours, "[y/N] "))
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


@pytest.mark.long
def test_a_check_looks_at_every_node_and_runs_nothing(head: RayHead, tmp_path: Path) -> None:
    """With a storage that can be written; then one that cannot, a tracking server that is away, and a GPU that nobody has."""
    train = ["train", "d3ray/cartpole-replay", "algorithm=DiscreteBC"]
    good = submit(head, "--check", *train, f"storage={tmp_path / 'results'}")
    assert good.returncode == 0, good.stdout + good.stderr
    node = r"^\S+: 2 CPU, 0 GPU; driver \S+, torch \S+ for CUDA \S+ sees 0 GPU, storage written and read, clock [+-]0\.\d s$"
    assert re.search(node, good.stdout, re.MULTILINE), good.stdout
    assert (
        "tracking: MLFLOW_TRACKING_URI is not set\ntrials of 1 CPU and 0 GPU at once: 2 now\nThe cluster can run it." in good.stdout
    )
    assert list((tmp_path / "results").iterdir()) == []
    (tmp_path / "file").touch()
    wrong = [*train, f"storage={tmp_path / 'file' / 'results'}", "resources.gpu=1"]
    bad = submit(head, "--check", "check_cluster=false", *wrong, MLFLOW_TRACKING_URI="http://127.0.0.1:1")
    assert bad.returncode == 1
    faults = re.findall(r"^WRONG: (.*)$", bad.stdout, re.MULTILINE)
    assert [fault.split(":")[0] for fault in faults] == [
        "the storage cannot be used from the head",
        "the tracking server http",
        "no node has room for a trial of 1 CPU and 1 GPU.",
    ], bad.stdout
    assert bad.stderr.endswith("Nothing was submitted.\n")
    assert {job["submission_id"].partition("-")[0] for job in head.ask("/api/jobs/")} >= {"check"}


def test_the_page_trains_on_a_cluster(head: RayHead, tmp_path: Path) -> None:
    pages: list[Page] = []
    alone = {name: value for name, value in head.environment().items() if name not in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")}
    try:
        page = Page(tmp_path, pages, f"address={head.address}", env=alone)

        def post(path: str, **form: str) -> str:
            answer = page.session.post(f"{page.url}{path}", form, headers=SAME, timeout=200)
            assert answer.status_code == 200, answer.text
            return answer.url

        def until(path: str, what: str) -> str:
            end = time.monotonic() + 240
            while what not in (text := page.session.get(f"{page.url}{path}", timeout=60).text):
                assert time.monotonic() < end, text
                assert "state failed" not in text, text
                time.sleep(0.5)
            return text

        post("/datasets/shipped", name="cartpole-replay")
        until("/datasets", "state ready")
        times = {"n_steps": "40", "n_steps_per_epoch": "20", "seeds": "0, 1"}
        at = post("/experiments", dataset="cartpole-replay", algorithm="DiscreteBC", name="there", holdout="0.1", **times)
        assert at.endswith("/experiments/there")
        assert f"on {head.address}" in until("/experiments/there", "state finished")
        assert "2 of 2 seeds are trained" in until("/experiments/there/log", "seeds are trained")
        rows = page.session.get(f"{page.url}/experiments/there/rows.json", timeout=60).json()
        assert sorted((row["seed"], row["step"]) for row in rows) == [(0, 20), (0, 40), (1, 20), (1, 40)]
        status, end = "RUNNING", time.monotonic() + 60
        while status == "RUNNING" and time.monotonic() < end:
            (status,) = [one["status"] for one in head.ask("/api/jobs/") if one["metadata"].get("d3ray_experiment") == "there"]
        assert status == "SUCCEEDED"
        local = [json.loads(file.read_text())["experiment"] for file in (tmp_path / "state").glob("d3ray/jobs/*/job.json")]
        assert local == ["cartpole-replay"]  # files come in here, and nothing trains
    finally:
        for page in pages:
            page.end(signal.SIGINT)


def test_what_the_cluster_lacks_is_named(head: RayHead, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in head.environment().items():
        if name.startswith("RAY_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr("d3ray.platform.cluster.jobs.requirements", lambda: ["no-such-thing>=3", "numpy>=99", "ray>=2"])
    with cargo() as load, pytest.raises(StorageError) as refused:
        Cluster(head.address).check(load)
    assert str(refused.value) == (
        f"The cluster {head.address} lacks what d3ray needs: no-such-thing>=3, numpy>=99 (it has {np.__version__})."
    )


def test_another_machine_finds_an_experiment_by_its_job(head: RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not see the storage: it asks the cluster how the experiment stands, and has it cancelled."""
    for name, value in head.environment().items():
        if name.startswith("RAY_"):
            monkeypatch.setenv(name, value)
    storage = str(tmp_path / "there")
    settings = {"name": "far", "dataset": "d3ray/cartpole-replay", "algorithm": "DiscreteBC", "storage": storage}
    times = {"n_steps": 1_000_000, "n_steps_per_epoch": 50}
    with pytest.raises(ConfigError, match="a folder of whichever machine runs"):
        experiments.submit({**settings, "storage": "results"}, address=head.address)
    near = experiments.submit({**settings, **times}, address=head.address, check_cluster=False)
    while near.status().updates == 0:
        assert near.status().runs, near.logs()
        time.sleep(0.2)
    monkeypatch.setattr(ExperimentHandle, "_is_seen", False)
    monkeypatch.setattr(ExperimentHandle, "_sees_storage", False)
    far = experiments.open("far", storage=storage, address=head.address)
    found = far.status()
    assert (found.state, found.name) == ("RUNNING", "far")
    assert found.updates > 0
    assert found.job is not None
    assert (found.job.experiment, found.job.storage, found.job.state) == ("far", storage, "RUNNING")
    with pytest.raises(StorageError, match="is not seen from this machine"):
        far.results()
    far.cancel()
    monkeypatch.undo()
    for name, value in head.environment().items():
        if name.startswith("RAY_"):
            monkeypatch.setenv(name, value)
    ended = near.wait(timeout=120)
    assert (ended.state, ended.reason) == ("KILLED", "cancelled")
    assert ended.job is not None
    assert ended.job.exit_status != 0
    assert "Cancelled; 0 of 1 seeds are done" in near.logs()
    assert ended.trials[0].step % 50 == 0 < ended.trials[0].step
    near.resume(check_cluster=False)  # it goes on there, as a job of its own
    while (again := near.status()).runs and again.trials[0].step <= ended.trials[0].step:
        time.sleep(0.2)
    assert again.state == "RUNNING", near.logs()
    assert again.job is not None
    assert again.job.id != ended.job.id
    near.cancel()
    assert near.wait(timeout=120).state == "KILLED"
