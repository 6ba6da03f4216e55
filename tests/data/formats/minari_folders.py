"""Minari's folders, laid out as its documentation and version 0.5.4 do, by nothing that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BOX = {"type": "Box", "dtype": "float64", "shape": [3], "low": [-1, -2, -3], "high": [1, 2, 3]}
FREE = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-np.inf] * 2, "high": [np.inf] * 2}
TWO = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}


def metadata(observation: Any, action: Any, n: int, **more: Any) -> dict[str, Any]:
    spec = {"id": "Toy-v1", "entry_point": "toy:Toy", "kwargs": {"size": 3}, "max_episode_steps": 9, "additional_wrappers": []}
    return {
        "total_episodes": n,
        "data_format": "hdf5",
        "observation_space": json.dumps(observation),
        "action_space": json.dumps(action),
        "env_spec": json.dumps(spec),
        "dataset_id": "toy/test-v0",
        "minari_version": "0.5.4",
        **more,
    }


def write_hdf5(folder: Path, episodes: list[dict[str, Any]], about: dict[str, Any] | None) -> Path:
    """`data/main_data.hdf5`: an episode's arrays by names such as "observations/left" or "infos/goal"."""
    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for k, episode in enumerate(episodes):
            for name, array in episode.items():
                file[f"episode_{k}/{name}"] = array
    if about is not None:
        (folder / "data" / "metadata.json").write_text(json.dumps(about))
    return folder


def episode_of(n: int, seed: int = 0, *, terminated: bool = False, truncated: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    flags = np.zeros((2, n), bool)
    flags[:, -1] = terminated, truncated
    return {
        "observations": rng.uniform(-1, 1, (n + 1, 3)),
        "actions": rng.integers(0, 2, n),
        "rewards": rng.normal(size=n),
        "terminations": flags[0],
        "truncations": flags[1],
    }


def arrow_folder(folder: Path, episodes: list[dict[str, Any]], about: dict[str, Any], kind: str) -> Path:
    """A subfolder an episode, as pyarrow's partitions make them; steps have an empty row at their end."""
    for k, episode in enumerate(episodes):
        (folder / "data" / str(k)).mkdir(parents=True)
        columns = {}
        for name, values in episode.items():
            array: Any = np.asarray(values)
            if name in ("actions", "rewards", "terminations", "truncations"):
                array = np.concatenate([array, np.zeros((1, *array.shape[1:]), array.dtype)])
            flat = pa.array(array.reshape(-1))
            columns[name] = flat if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, int(np.prod(array.shape[1:])))
        dicts = {name for name in columns if "/" in name}
        for top in sorted({name.partition("/")[0] for name in dicts}):
            parts = {name.partition("/")[2]: columns.pop(name) for name in sorted(dicts) if name.startswith(f"{top}/")}
            columns[top] = pa.StructArray.from_arrays(list(parts.values()), list(parts))
        table = pa.table(columns)
        file = folder / "data" / str(k) / f"part-0.{kind}"
        if kind == "parquet":
            pq.write_table(table, file)
        else:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        (file.parent / "metadata.json").write_text(json.dumps({"id": k}))
    (folder / "data" / "metadata.json").write_text(json.dumps({**about, "data_format": kind}))
    return folder
