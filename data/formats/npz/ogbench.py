"""OGBench's .npz archives: trajectories towards goals, mostly without rewards, which a single task gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...config import setting
from ...errors import DataError
from ...spec import Environment
from ..arrays import Array, flags, one_column
from ..format import RENAME, Imported, StepFormat
from .ogbench_tasks import find_task, without_kind
from .steps import NAMES as NPZ_NAMES
from .steps import npz_names, read_rows_of

NAMES = {  # d3ray's word: OGBench's
    "observations": ("observations",),
    "actions": ("actions",),
    "ends": ("terminals",),
    "rewards": ("rewards",),
    "masks": ("masks",),
    "valids": ("valids",),
    "next_observations": ("next_observations",),
}
REQUIRED = ("observations", "actions", "ends")
VALIDATION = "-val.npz"
_SLICE = re.compile(r"(.+)-(\d{3,})\.npz")  # as cube-octuple-play-v0-007.npz


class OGBench(StepFormat):
    """Steps of an OGBench archive, in file order.

    Reads observations [M, ...], actions, terminals; where present rewards, masks, valids and next_observations. Other arrays of
    M rows (qpos, qvel, button_states) become `info/NAME`.

    Traps, and what is done:
    - `terminals` mark where a trajectory ends, not where the MDP does: the ends are truncated. What the MDP ends at is `masks`
      (0 where nothing is to be bootstrapped), which the files of single tasks have: an episode is terminated there.
    - As published, a trajectory of T steps is T + 1 rows. The last one, where `terminals` is 1, is the final observation with an
      action that means nothing. The same rows are left when the file was saved as OGBench loads it "compact", where `valids` is 0.
      Saved as it loads by default there are next_observations, and every row is a step.
    - The benchmark is about goals: without rewards every reward is 0, and a note says so. With `task` the rewards and ends are
      those of one of its single tasks, worked out of qpos and button_states as it does itself; else make rewards of your own.
    - `NAME-val.npz` is the validation split and belongs into a dataset of its own; a note says so.
    - Large data, of 100,000,000 steps, are a folder of slices, `NAME-000.npz` and so on, read one by one.

    Source: OGBench (Park et al. 2025, arXiv:2410.20092), `ogbench/utils.py` and `ogbench/relabel_utils.py`.
    """

    name = "ogbench"
    description = "OGBench's .npz: trajectories whose terminals are no ends of the task"
    rename: Mapping[str, str] = RENAME
    task: str | None = setting(
        None, "single task whose rewards and ends the steps get, as cube-single-play-singletask-task2-v0; null: the file's own"
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        """Looks for trajectories without rewards, or with OGBench's masks or valids."""
        there = set(npz_names(path))
        own = not there & set(NPZ_NAMES["rewards"]) or bool(there & {"masks", "valids"})
        return own and all(NAMES[word][0] in there for word in REQUIRED)

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        """List the slices of large data by number, without validation splits beside them."""
        paths = sorted(path for path in folder.glob("*.npz") if not path.name.endswith(VALIDATION))
        named = {match[1] for path in paths if (match := _SLICE.fullmatch(path.name))}
        whole = len(named) == 1 and all(_SLICE.fullmatch(path.name) for path in paths)
        return paths if whole and cls.detect(paths[0]) else []

    def read(self, path: Path) -> Imported:
        found, source = read_rows_of(path, NAMES, REQUIRED, self.rename, self.name), str(path)
        raw, called, m, notes = found.raw, found.called, found.n, found.notes
        if self.task is not None:
            raw |= _of_task(self.task, found.others, source)
            called |= {"rewards": "rewards", "masks": "masks"}
        ends = flags(source, called["ends"], raw["ends"])
        regular = "next_observations" in raw
        closing = np.zeros(m, bool) if regular else ends
        if "valids" in raw:
            closing = ~flags(source, called["valids"], raw["valids"])
        rows = np.flatnonzero(~closing)  # of steps
        if not len(rows):
            raise DataError(f"{source} has no steps: every row is the end of a trajectory.")
        if alone := int((closing & np.r_[True, closing[:-1]]).sum()):
            notes.append(f"{alone} rows are a final observation without a step before it and were left out.")
        truncated = ends[rows] if regular else closing[np.minimum(rows + 1, m - 1)]  # where the next observation is
        truncated[-1] = True
        terminated = np.zeros(len(rows), bool)
        if "masks" in raw:
            terminated = ~flags(source, called["masks"], raw["masks"][rows])
            truncated &= ~terminated
        terminated, truncated = self.limited(source, terminated, truncated, notes)
        if "rewards" not in raw:
            notes.append("The file has no rewards, as it is about reaching goals: all rewards are 0.")
        seen, last, split = raw["observations"], rows[terminated | truncated], "train"
        recorded = np.ones(len(rows), bool)
        recorded[-1] = regular or closing[-1]  # else the file was cut within a trajectory
        imported = self.imported(
            source,
            seen if regular else seen[rows],
            self.actions(source, raw["actions"][rows]),
            one_column(source, "rewards", raw["rewards"][rows]) if "rewards" in raw else np.zeros(len(rows), np.float32),
            terminated,
            truncated,
            notes=notes,
            limits_known=True,
            recorded=recorded,
            final_observations=None if regular else seen[np.minimum(last + 1, m - 1)],
            next_observations=raw.get("next_observations"),
            extra={f"info/{name}": array[rows] for name, array in found.others.items()},
        )
        if path.name.endswith(VALIDATION):
            split = "validation"
            imported.notes.append(f"{path.name} is OGBench's validation split: import it as a dataset of its own.")
        imported.provenance.update({"split": split} | ({"channels": "last"} if seen.ndim == 4 else {}))
        return imported if self.task is None else replace(imported, environment=Environment(id=without_kind(self.task)))


def _of_task(name: str, others: Mapping[str, Array], source: str) -> dict[str, Array]:
    task = find_task(name)
    if "qpos" not in others:
        raise DataError(f"{source} has no 'qpos', from which the rewards of {task.name} follow.")
    rewards, solved = task.judge(others["qpos"], others.get("button_states"), source)
    return {"rewards": rewards, "masks": ~solved}
