"""On what an experiment runs: the machine of the command, the versions that decide results, and the state of the user's code."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..data.uris import without_password
from ..data.version import __version__
from .storage.folders import Folder

FILE = "surroundings.json"
CARRIED = "D3RAY_GIT"  # a job on a cluster runs where there is no repository: what was submitted names it there
_GIT_SECONDS = 10.0
_OWN = Path(__file__).parents[1]  # where this d3ray lies; its repository, unless it was installed
_PACKAGES = ("torch", "ray", "gymnasium", "mujoco", "numpy", "mlflow")


def note_surroundings(folder: Folder) -> None:
    """Adds this machine and its versions to an experiment's folder, unless the newest entry is the same.

    Where d3ray runs from its repository its version is followed by the commit: 0.1.0 (1a2b3c4d5e6f with changes).
    """
    now, known = surroundings(), read_surroundings(folder)
    if (_OWN / ".git").exists() and (own := git_state(_OWN)) is not None:
        now["versions"]["d3ray"] += f" ({own['commit'][:12]}{' with changes' if own['dirty'] else ''})"
    if not known or {**known[-1], "since": None} != {**now, "since": None}:
        folder.write_json(FILE, [*known, now])


def read_surroundings(folder: Folder) -> list[dict[str, Any]]:
    """Every machine on which commands ran the experiment, in order, as `surroundings` gives them."""
    return folder.read_json(FILE) or []


def surroundings() -> dict[str, Any]:
    """This machine, this Python: `since`, `versions`, `git`, and what `this_machine` has. JSON."""
    versions = {"d3ray": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"since": time.time(), **this_machine(), "versions": versions, "git": git_state()}


def this_machine() -> dict[str, Any]:
    """`host`, `system`, `processor`, `cpus` and `gpus`, as far as this process may use them. JSON."""
    return {
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cpus": usable_cpus(),
        "gpus": gpu_names(),
    }


def gpu_names() -> list[str]:
    """The GPUs that torch can use in this process, by index: none where CUDA does not begin, as under a driver that is too old.

    The driver counts its GPUs whether torch can use them or not, so that it is not asked alone.
    """
    import torch

    try:
        return [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    except RuntimeError:  # under PYTORCH_NVML_BASED_CUDA_CHECK, by which no more is looked at than whether there are some
        return []


def usable_cpus() -> int:
    """How many CPUs this process may use; all of the machine's where the system does not tell (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """The state of the user's code: `commit`, `branch` (empty where none is checked out), `dirty`, `remote`. JSON.

    `dirty` says whether files that git knows were changed. `remote` is the address of `origin` without user and password, empty
    where there is none.

    Args:
        folder: None: what `D3RAY_GIT` carries, else the current folder.

    Returns:
        None where the folder is in no repository, or git is not there.
    """
    if folder is None and (carried := os.environ.get(CARRIED)):
        return json.loads(carried)
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    return {
        "commit": commit,
        "branch": _git(folder, "symbolic-ref", "--short", "--quiet", "HEAD") or "",
        "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no")),
        "remote": without_password(_git(folder, "config", "--get", "remote.origin.url") or ""),
    }


def _git(folder: Path | None, *arguments: str) -> str | None:
    """Return a git command's output; None if it fails."""
    where = [] if folder is None else ["-C", str(folder)]
    try:
        done = subprocess.run(
            ["git", *where, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_SECONDS,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def describe_git(state: Mapping[str, Any]) -> str:
    """A commit in a few words: 1a2b3c4d5e6f on main, with changes."""
    branch = f" on {state['branch']}" if state["branch"] else ""
    return f"{state['commit'][:12]}{branch}{', with changes' if state['dirty'] else ''}"


def describe_machine(about: Mapping[str, Any]) -> str:
    """A machine in a few words: A Processor, 2 CPUs, no GPU, Linux x86_64."""
    cpus = f"{about['cpus']} CPU{'s' * (about['cpus'] != 1)}"
    gpus: list[str] = about["gpus"]
    kinds = [f"{gpus.count(name)} × {name}" if gpus.count(name) > 1 else name for name in dict.fromkeys(gpus)]
    return ", ".join(filter(None, [about["processor"], cpus, *(kinds or ["no GPU"]), about["system"]]))


def _processor() -> str:
    """The processor's name, empty where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")
