"""The `d3ray` command: runs the one that is named, each imported when it is called."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
import textwrap
import traceback
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ...data.errors import D3rayError, did_you_mean, speaking_of_configs
from ...data.uris import without_secrets
from ...data.version import __version__
from .commands import COMMANDS, TITLES, load
from .completion import SCRIPTS

ABOUT = """Usage: d3ray COMMAND [key=value ...]

Data-driven deep reinforcement learning on Ray: from logged experience to a policy.

`d3ray COMMAND --help` shows a command's options, `d3ray COMMAND --example` a commented config file, and
`d3ray COMMAND --config FILE key=value ...` runs it."""
FLAGS = {
    "--completion": "SHELL  print what bash, zsh or fish reads to complete d3ray's words",
    "--help": "print this",
    "--version": "print the version",
}
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str]) -> None:
    """Runs a command line and exits with its status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what can be resumed is kept
    job = os.environ.pop("D3RAY_JOB", "")  # the folder of one that `d3ray.experiments` has started as a process
    if job or os.environ.get("D3RAY_SUBMITTED"):  # Ctrl-C is how a job is stopped; a Ray started by a script ignores it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("D3RAY_SUBMITTED"):  # a job's log says which d3ray ran it
        print(f"d3ray {__version__} from {Path(__file__).parents[2]}", flush=True)
        from ...platform.cluster.staging import load_secrets

        load_secrets()
    # Of the million objects that torch, Ray and MLflow make nothing is garbage. Not to look through them saves 0.7 s of 4 s
    # of CPU as they are imported, and 1.3 s of 1.6 s as the process ends.
    gc.set_threshold(50_000)
    status = FAILED
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads any more, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = FAILED
    finally:
        if job:
            from ...platform.api.processes import note_end

            note_end(job, status)
        gc.freeze()
    sys.exit(status)


def _run(arguments: Sequence[str]) -> int:
    first, _, shell = (arguments[0] if arguments else "--help").partition("=")
    if first in ("--help", "-h"):
        print(help_of_all(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else BAD_INPUT
    if first == "--version":
        print(f"d3ray {__version__}")
        return 0
    if first == "--completion" and (shell := shell or "".join(arguments[1:2])) in SCRIPTS:
        print(SCRIPTS[shell].strip())
        return 0
    if first == "--completion":
        print(f"d3ray --completion needs the name of a shell{did_you_mean(shell, SCRIPTS)}", file=sys.stderr)
        return BAD_INPUT
    if first.startswith("-"):
        print(f"d3ray has no flag {first!r}{did_you_mean(first, FLAGS)}", file=sys.stderr)
        return BAD_INPUT
    return run_command(arguments[0], arguments[1:])


def help_of_all() -> str:
    """Return the text of `d3ray --help`: every command with its line."""
    parts = {title: {} for title in (*TITLES.values(), "Flags")} | {"Flags": FLAGS}
    for name, (place, about) in COMMANDS.items():
        parts[TITLES[place.partition(".")[0]]][name] = about
    lines = [ABOUT]
    for title, entries in parts.items():
        lines += ["", f"{title}:"] if entries else []
        lines += [textwrap.fill(f"  {name:<12}  {about}", 100, subsequent_indent=" " * 16) for name, about in entries.items()]
    return "\n".join(lines)


def _busy(text: str) -> AbstractContextManager[Any]:
    """Says on a terminal what a command does before it has anything to say: imports take seconds."""
    if sys.stderr is None or not sys.stderr.isatty():
        return nullcontext()
    from .console import busy

    return busy(text)


@speaking_of_configs()
def run_command(name: str, arguments: Iterable[str]) -> int:
    """`d3ray NAME ARGUMENTS`: resolves the config, runs the command, prints what it made.

    Returns:
        The exit status: 0, 1 where the command says that a part of it failed, 2 for input that the user can mend (one sentence on
        stderr), 130 after Ctrl-C. Other errors are bugs and are raised. `D3RAY_DEBUG=1` shows the traceback of the second kind too.
    """
    arguments, config, title = list(arguments), None, f"d3ray {name}"
    command = shlex.join(["d3ray", name, *arguments])
    try:
        with _busy(f"{title}: starting"):
            run, config_class = load(name)
            from . import describe, options
        line = options.read_line(config_class, arguments, title)
        if line.action == "help":
            print(describe.help_text(name, config_class))
            chosen = line.values.get(("algorithm",), line.values.get(("algorithm", "name")))
            if isinstance(chosen, str) and "/" not in chosen:
                print("\n".join(["", *describe.algorithm_text(chosen)]))
            return 0
        if line.action == "example":
            print(describe.example(name, config_class), end="")
            return 0
        with _busy(f"{title}: checking the settings"):
            config, provenance = options.resolve(config_class, None, arguments, title=title)
        if line.action == "print-config":
            print(describe.print_config(config, provenance), end="")
            return 0
        result = run(config)
        if lines := result.summary():
            print(without_secrets("\n".join(lines)))
        if failed := getattr(result, "failed", ""):
            print(without_secrets(failed), file=sys.stderr)
        return getattr(result, "exit_status", 0) or (FAILED if failed else 0)
    except D3rayError as error:
        if os.environ.get("D3RAY_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        print(error, file=sys.stderr)
        if error.mends and getattr(config, "algorithm", None) is not None:
            from ...platform.yaml_text import to_text

            settings = [f"algorithm.{setting}={to_text(value)}" for setting, value in error.mends.items()]
            print(f"As a command: {without_secrets(shlex.join(['d3ray', name, *arguments, *settings]))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as interrupt:
        from .base import JobConfig

        known = config if isinstance(config, JobConfig) else JobConfig()
        print("\n" + without_secrets(str(interrupt) or known.after_interrupt(command)), file=sys.stderr)
        return INTERRUPTED
