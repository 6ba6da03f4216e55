"""d3rlpy's HDF5 files, of three layouts that share a file ending and little else.

- *2020* (d3rlpy 0.x): flat arrays; row t holds o_t, a_t and the reward received on **arriving** at o_t. The reward of (o_t, a_t) is
  the next row's; an episode's first row has reward 0, and its last row is the final observation with an action that was never used.
- *1.x*: the same flat arrays, marked by `version`; row t holds o_t, a_t and the reward **of** that action. No final observation.
- *2.x* (`ReplayBuffer.dump`): one group of arrays an episode, `observations_3`, `actions_3`, `rewards_3`, `terminated_3`, named by
  `columns` and counted by `num_episodes`. Rewards as in 1.x, no final observation.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from ...config import setting
from ...errors import DataError
from ...storage.steps import steps_from_arrays
from ..arrays import Array, finite, flags, one_column, same_rows
from ..format import Ends, Imported, Plan, StepFormat, stretches, where
from ..runs import join
from .arrays import find, find_arrays, is_hdf5, listed, open_hdf5, read_array, read_rows, scalar

REQUIRED = ("observations", "actions", "rewards", "terminals")
EPISODE = ("observations", "actions", "rewards", "terminated")


class D3rlpy(StepFormat):
    """Files that d3rlpy wrote; only those of the 2.x layout are read in parts.

    Source: d3rlpy 0.x and 1.x `MDPDataset.dump`; d3rlpy 2.8.1 `dataset/io.py`.
    """

    name = "d3rlpy"
    description = "d3rlpy's HDF5, of versions 0.x, 1.x and 2.x"
    rewards: Literal["auto", "arriving", "same row"] = setting(
        "auto",
        "where a flat file holds the reward of (o_t, a_t): arriving, in row t + 1 (d3rlpy 0.x), or in the same row; auto: the same "
        "row where the file has a version or an episode's first row has a reward, which a reward on arriving never has",
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        if not is_hdf5(path):
            return False
        with open_hdf5(path) as file:
            flat = set(file).issuperset(REQUIRED) and bool({"episode_terminals", "discrete_action"} & set(file))
            return flat or _in_episodes(file)

    def plan(self, path: Path, n_bytes: int | None) -> Plan:
        source = str(path)
        with open_hdf5(path) as file:
            if not _in_episodes(file):
                return Plan((partial(self._flat, path),))
            sizes = np.zeros(_count(file, source), np.int64) if n_bytes is None else _sizes(file, source)
            version = scalar(file, "version")
        found = stretches(sizes, n_bytes)
        return Plan(
            tuple(partial(self._episodes, path, some) for some in found),
            tuple(int(sizes[some].sum()) for some in found),
            {"layout": "2.x"},
            (f"Rewards were read in the row of the action (d3rlpy's 2.x layout, version {version}).",),
            self._said,
        )

    def _said(self, ends: Ends) -> list[str]:
        return self.on_ends(ends, limits_known=not ends.terminated.all())

    def _flat(self, path: Path) -> Imported:
        """Read the 2020 or the 1.x layout, told apart by `_arriving`."""
        source = str(path)
        with open_hdf5(path) as file:
            there = find_arrays(file, REQUIRED, ("episode_terminals",), "a d3rlpy", {})
            raw = {name: read_rows(array, name) for name, array in there.items()}
            flag, version = scalar(file, "discrete_action"), scalar(file, "version")
        seen, reward = raw["observations"], one_column(source, "rewards", raw["rewards"])
        finite(source, observations=seen, actions=raw["actions"], rewards=reward)
        actions = self.actions(source, raw["actions"], None if flag is None else bool(flag))
        terminal = flags(source, "terminals", raw["terminals"])
        end = terminal | flags(source, "episode_terminals", raw.get("episode_terminals", terminal))
        arriving, notes = self._arriving(reward, end, version)
        terminated, truncated, final = terminal, end & ~terminal, None
        if arriving:
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
            final, seen, actions, reward = seen[last[~alone]], seen[step], actions[step], reward[step + 1]
            terminated, truncated = terminal[step + 1], (end & ~terminal)[step + 1]
        terminated, truncated = self.limited(source, terminated, truncated, notes, may_cut=not arriving)
        return self.imported(
            source,
            seen,
            actions,
            reward,
            terminated,
            truncated,
            notes=notes,
            limits_known="episode_terminals" in there or bool(truncated.any()),
            about={"layout": "2020" if arriving else "1.x"},
            final_observations=final,
        )

    def _arriving(self, rewards: Array, end: Array, version: object) -> tuple[bool, list[str]]:
        """Decide whether rewards stand in the row where the agent arrives, and say why."""
        first = np.r_[0, np.flatnonzero(end[:-1]) + 1]
        given = int(np.count_nonzero(rewards[first]))
        if self.rewards != "auto":
            arriving, why = self.rewards == "arriving", "as asked"
            if arriving and given:
                raise DataError(f"Rewards cannot be 'arriving': {given} of {len(first)} episodes have a reward in their first row.")
        elif version is not None:
            arriving, why = False, f"as d3rlpy writes it since 1.0 (the file's version is {version})"
        elif given:
            arriving, why = False, f"since {given} of {len(first)} episodes have a reward in their first row"
        else:
            arriving, why = True, "d3rlpy's 2020 layout: there is no version, and every episode's first row has reward 0"
        return arriving, [f"Rewards were read in the row {'that the action led to' if arriving else 'of the action'} ({why})."]

    def _episodes(self, path: Path, some: slice) -> Imported:
        """Read the 2.x layout; a truncated episode keeps its last step, which d3rlpy never draws."""
        source, names = where(path, some.start, "episode"), [f"{path}, episode {i}" for i in range(some.start, some.stop)]
        parts, terminated = list[dict[str, Array]](), list[bool]()
        with open_hdf5(path) as file:
            for i, name in enumerate(names, some.start):
                parts.append(_episode(file, str(path), i))
                terminated.append(bool(flags(str(path), f"terminated_{i}", parts[-1].pop("terminated").reshape(-1))[-1]))
                same_rows(name, **parts[-1])
                finite(name, **parts[-1])
        joined, lengths = join(parts, names), [len(part["actions"]) for part in parts]
        end, ended = np.zeros((2, sum(lengths)), bool)
        end[np.cumsum(lengths) - 1], ended[np.cumsum(lengths) - 1] = True, terminated
        notes, actions = list[str](), self.actions(source, joined["actions"])
        if actions.shape[1:] == (1,) and not np.any(actions % 1):
            notes.append("Actions are floats that are all whole numbers; if they are discrete, import with discrete_action=True.")
        several = {name.partition("/")[2]: a for name, a in joined.items() if name.startswith("observations/")}
        reward = one_column(source, "rewards", joined["rewards"])
        ended, cut = self.limited(source, ended, end & ~ended, notes)
        return Imported(
            steps_from_arrays(several or joined["observations"], actions, reward, ended, cut, source=source), notes=notes
        )


def _in_episodes(file: h5py.File) -> bool:
    return {"columns", "num_episodes"} <= set(file)


def _count(file: h5py.File, source: str) -> int:
    count = scalar(file, "num_episodes")
    if not isinstance(count, int) or count < 1:
        raise DataError(f"{source} has no steps: num_episodes is {count}.")
    there = sum(bool(re.fullmatch(r"rewards_\d+", str(name))) for name in file)
    if there > count or count > len(file):  # one that is missing is named where it is read
        raise DataError(f"{source} has the rewards of {there} episodes, and its num_episodes is {count}.")
    return count


def _sizes(file: h5py.File, source: str) -> Array:
    """Estimate the bytes of each episode by its rewards and the entries of the first; 0 for one that is missing."""
    first = _episode(file, source, 0)
    row_bytes = sum(array.nbytes for array in first.values()) // max(len(first["rewards"]), 1) + 1
    found = (find(file, f"rewards_{i}") for i in range(_count(file, source)))
    return np.array([0 if one is None else row_bytes * int(one.size or 0) for one in found], np.int64)


def _episode(file: h5py.File, source: str, i: int) -> dict[str, Array]:
    """Read the arrays of episode i; observations that are a tuple become `observations/0` and so on."""
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
