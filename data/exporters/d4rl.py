"""D4RL's HDF5 layout: one row a step, episodes back to back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..dataset import Dataset
from ..masks import ACTION_MASK
from ..spec import MultiDiscrete
from ..storage.costs import COST
from ..storage.legal import NEXT_ACTION_MASK
from .aside import file_aside
from .blocks import Advance, Block, actions, blocks, final_observations, info_columns, left_out, only_array, others, silent
from .hdf5_file import new_hdf5

Read = Callable[[Block], np.ndarray]


def write_d4rl(dataset: Dataset, target: str | Path, *, overwrite: bool = False, advance: Advance = silent) -> list[str]:
    """One HDF5 file, gzip-compressed: observations, actions, rewards, terminals, timeouts, next_observations, infos/*.

    `timeouts` are the steps at which an episode was truncated, whatever cut it. `cost` becomes costs, as in DSRL's files,
    `log_prob` infos/action_log_probs, and a mask of legal actions infos/action_mask and infos/next_action_mask.
    Cannot carry: observations of parts (refused), final observations of some truncated episodes only (then there are no
    next_observations), that actions are multi-discrete, further columns. Names, spaces and provenance
    stay behind as well.

    Args:
        dataset: what is written.
        target: the file; a URI of pyarrow.fs will do.
        overwrite: replace the file that is there.
        advance: told how many steps more are written.

    Returns:
        Sentences on what was left out.

    Raises:
        ConfigError: observations have parts.
        StorageError: the file is there already, cannot be written, or the disk is full; nothing is left there.
    """
    only_array(dataset, "D4RL's layout")
    following, notes = final_observations(dataset)
    names = dataset.kinds
    arrays: dict[str, Read] = {
        "observations": lambda block: block.of_steps("observation"),
        "actions": actions(dataset),
        "rewards": lambda block: block.of_steps("reward"),
        "terminals": lambda block: block.of_steps("terminated"),
        "timeouts": lambda block: block.of_steps("truncated"),
    }
    if following:
        arrays["next_observations"] = lambda block: block.following("observation")
    if COST in names:
        arrays["costs"] = lambda block: block.of_steps(COST)
    if "log_prob" in names:
        arrays["infos/action_log_probs"] = lambda block: block.of_steps("log_prob")
    if ACTION_MASK in names:
        arrays[f"infos/{ACTION_MASK}"] = lambda block: block.of_steps(ACTION_MASK)
        if following:
            arrays[f"infos/{NEXT_ACTION_MASK}"] = lambda block: block.following(ACTION_MASK)
    for name in info_columns(dataset):
        arrays[f"infos/{name.removeprefix('info/')}"] = lambda block, name=name: block.of_steps(name)
    written: dict[str, h5py.Dataset] = {}
    with file_aside(target, overwrite=overwrite) as path, new_hdf5(path) as (file, disk):
        for block in blocks(dataset):
            for name, read in arrays.items():
                values = read(block)
                if name not in written:
                    shape = (dataset.n_transitions, *values.shape[1:])
                    chunks = _chunks(shape, values.dtype)
                    written[name] = file.create_dataset(name, shape, values.dtype, chunks=chunks, compression="gzip")
                written[name][block.first_step : block.stop_step] = values
            disk.check()
            advance(block.n_steps)
    if isinstance(dataset.spec.action, MultiDiscrete):
        notes.append(
            "D4RL's layout does not tell multi-discrete actions from other integers: say discrete_action=true to read them again."
        )
    return notes + left_out(others(dataset))


def _chunks(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return chunks of about 1 MiB of rows."""
    row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    return (min(shape[0], max(1, (1 << 20) // max(row, 1))), *shape[1:])
