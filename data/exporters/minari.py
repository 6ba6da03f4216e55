"""Minari's folder with HDF5 storage: `data/main_data.hdf5`, a group an episode, and `data/metadata.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..dataset import Dataset
from ..formats.minari.folder import LOG_PROB, MAIN, METADATA
from ..formats.minari.spaces import from_spec
from ..formats.minari.storage import MISSING, TUPLE
from ..masks import ACTION_MASK
from ..spec import Dict, ObservationSpace, Tuple
from ..storage.costs import COST
from .aside import folder_aside
from .blocks import Advance, Block, blocks, info_columns, left_out, others, silent
from .hdf5_file import new_hdf5

VERSION = "0.5.4"  # of Minari: the first that reads images which are not JPEG
MARK = f"data/{METADATA}"


def write_minari(
    dataset: Dataset,
    target: str | Path,
    *,
    overwrite: bool = False,
    advance: Advance = silent,
    env_spec: str | None = None,
) -> list[str]:
    """A folder that Minari loads (put below `~/.minari/datasets`, or given to `MinariDataset(path / "data")`).

    Observations have T + 1 rows an episode, dicts and tuples are groups, images are stored as they are and not as JPEG. Spaces
    without bounds get infinite ones, or those of their type of integers. `log_prob` becomes infos/action_log_probs, and `info/NAME`
    infos/NAME, with zeros in their last row; `cost` infos/cost, one row later than its step and with a zero in its first; a mask of
    legal actions infos/action_mask, of the final observation too. Where a final observation is not known the last one is repeated,
    and the attribute `final_observation_missing` of the episode says so to d3ray; Minari's own readers would take it for real, so
    there is a note.
    Cannot carry: further columns.

    Args:
        dataset: what is written.
        target: a local folder that is new or empty.
        overwrite: replace an earlier export.
        advance: told how many steps more are written.
        env_spec: the environment as gymnasium's `EnvSpec.to_json` writes it, from which Minari can make it again; None: its id and
            keyword arguments, which only tell what it was.

    Returns:
        Sentences on what was left out.

    Raises:
        StorageError: the target is taken, on another machine or cannot be written, or the disk is full; nothing is left there.
    """
    groups = dict(_groups(dataset.spec.observation, "observation", "observations"))
    infos = {name: f"infos/{name.removeprefix('info/')}" for name in info_columns(dataset)}
    if "log_prob" in dataset.kinds:
        infos["log_prob"] = f"infos/{LOG_PROB}"
    if COST in dataset.kinds:
        infos[COST] = f"infos/{COST}"
    if ACTION_MASK in dataset.kinds:
        infos[ACTION_MASK] = f"infos/{ACTION_MASK}"
    episodes = dataset.episodes
    with folder_aside(target, overwrite=overwrite, mark=MARK) as folder:
        (folder / "data").mkdir()
        with new_hdf5(folder / "data" / MAIN) as (file, disk):
            for block in blocks(dataset):
                _write(file, block, groups | infos)
                disk.check()
                advance(block.n_steps)
        metadata = _metadata(dataset, env_spec)
        metadata["dataset_size"] = round((folder / "data" / MAIN).stat().st_size / 1e6, 1)
        (folder / MARK).write_text(json.dumps(metadata), encoding="utf-8")
    notes = left_out(others(dataset))
    if missing := int(np.sum(~episodes.final_recorded)):
        cut = int(np.sum(~episodes.final_recorded & ~episodes.terminated))
        notes.append(
            f"{missing} episodes have no final observation ({cut} of them truncated): the last one is repeated, which d3ray "
            "knows when it reads the folder and Minari does not."
        )
    return notes


def _write(file: h5py.File, block: Block, groups: dict[str, str]) -> None:
    columns = {place: block.column(name) for name, place in groups.items()}
    flat = {"actions": "action", "rewards": "reward", "terminations": "terminated", "truncations": "truncated"}
    steps = {place: block.of_steps(name) for place, name in flat.items()}
    rows, stops = block.closing + 1, np.cumsum(block.steps)
    for k, (row, stop, n) in enumerate(zip(rows.tolist(), stops.tolist(), block.steps.tolist(), strict=True)):
        group = file.create_group(f"episode_{block.first + k}")
        group.attrs["id"], group.attrs["total_steps"] = block.first + k, n
        if not block.final_recorded[k]:
            group.attrs[MISSING] = True
        for place, column in columns.items():
            rows_of = column[row - n - 1 : row]
            group[place] = np.roll(rows_of, 1) if place == f"infos/{COST}" else rows_of  # the zero of the closing row first
        for place, column in steps.items():
            group[place] = column[stop - n : stop]


def _groups(space: ObservationSpace, column: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield the columns of a space's leaves, and where HDF5 has them."""
    match space:
        case Dict():
            for key, part in space.spaces.items():
                yield from _groups(part, f"{column}/{key}", f"{place}/{key}")
        case Tuple():
            for k, part in enumerate(space.spaces):
                yield from _groups(part, f"{column}/{k}", f"{place}/{TUPLE}{k}")
        case _:
            yield column, place


def _metadata(dataset: Dataset, env_spec: str | None) -> dict[str, Any]:
    name = re.sub(r"[^-\w/]+", "-", dataset.name).strip("-/") or "dataset"
    found: dict[str, Any] = {
        "dataset_id": name if re.search(r"-v\d+$", name) else f"{name}-v0",
        "total_episodes": dataset.n_episodes,
        "total_steps": dataset.n_transitions,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(from_spec(dataset.spec.observation)),
        "action_space": json.dumps(from_spec(dataset.spec.action)),
        "minari_version": VERSION,
        "author": [],
        "author_email": [],
    }
    if env_spec is None and dataset.environment is not None:
        about = {"id": dataset.environment.id, "kwargs": dataset.environment.kwargs, "additional_wrappers": []}
        env_spec = json.dumps(about)
    return found | ({"env_spec": env_spec} if env_spec else {})
