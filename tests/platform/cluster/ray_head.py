"""A Ray head of the test's own, with token authentication, in an environment that has d3ray's dependencies but not d3ray."""

from __future__ import annotations

import ctypes
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FIRST_PORT, _LAST_PORT, _PORTS = 20_000, 32_000, 8
_LOGS = ("dashboard_JobHead.log", "dashboard_agent.log", "dashboard.log", "raylet.out", "raylet.err", "job-driver-*.log")


@dataclass(frozen=True)
class RayHead:
    """A running head."""

    address: str
    token: str
    folder: Path  # where it was started: the working folder of jobs
    process: int  # the id of `ray start --block`, which all others come from

    def environment(self) -> dict[str, str]:
        """Variables with which a command on this machine reaches it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {**kept, "RAY_ADDRESS": self.address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def logs(self) -> str:
        """The ends of its logs, for the report of a test that failed."""
        home = self.folder.parent
        files = [home / "log", *(file for name in _LOGS for file in sorted(home.glob(f"ray/session_*/logs/{name}")))]
        return "\n".join(f"--- {file.relative_to(home)}\n{_last_lines(file, 30)}" for file in files if file.exists())

    def ask(self, path: str, method: str = "GET") -> Any:
        """What its job server answers."""
        request = urllib.request.Request(self.address + path, method=method, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def stop_jobs(self) -> list[str]:
        """Stops the jobs that still run, and returns their ids: a test should leave none."""
        running = [job["submission_id"] for job in self.ask("/api/jobs/") if job["status"] in ("RUNNING", "PENDING")]
        running = [job for job in running if job]
        for job in running:
            self.ask(f"/api/jobs/{job}/stop", "POST")
        return running


def bare_environment(folder: Path) -> Path:
    """The bin folder of a virtual environment whose packages are this one's, but for editable installs.

    Folders that a .pth file names are searched, but their own .pth files, such as an editable install's, are not read.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "env" / "bin"


@contextmanager
def ray_head(token: str | None = None) -> Generator[RayHead]:
    """Starts the head, with a token of its own unless one is given, waits until it can take jobs, and ends all its processes."""
    with _own_ports() as (gcs, dashboard, client, agent):
        folder = Path(tempfile.mkdtemp(prefix="d3r-", dir="/tmp"))  # a socket's path is short: pytest's own folders are too deep
        token = token or secrets.token_hex(16)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON", "D3RAY_"))}
        binaries = bare_environment(folder)
        environment = {
            **kept,
            "PATH": f"{binaries}{os.pathsep}{kept['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "D3RAY_CACHE": str(folder / "cache"),
            "D3R_HEAD": folder.name,  # marks every process of this head
        }
        options = {
            "num-cpus": 2,
            "temp-dir": folder / "ray",
            "include-dashboard": "true",
            "port": gcs,
            "dashboard-port": dashboard,
            "ray-client-server-port": client,
            "dashboard-agent-listen-port": agent,
            "min-worker-port": 0,  # the system's choice, not the same numbers as another head's
            "max-worker-port": 0,
        }
        arguments = ["--head", "--block", "--disable-usage-stats", *(f"--{name}={value}" for name, value in options.items())]
        (folder / "work").mkdir()

        def start() -> subprocess.Popen[bytes]:
            with (folder / "log").open("wb") as log:
                return subprocess.Popen(
                    [binaries / "python", "-m", "ray.scripts.scripts", "start", *arguments],
                    cwd=folder / "work",
                    env=environment,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,  # noqa: PLW1509 - one C call, and no thread of ours runs yet
                )

        try:
            for attempt in (1, 2, 3):
                process = start()
                head = RayHead(f"http://127.0.0.1:{dashboard}", token, folder / "work", process.pid)
                try:
                    _wait_until_it_takes_jobs(head, process, agent)
                    break
                except AssertionError:  # Ray gives up after 30 s, which is little on a machine that is busy at that moment
                    if attempt == 3 or "timed out during startup" not in (folder / "log").read_text():
                        raise
                    _end(process, folder.name)
            yield head
        finally:
            _end(process, folder.name)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own_ports() -> Generator[tuple[int, int, int, int]]:
    """Four ports that nothing listens on, below those that the system gives to connections, and no other test run's."""
    with ExitStack() as held:
        for first in random.sample(range(_FIRST_PORT, _LAST_PORT, _PORTS), (_LAST_PORT - _FIRST_PORT) // _PORTS):
            with suppress(OSError), ExitStack() as taken:
                ours = taken.enter_context(socket.socket(socket.AF_UNIX))
                ours.bind(f"\0d3r-ports-{first}")  # a name that lives as long as this process, and one at a time can have
                for port in range(first, first + _PORTS):
                    with socket.socket() as probe:
                        probe.bind(("", port))
                held.enter_context(taken.pop_all())
                break
        else:
            raise AssertionError("every port is taken")
        yield first, first + 1, first + 2, first + 3


def _end_with_parent() -> None:
    """Linux only: a test run that is killed takes the head with it, which then stops its node."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _wait_until_it_takes_jobs(head: RayHead, process: subprocess.Popen[bytes], agent: int) -> None:
    """Its job server answers, and so does the agent that the job server hands jobs to."""
    deadline = time.monotonic() + 180
    while True:
        assert process.poll() is None, head.logs()
        assert time.monotonic() < deadline, head.logs()
        try:
            head.ask("/api/jobs/")
            with urllib.request.urlopen(f"http://127.0.0.1:{agent}/api/healthz", timeout=10):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)


def _end(head: subprocess.Popen[bytes], mark: str) -> None:
    """Asks `ray start --block` to stop its own node, then ends what is left of it, by ids: other Rays may run here."""
    head.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        head.wait(5)
    deadline = time.monotonic() + 20
    while (left := _marked(mark)) and time.monotonic() < deadline:  # again, for what was being started meanwhile
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)
    head.wait(20)


def _marked(mark: str) -> list[int]:
    """Processes of the head: by their environment, or, where a process's title has overwritten that, by the folder in its title."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                about = (entry / "environ").read_bytes() + b"\0" + (entry / "cmdline").read_bytes()
                alive = (entry / "stat").read_text().rpartition(") ")[2][0] != "Z"
                if alive and (f"D3R_HEAD={mark}".encode() in about or f"/{mark}/".encode() in about):
                    found.append(int(entry.name))
    return found


def _last_lines(file: Path, n: int) -> str:
    lines = [line[:300] for line in file.read_text(errors="replace").splitlines() if not line.startswith("[state-dump]")]
    return "\n".join(lines[-n:])
