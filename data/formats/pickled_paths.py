"""Pickled paths: a list of dicts of arrays, one a path, as many training scripts leave their rollouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .arrays import STEP_NAMES, Array, flags
from .format import RENAME, Imported, StepFormat
from .runs import Batch, batch_of, imported, joined
from .untrusted import restricted_pickle
from .untrusted.archives import head
from .untrusted.values import leaves, names_in, numbers, plain

REQUIRED = ("observations", "actions", "rewards")
PICKLE = re.compile(rb"\x80[\x02-\x05]|\([ld]p|[\]}]q")  # of protocols 2 to 5, 0, and 1


class PickledPaths(StepFormat):
    """Steps of a pickle of paths, in file order. No code in the pickle is run, whatever it holds.

    A path is a dict of observation(s) [T, ...] (or a dict of such arrays), action(s), reward(s) and, where present, terminal(s),
    timeout(s), next_observation(s), cost(s) and log_prob. The pickle holds a list of paths, or one dict of flat arrays. It may be
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
        parts = [_batch(f"{source}: path {k}", one, found, k) for k, one in enumerate(paths)]
        notes = list[str]()
        if left := [str(name) for name in paths[0] if name not in found.values()]:
            notes.append(f"Left out of each path: {', '.join(left[:8])}{' and more' if len(left) > 8 else ''}.")
        if "terminated" not in found:
            notes.append("The paths have no terminals: each was taken as truncated where it ends.")
        said = imported(self, joined(parts, source), {"terminated": "terminated"} | found, notes)
        return replace(said, provenance={"paths": len(paths)})


def _batch(where: str, one: Mapping[str, Any], found: Mapping[str, str], episode: int) -> Batch:
    if lacking := [name for name in found.values() if name not in one]:
        raise DataError(f"{where} has no {lacking[0]!r}, which the first has.")
    n = len(numbers(where, found["rewards"], one[found["rewards"]]))
    if not n:
        raise DataError(f"{where} has no steps.")
    ends = {word: _ends(where, found.get(word), one, n) for word in ("terminated", "truncated")}
    words = {word: name for word, name in found.items() if word not in (*ends, "episode")}
    seen = leaves(where, words["observations"], one[words["observations"]])
    if "next_observations" not in found and all(len(leaf) == n + 1 for leaf in seen.values()):
        words["next_observations"] = "the observations after the first"
        after = plain({key: leaf[1:] for key, leaf in seen.items()})
        one = {**one, words["observations"]: plain({k: leaf[:-1] for k, leaf in seen.items()}), words["next_observations"]: after}
    batch = batch_of(where, one, words)
    batch.columns |= ends | {"episode": np.full(n, episode)}
    return batch


def _ends(where: str, name: str | None, one: Mapping[str, Any], n: int) -> Array:
    """Read [n] bool of flags of each step, of one for the whole path, or of none."""
    if name is None:
        return np.zeros(n, bool)
    if np.ndim(one[name]) == 0:
        return flags(where, name, np.r_[np.zeros(n - 1), numbers(where, name, [one[name]])])
    given = flags(where, name, numbers(where, name, one[name]))
    if len(given) != n:
        raise DataError(f"{where} has {n} steps, but {name!r} has {len(given)} rows.")
    return given
