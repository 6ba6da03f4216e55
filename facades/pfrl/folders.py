"""Folders of runs, as PFRL makes them: what was run, from which state of the code, with what settings."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

# What of the environment decides a run, and is no secret; PFRL writes all of it down, keys of clouds included.
_WRITTEN = ("CUDA_VISIBLE_DEVICES", "LANG", "MUJOCO_GL", "OMP_NUM_THREADS", "PATH", "PYTHONHASHSEED", "PYTHONPATH", "VIRTUAL_ENV")
_GIT = {
    "git-head.txt": ("rev-parse", "HEAD"),
    "git-status.txt": ("status", "--short"),
    "git-log.txt": ("log", "-n", "20"),
    "git-diff.txt": ("diff", "HEAD"),
}


def is_under_git_control() -> bool:
    """Whether the current folder lies in a git repository, and git is there to ask."""
    return shutil.which("git") is not None and _git("rev-parse", "HEAD") is not None


def generate_exp_id(prefix: str | None = None, argv: Sequence[str] | None = None) -> str:
    """A name that the same command on the same state of the code gets again: of git's head and difference, and the command.

    Args:
        prefix: What it begins with.
        argv: The command; None: this process's.
    """
    told = json.dumps(sys.argv if argv is None else list(argv))
    code = hashlib.sha256(f"{_git('rev-parse', 'HEAD')}{_git('diff', 'HEAD')}{told}".encode()).hexdigest()[:32]
    return code if prefix is None else f"{prefix}-{code}"


def prepare_output_dir(
    args: argparse.Namespace | Mapping[str, Any],
    basedir: str | Path | None = None,
    exp_id: str | None = None,
    argv: Sequence[str] | None = None,
    time_format: str = "%Y%m%dT%H%M%S.%f",
    make_backup: bool = True,
) -> str:
    """Makes the folder of a run, with `args.txt`, `command.txt`, `environ.txt`, `start.txt`, and git's head, status, log and diff.

    `environ.txt` has a few variables that are known to hold no secrets, not all that there are.

    Args:
        args: Settings of the run.
        basedir: Where the folder is made; None: here.
        exp_id: Its name; None: `generate_exp_id`'s below git, else the time.
        argv: The command; None: this process's.
        time_format: Of times in names and in `start.txt`.
        make_backup: Whether an earlier folder of that name is kept, under a name with the time.

    Returns:
        The folder's path.
    """
    now, versioned = datetime.now().astimezone().strftime(time_format), is_under_git_control()
    folder = Path(basedir or ".") / (exp_id or (generate_exp_id(argv=argv) if versioned else now))
    if make_backup and folder.exists():
        folder.rename(folder.with_name(f"{folder.name}.{now}.backup"))
    folder.mkdir(parents=True, exist_ok=True)
    settings = vars(args) if isinstance(args, argparse.Namespace) else dict(args)
    (folder / "args.txt").write_text(json.dumps(settings, indent=1, default=str) + "\n")
    (folder / "command.txt").write_text(shlex.join(sys.argv if argv is None else argv) + "\n")
    known = {name: os.environ[name] for name in _WRITTEN if name in os.environ}
    (folder / "environ.txt").write_text(json.dumps(known, indent=1) + "\n")
    (folder / "start.txt").write_text(now + "\n")
    if versioned:
        for name, command in _GIT.items():
            (folder / name).write_text(_git(*command) or "")
    return str(folder)


def _git(*command: str) -> str | None:
    """What git says; None where it cannot say anything."""
    done = subprocess.run(["git", *command], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
