"""Submitting to a Ray of this machine: what to start where there is none is one command, and works without a variable more."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

from ..platform.cluster.ray_head import _end, _own_ports

pytestmark = pytest.mark.long

D3RAY = [sys.executable, "-m", "d3ray.jobs"]


@pytest.fixture
def home() -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="d3r-", dir="/tmp"))  # a socket's path is short
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_command_that_is_advised_starts_a_ray_that_takes_jobs(home: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"  # a job's python is the one of the head's shell
    alone = {
        **kept,
        "PATH": path,
        "HOME": str(home),
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "D3R_HEAD": home.name,
    }

    def submit() -> subprocess.CompletedProcess[str]:
        command = [*D3RAY, "submit", "check_cluster=false", "inspect", "d3ray/cartpole-replay", "doctor=false"]
        return subprocess.run(command, env=alone, capture_output=True, text=True, timeout=200, check=False)

    with _own_ports() as (gcs, dashboard, client, agent):
        refused = submit()
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), refused.stderr
        sentence, _, rest = refused.stderr.partition("start one (")
        assert sentence == "No Ray runs on this machine: "
        variable, _, *words = shlex.split(rest.partition(")")[0])
        ports = {"port": gcs, "dashboard-port": dashboard, "ray-client-server-port": client, "dashboard-agent-listen-port": agent}
        options = {**ports, "num-cpus": 2, "min-worker-port": 0, "max-worker-port": 0}
        head = [sys.executable, "-m", "ray.scripts.scripts", *words, "--block", *(f"--{name}={n}" for name, n in options.items())]
        name, _, value = variable.partition("=")
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(head, env={**alone, name: value}, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until_it_answers(dashboard, process, home / "log")
            done = submit()
            assert done.returncode == 0, done.stdout + done.stderr
            assert "d3ray/cartpole-replay can be opened" in done.stdout
            assert [line.split()[0] for line in done.stderr.splitlines()] == ["Sending", "Job"]  # and nothing of Ray's
            assert (home / ".ray" / "auth_token").stat().st_mode & 0o077 == 0
            (home / ".ray" / "auth_token").write_text("0" * 64)
            wrong = submit()
            assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr
            assert "refuses the token" in wrong.stderr
        finally:
            _end(process, home.name)
        gone = submit()
        assert gone.stderr.startswith("No Ray runs on this machine"), gone.stderr
        assert (gone.returncode, gone.stderr.count("\n")) == (2, 1), gone.stderr


def wait_until_it_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=5).close()
        except urllib.error.HTTPError:  # it asks for the token
            if (log.parent / "ray" / "ray_current_cluster").exists():  # by which others find it
                return
        except OSError:
            pass
        else:
            raise AssertionError("it lets everybody in")
        time.sleep(0.2)
