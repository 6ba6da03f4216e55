"""Pickled paths: a list of dicts of arrays, one a path, as many training scripts leave their rollouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...errors import DataError
from ...storage.steps import steps_from_arrays
from ..imported import (
    STEP_NAMES,
    Array,
    Imported,
    apply_time_limit,
    count_notes,
    finite,
    flags,
    one_column,
    typed_actions,
)
from . import restricted_pickle
from .archives import head
from .values import Leaves, leaves, names_in, numbers, plain

REQUIRED = ("observations", "actions", "rewards")
PICKLE = re.compile(rb"\x80[\x02-\x05]|\([ld]p|[\]}]q")  # of protocols 2 to 5, 0, and 1


def is_pickled_paths(path: Path) -> bool:
    """Whether the file, or what is inside gzip, begins as a pickle does. Of pickles this is the one importer."""
    return bool(PICKLE.match(head(path, 3, unpacked=True)))


def read_pickled_paths(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
) -> Imported:
    """Steps of a pickle of paths, in file order; none is dropped. No code in the pickle is run, whatever it holds.

    A path is a dict of observation(s) [T, ...] (or a dict of such arrays), action(s), reward(s) and, where present, terminal(s),
    timeout(s), next_observation(s) and log_prob. The pickle holds a list of paths, or one dict of flat arrays. It may be
    inside gzip.

    Traps, and what is done:
    - An episode ends at a terminal, a timeout, the end of its path, and where next_observations is not the next row. Where a path
      ends without a terminal it is truncated: Decision Transformer's files, cut at D4RL's timeouts, say so in no other way.
    - CS285's `terminal` is also set where the clock stopped a path after 1,000 steps: `timeout_at=1000`.
    - CS285's experts act beyond [-1, 1] and the simulator clips: `actions=clip` with the environment.
    - Final observations are the last next_observations, or the last of T + 1 observations; else they are missing.
    - `terminal` may be a single value for the whole path.

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integer actions in one column are discrete.
        rename: what this file calls an array, by d3ray's word (see `STEP_NAMES`).

    Raises:
        DataError: the pickle holds code or more than arrays and plain containers, no paths, a path lacks an array, lengths differ,
            or a number is not finite; path, array and row are named.

    Source: Berkeley CS285 homework 2023, `cs285/infrastructure/utils.py`; Decision Transformer (Chen et al. 2021,
    arXiv:2106.01345), `gym/data/download_d4rl_datasets.py`.
    """
    source, paths = str(path), restricted_pickle.load(path)
    paths = [paths] if isinstance(paths, dict) else paths
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(one, dict) for one in paths):
        what = "nothing" if isinstance(paths, list | tuple) and not paths else f"a {type(paths).__name__}"
        raise DataError(f"{source} holds {what}, not a list of paths, each a dict of arrays.")
    found = names_in(map(str, paths[0]), STEP_NAMES, REQUIRED, f"{source}: a path", rename, "pickled_paths")
    parts = [_Path(f"{source}: path {k}", one, found) for k, one in enumerate(paths)]
    for part in parts:
        if part.kind != parts[0].kind:
            raise DataError(f"{source} has paths whose observations have different keys or forms.")
    notes = list[str]()
    if left := [str(name) for name in paths[0] if name not in found.values()]:
        notes.append(f"Left out of each path: {', '.join(left[:8])}{' and more' if len(left) > 8 else ''}.")
    if "terminated" not in found:
        notes.append("The paths have no terminals: each was taken as truncated where it ends.")
    last = np.cumsum([len(part) for part in parts]) - 1
    terminated = np.concatenate([part.terminated for part in parts])
    truncated = np.concatenate([part.truncated for part in parts]) & ~terminated
    truncated[last] = ~terminated[last]
    if timeout_at is not None:
        terminated, truncated, said = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=True)
        notes += said
    following = None
    if parts[0].next_observations is not None:
        following = plain(_joined(source, "next_observations", [cast("Leaves", part.next_observations) for part in parts]))
    table = steps_from_arrays(
        plain(_joined(source, "observations", [part.observations for part in parts])),
        typed_actions(source, _joined(source, "actions", [{"": part.actions} for part in parts])[""], discrete_action),
        np.concatenate([part.rewards for part in parts]),
        terminated,
        truncated,
        next_observations=following,
        extra={"log_prob": np.concatenate([part.log_prob for part in parts])} if "log_prob" in found else None,
        source=source,
    )
    notes += count_notes(table, limits_known="truncated" in found or timeout_at is not None)
    return Imported(table, notes=notes, provenance={"format": "pickled_paths", "file": Path(path).name, "paths": len(paths)})


class _Path:
    """The arrays of one path, each of T rows."""

    def __init__(self, where: str, one: Mapping[str, Any], found: Mapping[str, str]) -> None:
        if lacking := [name for name in found.values() if name not in one]:
            raise DataError(f"{where} has no {lacking[0]!r}, which the first has.")

        def column(word: str) -> Array:
            return one_column(where, found[word], numbers(where, found[word], one[found[word]]))

        self.rewards = column("rewards")
        n = len(self.rewards)
        if not n:
            raise DataError(f"{where} has no steps.")
        self.actions = numbers(where, found["actions"], one[found["actions"]])
        self.observations = leaves(where, found["observations"], one[found["observations"]])
        self.next_observations: Leaves | None = None
        if "next_observations" in found:
            self.next_observations = leaves(where, found["next_observations"], one[found["next_observations"]])
        elif all(len(leaf) == n + 1 for leaf in self.observations.values()):
            self.next_observations = {key: leaf[1:] for key, leaf in self.observations.items()}
            self.observations = {key: leaf[:-1] for key, leaf in self.observations.items()}
        self.terminated = _ends(where, found.get("terminated"), one, n)
        self.truncated = _ends(where, found.get("truncated"), one, n)
        self.log_prob = column("log_prob").astype(np.float32) if "log_prob" in found else np.zeros(0, np.float32)
        checked = {found["actions"]: self.actions, found["rewards"]: self.rewards}
        for word, tree in (("observations", self.observations), ("next_observations", self.next_observations or {})):
            checked |= {"/".join(filter(None, (found.get(word, word), key))): leaf for key, leaf in tree.items()}
        checked |= {found["log_prob"]: self.log_prob} if "log_prob" in found else {}
        for name, array in checked.items():
            if len(array) != n:
                raise DataError(f"{where}: {found['rewards']!r} has {n} rows, but {name!r} has {len(array)}.")
        finite(where, **checked)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What all paths of a file must have alike."""
        return self.observations.keys(), None if self.next_observations is None else self.next_observations.keys()


def _ends(where: str, name: str | None, one: Mapping[str, Any], n: int) -> Array:
    """[n] bool of flags of each step, of one for the whole path, or of none."""
    if name is None:
        return np.zeros(n, bool)
    if np.ndim(one[name]) == 0:
        return flags(where, name, np.r_[np.zeros(n - 1), numbers(where, name, [one[name]])])
    given = flags(where, name, numbers(where, name, one[name]))
    if len(given) != n:
        raise DataError(f"{where} has {n} steps, but {name!r} has {len(given)} rows.")
    return given


def _joined(source: str, name: str, parts: list[Leaves]) -> Leaves:
    try:
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    except (KeyError, ValueError):
        raise DataError(f"{source} has paths whose {name} differ in shape.") from None
