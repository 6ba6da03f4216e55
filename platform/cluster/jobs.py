"""Jobs on a running Ray cluster: the d3ray that was imported goes with the job, and the job's log and exit status come back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from ...data.errors import StorageError, did_you_mean
from ..surroundings import CARRIED, git_state
from .check import ANSWER
from .staging import Cargo, requirements
from .token import is_loopback, keep_token_private, shown_here, token, token_place

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

T = TypeVar("T")

STOP_SECONDS = 15
PATIENCE_SECONDS = 60.0  # for a server that says "try again later", and for one that cannot be reached while we follow a job
_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_POLL = 0.5
START = "RAY_AUTH_MODE=token ray start --head --node-ip-address=127.0.0.1"  # one that asks for the token, which lies in its file
_CHATTY = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
    "ray._private.services",
)
# What Ray's job server says while the head's agent, which starts jobs, is not there yet or not there for the moment.
_LATER = ("try again later", "Cannot connect to host", "Failed to get head node agent")
_MODULE = ("python", "-m", "d3ray.jobs")


@dataclass(frozen=True)
class SubmittedJob:
    """A job of a cluster."""

    id: str
    address: str  # of the cluster's job server

    def command(self, action: str) -> str:
        """Return the command that does `action` (logs, stop, wait) in any shell."""
        return f"d3ray jobs {action} {self.id} address={self.address}"


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: `status` is SUCCEEDED, FAILED or STOPPED, `exit_status` its own (stopped: 130; 1 where it had none)."""

    status: str
    exit_status: int
    message: str


@dataclass(frozen=True)
class ListedJob:
    """A job as the cluster tells of it; `status` is PENDING, RUNNING, or one of those of `JobEnd`."""

    id: str
    status: str
    command: str
    started: datetime
    took: timedelta
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])  # as it was submitted: which experiment it runs
    exit_status: int | None = None  # None while it runs
    message: str = ""  # of Ray


def _token() -> dict[str, str] | None:
    """The header that lets us in. Ray reads the token once in a process, and this one may have run a Ray with another."""
    found = token() if os.environ.get("RAY_AUTH_MODE") == "token" else ""
    return {"Authorization": f"Bearer {found}"} if found else None


class Cluster:
    """A running Ray cluster, through its job server.

    Args:
        address: `http://HOST:8265`, or what `ray.init` takes; None: `RAY_API_SERVER_ADDRESS`, `RAY_ADDRESS`, else a Ray that runs
            on this machine.

    Raises:
        StorageError: there is none, it cannot be reached, or it does not take our token.
    """

    def __init__(self, address: str | None = None) -> None:
        named = address or next((os.environ[name] for name in _ADDRESSES if os.environ.get(name)), None)
        self.address = named or "this machine"
        keep_token_private()
        with shown_here(named):
            from ray.job_submission import JobSubmissionClient

            for name in _CHATTY:  # after the import, which sets their levels itself
                logging.getLogger(name).setLevel(logging.ERROR)
            with self._errors(), _without_addresses(), _without_remarks():
                self.client: JobSubmissionClient = JobSubmissionClient(named or _started_here(), headers=_token())
                self.address = self.client.get_address()

    def check(self, cargo: Cargo) -> None:
        """Check that every node has what d3ray needs, by a short job that needs no CPU.

        Raises:
            StorageError: something is missing, which the sentence names, or the job could not run.
        """
        needed = requirements()
        if not needed:
            return
        log: list[str] = []
        job = self._submit("check", ["python", "-m", "d3ray.platform.cluster.check", *needed], cargo, {})
        end = self.follow(job, log.append)
        answer = next((line.removeprefix(ANSWER) for line in "".join(log).splitlines() if line.startswith(ANSWER)), None)
        if answer is None:
            reason = next((line for line in reversed("".join(log).splitlines()) if line.strip()), end.message.strip())
            raise StorageError(f"The cluster {self.address} cannot run d3ray: {reason.splitlines()[0] if reason else end.status}")
        missing: dict[str, list[str]] = json.loads(answer)
        for node, packages in missing.items():
            if packages:
                where = "" if node == "head" else f" on its node {node}"
                raise StorageError(f"The cluster {self.address} lacks{where} what d3ray needs: {', '.join(packages)}.")

    def inspect(
        self, storage: str | None, cpu: float, gpu: float, *, cargo: Cargo, env: Mapping[str, str], write: Callable[[str], None]
    ) -> JobEnd:
        """Looks at every node by a job of its own: its GPUs, the storage, the clock; and at the tracking server from the head.

        Returns how that job ended.

        Args:
            storage: Folder or URI of the results; None: none is looked at.
            cpu: CPUs of a trial.
            gpu: GPUs of a trial.
            cargo: What goes along.
            env: Of the job that is to come.
            write: Called with what the job prints.

        Raises:
            StorageError: the cluster cannot be reached.
        """
        told = json.dumps({"storage": storage, "cpu": cpu, "gpu": gpu})
        return self.follow(self._submit("check", ["python", "-m", "d3ray.platform.cluster.inspection", told], cargo, env), write)

    def submit(
        self,
        job: str,
        arguments: Sequence[str],
        *,
        cargo: Cargo,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SubmittedJob:
        """Starts `python -m d3ray.jobs JOB ARGUMENTS` on the cluster's head, with the commit that is here. Raises StorageError.

        `metadata` Ray shows of the job to whoever may submit.
        """
        git = git_state()
        carried = {CARRIED: json.dumps(git)} if git else {}
        return self._submit(job, [*_MODULE, job, *arguments], cargo, {**carried, **(env or {})}, metadata)

    def _submit(
        self, name: str, entry: Sequence[str], cargo: Cargo, env: Mapping[str, str], metadata: Mapping[str, str] | None = None
    ) -> SubmittedJob:
        variables = {
            "D3RAY_SUBMITTED": "1",
            "PYTHONUNBUFFERED": "1",
            "RAY_JOB_STOP_SIGNAL": "SIGINT",  # so that a stopped job ends as one that was interrupted: what can be resumed is kept
            "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS),
            **env,
        }
        runtime_env: dict[str, Any] = {"py_modules": [str(module) for module in cargo.modules], "env_vars": variables}
        if cargo.working_dir is not None:
            runtime_env["working_dir"] = str(cargo.working_dir)
        # The name is ours, so that asking twice makes one job.
        job = SubmittedJob(f"{name}-{secrets.token_hex(4)}", self.address)

        def ask() -> None:
            try:
                about: Any = {"submission_id": job.id, "runtime_env": dict(runtime_env), "metadata": dict(metadata or {})}
                self.client.submit_job(entrypoint=shlex.join(entry), **about)
            except RuntimeError as error:
                if "already exists" not in str(error):
                    raise

        with self._errors():
            _patiently(ask)
        return job

    def follow(self, job: SubmittedJob, write: Callable[[str], None]) -> JobEnd:
        """Gives the job's log to `write`, from its beginning, as it comes, and waits for its end.

        Raises:
            StorageError: there is no such job, or the cluster cannot be reached for a minute; then the sentence says how to follow
                the job again.
        """
        import aiohttp

        seen = 0

        async def tail() -> None:
            nonlocal seen
            skip = seen
            async for text in self.client.tail_job_logs(job.id):
                new, skip = text[skip:], max(0, skip - len(text))  # a connection that was lost begins anew
                seen += len(new)
                if new:
                    write(new)

        self._info(job.id)
        lost_since: float | None = None
        while True:
            before, lost = seen, None
            try:
                asyncio.run(tail())
            except (RuntimeError, OSError, aiohttp.ClientError) as error:
                lost = error
            try:
                info = self.client.get_job_info(job.id)
                if info.status.value in _ENDED:
                    return _end(info)
            except (RuntimeError, OSError) as error:
                lost = error
            lost_since = None if lost is None or seen > before else lost_since or time.monotonic()
            if lost_since is not None and lost is not None and time.monotonic() - lost_since > PATIENCE_SECONDS:
                raise StorageError(
                    f"The connection to {self.address} is lost ({_first_line(lost)}); to follow the job: {job.command('logs')}"
                ) from None
            time.sleep(_POLL)

    def wait(self, job: SubmittedJob) -> JobEnd:
        """Waits for the job's end. Raises StorageError as `follow`."""
        return self.follow(job, lambda _: None)

    def log(self, job: SubmittedJob) -> str:
        """Return the job's output so far. Raises StorageError: there is no such job."""
        self._info(job.id)
        with self._errors():
            return _patiently(lambda: self.client.get_job_logs(job.id))

    def stop(self, job: SubmittedJob) -> JobEnd:
        """Interrupts the job and waits for its end; what it does not finish within 15 s is killed by Ray.

        Raises:
            StorageError: there is no such job, or it has not ended a minute after that.
        """
        deadline = time.monotonic() + STOP_SECONDS + PATIENCE_SECONDS
        asked = 0.0
        with self._errors():
            while (info := self._info(job.id)).status.value not in _ENDED:
                now = time.monotonic()
                if now > deadline:
                    raise StorageError(f"{job.id} has not ended yet; to ask again: {job.command('stop')}")
                if now - asked > 5:  # a job that is only just starting does not hear it
                    _patiently(lambda: self.client.stop_job(job.id))
                    asked = now
                time.sleep(_POLL)
        return _end(info)

    def jobs(self) -> list[ListedJob]:
        """Every job that was submitted to this cluster, the newest first. Raises StorageError."""
        with self._errors():
            known = _patiently(self.client.list_jobs)
        listed: list[ListedJob] = []
        for about in known:
            if about.submission_id is None:  # a program that connected to the cluster by itself
                continue
            started = datetime.fromtimestamp((about.start_time or 0) / 1000)
            ended = datetime.fromtimestamp(about.end_time / 1000) if about.end_time else datetime.now()
            command = about.entrypoint.replace(shlex.join(_MODULE), "d3ray", 1)
            status = about.status.value
            code = _end(about).exit_status if status in _ENDED else None
            more = about.metadata or {}, code, about.message or ""
            listed.append(ListedJob(about.submission_id, status, command, started, ended - started, *more))
        return sorted(listed, key=lambda job: job.started, reverse=True)

    def job(self, name: str) -> SubmittedJob:
        """The job of this id. Raises StorageError: there is none; the sentence names the nearest."""
        self._info(name)
        return SubmittedJob(name, self.address)

    def _info(self, name: str) -> Any:
        def ask() -> Any:
            try:
                return self.client.get_job_info(name)
            except RuntimeError as error:
                if "does not exist" not in str(error):
                    raise
                return None

        with self._errors():
            info = _patiently(ask)
        if info is None:
            others = [job.id for job in self.jobs()]
            hint = did_you_mean(name, others) if others else "; it has none."
            raise StorageError(f"The cluster {self.address} has no job {name!r}{hint}")
        return info

    @contextmanager
    def _errors(self) -> Generator[None]:
        from ray.exceptions import AuthenticationError, RpcError

        try:
            yield
        except StorageError:
            raise
        except AuthenticationError:
            if os.environ.get("RAY_AUTH_MODE") == "token" and token():
                raise StorageError(
                    f"The cluster {self.address} refuses the token of {token_place()}, which has to be the cluster's own: the "
                    "first lines of its file say where that is."
                ) from None
            raise StorageError(
                f"The cluster {self.address} asks for a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH)."
            ) from None
        except (OSError, RpcError) as error:
            if self.address == "this machine":
                raise StorageError(
                    f"No Ray runs on this machine: start one ({START}), or name a cluster by address=URL or RAY_ADDRESS."
                ) from None
            raise StorageError(f"The cluster {self.address} cannot be reached{_how(self.address, error)}.") from None
        except (RuntimeError, ValueError) as error:
            cause = ""
            if "Version check returned" in str(error):
                raise StorageError(
                    f"What answers at {self.address} is no job server of Ray, whose port is the dashboard's, 8265 by default."
                ) from None
            if "No available agent" in str(error):  # Ray says to try later, which never helps where another Ray has the port
                cause = (
                    " Where another Ray runs on the head's machine, its agent may have the port: start the head anew with "
                    "--dashboard-agent-listen-port=PORT, another than 52365."
                )
            raise StorageError(f"The cluster {self.address} does not take the job: {_last_line(error)}.{cause}") from None


def _started_here() -> str:
    """Of the Ray that `ray start` has started on this machine; those of programs, as a training's own, take no jobs.

    Raises OSError: there is none, or it is gone.
    """
    from ray._private.utils import read_ray_address

    if not (found := read_ray_address()):
        raise ConnectionError
    host, _, port = found.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()
    return found


@contextmanager
def _without_remarks() -> Generator[None]:
    """Ray's C++ says on stderr itself what it cannot do, before the error that says it."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _patiently(ask: Callable[[], T]) -> T:
    """Asks again, for up to a minute, while the server says that it cannot answer now."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except RuntimeError as error:
            if time.monotonic() > deadline or not any(words in str(error) for words in _LATER):
                raise
        time.sleep(1)


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


def _how(address: str, error: BaseException) -> str:
    """Name the obstacle or the remedy in a clause."""
    if "://" not in address:
        return f"; its job server is named with http://, as http://{address.partition(':')[0]}:8265"
    if is_loopback(address):
        return ": nothing answers there; open its tunnel first, as the first lines of its file say"
    return f": {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")


def _last_line(error: BaseException) -> str:
    """Of a server's traceback the last line says what happened."""
    lines = [line for line in str(error).splitlines() if line.strip(" .")]
    return (lines[-1] if len(lines) > 1 and "Traceback" in str(error) else _first_line(error)).rstrip(".")
