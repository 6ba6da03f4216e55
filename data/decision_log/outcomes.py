"""What came of decisions: told later, by key, each recorded once whoever tells it how often."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from ..errors import DataError
from ..spec import Spec, space_columns, value_columns
from ..storage.files import storage_errors
from ..storage.json_text import parse_json
from .index import LogIndex, StepKey, Tail
from .layout import LogFolder
from .reader import read_files
from .schema import fitted_leaf, flat_column, outcome_schema
from .writer import ROTATE_BYTES, ROTATE_SECONDS, LogWriter

_TOLD = ["reward", "cost", "terminated", "truncated", "status"]
Status = Literal["recorded", "known", "conflict", "unmatched"]


@dataclass(frozen=True)
class Outcome:
    """What came of one decision.

    Attributes:
        reward: Of the action.
        episode: The episode's key; with `step` it names the decision.
        step: Of the episode.
        decision: The decision's id, in their place or beside them.
        policy: The policy's name in the service; None: the only one of the log that has such a step.
        cost: Of the action; None: none was told.
        terminated: The task ended with this step.
        truncated: The episode was cut after this step.
        observation: What was seen after the last step, of an outcome that ends an episode; None: not told.
        time: When it was, seconds since 1970; None: now.

    Raises:
        DataError: a number is NaN or infinite, no decision is named, or an observation ends nothing.
    """

    reward: float
    episode: str | None = None
    step: int | None = None
    decision: str | None = None
    policy: str | None = None
    cost: float | None = None
    terminated: bool = False
    truncated: bool = False
    observation: Any = None
    time: float | None = None

    def __post_init__(self) -> None:
        if self.decision is None and (self.episode is None or self.step is None):
            raise DataError("An outcome names its decision: give episode and step, or decision.")
        for name, value in (("reward", self.reward), ("cost", self.cost)):
            if value is not None and not math.isfinite(value):
                raise DataError(f"The {name} of {self.named} is {value}; a finite number is needed.")
        if self.observation is not None and not (self.terminated or self.truncated):
            raise DataError(f"The outcome of {self.named} has an observation and ends nothing: say terminated or truncated.")

    @property
    def named(self) -> str:
        """The decision in words."""
        return f"step {self.step} of episode {self.episode!r}" if self.decision is None else f"decision {self.decision!r}"


class Answer(NamedTuple):
    """Answer to an outcome.

    Attributes:
        status: "recorded"; "known": it was recorded before, just so; "conflict": another one was recorded before, which counts, and
            this one was written beside it; "unmatched": the log has no such decision, and nothing was written.
        reason: A sentence where it was not recorded; else empty.
    """

    status: Status
    reason: str = ""


class OutcomeLedger:
    """Records the outcomes of a log's decisions. What it answered is in the log; it may be asked again after any failure.

    Several may write to one log on one machine, in turns. An outcome may come right after its decision was written by another
    process. A log behind a URI gets decisions when files are closed, from many machines: there an outcome whose decision is not
    known is recorded, and joined when the log is read.

    Args:
        where: The log: its folder or URI.
        spec: The spaces; None: the log is there already.
        rotate_bytes, rotate_seconds, fsync, spool: As of `DecisionWriter`.

    Raises:
        DataError: there is no log, or it is one of another problem.
        StorageError: it cannot be read or written.
    """

    def __init__(
        self,
        where: str | Path,
        spec: Spec | None = None,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        rotate_seconds: float = ROTATE_SECONDS,
        fsync: bool = False,
        spool: str | Path | None = None,
    ) -> None:
        self._log = log = LogFolder(where, spool)
        self._spec = log.prepare(log.read_about().spec if spec is None else spec).spec
        self._schema, self._columns = outcome_schema(self._spec), space_columns(self._spec.observation)
        about: dict[str, Any] = {"rotate_bytes": rotate_bytes, "rotate_seconds": rotate_seconds, "fsync": fsync}
        self._files = LogWriter(log, "outcomes", self._schema, **about)
        self._index, self._lock = LogIndex(), threading.Lock()
        self._decisions, self._outcomes = Tail(log, "decisions"), Tail(log, "outcomes")
        for rows in read_files(log, "outcomes") if log.spooled else ():
            self._add_outcomes([rows.table])

    def record(self, outcomes: Sequence[Outcome]) -> list[Answer]:
        """Record outcomes, and answer each; what is answered is in the log.

        Raises DataError where an observation is not of the spec, and StorageError where they cannot be written: then none is.
        """
        shown = [self._shown(outcome) for outcome in outcomes]
        with self._lock, storage_errors("used", self._log.local), self._alone():
            self._add_outcomes(self._outcomes.new())
            keys = [self._find(outcome) for outcome in outcomes]
            if not all(isinstance(key, StepKey) for key in keys) and not self._log.spooled:
                for table in self._decisions.new():
                    self._index.add_decisions(table)
                keys = [self._find(outcome) for outcome in outcomes]
            return self._decide(outcomes, shown, keys)

    def close(self) -> None:
        """Close the last file. Raises StorageError as `DecisionWriter.close` does."""
        self._files.close()
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _decide(
        self, outcomes: Sequence[Outcome], shown: Sequence[dict[str, np.ndarray]], keys: Sequence[StepKey | str]
    ) -> list[Answer]:
        answers, rows, added = list[Answer](), list[dict[str, Any]](), dict[str, dict[str, str]]()
        for outcome, seen, key in zip(outcomes, shown, keys, strict=True):
            if isinstance(key, str) and not self._log.spooled:
                answers.append(Answer("unmatched", key))
                continue
            step = key if isinstance(key, StepKey) else None
            name, said = _key(outcome, step), _said([getattr(outcome, told) for told in _TOLD[:-1]], seen)
            known = self._index.outcomes(name) | added.get(name, {})
            status = "recorded" if not known else "conflict"
            if said not in known:
                added.setdefault(name, {})[said] = status
                rows.append(self._row(outcome, seen, step, status))
            answers.append(_answer(outcome, known, said))
        if rows:
            columns = [self._column(name, [row[name] for row in rows]) for name in self._schema.names]
            self._files.append(pa.record_batch(columns, schema=self._schema))
            self._index.add_outcomes([(name, *item) for name, items in added.items() for item in items.items()])
        return answers

    def _find(self, outcome: Outcome) -> StepKey | str:
        """Return the step that is meant, or why there is none."""
        if outcome.decision is not None:
            found = self._index.decision(outcome.decision)
            steps = [] if found is None else [found]
        else:
            assert outcome.episode is not None
            assert outcome.step is not None
            steps = self._index.steps(outcome.policy, outcome.episode, outcome.step)
        if not steps:
            return f"The log has no decision for {outcome.named}."
        if len(steps) > 1:
            return f"Several policies have {steps[0]}: name the policy of the outcome."
        wanted = (outcome.policy, outcome.episode, outcome.step)
        if any(value not in (None, found) for value, found in zip(wanted, steps[0], strict=True)):
            return f"The {outcome.named} is {steps[0]} of {steps[0].policy!r}, and the outcome names another."
        return steps[0]

    def _shown(self, outcome: Outcome) -> dict[str, np.ndarray]:
        """Return the parts of an outcome's observation; none where it has none. Raises DataError."""
        if outcome.observation is None:
            return {}
        given = value_columns(outcome.observation)
        if given.keys() != self._columns.keys():
            raise DataError(
                f"The observation of {outcome.named} has {', '.join(sorted(given))}, not {', '.join(sorted(self._columns))}."
            )
        try:
            return {name: fitted_leaf(name, leaf, np.asarray(given[name])[None])[0] for name, leaf in self._columns.items()}
        except DataError as error:
            raise DataError(f"The outcome of {outcome.named}: {error}") from None

    def _row(self, outcome: Outcome, seen: dict[str, np.ndarray], step: StepKey | None, status: str) -> dict[str, Any]:
        when = datetime.now(UTC) if outcome.time is None else datetime.fromtimestamp(outcome.time, UTC)
        policy, episode, number = step or (outcome.policy, outcome.episode, outcome.step)
        told = {name: getattr(outcome, name) for name in ("decision", "reward", "cost", "terminated", "truncated")}
        return {name: seen.get(name) for name in self._columns} | told | {
            "policy": policy, "episode": episode, "step": number, "time": when, "status": status
        }  # fmt: skip

    def _column(self, name: str, values: list[Any]) -> Any:
        kind = self._schema.field(name).type
        return flat_column(values, kind) if name in self._columns else pa.array(values, kind)

    def _add_outcomes(self, tables: Iterable[Any]) -> None:
        """Add rows of the log to the index."""
        for table in tables:
            told, keys = (table.select(names).to_pylist() for names in (_TOLD, ["policy", "episode", "step", "decision"]))
            parts = {name: table[name].to_pylist() for name in self._columns}
            rows = list[tuple[str, str, str]]()
            for k, (row, key) in enumerate(zip(told, keys, strict=True)):
                seen = {n: np.asarray(parts[n][k], leaf.dtype) for n, leaf in self._columns.items() if parts[n][k] is not None}
                *step, decision = key.values()
                rows.append((_named(step, decision), _said([row[name] for name in _TOLD[:-1]], seen), row["status"]))
            self._index.add_outcomes(rows)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold the lock that ledgers of this machine take turns by. Raises OSError."""
        file = os.open(self._log.folder("outcomes") / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def _key(outcome: Outcome, step: StepKey | None) -> str:
    """Name what an outcome is of: the step, where it is known, else as it was told."""
    return _named(list(step or (outcome.policy, outcome.episode, outcome.step)), outcome.decision)


def _named(step: list[Any], decision: str | None) -> str:
    return json.dumps([*step, decision] if None in step else step)


def _said(told: Sequence[Any], seen: dict[str, np.ndarray]) -> str:
    """Write reward, cost and flags, and a hash of each part of an observation, so that equal outcomes are equal texts."""
    reward, cost, terminated, truncated = told
    parts = {name: hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest() for name, part in sorted(seen.items())}
    return json.dumps([float(reward), None if cost is None else float(cost), terminated, truncated, parts])


def _answer(outcome: Outcome, known: dict[str, str], said: str) -> Answer:
    if not known:
        return Answer("recorded")
    if known.get(said) == "recorded":
        return Answer("known", f"The outcome of {outcome.named} was recorded before.")
    first = parse_json(next(text for text, status in known.items() if status == "recorded"))
    names = ("reward", "cost", "terminated", "truncated", "observation")
    differ = [k for k, (a, b) in enumerate(zip(first, parse_json(said), strict=True)) if a != b]
    k = differ[0]
    what = f"another {names[k]}" if k == 4 else f"{names[k]} {first[k]}"
    return Answer("conflict", f"The outcome of {outcome.named} was recorded with {what}, which counts; this one is kept beside it.")
