"""D4RL's HDF5 files: one row a step, episodes back to back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import DataError
from ...storage.steps import steps_from_arrays
from ..imported import (
    STEP_NAMES,
    Array,
    Ends,
    Imported,
    Plan,
    apply_time_limit,
    check_rename,
    count_notes,
    episode_ends,
    flags,
    moved_up,
    one_column,
    typed_actions,
)
from ..stretches import row_stretches, where
from .arrays import arrays_below, count_bytes, find, find_arrays, find_group, is_hdf5, open_hdf5, read_rows, scalar

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations", "episode")
CHECKED = 1 << 25  # bytes of rows that are compared at once
LOG_PROB = "action_log_probs"  # below infos/: log-probability of the action under the behaviour policy


def is_d4rl(path: Path) -> bool:
    """Whether the file holds D4RL's four arrays (d3rlpy's early files hold them too, and mark themselves)."""
    if not is_hdf5(path):
        return False
    with open_hdf5(path) as file:
        return all(find(file, name) is not None for name in REQUIRED) and not {"episode_terminals", "discrete_action"} & set(file)


def read_d4rl(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
    cut_at_goal: bool = False,
) -> Imported:
    """Steps of a D4RL HDF5 file, in file order; none is dropped.

    Reads observations [N, ...], actions [N, A] (or [N] integers), rewards [N], terminals [N]; where present timeouts [N],
    episode [N] (or episode_ids and the like), next_observations [N, ...] and infos/*: each array of N rows becomes the column
    `info/NAME`, and infos/action_log_probs the column `log_prob`. metadata/* goes to `provenance`.

    An episode ends at a terminal, a timeout, the last row, where its number changes, and where next_observations is not the next
    row. Where a row is both terminal and timeout it is a terminal. Without next_observations, or where they are the rows moved up
    by one over the ends of episodes, an episode's final observation is missing: its closing row repeats the last one.

    Where the recording went on after a terminal (antmaze, whose rewards come while the goal is near), each step there is an episode
    of its own. Timeouts are no time limit in maze2d, where they mark goals that were reached, and in antmaze's first files they are
    not where trajectories end; infos/goal is, and may cut episodes too.

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says; for files without timeouts.
        discrete_action: None: integer actions in one column are discrete.
        rename: what this file calls an array, by its usual name above.
        cut_at_goal: also cut an episode where infos/goal is another one in the next row.

    Raises:
        DataError: not HDF5, damaged, an array missing, lengths that differ, NaN or infinity (column and row are named), no rows.

    Source: D4RL (Fu et al. 2020, arXiv:2004.07219), `d4rl/offline_env.py` and its generation scripts.
    """
    plan = plan_d4rl(path, timeout_at=timeout_at, discrete_action=discrete_action, rename=rename, cut_at_goal=cut_at_goal)
    steps = plan.parts[0]().steps
    return Imported(steps, notes=[*plan.notes, *plan.said(steps)], provenance=plan.provenance)


def plan_d4rl(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
    cut_at_goal: bool = False,
    n_bytes: int | None = None,
) -> Plan:
    """How the file is read in stretches of whole episodes: its flags are read, and the goals, nothing else. Raises as `read_d4rl`.

    Args:
        path: as `read_d4rl`, and so are the following ones but for the last.
        timeout_at: steps.
        discrete_action: whether actions are discrete.
        rename: arrays by their usual names.
        cut_at_goal: also cut episodes where the goal changes.
        n_bytes: of a stretch, where no episode has more; None: all of the file.
    """
    rename = check_rename(rename, (*REQUIRED, *OPTIONAL), "d4rl")
    source = str(path)
    with open_hdf5(path) as file:
        if "episode" not in rename and (numbered := [name for name in STEP_NAMES["episode"] if find(file, name) is not None]):
            rename = {**rename, "episode": numbered[0]}
        there = find_arrays(file, REQUIRED, OPTIONAL, "a D4RL", rename)
        n = there["rewards"].shape[0]
        columns, notes = _infos(file, n)
        metadata = _metadata(file)
        row_bytes = sum(a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in (*there.values(), *columns.values()))
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
        elif "timeouts" not in there and timeout_at is None:
            notes.append(
                "The file has no timeouts, as D4RL's first ones: episodes end at terminals and at the last row only. "
                "Where the environment has a time limit, import with timeout_at=N."
            )
        goal = read_rows(columns["info/goal"], "infos/goal") if "info/goal" in columns else None
        truncated, said = _goals(source, goal, terminated, truncated, cut_at_goal)
        notes += said
        if timeout_at is not None:
            terminated, truncated, said = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=True)
            notes += said
        end = terminated | truncated
        follows = "next_observations" in there
        if follows:
            for name in ("observations", "next_observations"):
                count_bytes(there[name], rename.get(name, name), slice(0, 1))  # before the file is asked for rows
        if follows and (said := moved_up(there["observations"], there["next_observations"], end, max(1, CHECKED // row_bytes))):
            follows = False
            notes += said
    stretches = row_stretches(end, n_bytes and n_bytes // row_bytes)
    parts = tuple(
        partial(_read_stretch, path, rename, rows, _bits(terminated[rows], truncated[rows]), discrete_action, follows)
        for rows in stretches
    )
    limits_known = bool({"timeouts", "episode"} & set(there)) or timeout_at is not None
    about = {"format": "d4rl", "file": Path(path).name, **metadata}
    sizes = tuple(row_bytes * (rows.stop - rows.start) for rows in stretches)
    return Plan(parts, sizes, about, tuple(notes), partial(_said, limits_known=limits_known))


def _bits(*flags: Array) -> Array:
    """[K, ⌈N / 8⌉]: they travel with the parts, to any worker."""
    return np.packbits(flags, axis=1)


def _read_stretch(
    path: Path | str,
    rename: Mapping[str, str],
    rows: slice,
    ends: Array,
    discrete_action: bool | None,
    follows: bool,
) -> Imported:
    """The steps in some rows, which are whole episodes; `ends` are bits of terminated and truncated."""
    terminated, truncated = np.unpackbits(ends, axis=1, count=rows.stop - rows.start).astype(bool)
    with open_hdf5(path) as file:
        there = find_arrays(file, REQUIRED, OPTIONAL, "a D4RL", rename)
        wanted = ("observations", "actions", "rewards", *(("next_observations",) if follows else ()))
        raw = {name: read_rows(there[name], rename.get(name, name), rows) for name in wanted}
        columns, _ = _infos(file, there["rewards"].shape[0])
        extra = {name: read_rows(column, name, rows) for name, column in columns.items()}
    source = where(path, rows.start)
    if "log_prob" in extra:
        extra["log_prob"] = one_column(source, f"infos/{LOG_PROB}", extra["log_prob"]).astype(np.float32)
    steps = steps_from_arrays(
        raw["observations"],
        typed_actions(source, raw["actions"], discrete_action),
        one_column(source, "rewards", raw["rewards"]),
        terminated,
        truncated,
        next_observations=raw.get("next_observations"),
        extra=extra,
        source=source,
    )
    return Imported(steps)


def _said(ends: Ends, *, limits_known: bool) -> list[str]:
    after = int((ends.terminated[:-1] & ends.terminated[1:] & (ends.steps[1:] == 1)).sum())
    notes = (
        [f"{after} terminals follow a terminal at once, each as an episode of one step: the recording went on at the goal."]
        if after
        else []
    )
    return notes + count_notes(ends, limits_known=limits_known)


def _goals(source: str, goal: Array | None, terminated: Array, truncated: Array, cut: bool) -> tuple[Array, list[str]]:
    """Truncations, with those where the goal changes where they are wanted, and a sentence on them."""
    if goal is None:
        if cut:
            raise DataError(f"{source} has no infos/goal, so no episode can be cut where it changes.")
        return truncated, []
    changed = np.r_[(goal[1:] != goal[:-1]).reshape(len(goal) - 1, -1).any(1), False] & ~terminated & ~truncated
    count = int(changed.sum())
    if cut:
        return truncated | changed, [f"{count} ends were added where infos/goal changes (cut_at_goal)."] * bool(count)
    said = f"infos/goal changes {count} times inside an episode: if a new trajectory begins there, import with cut_at_goal=true."
    return truncated, [said] * bool(count)


def _infos(file: h5py.File, n: int) -> tuple[dict[str, h5py.Dataset], list[str]]:
    """Extra columns of infos/*, and a sentence on each array that is no column."""
    group = find_group(file, "infos")
    extra: dict[str, h5py.Dataset] = {}
    notes: list[str] = []
    for name, dataset in sorted(arrays_below(group, f"{file.filename}: 'infos'")) if group is not None else ():
        if dataset.dtype.kind not in "biuf":
            notes.append(f"infos/{name} does not hold numbers and was left out.")
        elif not dataset.shape or dataset.shape[0] != n:
            notes.append(f"infos/{name} has shape {dataset.shape}, not one row for each of the {n} steps, and was left out.")
        else:
            extra["log_prob" if name == LOG_PROB else f"info/{name}"] = dataset
    return extra, notes


def _metadata(file: h5py.File) -> dict[str, Any]:
    """metadata/* as JSON values: single values as they are, arrays (a policy's weights) as their shape."""
    group = find_group(file, "metadata")
    if group is None:
        return {}
    found: dict[str, Any] = {}
    for name, dataset in sorted(arrays_below(group, f"{file.filename}: 'metadata'")):
        value = scalar(file, f"metadata/{name}")
        found[name] = value if isinstance(value, str | int | float | bool) else f"array of shape {dataset.shape}"
    return {"metadata": found} if found else {}
