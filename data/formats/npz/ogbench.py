"""OGBench's .npz archives: trajectories towards goals, mostly without rewards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...errors import DataError
from ...storage.steps import steps_from_arrays
from ..imported import Array, Imported, apply_time_limit, count_notes, flags, one_column, same_rows, typed_actions
from ..untrusted.values import names_in
from .steps import NAMES as NPZ_NAMES
from .steps import npz_names, open_npz

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


def is_ogbench(path: Path) -> bool:
    """Whether the file is an archive of trajectories without rewards, or with OGBench's masks or valids."""
    there = set(npz_names(path))
    return all(NAMES[word][0] in there for word in REQUIRED) and (
        not there & set(NPZ_NAMES["rewards"]) or bool(there & {"masks", "valids"})
    )


def read_ogbench(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
) -> Imported:
    """Steps of an OGBench archive, in file order; none is dropped.

    Reads observations [M, ...], actions, terminals; where present rewards, masks, valids and next_observations. Other arrays of
    M rows (qpos, qvel, button_states) become `info/NAME`.

    Traps, and what is done:
    - `terminals` mark where a trajectory ends, not where the MDP does: the ends are truncated. What the MDP ends at is `masks`
      (0 where nothing is to be bootstrapped), which the files of single tasks have: an episode is terminated there.
    - As published, a trajectory of T steps is T + 1 rows. The last one, where `terminals` is 1, is the final observation with an
      action that means nothing. The same rows are left when the file was saved as OGBench loads it "compact", where `valids` is 0.
      Saved as it loads by default there are next_observations, and every row is a step.
    - The benchmark is about goals: without rewards every reward is 0, and a note says so. Make rewards of your own before training.
    - `NAME-val.npz` is the validation split and belongs into a dataset of its own; a note says so.

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integer actions in one column are discrete.
        rename: what this file calls an array, by d3ray's word (`observations`, `actions`, `ends`, `rewards`, `masks`, ...).

    Raises:
        DataError: not an archive, damaged, an array missing or of objects, lengths that differ, NaN or infinity (column and row are
            named), or no steps.

    Source: OGBench (Park et al. 2025, arXiv:2410.20092), `ogbench/utils.py` and `ogbench/relabel_utils.py`.
    """
    source = str(path)
    with open_npz(path) as archive:
        found = names_in(archive.names, NAMES, REQUIRED, source, rename, "ogbench")
        raw = {word: archive.read(name) for word, name in found.items()}
        m = same_rows(source, **{found[word]: array for word, array in raw.items()})
        shapes = {name: archive.header(name) for name in archive.names if name not in found.values()}
        infos = {n: archive.read(n) for n, (shape, dtype) in shapes.items() if shape[:1] == (m,) and dtype.kind in "biuf"}
        notes = archive.left_out()
    ends = flags(source, found["ends"], raw["ends"])
    regular = "next_observations" in raw
    closing = np.zeros(m, bool) if regular else ends
    if "valids" in raw:
        closing = ~flags(source, found["valids"], raw["valids"])
    rows = np.flatnonzero(~closing)  # of steps
    if not len(rows):
        raise DataError(f"{source} has no steps: every row is the end of a trajectory.")
    if alone := int((closing & np.r_[True, closing[:-1]]).sum()):
        notes.append(f"{alone} rows are a final observation without a step before it and were left out.")
    after = np.minimum(rows + 1, m - 1)  # where the next observation is
    truncated = ends[rows] if regular else closing[after]
    truncated[-1] = True
    terminated = np.zeros(len(rows), bool)
    if "masks" in raw:
        terminated = ~flags(source, found["masks"], raw["masks"][rows])
        truncated &= ~terminated
    if timeout_at is not None:
        terminated, truncated, said = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=True)
        notes += said
    if "rewards" not in raw:
        notes.append("The file has no rewards, as it is about reaching goals: all rewards are 0.")
    last = rows[terminated | truncated]
    observations = raw["observations"]
    table = steps_from_arrays(
        observations if regular else observations[rows],
        typed_actions(source, raw["actions"][rows], discrete_action),
        one_column(source, "rewards", raw["rewards"][rows]) if "rewards" in raw else np.zeros(len(rows), np.float32),
        terminated,
        truncated,
        final_observations=None if regular else observations[np.minimum(last + 1, m - 1)],
        next_observations=raw.get("next_observations"),
        extra={f"info/{name}": array[rows] for name, array in infos.items()},
        source=source,
    )
    if not regular and not closing[-1]:  # the file was cut within a trajectory
        table = replace(table, final_recorded=np.r_[table.final_recorded[:-1], False])
    notes += count_notes(table, limits_known=True)
    return Imported(table, notes=notes + _split_note(path), provenance=_provenance(path, observations))


def _validation(path: Path | str) -> bool:
    return Path(path).name.endswith("-val.npz")


def _split_note(path: Path | str) -> list[str]:
    if not _validation(path):
        return []
    return [f"{Path(path).name} is OGBench's validation split: import it as a dataset of its own."]


def _provenance(path: Path | str, observations: Array) -> dict[str, str]:
    split = {"split": "validation" if _validation(path) else "train"}
    return {"format": "ogbench", "file": Path(path).name} | split | ({"channels": "last"} if observations.ndim == 4 else {})
