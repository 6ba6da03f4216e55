"""A Ray head of the test's own, with token authentication, in an environment that has d3ray's dependencies but not d3ray."""

from __future__ import annotations

import ctypes
import os
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RayHead:
    """A running head."""

    address: str
    token: str
    folder: Path  # where it was started: the working folder of jobs

    def environment(self) -> dict[str, str]:
        """Variables with which a command on this machine reaches it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {**kept, "RAY_ADDRESS": self.address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}


def bare_environment(folder: Path) -> Path:
    """The bin folder of a virtual environment whose packages are this one's, but for editable installs.

    Folders that a .pth file names are searched, but their own .pth files, such as an editable install's, are not read.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "env" / "bin"


@contextmanager
def ray_head() -> Generator[RayHead]:
    """Starts the head, waits until its job server answers, and ends all its processes."""
    folder = Path(tempfile.mkdtemp(prefix="d3r-", dir="/tmp"))  # a socket's path is short: pytest's own folders are too deep
    binaries, token, port = bare_environment(folder), secrets.token_hex(16), _free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON", "D3RAY_"))}
    environment = {
        **kept,
        "PATH": f"{binaries}{os.pathsep}{kept['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "D3RAY_CACHE": str(folder / "cache"),
        "D3R_HEAD": folder.name,  # marks every process of this head
    }
    options = [
        "--head",
        "--block",
        "--num-cpus=2",
        f"--temp-dir={folder / 'ray'}",
        "--include-dashboard=true",
        "--disable-usage-stats",
    ]
    ports = {
        "port": _free_port(),
        "dashboard-port": port,
        "ray-client-server-port": _free_port(),
        "dashboard-agent-listen-port": _free_port(),
    }
    command = [binaries / "python", "-m", "ray.scripts.scripts", "start", *options, *(f"--{k}={v}" for k, v in ports.items())]
    (folder / "work").mkdir()
    with (folder / "log").open("wb") as log:
        head = subprocess.Popen(
            command,
            cwd=folder / "work",
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one C call, and no thread of ours runs yet
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_it_answers(address, token, head, folder / "log")
        yield RayHead(address, token, folder / "work")
    finally:
        _end(head, folder.name)
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_parent() -> None:
    """Linux only: a test run that is killed takes the head with it, which then stops its node."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _wait_until_it_answers(address: str, token: str, head: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    request = urllib.request.Request(f"{address}/api/jobs/", headers={"Authorization": f"Bearer {token}"})
    while True:
        assert head.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)


def _end(head: subprocess.Popen[bytes], mark: str) -> None:
    """Asks `ray start --block` to stop its own node, then ends what is left of it, by ids: other Rays may run here."""
    head.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        head.wait(5)
    for process in _marked(mark):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    head.wait(20)


def _marked(mark: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if f"D3R_HEAD={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
