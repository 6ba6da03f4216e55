"""What every job is made of.

A job is one module of a room of `jobs/`; nothing else has to name it. `jobs/data/count.py` in full:

    '''`d3ray count DATASET`: how many transitions a dataset has.'''

    from __future__ import annotations

    from dataclasses import dataclass

    from ...data.dataset import Dataset
    from ..command.base import JobConfig, Result, option

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

from collections.abc import Mapping
from dataclasses import dataclass, field

from .options import JobConfig, RestartableConfig, option

__all__ = ["JobConfig", "RestartableConfig", "Result", "option"]


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
