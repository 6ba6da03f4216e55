"""The `d3ray` command, also `python -m d3ray.jobs`: one subcommand a job, each imported when it is called."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..data.errors import ConfigError, did_you_mean
from .command.running import BAD_INPUT, FAILED, ROOMS, job_names, load_job, run_command

_ABOUT = """Data-driven deep reinforcement learning on Ray: from logged experience to a policy.

`d3ray JOB --help` shows a job's options, `d3ray JOB --example` a commented config file, and
`d3ray JOB --config FILE key=value ...` runs it.
"""


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


def _callback(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments and arguments[0] not in ("--help", "--version", *job_names()):
        try:
            if arguments[0].startswith("-"):
                raise ConfigError(f"d3ray has no flag {arguments[0]!r}{did_you_mean(arguments[0], ['--help', '--version'])}")
            load_job(arguments[0])
        except ConfigError as error:
            print(error, file=sys.stderr)
            sys.exit(BAD_INPUT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what can be resumed is kept
    if os.environ.get("D3RAY_SUBMITTED"):  # a job's log says which d3ray ran it
        print(f"d3ray {__version__} from {Path(__file__).parents[1]}", flush=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # how a job is stopped; a Ray started by a script ignores it
        from ..platform.cluster.staging import load_secrets

        load_secrets()
    job = os.environ.pop("D3RAY_JOB", "")  # the folder of one that `d3ray.experiments` has started as a process
    if job:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(50_000)  # of the million objects that torch, Ray and MLflow make as they are imported none is garbage
    status = FAILED
    try:
        application()(arguments, prog_name="d3ray")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else FAILED
        raise
    finally:
        if job:
            from ..platform.api.processes import note_end

            note_end(job, status)
        gc.freeze()  # nor are they looked through as the process ends


if __name__ == "__main__":
    main()
