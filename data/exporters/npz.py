"""NumPy's `.npz` with flat arrays, one row a step, under the names that `data/formats/npz/steps.py` reads."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..dataset import Dataset
from ..masks import ACTION_MASK
from ..spec import Box
from ..storage.costs import COST
from ..storage.legal import FINAL_ACTION_MASK
from .aside import file_aside
from .blocks import Advance, Block, actions, blocks, final_observations, info_columns, left_out, observation_columns, others, silent

Read = Callable[[Block], np.ndarray]


def write_npz(dataset: Dataset, target: str | Path, *, overwrite: bool = False, advance: Advance = silent) -> list[str]:
    """One archive for `numpy.load`: observations, actions, rewards, terminated, truncated, final_observations, info/*.

    Where the data have them, log_prob, cost, action_mask and final_action_mask too.

    Parts of observations are arrays of their own, `observations/KEY` and `final_observations/KEY`. Arrays are written one after
    the other, each from one pass over the data. Cannot carry: final observations of some truncated episodes only (then there are
    none), further columns.

    Args, returns and raises as for `write_d4rl`; observations may have parts.
    """
    final, notes = final_observations(dataset)
    names, n, e = dataset.kinds, dataset.n_transitions, dataset.n_episodes
    arrays: dict[str, tuple[int, Read]] = {}
    for part, name in observation_columns(dataset).items():
        arrays[f"observations{part and '/' + part}"] = n, lambda block, name=name: block.of_steps(name)
        if final:
            arrays[f"final_observations{part and '/' + part}"] = e, lambda block, name=name: block.final(name)
    arrays["actions"] = n, actions(dataset)
    plain = {"rewards": "reward", "terminated": "terminated", "truncated": "truncated"}
    plain |= {name: name for name in [*(name for name in ("log_prob", COST) if name in names), *info_columns(dataset)]}
    if ACTION_MASK in names:
        plain[ACTION_MASK] = ACTION_MASK
        if final:
            arrays[FINAL_ACTION_MASK] = e, lambda block: block.final(ACTION_MASK)
    for word, name in plain.items():
        arrays[word] = n, lambda block, name=name: block.of_steps(name)
    with file_aside(target, overwrite=overwrite) as path, zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for word, (rows, read) in arrays.items():
            with archive.open(f"{word}.npy", "w", force_zip64=True) as member:
                _write(member, rows, read, dataset)
            if word == "rewards":  # its length stands for all: the others are as long
                advance(n)
        with archive.open("discrete_action.npy", "w") as member:
            np.lib.format.write_array(member, np.array(not isinstance(dataset.spec.action, Box)))
    return notes + left_out(others(dataset))


def _write(member: Any, rows: int, read: Read, dataset: Dataset) -> None:
    for k, block in enumerate(blocks(dataset)):
        values = np.ascontiguousarray(read(block))
        if not k:
            about = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(member, about | {"shape": (rows, *values.shape[1:])})
        member.write(values.reshape(-1).view(np.uint8).data)
