"""On what an experiment runs: the machine of the command, and the versions that decide results."""

from __future__ import annotations

import os
import platform
import socket
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .. import __version__
from .folders import Folder

FILE = "surroundings.json"
_PACKAGES = ("torch", "ray", "gymnasium", "mujoco", "numpy", "mlflow")


def note_surroundings(folder: Folder) -> None:
    """Adds this machine and its versions to an experiment's folder, unless the newest entry is the same."""
    now, known = surroundings(), read_surroundings(folder)
    if not known or {**known[-1], "since": None} != {**now, "since": None}:
        folder.write_json(FILE, [*known, now])


def read_surroundings(folder: Folder) -> list[dict[str, Any]]:
    """Every machine on which commands ran the experiment, in order, as `surroundings` gives them."""
    return folder.read_json(FILE) or []


def surroundings() -> dict[str, Any]:
    """This machine, this Python: `since`, `host`, `system`, `processor`, `cpus`, `gpus`, `versions`. JSON."""
    import torch

    versions = {"d3ray": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "since": time.time(),
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())],
        "versions": versions,
    }


def _processor() -> str:
    """The processor's name, empty where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")
