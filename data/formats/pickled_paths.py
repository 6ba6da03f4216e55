"""Pickled paths: a list of dicts of arrays, one a path, as many training scripts leave their rollouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .arrays import STEP_NAMES, Array, finite, flags, one_column
from .format import RENAME, Imported, StepFormat
from .untrusted import restricted_pickle
from .untrusted.archives import head
from .untrusted.values import Leaves, leaves, names_in, numbers, plain

REQUIRED = ("observations", "actions", "rewards")
PICKLE = re.compile(rb"\x80[\x02-\x05]|\([ld]p|[\]}]q")  # of protocols 2 to 5, 0, and 1


class PickledPaths(StepFormat):
    """Steps of a pickle of paths, in file order. No code in the pickle is run, whatever it holds.

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

    Source: Berkeley CS285 homework 2023, `cs285/infrastructure/utils.py`; Decision Transformer (Chen et al. 2021,
    arXiv:2106.01345), `gym/data/download_d4rl_datasets.py`.
    """

    name = "pickled_paths"
    description = "pickles of paths, dicts of arrays of numbers"
    rename: Mapping[str, str] = RENAME

    @classmethod
    def detect(cls, path: Path) -> bool:
        """Looks at how the file, or what is inside gzip, begins: this is the one importer of pickles that are no buffers."""
        return bool(PICKLE.match(head(path, 3, unpacked=True)))

    def read(self, path: Path) -> Imported:
        source, paths = str(path), restricted_pickle.load(path)
        paths = [paths] if isinstance(paths, dict) else paths
        if not isinstance(paths, list | tuple) or not paths or not all(isinstance(one, dict) for one in paths):
            what = "nothing" if isinstance(paths, list | tuple) and not paths else f"a {type(paths).__name__}"
            raise DataError(f"{source} holds {what}, not a list of paths, each a dict of arrays.")
        found = names_in(map(str, paths[0]), STEP_NAMES, REQUIRED, f"{source}: a path", self.rename, self.name)
        parts = [_Path(f"{source}: path {k}", one, found) for k, one in enumerate(paths)]
        if any(part.kind != parts[0].kind for part in parts):
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
        terminated, truncated = self.limited(source, terminated, truncated, notes)
        following = [part.next_observations for part in parts if part.next_observations is not None]
        return self.imported(
            source,
            plain(_joined(source, "observations", [part.observations for part in parts])),
            self.actions(source, _joined(source, "actions", [{"": part.actions} for part in parts])[""]),
            np.concatenate([part.rewards for part in parts]),
            terminated,
            truncated,
            notes=notes,
            limits_known="truncated" in found,
            about={"paths": len(paths)},
            next_observations=plain(_joined(source, "next_observations", following)) if following else None,
            extra={"log_prob": np.concatenate([part.log_prob for part in parts])} if "log_prob" in found else None,
        )


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
