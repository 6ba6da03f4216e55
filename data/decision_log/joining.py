"""Decisions and outcomes of a log put together: which episodes are complete, of which rows they are, and what ended them.

An episode's steps are in the order of their numbers; clocks, which differ from machine to machine, decide only which of several
answers to one request was the last. An episode is complete when an outcome ends it and each of its steps from 0 on is there with
its outcome, or when no decision of it has come for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from .matching import Keys, outcome_values, units_of
from .reader import LogTable
from .taken import Taken, known_outcomes, settled_rows

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Joining:
    """Settings of a join.

    Attributes:
        now: Seconds since 1970.
        timeout: Seconds after an episode's last decision after which it is taken as it is.
        missing_reward: Reward of a step without an outcome; None: such a step is left out.
        policies, versions, roles: Whose decisions are taken; None: all of them.
        log_prob: Leave out episodes with a decision that has no log_prob.
    """

    now: float
    timeout: float = 3600.0
    missing_reward: float | None = None
    policies: Sequence[str] | None = None
    versions: Sequence[str] | None = None
    roles: Sequence[str] | None = None
    log_prob: bool = False


@dataclass(frozen=True)
class Steps:
    """N steps of complete episodes, back to back, in order, in S stretches without a gap.

    Attributes:
        rows: [N] of the log's decisions.
        reward, cost: [N] float64; a cost is NaN where none was told.
        terminated, truncated: [N] bool: how a stretch ends.
        final_row: [S] the decision that was shown the observation after the stretch; -1: none.
        final_outcome: [S] the outcome that tells that observation; -1: none.
        waiting: [R] bool, of all decisions of the log: their episode is left for later.
        counts: How many there were of what a note is said about.
        example: Names the first outcome without a decision.
    """

    rows: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_row: np.ndarray
    final_outcome: np.ndarray
    waiting: np.ndarray
    counts: dict[str, int] = field(default_factory=dict[str, int])
    example: str = ""


class _Groups:
    """Stretches of an array that are an episode each."""

    def __init__(self, episode: np.ndarray) -> None:
        self.first = np.flatnonzero(np.r_[True, episode[1:] != episode[:-1]])
        self.length = np.diff(np.r_[self.first, len(episode)])

    def sums(self, flags: np.ndarray) -> np.ndarray:
        return np.add.reduceat(flags, self.first, dtype=np.int64)

    def largest(self, values: np.ndarray) -> np.ndarray:
        return np.maximum.reduceat(values, self.first)

    def spread(self, values: np.ndarray) -> np.ndarray:
        return np.repeat(values, self.length)


def join(decisions: LogTable, outcomes: LogTable, told: Any, taken: Taken, how: Joining) -> Steps:
    """Join decisions (with the columns `KEYS`) and outcomes, after which come those of the Arrow table `told`, in its order.

    Episodes that are complete come in the order in which the last outcome of each was written, then those that were given up.
    """
    keys, found = Keys(decisions), pa.concat_tables([outcomes.table, told])
    units = units_of(keys, found)
    there, settled = settled_rows(taken, decisions.ends)
    if not len(units.row):
        none, never = np.zeros(0, np.int64), np.zeros(0, bool)
        unmatched = {"unmatched": units.unmatched, "conflicts": units.conflicts, "of no use": len(told)}
        return Steps(none, none * 0.0, none * 0.0, never, never, none, none, np.zeros(len(there), bool), unmatched, units.example)
    done = np.zeros(keys.n_episodes, bool)  # [E]: in the dataset already
    done[keys.episode[settled[keys.row]]] = True
    groups, place = _Groups(units.episode), np.arange(len(units.row))  # [U]: a unit is a step of an episode

    has, row = units.outcome >= 0, units.row
    value = {name: outcome_values(found, name, units.outcome) for name in ("reward", "cost", "terminated", "truncated")}
    ends = has & (value["terminated"] | value["truncated"] | keys.alone[row])
    end = np.minimum.reduceat(np.where(ends, place, _NEVER), groups.first)
    ended, last = end != _NEVER, np.minimum(end, groups.first + groups.length - 1)  # [E]
    within = place <= groups.spread(last)
    full = ended & (units.step[last] == groups.sums(within) - 1)
    complete = full & ((groups.sums(within & ~has) == 0) | (how.missing_reward is not None))
    came = np.full(keys.n_episodes, np.iinfo(np.int64).min)
    np.maximum.at(came, keys.episode, keys.time)
    usable = within & (has | (how.missing_reward is not None))
    take = (complete | (how.now * 1e6 - came >= how.timeout * 1e6)) & (groups.sums(usable) > 0) & ~done
    taking = groups.spread(take)

    chosen = usable & taking & keys.are(how.policies, how.versions, how.roles)[row]
    without, dropped = chosen & keys.no_density[row], np.zeros(keys.n_episodes, bool)
    if how.log_prob:
        dropped = groups.sums(without) > 0
        chosen &= ~groups.spread(dropped)
    given_up = len(found) + groups.largest(np.where(within, keys.row[row], -1))
    order = np.where(complete, groups.largest(np.where(within, units.outcome, -1)), given_up)
    kept = np.lexsort((place, groups.spread(order)))
    kept = kept[chosen[kept]]

    stop = np.ones(len(kept), bool)
    stop[:-1] = (np.diff(kept) != 1) | (np.diff(units.episode[kept]) != 0) | (np.diff(units.step[kept]) != 1)
    at = kept[stop]  # [S] the last unit of each stretch
    is_last = at == groups.spread(last)[at]
    beside = np.minimum(at + 1, len(place) - 1)
    goes_on = ~is_last & (units.step[beside] == units.step[at] + 1)  # the next step is in the log, though it is not taken
    terminated = np.zeros(len(kept), bool)
    over = ended[units.episode[at]] | keys.alone[row[at]]  # what is one step by nature is over with it, told or not
    terminated[stop] = is_last & over & (value["terminated"][at] | ~value["truncated"][at])
    shown = units.outcome[at] * is_last
    open_episodes = ~take & ~done
    seen_before = np.r_[known_outcomes(taken, outcomes.ends), np.ones(len(told), bool)]
    late = (units.matched >= 0) & done[units.episode[units.matched]] & ~seen_before
    waiting = np.zeros(len(there), bool)
    waiting[keys.row] = open_episodes[keys.episode]
    return Steps(
        rows=keys.row[row[kept]],
        reward=np.where(has[kept], value["reward"][kept], how.missing_reward or 0.0),
        cost=value["cost"][kept],
        terminated=terminated,
        truncated=stop & ~terminated,
        final_row=np.where(goes_on, keys.row[row[beside]], -1),
        final_outcome=np.where(is_last & has[at] & _tells_observation(found, shown), shown, -1),
        waiting=waiting,
        counts={
            "open": int((open_episodes & ~ended).sum()),
            "lacking": int((open_episodes & ended).sum()),
            "no outcome": int((taking & within & ~has).sum()),
            "after the end": int((taking & ~within).sum()),
            "gaps": int((~is_last & ~goes_on).sum() + (take & (units.step[groups.first] > 0)).sum()),
            "retried": int(units.retries[taking].sum()),
            "late decisions": int((~there[keys.row] & done[keys.episode]).sum()),
            "late outcomes": int(late.sum()),
            "conflicts": units.conflicts,
            "unmatched": units.unmatched,
            "of no use": int((units.matched[len(outcomes.table) :] < 0).sum()),
            "dropped": int(dropped.sum()),
        },
        example=units.example,
    )


def _tells_observation(found: Any, outcomes: np.ndarray) -> np.ndarray:
    """Tell of each of some outcomes whether it has an observation; there may be none at all."""
    if not len(found):
        return np.zeros(len(outcomes), bool)
    column = next(found[name] for name in found.column_names if name.partition("/")[0] == "observation")
    return np.asarray(column.is_valid())[outcomes]
