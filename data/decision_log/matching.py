"""Rows of a log by their keys: which answers are to one request, which of them counts, and which outcome is of which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .reader import LogTable
from .schema import ACTED, numpy_column
from .taken import spans

KEYS = (
    "id",
    "policy",
    "version",
    "role",
    "episode",
    "step",
    "alone",
    "time",
    "log_prob",
)  # columns of decisions that are looked at
_compute: Any = pc  # its functions are made as it is imported


class Keys:
    """The decisions that were acted on, [A].

    Attributes:
        row: Of the log.
        episode: Number of the episode, from 0; one of each policy where several have that key.
        step: In it.
        time: Microseconds since 1970 by the clock of who wrote it, which never goes back within a writer.
        alone: Whether it is an episode of one step, since its request named none.
        no_density: Whether it has no log_prob.
    """

    def __init__(self, decisions: LogTable) -> None:
        table = decisions.table
        acted = np.asarray(_compute.is_in(table["role"], pa.array(ACTED)))
        self.row = np.flatnonzero(acted)
        self._table = table = table.filter(pa.array(acted)).combine_chunks()
        self.step = numpy_column(table["step"])
        time = numpy_column(decisions.table["time"].cast(pa.int64()))
        by_writer: dict[str, list[np.ndarray]] = {}
        for file, start, stop in spans(decisions.ends):
            by_writer.setdefault(file.writer, []).append(np.arange(start, stop))
        for rows in map(np.concatenate, by_writer.values()):
            time[rows] = np.maximum.accumulate(time[rows])
        self.time = time[self.row]
        self.alone = np.asarray(table["alone"])
        self.no_density = np.asarray(table["log_prob"].is_null())
        self.ids, (self.policies, policy), (self.keys, key) = table["id"], _coded(table["policy"]), _coded(table["episode"])
        self._pairs, self.episode = np.unique(policy * len(self.keys) + key, return_inverse=True)
        self.n_episodes = len(self._pairs)

    def are(self, policies: Sequence[str] | None, versions: Sequence[str] | None, roles: Sequence[str] | None) -> np.ndarray:
        """Tell of each whether it is of such policies, versions and roles; None: of any."""
        wanted = np.ones(len(self.row), bool)
        for name, values in (("policy", policies), ("version", versions), ("role", roles)):
            if values is not None:
                wanted &= np.asarray(_compute.is_in(self._table[name], pa.array(list(values), pa.string())))
        return wanted

    def episodes_of(self, policy: Any, key: Any) -> np.ndarray:
        """Find the numbers of episodes by columns of policies and keys, -1 where there is none.

        Where no policy is named the only one is meant; where there are several, none is found.
        """
        if len(self.policies) == 1:
            policy = _compute.fill_null(policy, self.policies[0])
        p, k = _places(policy, self.policies), _places(key, self.keys)
        return np.where((p >= 0) & (k >= 0), _found(self._pairs, p * len(self.keys) + k), -1)


@dataclass(frozen=True)
class Units:
    """Steps of episodes, in order, [U], and what each outcome is of, [O].

    Attributes:
        row: The decision that counts, a number of `Keys`: the one that an outcome names, else the last that was written.
        episode, step: Which step it is.
        retries: How many further decisions there are of it.
        outcome: The first outcome of it that was recorded; -1: none.
        matched: [O] the step that an outcome is of; -1: none.
        conflicts: How many outcomes say something else than the one that counts.
        unmatched: How many outcomes are of no decision in the log.
        example: Names the first of them.
    """

    row: np.ndarray
    episode: np.ndarray
    step: np.ndarray
    retries: np.ndarray
    outcome: np.ndarray
    matched: np.ndarray
    conflicts: int
    unmatched: int
    example: str


def units_of(keys: Keys, outcomes: Any) -> Units:
    """Put decisions in the order of their episodes and steps, and find which outcome is of which."""
    by_id = _places(outcomes["decision"], keys.ids)  # [O], a number of keys or -1
    pointed = np.zeros(len(keys.row), bool)  # at, by an outcome
    pointed[by_id[by_id >= 0]] = True
    steps, step = np.unique(keys.step, return_inverse=True)
    code = keys.episode * len(steps) + step
    order = np.lexsort((keys.row, keys.time, pointed, code))
    code = code[order]
    last = np.r_[code[1:] != code[:-1], True][: len(code)]
    row, code = order[last], code[last]
    unit = np.empty(len(order), np.int64)  # of each decision
    unit[order] = np.cumsum(last) - last

    matched = np.where(by_id >= 0, unit[by_id] if len(unit) else -1, -1)
    asked = numpy_column(_compute.fill_null(outcomes["step"], -1))
    episode, number = keys.episodes_of(outcomes["policy"], outcomes["episode"]), _found(steps, asked)
    by_key = np.where((episode >= 0) & (number >= 0), _found(code, episode * len(steps) + number), -1)
    matched = np.where(np.asarray(outcomes["decision"].is_null()), by_key, matched)

    recorded = np.asarray(_compute.equal(outcomes["status"], "recorded"))
    of = np.flatnonzero((matched >= 0) & recorded)
    units, first = np.unique(matched[of], return_index=True)
    outcome = np.full(len(row), -1)
    outcome[units] = of[first]
    unmatched = np.flatnonzero((matched < 0) & recorded)
    return Units(
        row=row,
        episode=keys.episode[row],
        step=keys.step[row],
        retries=np.diff(np.r_[-1, np.flatnonzero(last)]) - 1,
        outcome=outcome,
        matched=matched,
        conflicts=_differing(outcomes, of, outcome[matched[of]]) + int((~recorded).sum()),
        unmatched=len(unmatched),
        example=named(outcomes, int(unmatched[0])) if len(unmatched) else "",
    )


def outcome_values(outcomes: Any, name: str, which: np.ndarray) -> np.ndarray:
    """Take a column of outcomes; where `which` is -1 a flag is false and a number NaN."""
    column = outcomes[name]
    flag = pa.types.is_boolean(column.type)
    plain = numpy_column(column if flag else _compute.fill_null(column, np.nan))
    return np.r_[plain, False if flag else np.nan].astype(plain.dtype)[which]


def _differing(outcomes: Any, some: np.ndarray, first: np.ndarray) -> int:
    """Count the outcomes among some that say something else than the first of their step does."""
    differs = np.zeros(len(some), bool)
    for name in ("reward", "cost", "terminated", "truncated"):
        one, other = outcome_values(outcomes, name, some), outcome_values(outcomes, name, first)
        differs |= (one != other) & (one.dtype == np.bool_ or ~(np.isnan(one) & np.isnan(other)))
    return int(differs.sum())


def named(outcomes: Any, k: int) -> str:
    """Name the decision of an outcome as it was told."""
    row = outcomes.select(["decision", "step", "episode"]).slice(k, 1).to_pylist()[0]
    return f"step {row['step']} of episode {row['episode']!r}" if row["decision"] is None else f"decision {row['decision']!r}"


def _coded(column: Any) -> tuple[Any, np.ndarray]:
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _places(column: Any, among: Any) -> np.ndarray:
    """Find where each text of a column is among others, -1 where it is not."""
    found = _compute.index_in(column, value_set=among.combine_chunks() if isinstance(among, pa.ChunkedArray) else among)
    return numpy_column(pa.chunked_array([_compute.fill_null(found, -1).combine_chunks()])).astype(np.int64)


def _found(among: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Find numbers in a sorted array, -1 where they are not."""
    if not len(among):
        return np.full(len(values), -1)
    place = np.minimum(np.searchsorted(among, values), len(among) - 1)
    return np.where(among[place] == values, place, -1)
