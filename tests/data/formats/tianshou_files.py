"""Tianshou's files, written as its `save_hdf5` and as `pickle` lay them out, without Tianshou."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np

Row = dict[str, Any]


def rows(n: int) -> list[Row]:
    """Steps of episodes of 4 (terminated) and 5 (truncated) in turn; the reward counts them."""
    rng, made, t, seen = np.random.default_rng(0), list[Row](), 0, np.zeros(3, np.float32)
    for k in range(n):
        following, t = rng.normal(size=3).astype(np.float32), t + 1
        terminated, truncated = t == 4 and k % 2 == 0, t == 5
        made.append(
            {
                "obs": seen,
                "act": rng.uniform(-1, 1, 2).astype(np.float32),
                "rew": float(k),
                "terminated": terminated,
                "truncated": truncated,
                "done": terminated or truncated,
                "obs_next": following,
                "info": {"speed": 0.5 * k},
            }
        )
        t, seen = (0, rng.normal(size=3).astype(np.float32)) if terminated or truncated else (t, following)
    return made


def held(steps: list[Row], size: int) -> dict[str, Any]:
    """A ring of `size` rows that `steps` were added to, one after the other: the attributes of a ReplayBuffer."""
    place = np.arange(len(steps)) % size
    columns: dict[str, Any] = {}
    for name in steps[0]:
        if name == "info":
            continue
        values = np.array([step[name] for step in steps])
        columns[name] = np.zeros((size, *values.shape[1:]), values.dtype)
        columns[name][place] = values
    speed = np.zeros(size)
    speed[place] = [step["info"]["speed"] for step in steps]
    columns["info"] = {"speed": speed}
    return {
        "options": {"stack_num": 1},
        "maxsize": size,
        "stack_num": 1,
        "_meta": columns,
        "last_index": np.array([(len(steps) - 1) % size]),
        "_insertion_idx": len(steps) % size,
        "_size": min(len(steps), size),
    }


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The attributes of a VectorReplayBuffer of such buffers. Its children hold objects, which only pickles keep."""
    sizes = [part["maxsize"] for part in parts]
    offset = np.cumsum([0, *sizes[:-1]])
    columns = {name: np.concatenate([part["_meta"][name] for part in parts]) for name in parts[0]["_meta"] if name != "info"}
    columns["info"] = {"speed": np.concatenate([part["_meta"]["info"]["speed"] for part in parts])}
    return parts[0] | {
        "maxsize": sum(sizes),
        "_meta": columns,
        "_offset": offset,
        "_extend_offset": np.array([*offset, sum(sizes)]),
        "_lengths": np.array([part["_size"] for part in parts]),
        "last_index": np.array([part["last_index"][0] + first for part, first in zip(parts, offset, strict=True)]),
        "_insertion_idx": 0,
        "_size": 0,
    }


def write_hdf5(path: Path, state: Mapping[str, Any]) -> Path:
    """As `to_hdf5` does: numbers as attributes, dicts as groups, arrays as datasets."""

    def put(values: Mapping[str, Any], group: h5py.Group) -> None:
        for name, value in values.items():
            if isinstance(value, Mapping):
                put(value, group.create_group(name))
            elif isinstance(value, np.ndarray):
                group.create_dataset(name, data=value).attrs["__data_type__"] = "ndarray"
            else:
                group.attrs[name] = value

    with h5py.File(path, "w") as file:
        put(state, file)
        file["_meta"].attrs["__data_type__"] = "Batch"
        random = file.create_dataset("_random_state", data=np.frombuffer(pickle.dumps(np.random.RandomState(0)), np.byte))
        random.attrs["__data_type__"] = "RandomState"
    return path


def write_pickle(path: Path, state: Mapping[str, Any], kind: str = "buffer_base.ReplayBuffer", protocol: int = 4) -> Path:
    """Objects of classes that are called as Tianshou's are; they are gone from `sys.modules` afterwards."""
    module, name = f"tianshou.data.buffer.{kind}".rsplit(".", 1)
    parts = module.split(".")
    names = [".".join(parts[: k + 1]) for k in range(len(parts))] + ["tianshou.data.batch"]
    buffer, batch = type(name, (), {"__module__": module}), type("Batch", (), {"__module__": "tianshou.data.batch"})
    for one in names:
        sys.modules[one] = ModuleType(one)
    setattr(sys.modules[module], name, buffer)
    setattr(sys.modules["tianshou.data.batch"], "Batch", batch)  # noqa: B010

    def made(kind: type, attributes: Mapping[str, Any]) -> Any:
        one = kind()
        one.__dict__.update(attributes)
        return one

    try:
        info = made(batch, state["_meta"]["info"])
        children = np.array([made(buffer, {"maxsize": 1}), None], object)
        whole = {**state, "_meta": made(batch, {**state["_meta"], "info": info}), "buffers": children}
        path.write_bytes(pickle.dumps(made(buffer, {**whole, "_random_state": np.random.RandomState(0)}), protocol))
    finally:
        for one in names:
            del sys.modules[one]
    return path
