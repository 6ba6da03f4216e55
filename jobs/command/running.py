"""Finds the jobs that there are, and runs one as a command."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from ...data.config import Config
from ...data.errors import ConfigError, D3rayError, did_you_mean, speaking_of_configs
from ...data.uris import without_secrets
from ...platform.yaml_text import to_text
from .describe import algorithm_text, example, help_text, print_config
from .options import JobConfig, read_line, resolve

_JOBS = Path(__file__).parents[1]
ROOMS = {"data": "Data", "training": "Training", "results": "Results", "policies": "Policies", "cluster": "Clusters"}
FROM_HERE = ("submit", "jobs", "up", "down", "cluster")  # jobs that speak to clusters, on which `submit` runs the others
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def job_names(room: str | None = None) -> dict[str, str]:
    """Every job, or those of a room, with its one line for `--help`, read without importing any."""
    found: dict[str, str] = {}
    for file in (file for name in (ROOMS if room is None else (room,)) for file in sorted((_JOBS / name).glob("[a-z]*.py"))):
        with file.open(encoding="utf-8") as lines:
            head = next(lines, "").strip().strip('"')
        command, _, about = head.partition("`: ")
        if command.split(" ")[:2] == ["`d3ray", file.stem]:
            found[file.stem] = about
    return found


def load_job(name: str) -> tuple[ModuleType, type[Config]]:
    """The module of a job and its config class. Raises ConfigError: there is no such job."""
    if name not in (names := job_names()):
        raise ConfigError(f"d3ray has no job {name!r}{did_you_mean(name, names)}")
    room = next(room for room in ROOMS if name in job_names(room))
    module = importlib.import_module(f"..{room}.{name}", __package__)
    config_class = getattr(module, "".join(part.title() for part in name.split("_")) + "Config")
    return module, config_class


def _busy(text: str) -> AbstractContextManager[Any]:
    """Says on a terminal what a command does before it has anything to say: imports take seconds."""
    if sys.stderr is None or not sys.stderr.isatty():
        return nullcontext()
    from .console import busy

    return busy(text)


@speaking_of_configs()
def run_command(name: str, arguments: Iterable[str]) -> int:
    """`d3ray NAME ARGUMENTS`: resolves the config, runs the job, prints what it made.

    Returns:
        The exit status: 0, 1 where the job says that a part of it failed, 2 for input that the user can mend (one sentence on
        stderr), 130 after Ctrl-C. Other errors are bugs and are raised. `D3RAY_DEBUG=1` shows the traceback of the second kind too.
    """
    arguments, config = list(arguments), None
    command = shlex.join(["d3ray", name, *arguments])
    try:
        title = f"d3ray {name}"
        with _busy(f"{title}: starting"):
            module, config_class = load_job(name)
        line = read_line(config_class, arguments, title)
        action, chosen = line.action, line.values.get(("algorithm",), line.values.get(("algorithm", "name")))
        if action == "help":
            print(help_text(name, config_class, job_names()[name]))
            if isinstance(chosen, str) and "/" not in chosen:
                print("\n".join(["", *algorithm_text(chosen)]))
            return 0
        if action == "example":
            print(example(name, config_class), end="")
            return 0
        with _busy(f"{title}: checking the settings"):
            config, provenance = resolve(config_class, None, arguments, title=title)
        if action == "print-config":
            print(print_config(config, provenance), end="")
            return 0
        result = module.run(config)
        if lines := result.summary():
            print(without_secrets("\n".join(lines)))
        if failed := getattr(result, "failed", ""):
            print(without_secrets(failed), file=sys.stderr)
        return getattr(result, "exit_status", 0) or (FAILED if failed else 0)
    except D3rayError as error:
        if os.environ.get("D3RAY_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        print(error, file=sys.stderr)
        if error.mends and isinstance(getattr(config, "algorithm", None), Config):
            settings = [f"algorithm.{setting}={to_text(value)}" for setting, value in error.mends.items()]
            print(f"As a command: {without_secrets(shlex.join(['d3ray', name, *arguments, *settings]))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as interrupt:
        known = config if isinstance(config, JobConfig) else JobConfig()
        print("\n" + without_secrets(str(interrupt) or known.after_interrupt(command)), file=sys.stderr)
        return INTERRUPTED
