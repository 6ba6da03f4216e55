"""A cluster file's nodes as processes of this machine: Ray's fake provider starts and ends them as the file's own would machines.

What a file says of its node types (names, resources, how many) and of how soon a dead node is noticed goes to Ray as it is.
Machines, images, rights, ssh and setup commands are nobody's, and GPUs are numbers.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from ...data.errors import ConfigError, StorageError
from .gpus import BY_NAME_ONLY
from .growth import room_on
from .launcher import ClusterFile
from .session import NO_METRICS

IDLE_SECONDS = 15.0  # after which a node goes; files say minutes
START_SECONDS = 180.0
_MARK = "D3RAY_PRETEND"  # in the environment of every process of a cluster, with its folder's name
_NODE = "RAY_CLOUD_INSTANCE_ID"  # Ray's, in that of every process of a node that its provider started
_TYPE = "RAY_NODE_TYPE_NAME"
_TRIAL = "Trainable"  # in the title of a worker that runs a trial of Tune's
_HEAD = "ray.head.default"  # what Ray's fake provider calls the type of the head
_STORE = 80_000_000  # bytes of shared memory of each node
_COMMANDS = ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands")
_STARTS = ("head_start_ray_commands", "worker_start_ray_commands")


@dataclass(frozen=True)
class Staged:
    """A cluster file's simulated part.

    Attributes:
        workers: By the name of a node type, what each of its nodes has and how many there are at least and at most.
        head: What the head has.
        most: Workers at a time.
        health: Variables by which the head notices dead nodes.
        upscaling_speed, idle_minutes: As in the file; its nodes go sooner here.
    """

    file: str
    workers: Mapping[str, Mapping[str, Any]]
    head: Mapping[str, float]
    most: int
    health: Mapping[str, str]
    upscaling_speed: float
    idle_minutes: float

    @classmethod
    def of(cls, file: ClusterFile, nodes: Mapping[str, Mapping[str, float]] | None = None) -> Staged:
        """Of a file; `nodes` say what it leaves to a cloud that cannot be asked from here.

        Raises:
            ConfigError: its machines are always there, or nobody knows what the nodes of a type have.
        """
        if file.provider == "local":
            raise ConfigError(f"{file.path} names machines that are there: none comes or goes, so there is nothing to rehearse.")
        prepared, nodes = file.prepared, dict(nodes or {})
        types: dict[str, Any] = prepared["available_node_types"]
        if unknown := sorted(set(nodes) - set(types)):
            raise ConfigError(f"nodes names {unknown[0]!r}, and {file.path} has the node types {', '.join(types)}.")
        told = {name: {**about.get("resources", {}), **nodes.get(name, {})} for name, about in types.items()}
        head = prepared["head_node_type"]
        if silent := [name for name in types if name != head and "CPU" not in told[name]]:
            found = _asked(file, silent[0])
            told = {name: {**found.get(name, {}), **resources} for name, resources in told.items()}
        workers = {
            name: {
                "resources": told[name],
                "min_workers": about.get("min_workers", 0),
                "max_workers": about.get("max_workers", prepared["max_workers"]),
            }
            for name, about in types.items()
            if name != head
        }
        commands = " ".join(prepared.get("head_start_ray_commands", ()))
        health = dict(re.findall(r"(RAY_health_check_\w+)=(\d+)", commands))
        speed, idle = float(prepared.get("upscaling_speed", 1.0)), float(prepared.get("idle_timeout_minutes", 5))
        return cls(str(file.path), workers, told[head], int(prepared["max_workers"]), health, speed, idle)

    def check_fits(self, wanted: Mapping[str, float]) -> None:
        """Raises ConfigError where no worker would ever come for a trial with these resources, `cpu` and `gpu`."""
        named = in_words(wanted["cpu"], wanted["gpu"])
        if not any(room_on(one["resources"], wanted) and one["max_workers"] for one in self.workers.values()) or not self.most:
            has = {
                name: in_words(one["resources"].get("CPU", 0), one["resources"].get("GPU", 0)) for name, one in self.workers.items()
            }
            types = [f"at most {one['max_workers']} {name} with {has[name]}" for name, one in self.workers.items()]
            raise ConfigError(
                f"No worker of {self.file} would come for a trial with {named}: of {self.most} workers in all it has "
                f"{', '.join(types) or 'no type'}. Mend resources and max_workers, or say with cpu and gpu what trials ask for."
            )
        if room_on(self.head, wanted):
            raise ConfigError(f"The head of {self.file} has room for a trial with {named}, so that no worker would come for it.")

    def bootstrap(self) -> dict[str, Any]:
        """Return the part of Ray's bootstrap file on the head that drivers read."""
        types = {name: dict(one) for name, one in self.workers.items()}
        return {
            "max_workers": self.most,
            "head_node_type": _HEAD,
            "available_node_types": {**types, _HEAD: {"resources": dict(self.head), "max_workers": 0}},
        }

    def for_ray(self, address: str) -> dict[str, Any]:
        """Return the autoscaler's config for a head at `address`: the file's node types, with a fake provider."""
        told = self.bootstrap()
        for about in told["available_node_types"].values():
            kept = {name: value for name, value in about["resources"].items() if name not in ("memory", "object_store_memory")}
            about |= {"node_config": {}, "resources": {**kept, "object_store_memory": _STORE}}
        provider = {
            "type": "external",
            "module": "d3ray.platform.cluster.pretend_provider.PretendProvider",
            "launch_multiple": True,  # as many at once as it is asked for
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "gcs_address": address,  # else it takes port 6379 for granted
        }
        return {
            **told,
            "cluster_name": "rehearsal",
            "upscaling_speed": self.upscaling_speed,
            "idle_timeout_minutes": IDLE_SECONDS / 60,
            "provider": provider,
            "auth": {},
            "docker": {},
            "file_mounts": {},
            "cluster_synced_files": [],
            "file_mounts_sync_continuously": False,
            "rsync_exclude": [],
            "rsync_filter": [],
            **{name: list[str]() for name in (*_COMMANDS, *_STARTS)},
        }


def _asked(file: ClusterFile, name: str) -> dict[str, dict[str, float]]:
    """Ask the cloud for the resources of each node type. Raises ConfigError if it cannot be asked."""
    from ray.autoscaler._private.providers import (
        _get_node_provider_cls,  # pyright: ignore[reportPrivateUsage] - as Ray's launcher does
    )

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):  # its launcher tells what it asks
            provider: Any = _get_node_provider_cls(file.prepared["provider"])
            found = provider.fillout_available_node_types_resources(file.prepared)["available_node_types"]
        told = {one: dict(about.get("resources", {})) for one, about in found.items()}
        if "CPU" not in told[name]:
            raise LookupError("it does not know")
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"{file.path} leaves it to {file.provider} what a node of the type {name} has, which cannot be asked from here "
            f"({why.rstrip('.')}). Say it: nodes='{{{name}: {{CPU: 8, GPU: 1}}}}'."
        ) from None
    return told


def in_words(cpu: float, gpu: float) -> str:
    return f"{cpu:g} CPU and {gpu:g} GPU"


@dataclass(frozen=True)
class Node:
    """A worker that the provider has started."""

    id: str
    type: str
    trains: bool  # whether a trial runs there


class PretendCluster:
    """A head of a staged cluster, and whatever nodes it has started.

    Attributes:
        environment: Variables with which a command of this machine is a driver on its head.
    """

    def __init__(self, folder: Path, staged: Staged, process: subprocess.Popen[bytes], environment: Mapping[str, str]) -> None:
        self._folder, self._staged, self._process, self.environment = folder, staged, process, environment

    def nodes(self) -> list[Node]:
        found = [(process, about) for process, about in self._processes() if _NODE in about]
        busy = {about[_NODE] for process, about in found if _TRIAL in _title(process)}
        raylets = [about for process, about in found if _name(process) == "raylet"]
        return [Node(about[_NODE], about[_TYPE], about[_NODE] in busy) for about in raylets]

    def kill(self, node: Node) -> None:
        """Ends a node as when its machine is taken away: everything at once."""
        of_node = [process for process, about in self._processes() if about.get(_NODE) == node.id]
        for process in sorted(of_node, key=lambda one: _name(one) != "raylet"):
            with suppress(psutil.Error):
                process.kill()

    def check(self) -> None:
        """Raises StorageError where the head has ended."""
        if self._process.poll() is not None:
            raise StorageError(f"The rehearsal's Ray has ended: {_last_line(self._folder / 'log')}.")

    def _processes(self) -> list[tuple[psutil.Process, dict[str, str]]]:
        found: list[tuple[psutil.Process, dict[str, str]]] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # another user's, or gone
                about = process.environ()
                if about.get(_MARK) == self._folder.name:
                    found.append((process, about))
        return found

    def end(self) -> None:
        """Asks the head to stop, and ends by their ids whatever is left of it: other Rays may run here."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        while left := [process for process, _ in self._processes()]:  # again, for what was being started meanwhile
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=1)
        self._process.wait()


@contextmanager
def pretend_cluster(staged: Staged) -> Generator[PretendCluster]:
    """Starts the head, waits until it is there, and ends all its processes at the end. Raises StorageError: it does not start."""
    folder = Path(tempfile.mkdtemp(prefix="d3p-", dir="/tmp"))  # a socket's path has to be short
    try:
        port, token = _free_port(), secrets.token_hex(16)
        (folder / "scaling.json").write_text(json.dumps(staged.for_ray(f"{_own_address()}:{port}")))
        (folder / "ray_bootstrap_config.yaml").write_text(json.dumps(staged.bootstrap()))
        common = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_", "D3RAY_"))},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "D3RAY_CACHE": str(folder / "cache"),
            BY_NAME_ONLY: "1",
        }
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *_options(staged, folder, port)],
                cwd=folder,
                env={
                    **common,
                    **NO_METRICS,
                    **staged.health,
                    "RAY_worker_niceness": "0",
                    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
                    "SPT_NOENV": "1",  # or a worker's title is written over its environment, by which it is found
                    _MARK: folder.name,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        driver = {**common, "RAY_ADDRESS": f"{_own_address()}:{port}", "HOME": str(folder)}  # where the launcher leaves its file
        cluster = PretendCluster(folder, staged, process, driver)
        try:
            until(lambda: "Ray runtime started." in (folder / "log").read_text(), "Ray's head", cluster.check, START_SECONDS)
            yield cluster
        finally:
            cluster.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


Found = TypeVar("Found")


def until(condition: Callable[[], Found], what: str, check: Callable[[], None], seconds: float) -> Found:
    """Wait for a condition to be true and return its value. Raises StorageError: too late; and what `check` raises meanwhile."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        check()
        if time.monotonic() > end:
            raise StorageError(f"{what} was waited for {seconds:g} s, in vain.")
        time.sleep(0.1)
    return found


def _options(staged: Staged, folder: Path, port: int) -> list[str]:
    rest = {name: value for name, value in staged.head.items() if name not in ("CPU", "GPU", "memory", "object_store_memory")}
    options = {
        "port": port,
        "num-cpus": int(staged.head.get("CPU", 0)),
        "num-gpus": int(staged.head.get("GPU", 0)),
        "resources": json.dumps(rest),
        "temp-dir": folder / "ray",
        "object-store-memory": _STORE,
        "include-dashboard": "false",
        "ray-client-server-port": _free_port(),
        "dashboard-agent-listen-port": _free_port(),
        "min-worker-port": 0,  # the system's choice, not the same numbers as another Ray's
        "max-worker-port": 0,
        "autoscaling-config": folder / "scaling.json",
    }
    return ["--head", "--block", "--disable-usage-stats", *(f"--{name}={value}" for name, value in options.items())]


def _own_address() -> str:
    from ray.util import get_node_ip_address

    return get_node_ip_address()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return ""


def _title(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return next(iter(process.cmdline()), "")
    return ""


def _last_line(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it does not say why"
