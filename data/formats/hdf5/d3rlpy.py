"""d3rlpy's HDF5 files, of three layouts that share a file ending and little else.

- *2020* (d3rlpy 0.x): flat arrays; row t holds o_t, a_t and the reward received on **arriving** at o_t. The reward of (o_t, a_t) is
  the next row's; an episode's first row has reward 0, and its last row is the final observation with an action that was never used.
- *1.x*: the same flat arrays, marked by `version`; row t holds o_t, a_t and the reward **of** that action. No final observation.
- *2.x* (`ReplayBuffer.dump`): one group of arrays an episode, `observations_3`, `actions_3`, `rewards_3`, `terminated_3`, named by
  `columns` and counted by `num_episodes`. Rewards as in 1.x, no final observation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from ...errors import DataError
from ...storage.steps import steps_from_arrays
from ..imported import (
    Array,
    Ends,
    Imported,
    Plan,
    apply_time_limit,
    count_notes,
    finite,
    flags,
    one_column,
    same_rows,
    typed_actions,
)
from ..stretches import stretches, where
from .arrays import find, find_arrays, is_hdf5, listed, open_hdf5, read_array, read_rows, scalar

REQUIRED = ("observations", "actions", "rewards", "terminals")
EPISODE = ("observations", "actions", "rewards", "terminated")


def is_d3rlpy(path: Path) -> bool:
    """Whether the file has the marks of one of d3rlpy's layouts."""
    if not is_hdf5(path):
        return False
    with open_hdf5(path) as file:
        names = set(file)
        flat = names.issuperset(REQUIRED) and bool({"episode_terminals", "discrete_action"} & names)
        return flat or {"columns", "num_episodes"} <= names


def read_d3rlpy(
    path: Path | str,
    *,
    rewards: Literal["auto", "arriving", "same row"] = "auto",
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
) -> Imported:
    """Steps of a file that d3rlpy wrote, in file order; none is dropped.

    Args:
        path: the file.
        rewards: where a flat file holds the reward of (o_t, a_t): "arriving", in row t + 1 (d3rlpy 0.x), or in the "same row".
            "auto": the same row where the file has a `version` (d3rlpy 1.x) or where an episode's first row has a reward,
            which a reward on arriving never has; otherwise arriving.
        timeout_at: steps. An episode that ended terminated after exactly so many is taken as truncated.
        discrete_action: None: what the file's flag says, and without one, whether the actions are integers in one column.

    Raises:
        DataError: not HDF5, damaged, an array missing, lengths that differ, NaN or infinity (array and row are named), no steps.

    Source: d3rlpy 0.x and 1.x `MDPDataset.dump`; d3rlpy 2.8.1 `dataset/io.py`.
    """
    return _read(path, None, rewards, timeout_at, discrete_action)


def plan_d3rlpy(path: Path | str, *, n_bytes: int | None = None, **options: Any) -> Plan:
    """How a file of the 2.x layout is read in stretches of episodes; a flat one is read at once. Raises as `read_d3rlpy`.

    Args:
        path: the file.
        n_bytes: of a stretch, where no episode has more; None: all of the file.
        options: as `read_d3rlpy`.
    """
    with open_hdf5(path) as file:
        sizes = _sizes(file, str(path)) if {"columns", "num_episodes"} <= set(file) else np.ones(1, np.int64)
    if len(found := stretches(sizes, n_bytes)) == 1:
        return Plan((partial(read_d3rlpy, path, **options),), (int(sizes.sum()),))
    parts = tuple(partial(_read, path, some, **options) for some in found)
    about = {"format": "d3rlpy", "layout": "2.x", "file": Path(path).name}
    limited = options.get("timeout_at") is not None

    def said(ends: Ends) -> list[str]:
        return count_notes(ends, limits_known=limited or not ends.terminated.all())

    return Plan(parts, tuple(int(sizes[some].sum()) for some in found), about, said=said)


def _read(
    path: Path | str,
    some: slice | None,
    rewards: str = "auto",
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
) -> Imported:
    """All of a file, or some of its episodes; then without words on how they end."""
    source = str(path)
    with open_hdf5(path) as file:
        if {"columns", "num_episodes"} <= set(file):
            found, limits_known = _read_episodes(file, source, discrete_action, some or slice(0, _count(file, source))), False
        else:
            found, limits_known = _read_flat(file, source, rewards, discrete_action), "episode_terminals" in file
    terminated, truncated, notes = found.terminated, found.truncated, found.notes
    if timeout_at is not None:
        may_cut = found.final_observations is None
        terminated, truncated, said = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=may_cut)
        notes += said
    steps = steps_from_arrays(
        found.observations,
        found.actions,
        found.rewards,
        terminated,
        truncated,
        final_observations=found.final_observations,
        source=source if some is None else where(source, some.start, "episode"),
    )
    if some is None:
        notes += count_notes(steps, limits_known=limits_known or timeout_at is not None or bool(truncated.any()))
    return Imported(steps, notes=notes, provenance={"format": "d3rlpy", "layout": found.layout, "file": Path(path).name})


@dataclass(frozen=True)
class _Found:
    """N steps in d3ray's sense: rewards and ends stand in the row of their action."""

    layout: str
    observations: Array | dict[str, Array]  # [N, ...]
    actions: Array  # [N, A] floats or [N] integers
    rewards: Array  # [N]
    terminated: Array  # [N] bool
    truncated: Array  # [N] bool
    notes: list[str]
    final_observations: Array | None = None  # [E, ...]


def _read_flat(file: h5py.File, source: str, rewards: str, discrete_action: bool | None) -> _Found:
    """The 2020 and the 1.x layout, told apart by `_arriving`."""
    there = find_arrays(file, REQUIRED, ("episode_terminals",), "a d3rlpy")
    raw = {name: read_rows(array, name) for name, array in there.items()}
    flag = scalar(file, "discrete_action")
    reward = one_column(source, "rewards", raw["rewards"])
    finite(source, observations=raw["observations"], actions=raw["actions"], rewards=reward)
    actions = typed_actions(source, raw["actions"], discrete_action if discrete_action is not None or flag is None else bool(flag))
    terminal = flags(source, "terminals", raw["terminals"])
    end = terminal | flags(source, "episode_terminals", raw.get("episode_terminals", terminal))
    arriving, notes = _arriving(reward, end, scalar(file, "version"), rewards)
    if not arriving:
        return _Found("1.x", raw["observations"], actions, reward, terminal, end & ~terminal, notes)
    if not end[-1]:
        end[-1] = True
        notes.append("The last row ends no episode; it was taken as the final observation of a truncated one.")
    step, last = np.flatnonzero(~end), np.flatnonzero(end)
    if not step.size:
        raise DataError(f"{source} has no steps: each episode is a single row, its final observation.")
    alone = np.diff(last, prepend=-1) == 1  # an episode of one row: an observation after which nothing was done
    if alone.any():
        notes.append(f"{int(alone.sum())} episodes of a single row hold no transition.")
    # Row t + 1 says what came of the step in row t: its reward, and whether the episode ended there.
    return _Found(
        "2020",
        raw["observations"][step],
        actions[step],
        reward[step + 1],
        terminal[step + 1],
        (end & ~terminal)[step + 1],
        notes,
        raw["observations"][last[~alone]],
    )


def _arriving(rewards: Array, end: Array, version: object, asked: str) -> tuple[bool, list[str]]:
    """Whether rewards stand in the row where the agent arrives, and a sentence on how that was decided."""
    first = np.r_[0, np.flatnonzero(end[:-1]) + 1]
    given = int(np.count_nonzero(rewards[first]))
    where = {True: "in the row that the action led to", False: "in the row of the action"}
    if asked not in ("auto", "arriving", "same row"):
        raise DataError(f"rewards is {asked!r}; choose from 'auto', 'arriving', 'same row'.")
    if asked != "auto":
        arriving, why = asked == "arriving", "as asked"
        if arriving and given:
            raise DataError(f"Rewards cannot be 'arriving': {given} of {len(first)} episodes have a reward in their first row.")
    elif version is not None:
        arriving, why = False, f"as d3rlpy writes it since 1.0 (the file's version is {version})"
    elif given:
        arriving, why = False, f"since {given} of {len(first)} episodes have a reward in their first row"
    else:
        arriving, why = True, "d3rlpy's 2020 layout: there is no version, and every episode's first row has reward 0"
    return arriving, [f"Rewards were read {where[arriving]} ({why})."]


def _count(file: h5py.File, source: str) -> int:
    count = scalar(file, "num_episodes")
    if not isinstance(count, int) or count < 1:
        raise DataError(f"{source} has no steps: num_episodes is {count}.")
    there = sum(bool(re.fullmatch(r"rewards_\d+", str(name))) for name in file)
    if there > count or count > len(file):  # one that is missing is named where it is read
        raise DataError(f"{source} has the rewards of {there} episodes, and its num_episodes is {count}.")
    return count


def _sizes(file: h5py.File, source: str) -> Array:
    """Bytes of each episode, about, by its rewards and the entries of the first; of one that is missing, which is said later, 0."""
    first = _episode(file, source, 0)
    row_bytes = sum(array.nbytes for array in first.values()) // max(len(first["rewards"]), 1) + 1
    found = (find(file, f"rewards_{i}") for i in range(_count(file, source)))
    return np.array([0 if one is None else row_bytes * int(one.size or 0) for one in found], np.int64)


def _read_episodes(file: h5py.File, source: str, discrete_action: bool | None, some: slice) -> _Found:
    """The 2.x layout. A truncated episode keeps its last step, which d3rlpy itself never draws: it has no next observation."""
    parts: dict[str, list[Array]] = {}
    terminated: list[bool] = []
    for i in range(some.start, some.stop):
        episode = _episode(file, source, i)
        terminated.append(bool(flags(source, f"terminated_{i}", episode.pop("terminated").reshape(-1))[-1]))
        same_rows(f"{source}, episode {i}", **episode)
        finite(f"{source}, episode {i}", **episode)
        if parts and (odd := set(parts) ^ set(episode)):
            raise DataError(f"{source}: episode {i} has other arrays than episode {some.start} ({sorted(odd)[0]!r}).")
        for name, array in episode.items():
            if name in parts and parts[name][0].shape[1:] != array.shape[1:]:
                before = f"{parts[name][0].shape} in episode {some.start}"
                raise DataError(f"{source}: {name!r} has shape {array.shape} in episode {i}, {before}.")
            parts.setdefault(name, []).append(array)
    lengths = [len(a) for a in parts["actions"]]
    joined = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    last = np.cumsum(lengths) - 1
    end, ended = np.zeros(sum(lengths), bool), np.zeros(sum(lengths), bool)
    end[last], ended[last] = True, terminated
    notes = [f"Rewards were read in the row of the action (d3rlpy's 2.x layout, version {scalar(file, 'version')})."]
    actions = typed_actions(source, joined["actions"], discrete_action)
    if actions.shape[1:] == (1,) and not np.any(actions % 1):
        notes.append("Actions are floats that are all whole numbers; if they are discrete, import with discrete_action=True.")
    several = {name.partition("/")[2]: a for name, a in joined.items() if name.startswith("observations/")}
    reward = one_column(source, "rewards", joined["rewards"])
    return _Found("2.x", several or joined["observations"], actions, reward, ended, end & ~ended, notes)


def _episode(file: h5py.File, source: str, i: int) -> dict[str, Array]:
    """The arrays of episode i. Observations that are a tuple become `observations/0` and so on."""
    found: dict[str, Array] = {}
    for name in EPISODE:
        array = read_array(file, f"{name}_{i}")
        if array is not None:
            found[name] = array
            continue
        if name != "observations" or find(file, f"{name}_{i}_0") is None:
            raise DataError(f"{source} is not a d3rlpy file: it has no '{name}_{i}', only {listed(file)}.")
        j = 0
        while (array := read_array(file, f"{name}_{i}_{j}")) is not None:
            found[f"{name}/{j}"] = array
            j += 1
    return found
