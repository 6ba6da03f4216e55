"""Who can reach what d3ray starts, and where secrets do not stand. Real commands are watched from outside while they run."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from ..jobs.test_ingest_job import npz
from .cluster.ray_head import ray_head
from .leaks import files_with
from .ports import Port, Watch, grpc_answers, methods
from .service.packages import Client, until, write_policy

D3RAY = [sys.executable, "-m", "d3ray.jobs"]
TRAIN = ["d3ray/cartpole-replay", "algorithm=DQN", "algorithm.preset=small", "n_steps_per_epoch=50", "evaluation.episodes=1"]
SERVER = """
import http.server, threading
server = http.server.HTTPServer(("", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
threading.Timer(8, server.shutdown).start()
server.serve_forever()
"""
PASSWORD = "correct-horse-battery-staple"


@pytest.fixture
def temporary() -> Generator[Path]:
    """For Ray, whose sockets have short names."""
    folder = Path(tempfile.mkdtemp(prefix="d3r-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def watched(command: list[str], temporary: Path, cwd: Path, **variables: str) -> tuple[Watch, str]:
    """Runs it to its end with secrets in its environment; what was seen from outside, and what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_TMPDIR": str(temporary), "LAB_PASSWORD": PASSWORD, "RAY_USAGE_STATS_ENABLED": "0", **variables}
    with (temporary / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            with Watch(process.pid) as watch:
                status = process.wait(420)
        finally:
            process.kill()
    text = (temporary / "said").read_text()
    assert status == 0, text
    return watch, text


def assert_strangers_get_nothing(watch: Watch, n: int) -> None:
    """Loopback only, or Ray's own port that refuses who has no token. `n` ports at least were tried from outside."""
    assert len(watch.answers) >= n, watch.ports
    for port, answers in watch.answers.items():
        who = watch.ports[port]
        told = {answer.split()[0] + (f" {answer.split()[1]}" if answer.startswith("HTTP") else "") for answer in answers}
        assert "OK" not in told, f"{who} on {port.number}: {answers}"
        assert told & {"UNAUTHENTICATED", "HTTP 401", "HTTP 403"}, f"{who} on {port.number}: {answers}"
        assert not re.search("HTTP [23]", " ".join(told)), f"{who} on {port.number}: {answers}"


@pytest.mark.slow
def test_a_training_tells_strangers_nothing(temporary: Path, tmp_path: Path) -> None:
    token = secrets.token_hex(16)
    command = [*D3RAY, "train", *TRAIN, "n_steps=100", "name=watched", f"storage={tmp_path / 'results'}"]
    watch, said = watched(command, temporary, tmp_path, RAY_AUTH_TOKEN=token)
    assert_strangers_get_nothing(watch, 4)  # Ray's control store, its raylet, agents, drivers and workers
    commands = b"\n".join(watch.commands)
    assert b"gcs_server" in commands
    assert {file.name for file in temporary.rglob("*.out")} >= {"raylet.out", "gcs_server.out"}
    assert (tmp_path / "results" / "mlflow.db").is_file()
    for secret in (token, PASSWORD):
        assert secret.encode() not in commands
        assert secret not in said
        assert files_with(secret, tmp_path, temporary) == []


@pytest.mark.slow
@pytest.mark.parametrize("job", ["demo", "sweep", "ingest"])
def test_other_jobs_tell_strangers_nothing(job: str, temporary: Path, tmp_path: Path) -> None:
    """In a shell that wants Ray without tokens."""
    options = {
        "demo": [],
        "sweep": [*TRAIN, "n_steps=1000", "name=watched", "search={algorithm.learning_rate: {choice: [0.001, 0.01]}}"],
        "ingest": ["logged-*.npz", "ingested"],
    }[job]
    for k in range(2 if job == "ingest" else 0):  # more than 64 MiB together: fewer are read without a Ray
        npz(tmp_path / f"logged-{k}.npz", n=1_700_000)
    watch, said = watched([*D3RAY, job, *options], temporary, tmp_path, RAY_AUTH_MODE="disabled")
    assert_strangers_get_nothing(watch, 3)
    assert PASSWORD not in said
    assert PASSWORD.encode() not in b"\n".join(watch.commands)
    assert files_with(PASSWORD, tmp_path, temporary) == []


@pytest.mark.slow
def test_a_head_and_its_jobs_tell_strangers_nothing(tmp_path: Path) -> None:
    """The one of the tests, started as `docs/cluster.md` says, while a submitted training runs on it. With the token it answers."""
    with ray_head() as head:
        command = [*D3RAY, "submit", "train", *TRAIN, "n_steps=5000", f"storage={tmp_path / 'results'}", "name=sent"]
        with Watch(head.process) as watch:
            sent = subprocess.run(command, env=head.environment(), capture_output=True, text=True, timeout=420, check=False)
        assert sent.returncode == 0, sent.stdout + sent.stderr
        known = {port: who for port, who in watch.ports.items() if not port.is_loopback}
        (gcs,) = (port for port, who in known.items() if "gcs_server" in who)
        harmless = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"  # with the token others do what they say: they end the store
        assert grpc_answers(gcs, [harmless], head.token) == [f"OK {harmless}"]
        stranger = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"
        for mode in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wrong" * 8}):
            environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | mode
            done = subprocess.run(
                [sys.executable, "-c", stranger, gcs.address],
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode != 0
            assert re.search("[Uu]nauthenticated|[Aa]uthentication|[Tt]oken", done.stderr), done.stderr
    metrics = {port: watch.ports[port] for port, answers in watch.answers.items() if answers[0] == "HTTP 200"}
    assert len(metrics) <= 3, metrics  # of `ray start` itself, for Prometheus: docs/security.md says so; ours are without
    for port, who in metrics.items():
        assert re.search("DashboardAgent|dashboard.py|monitor.py", who), metrics
        del watch.answers[port]
    assert_strangers_get_nothing(watch, 5)


@pytest.mark.slow
def test_a_service_tells_strangers_nothing(temporary: Path, tmp_path: Path) -> None:
    """Its proxy, its replicas, and the Ray that they are in, while it answers; and its token is in no list of processes."""
    package, token = write_policy("DQN", tmp_path / "p"), secrets.token_urlsafe(16)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_TMPDIR": str(temporary), "D3RAY_SERVE_TOKEN": token, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [*D3RAY, "serve", str(package), "port=0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with Watch(process.pid) as watch:
            address = process.stdout.readline().split()[2]
            client = Client(address, token)
            until(lambda: client.act() and len(watch.answers) >= 3 and len(watch.commands) >= 5)
            settled = len(watch.ports)
            until(lambda: len(watch.answers) == sum(not port.is_loopback for port in watch.ports))
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 0
    assert_strangers_get_nothing(watch, 3)
    assert settled > 3
    assert any(port.is_loopback and f":{port.number}" in address for port in watch.ports), "the proxy itself binds loopback"
    assert not [line for line in watch.commands if token.encode() in line]
    assert token not in said
    assert files_with(temporary, token) == []


def test_the_scan_finds_what_is_open(tmp_path: Path) -> None:
    """An open server in a child of a child is seen, and what it tells a stranger too."""
    process = subprocess.Popen(
        ["sh", "-c", f'"{sys.executable}" -c "$1"; true', "sh", SERVER],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
    )
    with Watch(process.pid) as watch:
        out, _ = process.communicate(timeout=60)
    (port,) = watch.ports
    assert port.number == int(out)
    assert not port.is_loopback
    assert watch.answers[port][0] == "HTTP 200"
    with pytest.raises(AssertionError, match="HTTP 200"):
        assert_strangers_get_nothing(watch, 1)
    assert Port("0100007F", 80).is_loopback
    assert not Port("00000000", 80).is_loopback
    assert len(methods()) > 100
    assert {"/ray.rpc.JobInfoGcsService/GetAllJobInfo", "/ray.serve.ASGIService/HandleRequest"} <= set(methods())
