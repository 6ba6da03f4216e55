"""What runs say of themselves: the user's code, versions, machines; never a secret."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from d3ray import __version__
from d3ray.data.uris import without_password, without_secrets, without_secrets_in
from d3ray.platform import surroundings
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.writer import Writer
from d3ray.platform.surroundings import (
    CARRIED,
    describe_git,
    describe_machine,
    git_state,
    note_surroundings,
    read_surroundings,
    this_machine,
    usable_cpus,
)
from d3ray.platform.tracking.runs import ServerAwayError, Tracking
from d3ray.platform.worker.system_metrics import SystemMetrics

from .test_tracking import Case, storage, tracking

__all__ = ["storage", "tracking"]  # fixtures


def git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "remote", "add", "origin", "https://me:s3cr3t@host/me/code.git?token=abc")
    return tmp_path


def test_the_state_of_the_users_code(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CARRIED, raising=False)
    commit = git(repository, "rev-parse", "HEAD")
    assert git_state(repository) == {"commit": commit, "branch": "main", "dirty": False, "remote": "https://host/me/code.git"}
    (repository / "notes.txt").write_text("git does not know this file")
    monkeypatch.chdir(repository)
    state = git_state()
    assert state is not None
    assert not state["dirty"]
    (repository / "train.py").write_text("2")
    git(repository, "checkout", "--detach")
    state = git_state()
    assert state == {"commit": commit, "branch": "", "dirty": True, "remote": "https://host/me/code.git"}
    assert describe_git(state) == f"{commit[:12]}, with changes"
    monkeypatch.setenv(CARRIED, json.dumps({**state, "branch": "far"}))
    assert describe_git(git_state() or {}) == f"{commit[:12]} on far, with changes"
    assert git_state(repository) == state  # of a folder that is named, nothing is carried


def test_no_repository_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None
    monkeypatch.setenv("PATH", "")  # nor is a machine without git
    assert git_state(tmp_path) is None


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:s3cr3t@host:5000/path?token=s3cr3t#x", "https://host:5000/path"),
        ("s3://key:s3cr3t@bucket/results?region=x", "s3://bucket/results"),
        ("me@host:code.git", "host:code.git"),
        ("/data/a@b/c", "/data/a@b/c"),
        ("postgresql://me:s3/cr?3t@host:5432/runs", "postgresql://host:5432/runs"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("abfss://box:s3cr3t@account/it?client_secret=s3cr3t", "abfss://box@account/it"),
        ("", ""),
    ],
)
def test_addresses_are_shown_without_passwords(uri: str, shown: str) -> None:
    assert without_password(uri) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'s3://k:s3cr3t@b/x' cannot be read: no.", "'s3://b/x' cannot be read: no."),
        ("s3://k:s3cr3t@b/x?region=eu&sig=s3cr3t&scheme=http and gs://b", "s3://b/x?region=eu&scheme=http and gs://b"),
        ("s3://b/x?endpoint_override=http%3A%2F%2Fk%3As3cr3t%40h", "s3://b/x"),
        ("is it s3://b/x? me@host:1 says so", "is it s3://b/x? me@host:1 says so"),
        ('environment:{"at": "s3://k:s3cr3t@b", "by": "me@x"}', 'environment:{"at": "s3://b", "by": "me@x"}'),
    ],
)
def test_what_is_kept_holds_no_credentials(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets_in({"a": [text, 1, None], "b": {"c": (text,)}}) == {"a": [shown, 1, None], "b": {"c": [shown]}}


def test_the_version_of_a_d3ray_in_its_repository_is_followed_by_the_commit(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surroundings, "_OWN", repository)
    folder, commit = Folder(str(tmp_path / "noted")), git(repository, "rev-parse", "HEAD")[:12]
    note_surroundings(folder)
    note_surroundings(folder)
    (repository / "train.py").write_text("other")
    note_surroundings(folder)
    (repository / "site-packages").mkdir()  # in somebody else's repository
    monkeypatch.setattr(surroundings, "_OWN", repository / "site-packages")
    note_surroundings(folder)
    told = [one["versions"]["d3ray"] for one in read_surroundings(folder)]
    assert told == [f"{__version__} ({commit})", f"{__version__} ({commit} with changes)", __version__]


def test_a_run_names_the_machine_of_its_worker_beside_that_of_the_command(
    tracking: Tracking, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(storage, "elsewhere")
    note_surroundings(case.experiment.folder)
    case.train(10)
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-1")
    Writer(case.trial, "A Processor, 64 CPUs, NVIDIA H100, Linux x86_64")  # as its worker begins
    case.deliver(tracking)
    tags = case.runs(tracking)["0"].data.tags
    assert tags["d3ray.node"] == "gpu-1"
    assert tags["d3ray.node_machine"] == "A Processor, 64 CPUs, NVIDIA H100, Linux x86_64"
    assert tags["d3ray.machine"] == describe_machine(this_machine())


def test_where_the_system_does_not_tell_all_cpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    assert usable_cpus() == os.cpu_count()
    assert this_machine()["cpus"] == os.cpu_count()


def test_runs_name_code_versions_and_the_machine_of_the_newest_attempt(
    tracking: Tracking, storage: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CARRIED, raising=False)
    monkeypatch.chdir(repository)
    case = Case(storage, "tagged")
    note_surroundings(case.experiment.folder)
    monkeypatch.setattr("socket.gethostname", lambda: "node-1")
    case.train(10)
    case.deliver(tracking)
    commit = git(repository, "rev-parse", "HEAD")
    for run in case.runs(tracking).values():
        tags = run.data.tags
        assert tags["mlflow.source.git.commit"] == commit
        assert tags["mlflow.source.git.branch"] == "main"
        assert tags["mlflow.source.git.repoURL"] == "https://host/me/code.git"
        assert tags["d3ray.git_dirty"] == "false"
        assert "torch 2." in tags["d3ray.versions"]
        assert tags["d3ray.fingerprint"] == "f" * 64
        assert "s3cr3t" not in json.dumps(tags)
    assert case.runs(tracking)["0"].data.tags.items() >= {"d3ray.node": "node-1", "d3ray.attempt": "1"}.items()
    (repository / "train.py").write_text("2")
    git(repository, "commit", "-am", "second")
    note_surroundings(case.experiment.folder)
    monkeypatch.setattr("socket.gethostname", lambda: "node-2")
    case.train(20)
    case.deliver(Tracking.open(str(storage)))  # of another command
    again = case.runs(tracking)
    assert again["0"].data.tags.items() >= {"d3ray.node": "node-2", "d3ray.attempt": "2"}.items()
    assert {run.data.tags["mlflow.source.git.commit"] for run in again.values()} == {git(repository, "rev-parse", "HEAD")}
    assert case.history(tracking) == [(10, 10.0), (20, 20.0)]


def test_a_server_that_is_away_is_named_without_its_password(tracking: Tracking) -> None:
    away = Tracking.__new__(Tracking)
    away.uri = "http://me:s3cr3t@host:5000/"
    with pytest.raises(ServerAwayError) as raised, away.answers():
        raise_away()
    assert "http://host:5000/ does not answer" in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def raise_away() -> None:
    import requests

    raise requests.ConnectionError("refused")


def test_system_metrics_say_how_busy_the_machine_is() -> None:
    sampled = threading.Event()

    def utilisation(gpu: int) -> float:
        if len(seen) >= 3:
            sampled.set()
        seen.append(50.0 + 10 * (len(seen) % 2))
        return seen[-1]

    seen: list[float] = []
    measure = SystemMetrics(utilisation, seconds=0.01)
    assert sampled.wait(60)
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    total = sum(k * k for k in range(300_000))
    found = measure()
    assert total > 0
    assert found["system/process_cpu_percentage"] > 0
    assert 64 < found["system/process_memory_megabytes"] < found["system/system_memory_usage_megabytes"] * 2
    assert 0 <= found["system/cpu_utilization_percentage"] <= 100
    assert 50 <= found["system/gpu_0_utilization_percentage"] <= 60
    measure.close()
    assert measure()["system/system_memory_usage_percentage"] > 0
