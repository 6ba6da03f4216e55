"""`python -m d3ray.platform.cluster.inspection JSON`: runs as a job, and says of each node whether a training could run there.

The JSON has `storage` (folder or URI; null: none), `cpu` and `gpu` of a trial. A line a node, and at the end what is wrong; exits
with 1 where something is.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ...data.errors import D3rayError, StorageError
from ...data.uris import without_password
from ..storage.folders import Folder
from .growth import growth, room_on

_SECONDS = 60.0  # that nodes may take to answer: a first worker imports torch
_CLOCK = 2.0  # seconds that a node's clock may be off; leases in object stores compare clocks
_MARK = ".d3ray-check-"


@dataclass
class Seen:
    """Describe a node's state."""

    gpu: Mapping[str, Any]  # as `gpus.gpu_state` gives it, with every GPU of the node visible
    storage: str = ""  # what is wrong with it; empty: nothing
    clock: float = 0.0  # seconds that it is ahead of the head's


@dataclass
class Report:
    """Collect output lines and the faults among them."""

    lines: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])


def look(storage: str | None, mark: str) -> Seen:
    """Runs on a node, in a task that holds nothing; the head has written the file `mark` to the storage."""
    every = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}  # Ray hides them from such a task
    every["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "d3ray.platform.cluster.gpus"]
    told = subprocess.run(command, env=every, capture_output=True, text=True, check=True, timeout=_SECONDS)
    return Seen(json.loads(told.stdout.splitlines()[-1]), "" if storage is None else try_storage(storage, mark))


def _clock() -> float:
    return time.time()


def try_storage(storage: str, mark: str) -> str:
    """Why trials could not keep anything there; empty: they can. A file is written, read and deleted."""
    name, content = f"{_MARK}{uuid4().hex[:8]}", uuid4().bytes
    try:
        folder = Folder(storage)
        if folder.read(mark) is None:
            return "it is not the folder that the head has under this name"
        folder.write(name, content)
        read = folder.read(name)
        folder.delete([name])
    except D3rayError as error:
        return str(error).rstrip(".")
    return "" if read == content else "what is written there cannot be read again"


def inspect(storage: str | None, wanted: Mapping[str, float]) -> Report:
    """Looks at every node of the cluster that this process is in, and at what its driver alone needs.

    `storage` None: none is looked at; `wanted` are `cpu` and `gpu` of a trial.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    mark, report = f"{_MARK}{uuid4().hex[:8]}", Report()
    if storage is not None:
        try:
            Folder(storage).write(mark, b"")
        except StorageError as error:
            report.faults.append(f"the storage cannot be used from the head: {error}")
            storage = None
    alive = [node for node in ray.nodes() if node["Alive"]]
    asked: dict[str, Any] = {}
    for node in alive:
        place = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        asked[node["NodeID"]] = ray.remote(num_cpus=0)(look).options(scheduling_strategy=place).remote(storage, mark)
    for node in alive:
        place = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        try:
            seen: Any = ray.get(asked[node["NodeID"]], timeout=_SECONDS)
            begun = time.time()
            there: Any = ray.get(ray.remote(num_cpus=0)(_clock).options(scheduling_strategy=place).remote(), timeout=_SECONDS)
            seen.clock = there - (begun + time.time()) / 2
            _tell(report, node, seen, storage)
        except (RayError, GetTimeoutError) as error:
            why = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            report.faults.append(f"the node {node['NodeManagerAddress']} did not answer: {why}")
    if storage is not None:
        Folder(storage).delete([mark])
    _tell_tracking(report)
    _tell_room(report, alive, wanted)
    return report


def _tell(report: Report, node: Mapping[str, Any], seen: Seen, storage: str | None) -> None:
    from .gpus import why_none

    address, gpu = node["NodeManagerAddress"], seen.gpu
    has = {name: node["Resources"].get(name, 0.0) for name in ("CPU", "GPU")}
    drawn = f"driver {gpu['driver'] or 'none'}, torch {gpu['torch']} for CUDA {gpu['cuda'] or 'none'} sees {len(gpu['gpus'])} GPU"
    kinds = f" ({', '.join(dict.fromkeys(gpu['gpus']))})" if gpu["gpus"] else ""
    kept = "" if storage is None else f", storage {'written and read' if not seen.storage else 'unusable'}"
    report.lines.append(f"{address}: {has['CPU']:g} CPU, {has['GPU']:g} GPU; {drawn}{kinds}{kept}, clock {seen.clock:+.1f} s")
    if len(gpu["gpus"]) < has["GPU"]:
        report.faults.append(f"on {address} Ray counts {has['GPU']:g} GPU and torch sees {len(gpu['gpus'])}: {why_none(dict(gpu))}")
    if seen.storage:
        report.faults.append(f"on {address} the storage cannot be used: {seen.storage}")
    if abs(seen.clock) > _CLOCK:
        report.faults.append(f"the clock of {address} is {seen.clock:+.1f} s off the head's; let the nodes keep their time by NTP")


def _tell_tracking(report: Report) -> None:
    """Of the driver alone: it delivers, trials never talk to the server."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri.startswith(("http://", "https://")):
        report.lines.append(f"tracking: {without_password(uri) or 'MLFLOW_TRACKING_URI is not set'}")
        return
    shown = without_password(uri).rstrip("/")
    try:
        with urllib.request.urlopen(f"{shown}/health", timeout=10) as answer:
            report.lines.append(f"tracking: {shown} answers ({answer.status})")
    except urllib.error.HTTPError as error:  # it is there; whether it lets us in MLflow's own client says
        report.lines.append(f"tracking: {shown} answers ({error.code})")
    except OSError as error:
        report.faults.append(f"the tracking server {shown} does not answer from the head: {error}")


def _tell_room(report: Report, alive: list[Any], wanted: Mapping[str, float]) -> None:
    now, may = sum(room_on(node["Resources"], wanted) for node in alive), growth()
    will = may.room(wanted) if may else now
    grows = f", {will} once it has grown" if will > now else ""
    report.lines.append(f"trials of {wanted['cpu']:g} CPU and {wanted['gpu']:g} GPU at once: {now} now{grows}")
    if not max(now, will) and any(node["Resources"].get("CPU") for node in alive):
        report.faults.append(f"no node has room for a trial of {wanted['cpu']:g} CPU and {wanted['gpu']:g} GPU")


def main() -> None:
    from .session import ray_session

    told = json.loads(sys.argv[1])
    logging.getLogger("ray").setLevel(logging.ERROR)
    with ray_session():
        report = inspect(told["storage"], {"cpu": told["cpu"], "gpu": told["gpu"]})
    for line in report.lines:
        print(line)
    for fault in report.faults:
        print(f"WRONG: {fault}.")
    print("The cluster can run it." if not report.faults else "The cluster cannot run it as it is.", flush=True)
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
