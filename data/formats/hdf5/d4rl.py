"""D4RL's HDF5 files: one row a step, episodes back to back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import DataError
from ...storage.steps import steps_from_arrays
from ..imported import Array, Imported, apply_time_limit, check_rename, count_notes, flags, honest_next, one_column, typed_actions
from .arrays import array_names, find, is_hdf5, open_hdf5, read_array, read_arrays, scalar

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations")
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
    next_observations [N, ...] and infos/*: each array of N rows becomes the column `info/NAME`, and infos/action_log_probs
    the column `log_prob`. metadata/* goes to `provenance`.

    An episode ends at a terminal, a timeout, the last row, and where next_observations is not the next row. Where a row is both
    terminal and timeout it is a terminal. Without next_observations, or where they are the rows moved up by one over the ends of
    episodes, an episode's final observation is missing: its closing row repeats the last one.

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
    rename = check_rename(rename, (*REQUIRED, *OPTIONAL), "d4rl")
    with open_hdf5(path) as file:
        raw = read_arrays(file, REQUIRED, OPTIONAL, "a D4RL", rename)
        n = len(raw["rewards"])
        extra, notes = _infos(file, n)
        metadata = _metadata(file)
    source = str(path)
    terminated, truncated = flags(source, "terminals", raw["terminals"]), np.zeros(n, bool)
    if "timeouts" in raw:
        timeouts = flags(source, "timeouts", raw["timeouts"])
        truncated = timeouts & ~terminated
        if both := int((timeouts & terminated).sum()):
            notes.append(f"{both} rows are terminal and timeout at once; they were taken as terminal.")
    elif timeout_at is None:
        notes.append(
            "The file has no timeouts, as D4RL's first ones: episodes end at terminals and at the last row only. "
            "Where the environment has a time limit, import with timeout_at=N."
        )
    truncated, said = _goals(source, extra.get("info/goal"), terminated, truncated, cut_at_goal)
    notes += said
    if timeout_at is not None:
        terminated, truncated, said = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=True)
        notes += said
    following = raw.get("next_observations")
    if following is not None:
        following, said = honest_next(raw["observations"], following, terminated | truncated)
        notes += said
    steps = steps_from_arrays(
        raw["observations"],
        typed_actions(source, raw["actions"], discrete_action),
        one_column(source, "rewards", raw["rewards"]),
        terminated,
        truncated,
        next_observations=following,
        extra=extra,
        source=source,
    )
    if after := int((steps.terminated[:-1] & steps.terminated[1:] & (steps.steps[1:] == 1)).sum()):
        notes.append(
            f"{after} terminals follow a terminal at once, each as an episode of one step: the recording went on at the goal."
        )
    notes += count_notes(steps, limits_known="timeouts" in raw or timeout_at is not None)
    return Imported(steps, notes=notes, provenance={"format": "d4rl", "file": Path(path).name, **metadata})


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


def _infos(file: h5py.File, n: int) -> tuple[dict[str, Array], list[str]]:
    """Extra columns from infos/*, and a sentence on each array that is no column."""
    group = file.get("infos")
    extra: dict[str, Array] = {}
    notes: list[str] = []
    for name in array_names(group) if isinstance(group, h5py.Group) else ():
        dataset = find(file, f"infos/{name}")
        if dataset is None or dataset.dtype.kind not in "biuf":
            notes.append(f"infos/{name} does not hold numbers and was left out.")
        elif not dataset.shape or dataset.shape[0] != n:
            notes.append(f"infos/{name} has shape {dataset.shape}, not one row for each of the {n} steps, and was left out.")
        elif (array := read_array(file, f"infos/{name}")) is not None:
            if name == LOG_PROB:
                extra["log_prob"] = one_column(file.filename, f"infos/{name}", array).astype(np.float32)
            else:
                extra[f"info/{name}"] = array
    return extra, notes


def _metadata(file: h5py.File) -> dict[str, Any]:
    """metadata/* as JSON values: single values as they are, arrays (a policy's weights) as their shape."""
    group = file.get("metadata")
    if not isinstance(group, h5py.Group):
        return {}
    found: dict[str, Any] = {}
    for name in array_names(group):
        dataset = find(file, f"metadata/{name}")
        if dataset is not None:
            value = scalar(file, f"metadata/{name}")
            found[name] = value if isinstance(value, str | int | float | bool) else f"array of shape {dataset.shape}"
    return {"metadata": found} if found else {}
