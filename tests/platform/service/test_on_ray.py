"""The service on Ray Serve: replicas, several policies, one ledger of outcomes, a takeover, and the end of it all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from d3ray.algos.export.package import read_package
from d3ray.data.decision_log import read_log
from d3ray.platform.service.running import running
from d3ray.platform.service.settings import ServeSettings

from .packages import OBSERVATION, TOKEN, Client, Registry, until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, discrete: Path) -> Registry:
    registry = Registry(tmp_path_factory.mktemp("mlflow"), "robot")
    registry.crown(registry.add(discrete))
    return registry


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def client(registry: Registry, continuous: Path, log: Path) -> Iterator[Client]:
    """A service of two policies, each of two replicas."""
    settings: dict[str, Any] = {
        "sources": (registry.source, str(continuous)),
        "log": str(log),
        "port": 0,
        "poll_seconds": 0.2,
        "replicas": {"min_replicas": 2, "max_replicas": 3, "num_cpus": 0.1},
        **registry.place,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D3RAY_SERVE_TOKEN", TOKEN)
        with running(ServeSettings.checked(settings)) as service:
            yield Client(service.address)


def test_policies_act_in_replicas_and_each_decision_is_logged_once(client: Client, continuous: Path, log: Path) -> None:
    seen = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)

    def ask(k: int) -> Any:
        return client.ask("/td3/act", {"observation": seen[k].tolist(), "episode": f"e{k}"})

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(60)))
    assert {status for status, _ in found} == {200}
    np.testing.assert_allclose([reply["action"] for _, reply in found], read_package(continuous).predict(seen), atol=1e-6)
    assert len({reply["id"].rpartition("-")[0] for _, reply in found}) == 2, "both replicas answered"
    rows = {row["id"]: row for row in read_log(log / "td3", "decisions").to_pylist()}
    assert rows.keys() == {reply["id"] for _, reply in found}
    for _, reply in found:
        np.testing.assert_allclose(rows[reply["id"]]["action"], np.float32(reply["action"]))


def test_an_outcome_is_recorded_once_whoever_decided(client: Client) -> None:
    reply = client.ask("/robot/act", {"observation": OBSERVATION, "episode": "o"})[1]
    outcome = {"policy": "robot", "episode": "o", "step": 0, "reward": 1.0, "terminated": True}
    assert client.ask("/outcome", outcome) == (200, {"answer": "recorded", "reason": ""})
    assert client.ask("/robot/outcome", {"decision": reply["id"], "reward": 1.0, "terminated": True})[1]["answer"] == "known"
    assert client.ask("/outcome", {**outcome, "reward": 2.0})[0] == 409
    assert client.ask("/outcome", {**outcome, "step": 5})[0] == 404
    assert client.ask("/outcome", {**outcome, "policy": "robto"}) == (
        422,
        {"detail": "There is no policy 'robto'; did you mean 'robot'?"},
    )
    assert client.ask("/td3/outcome", {"episode": "o", "step": 0, "reward": float("nan")})[0] == 422


def test_refusals_come_through_the_proxy(client: Client) -> None:
    assert client.refused({"observation": [1.0]}, "/robot/act")[0] == 422
    assert client.refused({"observation": OBSERVATION}, "/rbot/act")[0] == 404
    assert Client(client.address, "no").refused({"observation": OBSERVATION}, "/robot/act")[0] == 401
    assert Client(client.address, "no").ask("/status")[0] == 401
    assert [one["policy"] for one in client.ask("/status")[1]["policies"]] == ["robot", "td3"]
    assert client.ask("/robot/openapi.json")[1]["paths"].keys() >= {"/act", "/outcome", "/alarm", "/status", "/health", "/ready"}


def test_every_replica_takes_a_new_champion_over_and_no_request_is_lost(client: Client, registry: Registry, other: Path) -> None:
    replies: list[tuple[int, Any]] = []

    def ask() -> str:
        replies.append(client.ask("/robot/act", {"observation": OBSERVATION}))
        return replies[-1][1]["version"]

    assert ask() == "1"
    registry.crown(registry.add(other))
    until(lambda: [ask() for _ in range(20)] == ["2"] * 20)
    assert {status for status, _ in replies} == {200}
    by_replica: dict[str, list[str]] = {}
    for _, reply in replies:
        by_replica.setdefault(reply["id"].rpartition("-")[0], []).append(reply["version"])
    assert len(by_replica) == 2
    assert all(versions == sorted(versions) for versions in by_replica.values()), "each changes once, and forward"


def test_the_command_serves_until_ctrl_c_and_leaves_nothing(discrete: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "D3RAY_SERVE_TOKEN": TOKEN, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "d3ray.jobs", "serve", discrete.name, "log=log", "port=0", f"metrics={free_port()}"]
    with subprocess.Popen(command, cwd=discrete.parent, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(4)]
        assert "version" in told[1], told
        client = Client(told[0].split()[2])
        reply = client.act()
        started = psutil.Process(process.pid).children(recursive=True)
        port = command[-1].partition("=")[2]
        until(lambda: b"d3ray_decisions" in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read())
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0
    assert rest == "The service has ended.\n"
    until(lambda: not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])
    (row,) = read_log(discrete.parent / "log", "decisions").to_pylist()
    assert row["id"] == reply["id"]
    assert [file.suffix for file in (discrete.parent / "log/decisions").iterdir()] == [".arrows"], "its file was closed"
    assert TOKEN not in json.dumps(told)


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
