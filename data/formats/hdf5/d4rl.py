"""D4RL's HDF5 files: one row a step, episodes back to back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...config import setting
from ...errors import DataError
from ...storage.costs import COST
from ...storage.steps import steps_from_arrays
from ..arrays import STEP_NAMES, Array, check_rename, episode_ends, flags, moved_up, one_column
from ..format import RENAME, Ends, Imported, Plan, StepFormat, row_stretches, where
from .arrays import arrays_below, count_bytes, find, find_arrays, find_group, is_hdf5, open_hdf5, read_rows, scalar

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations", "episode", "costs")
CHECKED = 1 << 25  # bytes of rows that are compared at once
LOG_PROB = "action_log_probs"  # below infos/: log-probability of the action under the behaviour policy


class D4RL(StepFormat):
    """D4RL's files.

    Reads observations [N, ...], actions [N, A] (or [N] integers), rewards [N], terminals [N]; where present timeouts [N],
    episode [N] (or episode_ids and the like), next_observations [N, ...], costs [N] and infos/*: each array of N rows becomes the
    column `info/NAME`, infos/action_log_probs the column `log_prob`, and costs, or else infos/cost, the column `cost`, as DSRL's
    files and recorders after Safety-Gymnasium have it. metadata/* goes to the provenance.

    An episode ends at a terminal, a timeout, the last row, where its number changes, and where next_observations is not the next
    row. Where a row is both terminal and timeout it is a terminal. Without next_observations, or where they are the rows moved up
    by one over the ends of episodes, an episode's final observation is missing: its closing row repeats the last one.

    Where the recording went on after a terminal (antmaze, whose rewards come while the goal is near), each step there is an episode
    of its own. Timeouts are no time limit in maze2d, where they mark goals that were reached, and in antmaze's first files they are
    not where trajectories end; infos/goal is, and may cut episodes too.

    Source: D4RL (Fu et al. 2020, arXiv:2004.07219), `d4rl/offline_env.py` and its generation scripts; DSRL (Liu et al. 2023,
    arXiv:2306.09303), `dsrl/offline_env.py`.
    """

    name = "d4rl"
    description = "D4RL's HDF5: observations, actions, rewards, terminals, timeouts"
    rename: Mapping[str, str] = RENAME
    cut_at_goal: bool = setting(False, "also cut an episode where infos/goal is another one in the next row")

    @classmethod
    def detect(cls, path: Path) -> bool:
        """Looks for the four arrays (d3rlpy's early files hold them too, and mark themselves)."""
        if not is_hdf5(path):
            return False
        with open_hdf5(path) as file:
            own = not {"episode_terminals", "discrete_action"} & set(file)
            return own and all(find(file, name) is not None for name in REQUIRED)

    @classmethod
    def nearly(cls, path: Path, *, renamed: bool) -> bool:
        if renamed or not is_hdf5(path):
            return False
        with open_hdf5(path) as file:
            return sum(find(file, name) is not None for name in REQUIRED) > 2

    def plan(self, path: Path, n_bytes: int | None) -> Plan:
        """Plan stretches of whole episodes, for which the flags and the goals alone are read."""
        source, rename = str(path), check_rename(self.rename, (*REQUIRED, *OPTIONAL), self.name)
        with open_hdf5(path) as file:
            if "episode" not in rename and (numbered := [name for name in STEP_NAMES["episode"] if find(file, name) is not None]):
                rename = {**rename, "episode": numbered[0]}
            there = find_arrays(file, REQUIRED, OPTIONAL, "a D4RL", rename)
            n = there["rewards"].shape[0]
            columns, notes = _infos(file, n, there.get("costs"))
            metadata = _metadata(file)
            stored = (*there.values(), *(column for name, column in columns.items() if name != COST))
            row_bytes = sum(a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in stored)
            terminated = flags(source, "terminals", read_rows(there["terminals"], "terminals"))
            truncated = np.zeros(n, bool)
            if "timeouts" in there:
                timeouts = flags(source, "timeouts", read_rows(there["timeouts"], "timeouts"))
                truncated = timeouts & ~terminated
                if both := int((timeouts & terminated).sum()):
                    notes.append(f"{both} rows are terminal and timeout at once; they were taken as terminal.")
            if "episode" in there:
                ids = read_rows(there["episode"], rename["episode"])
                truncated |= episode_ends(source, rename["episode"], ids) & ~terminated
            elif "timeouts" not in there and self.timeout_at is None:
                notes.append(
                    "The file has no timeouts, as D4RL's first ones: episodes end at terminals and at the last row only. "
                    "Where the environment has a time limit, import with timeout_at=N."
                )
            goal = read_rows(columns["info/goal"], "infos/goal") if "info/goal" in columns else None
            truncated |= self._goals(source, goal, terminated | truncated, notes)
            terminated, truncated = self.limited(source, terminated, truncated, notes)
            end, follows = terminated | truncated, "next_observations" in there
            if follows:
                for name in ("observations", "next_observations"):
                    count_bytes(there[name], rename.get(name, name), slice(0, 1))  # before the file is asked for rows
                at_once = max(1, CHECKED // row_bytes)
                notes += (said := moved_up(there["observations"], there["next_observations"], end, at_once))
                follows = not said
        stretches = row_stretches(end, n_bytes and n_bytes // row_bytes)
        return Plan(
            tuple(partial(self._read, path, rename, one, _bits(terminated[one], truncated[one]), follows) for one in stretches),
            tuple(row_bytes * (one.stop - one.start) for one in stretches),
            metadata,
            tuple(notes),
            partial(self._said, limits_known=bool({"timeouts", "episode"} & set(there))),
        )

    def _read(self, path: Path, rename: Mapping[str, str], rows: slice, ends: Array, follows: bool) -> Imported:
        """Read some rows, which are whole episodes; `ends` has bits of terminated and truncated."""
        terminated, truncated = np.unpackbits(ends, axis=1, count=rows.stop - rows.start).astype(bool)
        with open_hdf5(path) as file:
            there = find_arrays(file, REQUIRED, OPTIONAL, "a D4RL", rename)
            wanted = ("observations", "actions", "rewards", *(("next_observations",) if follows else ()))
            raw = {name: read_rows(there[name], rename.get(name, name), rows) for name in wanted}
            columns, _ = _infos(file, there["rewards"].shape[0], there.get("costs"))
            extra = {name: read_rows(column, name, rows) for name, column in columns.items()}
        source = where(path, rows.start)
        if "log_prob" in extra:
            extra["log_prob"] = one_column(source, f"infos/{LOG_PROB}", extra["log_prob"]).astype(np.float32)
        if COST in extra:
            extra[COST] = one_column(source, "costs", extra[COST])
        steps = steps_from_arrays(
            raw["observations"],
            self.actions(source, raw["actions"]),
            one_column(source, "rewards", raw["rewards"]),
            terminated,
            truncated,
            next_observations=raw.get("next_observations"),
            extra=extra,
            source=source,
        )
        return Imported(steps)

    def _said(self, ends: Ends, *, limits_known: bool) -> list[str]:
        after = int((ends.terminated[:-1] & ends.terminated[1:] & (ends.steps[1:] == 1)).sum())
        said = f"{after} terminals follow a terminal at once, each as an episode of one step: the recording went on at the goal."
        return [said] * bool(after) + self.on_ends(ends, limits_known=limits_known)

    def _goals(self, source: str, goal: Array | None, end: Array, notes: list[str]) -> Array:
        """Mark where the goal changes inside an episode, [N] bool, if that is to end it."""
        if goal is None:
            if self.cut_at_goal:
                raise DataError(f"{source} has no infos/goal, so no episode can be cut where it changes.")
            return np.zeros(len(end), bool)
        changed = np.r_[(goal[1:] != goal[:-1]).reshape(len(goal) - 1, -1).any(1), False] & ~end
        if not (count := int(changed.sum())) or self.cut_at_goal:
            notes += [f"{count} ends were added where infos/goal changes (cut_at_goal)."] * bool(count)
            return changed
        notes.append(
            f"infos/goal changes {count} times inside an episode: if a new trajectory begins there, import with cut_at_goal=true."
        )
        return np.zeros(len(end), bool)


def _bits(*flags: Array) -> Array:
    """Pack flags to [K, ⌈N / 8⌉]: they travel with the parts, to any worker."""
    return np.packbits(flags, axis=1)


def _infos(file: h5py.File, n: int, costs: h5py.Dataset | None) -> tuple[dict[str, h5py.Dataset], list[str]]:
    """Find extra columns, `costs` and infos/*, and say which arrays are no column."""
    group = find_group(file, "infos")
    extra: dict[str, h5py.Dataset] = {} if costs is None else {COST: costs}
    notes: list[str] = []
    for name, dataset in sorted(arrays_below(group, f"{file.filename}: 'infos'")) if group is not None else ():
        if dataset.dtype.kind not in "biuf":
            notes.append(f"infos/{name} does not hold numbers and was left out.")
        elif not dataset.shape or dataset.shape[0] != n:
            notes.append(f"infos/{name} has shape {dataset.shape}, not one row for each of the {n} steps, and was left out.")
        else:
            extra[_column(name, costs is None and dataset.shape in ((n,), (n, 1)))] = dataset
    return extra, notes


def _column(info: str, may_cost: bool) -> str:
    return "log_prob" if info == LOG_PROB else COST if info == COST and may_cost else f"info/{info}"


def _metadata(file: h5py.File) -> dict[str, Any]:
    """Read metadata/* as JSON values, arrays (a policy's weights) as their shape."""
    group = find_group(file, "metadata")
    if group is None:
        return {}
    found: dict[str, Any] = {}
    for name, dataset in sorted(arrays_below(group, f"{file.filename}: 'metadata'")):
        value = scalar(file, f"metadata/{name}")
        found[name] = value if isinstance(value, str | int | float | bool) else f"array of shape {dataset.shape}"
    return {"metadata": found} if found else {}
