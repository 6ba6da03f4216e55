"""Jobs on a running Ray cluster: the d3ray that was imported goes with the job, and the job's log and exit status come back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.errors import StorageError
from .cluster_check import ANSWER
from .staging import SUBMITTED, requirements, stage_package

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

STOP_SECONDS = 15
_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_POLL = 0.5
_CHATTY = ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private.runtime_env.packaging")


@dataclass(frozen=True)
class SubmittedJob:
    """A job of a cluster."""

    id: str
    address: str  # of the cluster's job server

    @property
    def follow_command(self) -> str:
        """Shows its log, from its beginning."""
        return f"ray job logs --follow {self.id} --address {self.address}"

    @property
    def stop_command(self) -> str:
        """Stops it as Ctrl-C would."""
        return f"ray job stop {self.id} --address {self.address}"


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: `status` is SUCCEEDED, FAILED or STOPPED, `exit_status` its own (1 where it had none)."""

    status: str
    exit_status: int
    message: str


def _token() -> dict[str, str] | None:
    """The header that lets us in. Ray reads the token once in a process, and this one may have run a Ray with another."""
    token = os.environ.get("RAY_AUTH_TOKEN", "") if os.environ.get("RAY_AUTH_MODE") == "token" else ""
    return {"Authorization": f"Bearer {token}"} if token else None


class Cluster:
    """A running Ray cluster, through its job server.

    Args:
        address: `http://HOST:8265`, or what `ray.init` takes; None: `RAY_API_SERVER_ADDRESS`, `RAY_ADDRESS`, else a Ray that runs
            on this machine.

    Raises:
        StorageError: there is none, it cannot be reached, or it does not take our token.
    """

    def __init__(self, address: str | None = None) -> None:
        from ray.job_submission import JobSubmissionClient

        named = address or next((os.environ[name] for name in _ADDRESSES if os.environ.get(name)), None)
        self.address = named or "this machine"
        for name in _CHATTY:  # after the import, which sets their levels itself
            logging.getLogger(name).setLevel(logging.ERROR)
        with self._errors(), _without_addresses():
            self.client: JobSubmissionClient = JobSubmissionClient(named, headers=_token())
            self.address = self.client.get_address()

    def check(self, staged: Path) -> None:
        """Whether every node has what d3ray needs; takes a short job that needs no CPU.

        Raises:
            StorageError: something is missing, which the sentence names, or the job could not run.
        """
        needed = requirements()
        if not needed:
            return
        entry = shlex.join(["python", "-m", "d3ray.platform.cluster_check", *needed])
        log: list[str] = []
        job = self._submit(entry, staged, {})
        end = self.follow(job, log.append)
        answer = next((line.removeprefix(ANSWER) for line in "".join(log).splitlines() if line.startswith(ANSWER)), None)
        if answer is None:
            reason = next((line for line in reversed("".join(log).splitlines()) if line.strip()), end.message.strip())
            raise StorageError(f"The cluster {self.address} cannot run d3ray: {reason.splitlines()[0] if reason else end.status}")
        missing: dict[str, list[str]] = json.loads(answer)["missing"]
        for node, packages in missing.items():
            if packages:
                where = "" if node == "head" else f" on its node {node}"
                raise StorageError(f"The cluster {self.address} lacks{where} what d3ray needs: {', '.join(packages)}.")

    def submit(self, job: str, arguments: Sequence[str], *, staged: Path, env: Mapping[str, str] | None = None) -> SubmittedJob:
        """Starts `python -m d3ray.jobs JOB ARGUMENTS` on the cluster's head. Raises StorageError."""
        return self._submit(shlex.join(["python", "-m", "d3ray.jobs", job, *arguments]), staged, env or {})

    def _submit(self, entry: str, staged: Path, env: Mapping[str, str]) -> SubmittedJob:
        variables = {
            "D3RAY_SUBMITTED": "1",
            "PYTHONUNBUFFERED": "1",
            "RAY_JOB_STOP_SIGNAL": "SIGINT",  # so that a stopped job ends as one that was interrupted: what can be resumed is kept
            "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS),
            **env,
        }
        runtime_env: dict[str, Any] = {"py_modules": [str(staged)], "env_vars": variables}
        with self._errors():
            return SubmittedJob(self.client.submit_job(entrypoint=entry, runtime_env=runtime_env), self.address)

    def follow(self, job: SubmittedJob, write: Callable[[str], None]) -> JobEnd:
        """Gives the job's log to `write`, from its beginning, as it comes, and waits for its end.

        Raises:
            StorageError: the cluster is gone; the sentence says how to follow the job again.
        """
        seen = failures = 0

        async def tail() -> None:
            nonlocal seen
            skip = seen
            async for text in self.client.tail_job_logs(job.id):
                new, skip = text[skip:], max(0, skip - len(text))  # a connection that was lost begins anew
                seen += len(new)
                if new:
                    write(new)

        while True:
            try:
                if failures < 5:
                    asyncio.run(tail())
                info = self.client.get_job_info(job.id)
            except (RuntimeError, OSError) as error:
                failures += 1
                if failures == 5:
                    sentence = (
                        f"The connection to {self.address} is lost ({_first_line(error)}); to follow the job: {job.follow_command}"
                    )
                    raise StorageError(sentence) from None
            else:
                if info.status.value in _ENDED:
                    return _end(info)
            time.sleep(_POLL)

    def stop(self, job: SubmittedJob) -> JobEnd:
        """Interrupts the job and waits for its end; what it does not finish within 15 s is killed by Ray."""
        with self._errors():
            self.client.stop_job(job.id)
            while (info := self.client.get_job_info(job.id)).status.value not in _ENDED:
                time.sleep(_POLL)
        return _end(info)

    @contextmanager
    def _errors(self) -> Generator[None]:
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError as error:
            text = str(error)
            if "failed" in text.split(":", maxsplit=1)[0] or "invalid" in text:
                raise StorageError(f"The cluster {self.address} refuses the token that RAY_AUTH_TOKEN or its file holds.") from None
            raise StorageError(
                f"The cluster {self.address} asks for a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH)."
            ) from None
        except (ConnectionError, OSError) as error:
            if self.address == "this machine":
                raise StorageError(
                    "No Ray runs on this machine: start one (ray start --head), or name a cluster by address=URL or RAY_ADDRESS."
                ) from None
            raise StorageError(f"The cluster {self.address} cannot be reached: {_first_line(error)}.") from None
        except (RuntimeError, ValueError) as error:
            raise StorageError(f"The cluster {self.address} does not take the job: {_first_line(error)}.") from None


@contextmanager
def staged_package(files: dict[str, bytes] | None = None) -> Generator[Path]:
    """The imported d3ray as a temporary folder, with further files as `d3ray:submitted/NAME`. Raises StorageError: no room."""
    with tempfile.TemporaryDirectory(prefix="d3ray-submit-") as folder:
        try:
            yield stage_package(Path(folder), files)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"d3ray cannot be copied to {folder}: {_first_line(error)}.") from error


def carried_config(arguments: Sequence[str]) -> tuple[list[str], dict[str, bytes]]:
    """The arguments with `--config FILE` pointing into the staged package, and what to stage there."""
    changed, files, waiting = list[str](), dict[str, bytes](), iter(arguments)
    for argument in waiting:
        name, _, value = argument.partition("=")
        if name != "--config":
            changed.append(argument)
            continue
        path = Path(value or next(waiting, ""))
        files[path.name] = path.read_bytes()
        changed += ["--config", f"d3ray:{SUBMITTED}/{path.name}"]
    return changed, files


@contextmanager
def _without_addresses() -> Generator[None]:
    """Ray's variables override what its client is told; here they have been looked at already."""
    before = {name: os.environ.pop(name) for name in _ADDRESSES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _end(info: Any) -> JobEnd:
    status = info.status.value
    code = info.driver_exit_code
    if status == "SUCCEEDED":
        code = 0
    elif status == "STOPPED":
        code = 130
    return JobEnd(status, code if code is not None and (code or status == "SUCCEEDED") else 1, info.message or "")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")
