"""Jobs as processes of this machine, which outlive whoever started them.

<state>/d3ray/jobs/ID/        state: $XDG_STATE_HOME, else ~/.local/state
    config.yaml               the settings; only the owner can read them
    job.json                  what runs: experiment, storage, command, process, when it was started
    log                       what it prints
    exit                      its exit status, once it has ended by itself
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil

from ...data.errors import ConfigError
from ...data.storage.files import storage_errors, write_atomically
from ...data.storage.json_text import parse_json
from ..record.jobs import Job
from .places import HERE, Submission

JOB = "D3RAY_JOB"  # the folder of a job, in its environment
_STOP_SECONDS = 15.0
_POLL = 0.1
_INTERRUPTED = 130
_MODULE = ("-m", "d3ray.jobs")


class Processes:
    """Who runs jobs on this machine."""

    address = HERE
    _known: ClassVar[dict[Path, dict[str, Any]]] = {}  # what job.json says, which is written once, by folder
    _ended: ClassVar[dict[Path, Job]] = {}  # jobs that have ended, which change no more
    _children: ClassVar[dict[int, subprocess.Popen[bytes]]] = {}  # of this process: whoever starts one hears of its end

    def __init__(self) -> None:
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        self.folder = Path(state).expanduser() / "d3ray" / "jobs"

    def start(self, submission: Submission) -> Job:
        """Starts a process with a session of its own. Raises StorageError: there is no room, or no such working directory."""
        name = f"{submission.job}-{secrets.token_hex(4)}"
        folder = self.folder / name
        with storage_errors("written", folder):
            folder.mkdir(mode=0o700, parents=True)
            config = folder / "config.yaml"
            config.touch(mode=0o600)
            config.write_text(json.dumps(submission.config, indent=1))
        arguments = [submission.job, "--config", str(config), *submission.flags]
        env = {**os.environ, **submission.env, **submission.secrets, JOB: str(folder), "PYTHONUNBUFFERED": "1"}
        with storage_errors("started", name), (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *_MODULE, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=submission.working_directory,
                env=env,
                start_new_session=True,
            )
        self._children[process.pid] = process
        about = {
            "id": name,
            "command": shlex.join(["d3ray", *arguments]),
            "experiment": submission.experiment,
            "storage": submission.storage,
            "started": time.time(),
            "pid": process.pid,
            "created": _created(process.pid),
        }
        with storage_errors("written", folder):
            write_atomically(folder / "job.json", json.dumps(about, indent=1).encode())
        return self._job(about)

    def jobs(self, experiment: str | None = None, storage: str | None = None) -> list[Job]:
        found: list[Job] = []
        for name in sorted(entry.name for entry in os.scandir(self.folder)) if self.folder.exists() else []:
            with suppress(FileNotFoundError, NotADirectoryError, ValueError):  # deleted meanwhile, or no job's
                about = self._about(name)
                if experiment in (None, about["experiment"]) and storage in (None, about["storage"]):
                    found.append(self._job(about))
        return found

    def _about(self, name: str) -> dict[str, Any]:
        folder = self.folder / name
        if (known := self._known.get(folder)) is None:
            known = self._known[folder] = parse_json((folder / "job.json").read_bytes())
        return known

    def log(self, job: Job) -> str:
        with storage_errors("read", self.folder / job.id / "log"):
            return (self.folder / job.id / "log").read_text("utf-8", errors="replace")

    def config(self, job: Job) -> dict[str, Any]:
        with storage_errors("read", self.folder / job.id / "config.yaml"):
            return parse_json((self.folder / job.id / "config.yaml").read_bytes())

    def stop(self, job: Job) -> None:
        """Ends it, with its children where it does not end by itself."""
        about = self._about(job.id)
        pid, asked, deadline = about["pid"], 0.0, time.monotonic() + _STOP_SECONDS
        while self._job(about).is_alive:
            with suppress(ProcessLookupError):
                if time.monotonic() > deadline:
                    os.killpg(pid, signal.SIGKILL)
                elif time.monotonic() - asked > 5:  # one that is only just starting does not hear it
                    os.kill(pid, signal.SIGINT)
                    asked = time.monotonic()
            time.sleep(_POLL)

    def ask(self, command: str, arguments: Sequence[str]) -> str:
        done = subprocess.run([sys.executable, *_MODULE, command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ConfigError(done.stderr.strip() or f"d3ray {command} failed.")
        return done.stdout

    def forget(self, job: Job) -> None:
        shutil.rmtree(self.folder / job.id, ignore_errors=True)
        self._known.pop(self.folder / job.id, None)
        self._ended.pop(self.folder / job.id, None)

    def _job(self, about: dict[str, Any]) -> Job:
        if (ended := self._ended.get(self.folder / about["id"])) is not None:
            return ended
        told = {name: about[name] for name in ("id", "command", "experiment", "storage", "started")}
        file = self.folder / about["id"] / "exit"
        if not file.exists() and self._is_alive(about):
            return Job(**told, address=HERE, state="RUNNING")
        if not file.exists():  # it may have written it between the two looks
            return Job(**told, address=HERE, state="FAILED", exit_status=1, message="Its process was killed.")
        status = int(file.read_text() or 1)
        state = "STOPPED" if status == _INTERRUPTED else "FAILED" if status else "SUCCEEDED"
        found = Job(**told, address=HERE, state=state, exit_status=status, ended=file.stat().st_mtime)
        return self._ended.setdefault(self.folder / about["id"], found)

    def _is_alive(self, about: dict[str, Any]) -> bool:
        if (child := self._children.get(about["pid"])) is not None and child.poll() is not None:
            return False
        return _created(about["pid"]) == about["created"]


def _created(pid: int) -> float | None:
    """When the process of a number began, which tells it from a later one; None: there is none, or it is a zombie."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    return None


def note_end(folder: str, status: int) -> None:
    """Says of a job how it ends, in its own process."""
    with suppress(OSError):  # a disk that is full, a job that was forgotten: then it counts as killed
        write_atomically(Path(folder) / "exit", str(status).encode())
