"""What every job is made of.

A job is one module of this folder; nothing else has to name it. `jobs/count.py` in full:

    '''`d3ray count DATASET`: how many transitions a dataset has.'''

    from __future__ import annotations

    from dataclasses import dataclass

    from ..data.dataset import Dataset
    from .base import JobConfig, Result, option

    class CountConfig(JobConfig):
        dataset: str = option(..., "dataset folder, URI or catalog name", operand=True, example="d3ray/cartpole-replay")
        episodes: bool = option(False, "count episodes instead")

    @dataclass(frozen=True, kw_only=True)
    class CountResult(Result):
        n: int

    def run(config: CountConfig) -> CountResult:
        dataset = Dataset.open(config.dataset)
        n = dataset.n_episodes if config.episodes else dataset.n_transitions
        return CountResult(n=n, made=f"{config.dataset} has {n}.", look={"more": f"d3ray inspect {config.dataset}"})

- The docstring begins with the command between backticks and a colon; the rest of its first line is what `d3ray --help` lists.
- The config class is the module's name in CamelCase with `Config`; any `data.config.Config` will do, `JobConfig` is the usual
  base, and `RestartableConfig` adds `resume` and `replace`. Nested configs are fields; their options get dotted names.
- `run` does the work and raises a `D3rayError` for what the user can mend, before any work where possible. What is slow to import
  (ray, mlflow, torch) is best imported inside it, so that `--help` stays quick.
- A Ctrl-C is let through. A job that knows what is left to do raises `KeyboardInterrupt("3 of 5 trials are done; ...")` instead.
"""

from __future__ import annotations

import ast
import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from ..data.config import Config
from ..data.errors import ConfigError, D3rayError, did_you_mean
from .describe import example, help_text, print_config
from .options import JobConfig, RestartableConfig, option, read_line, resolve

__all__ = ["JobConfig", "RestartableConfig", "Result", "job_names", "load_job", "option", "resolve", "run_command"]

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a job made and where to look; subclasses add what Python callers want to have."""

    made: str
    """One sentence: what there is now that was not there before."""
    look: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where to look, by what is found there: a path, a URI or a command."""
    failed: str = ""
    """What did not succeed, in one sentence; empty when all did. The command then exits with 1."""
    exit_status: int = 0
    """What the command exits with where neither 0 nor 1 says it."""

    def summary(self) -> list[str]:
        """The last lines of the command."""
        width = max(map(len, self.look), default=0)
        return [*filter(None, [self.made]), *(f"  {label + ':':<{width + 1}} {place}" for label, place in self.look.items())]


def job_names() -> dict[str, str]:
    """Every job of this folder with its one line for `--help`, read without importing any."""
    found: dict[str, str] = {}
    for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        head = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n", 1)[0]
        command, _, about = head.partition("`: ")
        if command.split(" ")[:2] == ["`d3ray", file.stem]:
            found[file.stem] = about
    return found


def load_job(name: str) -> tuple[ModuleType, type[Config]]:
    """The module of a job and its config class. Raises ConfigError: there is no such job."""
    if name not in (names := job_names()):
        raise ConfigError(f"d3ray has no job {name!r}{did_you_mean(name, names)}")
    module = importlib.import_module(f".{name}", __package__)
    config_class = getattr(module, "".join(part.title() for part in name.split("_")) + "Config")
    return module, config_class


def run_command(name: str, arguments: Iterable[str]) -> int:
    """`d3ray NAME ARGUMENTS`: resolves the config, runs the job, prints what it made.

    Returns:
        The exit status: 0, 1 where the job says that a part of it failed, 2 for input that the user can mend (one sentence on
        stderr), 130 after Ctrl-C. Other errors are bugs and are raised. `D3RAY_DEBUG=1` shows the traceback of the second kind too.
    """
    arguments, config = list(arguments), None
    command = shlex.join(["d3ray", name, *arguments])
    try:
        module, config_class = load_job(name)
        title = f"d3ray {name}"
        action = read_line(config_class, arguments, title).action
        if action == "help":
            print(help_text(name, config_class, job_names()[name]))
            return 0
        if action == "example":
            print(example(name, config_class), end="")
            return 0
        config, provenance = resolve(config_class, None, arguments, title=title)
        if action == "print-config":
            print(print_config(config, provenance), end="")
            return 0
        result = module.run(config)
        if lines := result.summary():
            print("\n".join(lines))
        if failed := getattr(result, "failed", ""):
            print(failed, file=sys.stderr)
        return getattr(result, "exit_status", 0) or (FAILED if failed else 0)
    except D3rayError as error:
        if os.environ.get("D3RAY_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        print(error, file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as interrupt:
        known = config if isinstance(config, JobConfig) else JobConfig()
        print("\n" + (str(interrupt) or known.after_interrupt(command)), file=sys.stderr)
        return INTERRUPTED
