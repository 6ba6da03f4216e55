"""`d3ray loop --config loop.yaml`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...platform.loop.settings import LoopSettings
from ..command.base import JobConfig, Result, option

if TYPE_CHECKING:
    from ...platform.record.loop import LoopState

STOPPED = 3  # what the command exits with where the doctor stopped a round


class LoopConfig(JobConfig, LoopSettings):
    """Where logs come from, how a policy is trained, and what it has to show before it acts."""

    every: float | None = option(None, "seconds from one round to the next, for ever; null: one round, or as far as it comes", gt=0)

    def after_interrupt(self, command: str) -> str:
        return f"Interrupted; the loop goes on from its last step: {command}"


@dataclass(frozen=True, kw_only=True)
class LoopResult(Result):
    """Where the loop stands."""

    state: LoopState


def run(config: LoopConfig) -> LoopResult:
    """Adds new logs to the dataset, trains, judges, tries out and promotes, each step from where a killed one stood.

    Raises:
        ConfigError, DataError, StorageError: a step did not succeed; the same command does it again.
    """
    from ...data.errors import D3rayError
    from ...platform.loop.run import run_round, watch_over

    while True:
        try:
            state = run_round(config)
            if state.step == "ingest":
                watch_over(config)
        except D3rayError as error:
            if config.every is None:
                raise
            print(error, flush=True)
        else:
            if config.every is None:
                break
        time.sleep(config.every)
    if state.step != "ingest":
        return LoopResult(made=f"Round {state.number} waits at {state.step}; the same command goes on with it.", state=state)
    last = state.rounds[-1]
    status = STOPPED if last.ended == "stopped" else 0
    return LoopResult(made=f"Round {last.number}: {last.ended}. {last.why}", exit_status=status, state=state)
