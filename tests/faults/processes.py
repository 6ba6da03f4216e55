"""Real processes for tests to start, find and kill by their ids: commands, and whatever they started."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

TESTS_RAY = ("RAY_", "MLFLOW_", "D3RAY_DELIVERY")  # variables of whoever runs the tests that commands of ours must not see


def until(condition: Callable[[], Any], why_not: Callable[[], str] = lambda: "", seconds: float = 150) -> Any:
    """What a condition gives once it is true. Asks again and again: no effect is slept for."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, why_not()
        time.sleep(0.02)
    return found


def kill(*processes: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal; who is gone is gone."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, by)


def alive(process: int) -> bool:
    """Whether a process is there, and no zombie."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def processes(belongs: Callable[[Path], bool], named: str = "") -> list[int]:
    """Living processes that belong, by their folder in /proc, and whose command line holds `named`."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            if entry.name.isdigit() and belongs(entry) and alive(int(entry.name)):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found += [int(entry.name)] * (named.encode() in line)
    return found


def marked(variable: str, value: str, named: str = "") -> list[int]:
    """Living processes that were started with a variable in their environment."""
    text = f"{variable}={value}".encode()
    return processes(lambda entry: text in (entry / "environ").read_bytes().split(b"\0"), named)


def clean_environment() -> dict[str, str]:
    """This process's variables without those that name a Ray or a tracking server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(TESTS_RAY)}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end_with_parent() -> None:
    """To be called in a child: a test run that is killed takes it along (Linux)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Command:
    """`python -m …` in a session of its own, which holds the processes that it starts too; its output goes to a file."""

    def __init__(self, arguments: Sequence[str], place: Path, env: Mapping[str, str]) -> None:
        self.log = place / "log.txt"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=place,
                env=dict(env),
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one C call, and no thread of ours runs yet
            )

    def members(self, named: str = "") -> list[int]:
        """Processes of the session whose command line holds `named`."""
        session = self.process.pid
        return processes(lambda entry: int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == session, named)

    def until(self, condition: Callable[[], Any], seconds: float = 150) -> Any:
        """What a condition gives once it is true, while the command runs."""

        def checked() -> Any:
            found = condition()
            assert found or self.process.poll() is None, self.log.read_text()
            return found

        return until(checked, self.log.read_text, seconds)

    def wait(self, seconds: float = 200) -> int:
        """Its exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {seconds} s: {self.log.read_text()}") from None

    def end(self) -> None:
        """Kills whatever is left of it, all at once: who saw another one die could still put things in order."""
        while left := self.members():
            kill(*left, by=signal.SIGSTOP)
            kill(*left)
            self.process.poll()
            time.sleep(0.05)
        self.process.wait()
