"""The decision log of a served policy, which grows meanwhile: its complete episodes as steps."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...config import setting
from ...decision_log.joining import Joining, Steps, join
from ...decision_log.layout import About, LogFolder, is_log
from ...decision_log.matching import KEYS, named
from ...decision_log.reader import LogTable, read_rows, take_rows
from ...decision_log.schema import ACTED, numpy_column, outcome_schema
from ...decision_log.taken import Taken, state
from ...errors import ConfigError, DataError, did_you_mean
from ...masks import ACTION_MASK
from ...spec import Spec, from_columns, space_columns
from ...storage.legal import FINAL_ACTION_MASK
from ...storage.steps import StepTable, steps_from_arrays
from ..format import Format, Imported
from .outcomes_csv import read_outcomes

STATE = "log"  # in a file's provenance: what of the log was taken


class NothingNewError(DataError):
    """A log has no episode that is complete and not in the dataset already."""


class DecisionLog(Format):
    """The log that `d3ray serve` writes, or a service of your own through `d3ray.data.decision_log`.

    An episode is taken when an outcome ends it and each of its steps from 0 on is there with its outcome, or when no decision of it
    has come for `episode_timeout` seconds. Steps are in the order of their numbers. Shadows are left out; of several answers to one
    request the one that an outcome names by its id counts, else the last written. A step that is missing, has no outcome (see
    `missing_reward`) or is of another role, version or policy than asked for cuts the episode there; the observation after the cut
    is that of the next decision, where the log has it. A decision that was no step of an episode ends with its outcome.

    What ends an episode tells the last observation, where it does; without it, and where an episode was given up, it is missing.
    Columns: `log_prob` where every decision has one, `cost` where an outcome tells one (0 where one tells none), `info/version`,
    numbers of the versions that the provenance lists, `info/time`, seconds since 1970 by the decider's clock (float64), and the
    legal actions of problems that have them.
    """

    name = "decisions"
    description = "the decision log of a served policy"
    join: Path | str | None = setting(None, "CSV of outcomes, with episode and step (or decision), reward and how episodes ended")
    episode_timeout: float = setting(3600.0, "seconds after its last decision after which an episode is taken as it is", ge=0)
    missing_reward: float | None = setting(None, "reward of a decision without an outcome; null: it waits, and is then left out")
    policy: str | tuple[str, ...] | None = setting(None, "the policies, by their names in the service; null: all in the log")
    version: str | tuple[str, ...] | None = setting(None, "the versions of the policy; null: all")
    role: str | tuple[str, ...] | None = setting(None, f"of {', '.join(ACTED)}; null: all of these")
    log_prob: bool | None = setting(
        None, "the column log_prob: false leaves it out, true leaves out episodes without; null: where every decision has one"
    )
    taken: Taken | None = setting(None, "what is in the dataset already", exclude=True)
    columns: tuple[str, ...] | None = setting(None, "columns of the dataset that this is added to", exclude=True)

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir() and is_log(path)

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        return [folder] if is_log(folder) else []

    def read(self, path: Path) -> Imported:
        log = LogFolder(path)
        about = log.read_about()
        outcomes = read_rows(log, "outcomes")  # first, so that their decisions are there
        decisions = read_rows(log, "decisions", KEYS)
        told = outcome_schema(about.spec).empty_table()
        notes = list[str]()
        if self.join is not None:
            told, notes = read_outcomes(Path(self.join).expanduser(), about.spec)
        before = self.taken or Taken()
        steps = join(decisions, outcomes, told, before, self._joining())
        if len(told) and steps.counts["of no use"] == len(told):
            raise DataError(f"{self.join} names no decision of {path}; its first outcome is of {named(told, 0)}.")
        notes += [*_on_files(decisions, outcomes), *self._notes(steps)]
        if not len(steps.rows):
            raise self._nothing(path, decisions, notes)
        columns = space_columns(about.spec.observation)
        wanted = [*columns, *(("legal",) if about.spec.discrete else ())]
        rows = take_rows(log, "decisions", decisions.ends, steps.rows, [*wanted, "action", "log_prob", "version", "time"])
        after = take_rows(log, "decisions", decisions.ends, steps.final_row[steps.final_row >= 0], wanted)
        found = numpy_column(rows["version"])
        versions = tuple(dict.fromkeys([*before.versions, *found.tolist()]))
        extra = {"info/version": np.array([versions.index(version) for version in found.tolist()], np.int64)}
        extra["info/time"] = numpy_column(rows["time"].cast(pa.int64()))
        extra |= self._columns(steps, rows, after, about, notes)
        table = self._table(
            str(path), steps, rows, after, told_observations(outcomes.table, told, columns, steps), extra, about.spec
        )
        where = state(before, decisions.ends, steps.waiting, outcomes.ends, versions)
        listing = "".join(f"{sha256}  {name}\n" for name, (_, sha256) in sorted((decisions.sizes | outcomes.sizes).items()))
        size = sum(size for size, _ in (decisions.sizes | outcomes.sizes).values())
        return Imported(
            table,
            about.spec,
            notes=notes,
            provenance={STATE: where.model_dump(mode="json", exclude_defaults=True)},
            read=(size, hashlib.sha256(listing.encode()).hexdigest()),
        )

    def _joining(self) -> Joining:
        roles = _several(self.role)
        for role in roles or ():
            if role not in ACTED:
                raise ConfigError(f"role is {role!r}, which no decision that was acted on has{did_you_mean(role, ACTED)}")
        exact = "log_prob" in self.columns if self.columns is not None else self.log_prob is True
        return Joining(
            now=time.time(),
            timeout=self.episode_timeout,
            missing_reward=self.missing_reward,
            policies=_several(self.policy),
            versions=_several(self.version),
            roles=roles,
            log_prob=exact,
        )

    def _nothing(self, path: Path, decisions: LogTable, notes: list[str]) -> NothingNewError:
        if not len(decisions.table):
            return NothingNewError(f"{path} has no decisions yet.")
        return NothingNewError(" ".join([f"{path} has no complete episode{' that is new' if self.taken else ''}.", *notes]))

    def _columns(self, steps: Steps, rows: Any, after: Any, about: About, notes: list[str]) -> dict[str, np.ndarray]:
        """Return the further columns that these steps have, as the dataset that they are added to has them. Raises DataError."""
        found, there = dict[str, np.ndarray](), self.columns
        log_prob = numpy_column(rows["log_prob"])
        lacking = int(np.isnan(log_prob).sum())
        if there is None and self.log_prob is not False and lacking and lacking < len(log_prob):
            notes.append(
                f"{lacking} of {len(log_prob)} decisions have no log_prob, so there is no such column "
                "(log_prob=true leaves out their episodes)."
            )
        if "log_prob" in there if there is not None else not lacking and self.log_prob is not False:
            found["log_prob"] = log_prob
        told = ~np.isnan(steps.cost)
        if told.any() or "cost" in (there or ()):
            found["cost"] = np.where(told, steps.cost, 0.0).astype(np.float32)
        masked = about.spec.discrete and (about.spec.action_mask or rows["legal"].null_count < len(rows))
        if masked or ACTION_MASK in (there or ()):
            found[ACTION_MASK] = numpy_column(rows["legal"])
            final = np.ones((len(steps.final_row), found[ACTION_MASK].shape[1]), np.uint8)
            final[steps.final_row >= 0] = numpy_column(after["legal"])
            found[FINAL_ACTION_MASK] = final
        if new := sorted({"cost", ACTION_MASK} & found.keys() - set(found if there is None else there)):
            raise DataError(f"The log has {new[0]} now, and the dataset has no such column: overwrite=true makes it anew.")
        return found

    def _table(
        self,
        source: str,
        steps: Steps,
        rows: Any,
        after: Any,
        told: dict[str, np.ndarray],
        extra: Mapping[str, np.ndarray],
        spec: Spec,
    ) -> StepTable:
        shown = {name: numpy_column(rows[name]) for name in space_columns(spec.observation)}
        end, next_there, is_told = steps.terminated | steps.truncated, steps.final_row >= 0, steps.final_outcome >= 0
        final = {name: column[end] for name, column in shown.items()}
        for name, column in final.items():
            column[next_there] = numpy_column(after[name])
            column[is_told] = told[name]
        table = steps_from_arrays(
            from_columns(shown),
            numpy_column(rows["action"]),
            steps.reward,
            steps.terminated,
            steps.truncated,
            final_observations=from_columns(final),
            extra=extra,
            starts=spec.starts(),
            source=source,
        )
        columns = table.columns | {"info/time": table.columns["info/time"] / 1e6}  # as float32 it would be good to two minutes
        return replace(table, columns=columns, final_recorded=next_there | is_told)

    def _notes(self, steps: Steps) -> list[str]:
        n = steps.counts
        said = {
            "open": "{} episodes have not ended yet and wait for a later import.",
            "lacking": "{} episodes have ended and wait for steps or outcomes that are missing, for {timeout:g} seconds at most.",
            "no outcome": "{} decisions have no outcome and "
            + ("were left out, which cuts their episodes there." if self.missing_reward is None else "got a reward of {reward:g}."),
            "after the end": "{} decisions came after the end of their episode and were left out.",
            "gaps": "{} times steps of an episode are missing from the log; it is cut there.",
            "retried": "{} decisions answer a request that another answers too; the last one counts, or what an outcome names.",
            "late decisions": "{} decisions are of episodes that the dataset has already, and were left out.",
            "late outcomes": "{} outcomes came after their episodes were taken and changed nothing (overwrite=true takes them in).",
            "conflicts": "{} outcomes say something else than an earlier one of their decision, which counts.",
            "unmatched": "{} outcomes are of no decision in the log, the first of {example}; they are joined once that is there.",
            "dropped": "{} episodes have decisions without log_prob and were left out.",
        }
        about = {"timeout": self.episode_timeout, "reward": self.missing_reward or 0.0, "example": steps.example}
        return [said[key].format(count, **about) for key, count in n.items() if count and key in said]


def told_observations(outcomes: Any, told: Any, columns: Iterable[str], steps: Steps) -> dict[str, np.ndarray]:
    """Return the final observations that outcomes tell, of the stretches that have one, by column."""
    which = steps.final_outcome[steps.final_outcome >= 0]
    some = pa.concat_tables([outcomes, told]).take(which)
    return {name: numpy_column(some[name]) for name in columns}


def _on_files(decisions: LogTable, outcomes: LogTable) -> list[str]:
    torn, gone = decisions.torn | outcomes.torn, [*decisions.gone, *outcomes.gone]
    notes = [f"The last {size} bytes of {name} are no whole row and were left out." for name, size in torn.items()]
    if gone:
        notes.append(f"{len(gone)} files of the log are missing, the first {gone[0]}; what was in them is not in the dataset.")
    return notes


def _several(values: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    return (values,) if isinstance(values, str) else values
