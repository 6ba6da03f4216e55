"""The `d3ray` command: one subcommand a job, each imported when it is called."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ...data.errors import ConfigError, did_you_mean
from ...data.version import __version__
from .completion import SCRIPTS
from .running import BAD_INPUT, FAILED, ROOMS, job_names, load_job, run_command

_ABOUT = """Data-driven deep reinforcement learning on Ray: from logged experience to a policy.

`d3ray JOB --help` shows a job's options, `d3ray JOB --example` a commented config file, and
`d3ray JOB --config FILE key=value ...` runs it.
"""
_FLAGS = ("--completion", "--help", "--version")


class _ByRoom(TyperGroup):
    """Lists the jobs under the name of their room."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # click's, of which typer may bring its own copy
        for room, title in ROOMS.items():
            if names := job_names(room):
                with formatter.section(title):
                    formatter.write_dl([(name, about) for name, about in names.items()])


def _version(asked: bool) -> None:
    if asked:
        print(f"d3ray {__version__}")
        raise typer.Exit


def _completion(shell: str | None) -> None:
    if shell is not None:
        print(SCRIPTS[shell].strip())
        raise typer.Exit


def _callback(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None,
        typer.Option(
            "--completion", callback=_completion, is_eager=True, help="Print what that shell reads to complete d3ray's words."
        ),
    ] = None,
) -> None:
    """Options of `d3ray` itself."""


def _command(name: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        raise typer.Exit(run_command(name, context.args))

    return command


def application() -> typer.Typer:
    """The typer application, with a command for each job there is."""
    app = typer.Typer(name="d3ray", cls=_ByRoom, help=_ABOUT, add_completion=False, no_args_is_help=True, rich_markup_mode=None)
    app.pretty_exceptions_enable = False
    app.callback()(_callback)
    # A job reads its own arguments: key=value pairs and flags are one thing with the keys of its YAML file.
    verbatim = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
    for name, about in job_names().items():
        app.command(name, short_help=about, context_settings=verbatim, add_help_option=False)(_command(name))
    return app


def run(arguments: Sequence[str], *, ends_process: bool = False) -> None:
    """Runs a command line and exits with its status; where it is that of this process, it `ends_process` at once."""
    if arguments and arguments[0].partition("=")[0] not in (*_FLAGS, *job_names()):
        try:
            if arguments[0].startswith("-"):
                raise ConfigError(f"d3ray has no flag {arguments[0]!r}{did_you_mean(arguments[0], _FLAGS)}")
            load_job(arguments[0])
        except ConfigError as error:
            print(error, file=sys.stderr)
            sys.exit(BAD_INPUT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what can be resumed is kept
    if os.environ.get("D3RAY_SUBMITTED"):  # a job's log says which d3ray ran it
        print(f"d3ray {__version__} from {Path(__file__).parents[2]}", flush=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # how a job is stopped; a Ray started by a script ignores it
        from ...platform.cluster.staging import load_secrets

        load_secrets()
    job = os.environ.pop("D3RAY_JOB", "")  # the folder of one that `d3ray.experiments` has started as a process
    if job:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(50_000)  # of the million objects that torch, Ray and MLflow make as they are imported none is garbage
    status, said = FAILED, False
    try:
        application()(arguments, prog_name="d3ray")
    except SystemExit as end:
        said = isinstance(end.code, int)
        status = end.code if isinstance(end.code, int) else FAILED
        raise
    finally:
        if job:
            from ...platform.api.processes import note_end

            note_end(job, status)
        gc.freeze()  # nor are they looked through as the process ends
        if ends_process and said:
            _leave(status)


def _leave(status: int) -> None:
    """Ends this process once all that asked for a word at its end has had it.

    The interpreter would then take torch, Ray and MLflow apart object by object, for up to seconds. It may where another thread has
    still to end, which it waits for, or where what was printed cannot be written, which it reports.
    """
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - nothing else runs what files, logs and coverage have asked for
    with suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)
