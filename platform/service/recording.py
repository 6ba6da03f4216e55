"""Where decisions and outcomes go: a log on disk, or nowhere."""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...data.decision_log import DecisionRows, DecisionWriter, Outcome, OutcomeLedger
from ...data.spec import Spec, from_columns
from . import wire
from .memory import Flat
from .settings import LogSettings


@dataclass(frozen=True)
class Row:
    """One decision, as it is logged; what is not known is None. `time` is of this machine's clock, in seconds since 1970."""

    policy: str
    version: str
    role: str
    episode: str | None  # None: it is no step of an episode, and its id is its key
    step: int
    observation: Flat  # by column, without the batch's axis
    action: np.ndarray
    log_prob: float | None = None
    legal: np.ndarray | None = None
    value: float | None = None
    reason: str | None = None
    time: float = 0.0


class Recorder(Protocol):
    """Keeps rows of one policy; `append` gives their ids, and when it returns they outlive this process."""

    def append(self, rows: Sequence[Row]) -> list[str]: ...

    def close(self) -> None: ...


class Unkept:
    """Gives ids, and keeps nothing; or, in a program of one process, the rows in `rows`, where `keep` is said."""

    def __init__(self, *, keep: bool = False) -> None:
        self.rows: list[Row] = []
        self._keep, self._name, self._count = keep, uuid.uuid4().hex[:12], itertools.count()

    def append(self, rows: Sequence[Row]) -> list[str]:
        if self._keep:
            self.rows.extend(rows)
        return [f"{self._name}-{next(self._count)}" for _ in rows]

    def close(self) -> None:
        return


class Logged:
    """The decision log of one policy, of which each process writes files of its own. Arguments and errors as `DecisionWriter`'s."""

    def __init__(self, log: LogSettings, folder: str, spec: Spec, policy: str) -> None:
        self._writer = DecisionWriter(folder, spec, policy=policy, **writing(log))

    def append(self, rows: Sequence[Row]) -> list[str]:
        def numbers(name: str) -> list[float]:
            return [math.nan if (value := getattr(row, name)) is None else value for row in rows]

        columns = {name: np.stack([row.observation[name] for row in rows]) for name in rows[0].observation}
        return self._writer.append(
            DecisionRows(
                version=[row.version for row in rows],
                role=[row.role for row in rows],
                episode=[row.episode for row in rows],
                step=[row.step for row in rows],
                observation=from_columns(columns),
                action=np.stack([row.action for row in rows]),
                log_prob=numbers("log_prob"),
                value=numbers("value"),
                legal=[row.legal for row in rows] if any(row.legal is not None for row in rows) else None,
                reason=[row.reason for row in rows],
                time=rows[0].time,
            )
        )

    def close(self) -> None:
        self._writer.close()


class Ledger:
    """Takes outcomes for one policy's log. Arguments and errors as `OutcomeLedger`'s."""

    def __init__(self, log: LogSettings, folder: str, spec: Spec) -> None:
        self._ledger = OutcomeLedger(folder, spec, **writing(log))

    def record(self, given: Sequence[wire.Outcome]) -> list[dict[str, Any]]:
        """Record outcomes: of each `answer`, and `reason` in a sentence where it is neither recorded nor known."""
        outcomes = [Outcome(**{name: getattr(one, name) for name in _TOLD}, observation=_shown(one.observation)) for one in given]
        return [{"answer": one.status, "reason": one.reason} for one in self._ledger.record(outcomes)]

    def close(self) -> None:
        self._ledger.close()


_TOLD = ("reward", "episode", "step", "decision", "policy", "cost", "terminated", "truncated")


def _shown(observation: Any) -> Any:
    """An observation of JSON, as arrays."""
    if isinstance(observation, dict):
        return {key: _shown(part) for key, part in observation.items()}
    return None if observation is None else np.asarray(observation)


def writing(log: LogSettings) -> dict[str, Any]:
    """How the files of a log are written."""
    return {"rotate_bytes": int(log.rotate_mb * 1e6), "rotate_seconds": log.rotate_seconds, "fsync": log.fsync}
