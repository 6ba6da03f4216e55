"""Tianshou's buffers: what is filled of them, oldest first, by HDF5 and pickled; and nothing of a pickle is run."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.registry import detect, plan, read
from d3ray.data.storage.steps import concat_steps

from .tianshou_files import held, joined, rows, write_hdf5, write_pickle

WRITERS: dict[str, Callable[[Path, Any], Path]] = {"hdf5": write_hdf5, "pickle": write_pickle}
written = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@written
def test_only_what_is_filled_is_read(write: Any, tmp_path: Path) -> None:
    steps = rows(14)
    path = write(tmp_path / "file", held(steps, 20))
    assert detect(path) == "tianshou"
    table = read(path).steps
    assert table.steps.tolist() == [5, 4, 4, 1]
    assert table.terminated.tolist() == [False, True, True, False]
    assert (table.final_recorded.all(), table.cuts) == (True, 0)
    assert table.returns.tolist() == [10.0, 26.0, 42.0, 13.0]
    closing = table.columns["closing"]
    np.testing.assert_array_equal(table.columns["observation"][~closing], [step["obs"] for step in steps])
    np.testing.assert_array_equal(table.columns["action"][~closing], [step["act"] for step in steps])
    np.testing.assert_array_equal(table.columns["observation"][closing][-1], steps[-1]["obs_next"])
    np.testing.assert_array_equal(table.columns["info/speed"][~closing], 0.5 * np.arange(14))


@written
def test_a_full_ring_begins_with_its_oldest_row(write: Any, tmp_path: Path) -> None:
    table = read(write(tmp_path / "file", held(rows(27), 10))).steps
    assert table.steps.tolist() == [4, 4, 2]  # steps 17 to 26
    assert table.returns.tolist() == [74.0, 90.0, 51.0]


def test_a_buffer_of_environments_is_read_one_after_the_other(tmp_path: Path) -> None:
    state = joined([held(rows(14), 10), held(rows(7), 10)])
    for path in (write_hdf5(tmp_path / "a", state), write_pickle(tmp_path / "b", state, "vecbuf.VectorReplayBuffer")):
        table = read(path).steps
        assert table.steps.tolist() == [1, 4, 4, 1, 5, 2]
        assert table.returns.tolist() == [4.0, 26.0, 42.0, 13.0, 10.0, 11.0]
        assert table.terminated.tolist() == [False, True, True, False, False, False]


def test_each_environments_newest_row_ends_its_episode_though_nothing_says_what_came_next(tmp_path: Path) -> None:
    state = joined([held(rows(14), 20), held(rows(7), 10)])
    del state["_meta"]["obs_next"]
    table = read(write_hdf5(tmp_path / "file", state)).steps
    assert table.steps.tolist() == [5, 4, 4, 1, 5, 2]
    assert not table.final_recorded.any()


def test_a_large_file_is_read_in_stretches_that_are_the_same_together(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "file", held(rows(270), 100))
    parts = plan(path, n_bytes=600).parts
    assert len(parts) > 3
    together, whole = concat_steps([part().steps for part in parts]), read(path).steps
    assert together.steps.tolist() == whole.steps.tolist()
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(together.columns[name], column)


@written
def test_old_files_say_done_and_some_keep_no_next_observations(write: Any, tmp_path: Path) -> None:
    state = held(rows(14), 20)
    for name in ("terminated", "truncated", "obs_next"):
        del state["_meta"][name]
    imported = read(write(tmp_path / "file", state), timeout_at=5)
    assert imported.steps.terminated.tolist() == [False, True, True, False]
    assert not imported.steps.final_recorded.any()
    assert "1 episodes that ended terminated after exactly 5 steps were taken as truncated (timeout_at)." in imported.notes


@written
def test_observations_may_be_several_and_frames_are_said(write: Any, tmp_path: Path) -> None:
    state = held(rows(14), 20)
    for name in ("obs", "obs_next"):
        state["_meta"][name] = {"arm": state["_meta"][name], "hand": state["_meta"][name][:, :1]}
    state["stack_num"] = 4
    imported = read(write(tmp_path / "file", state))
    assert imported.steps.columns["observation/hand"].shape == (18, 1)
    assert any("train with sampler.frames=4" in note for note in imported.notes)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    state = held(rows(14), 20)
    empty = state | {"_size": 0, "last_index": np.array([0]), "_insertion_idx": 0}
    with pytest.raises(DataError, match=r"file has no steps: none of its 20 rows is filled\.$"):
        read(write_hdf5(tmp_path / "file", empty))
    with pytest.raises(DataError, match=r"says that 21 rows are filled, and has room for 20 there\.$"):
        read(write_hdf5(tmp_path / "file", state | {"_size": 21}))
    with pytest.raises(DataError, match=r"has no 'rew', only 'act', "):
        read(write_hdf5(tmp_path / "file", state | {"_meta": {k: v for k, v in state["_meta"].items() if k != "rew"}}))
    path = write_hdf5(tmp_path / "file", state)
    with h5py.File(path, "a") as file:
        file["_meta/obs"].attrs["__data_type__"] = "pickled_ndarray"
    with pytest.raises(DataError, match=r"'obs' holds Python objects, not numbers\.$"):
        read(path)


def test_no_code_of_a_pickle_is_run_and_no_class_of_it_looked_up(tmp_path: Path) -> None:
    """Names beside the buffer's, its state set on a class, and objects where arrays belong."""
    path = write_pickle(tmp_path / "file", held(rows(14), 20))
    assert "tianshou" not in sys.modules
    read(path)
    assert "tianshou" not in sys.modules
    named = path.read_bytes().replace(b"\x8c\x05Batch", b"\x8c\x05Patch")
    (tmp_path / "named").write_bytes(named)
    with pytest.raises(DataError, match=r"names tianshou\.data\.batch\.Patch; only NumPy arrays and plain containers are read"):
        read(tmp_path / "named", "tianshou")

    class Run:
        def __reduce__(self) -> Any:
            return os.system, ("exit 1",)

    for value in ({"tianshou.data.buffer": Run()}, ["tianshou.data.buffer", Run()]):
        (tmp_path / "run").write_bytes(pickle.dumps(value))
        with pytest.raises(DataError, match=r"names (posix|nt)\.system"):
            read(tmp_path / "run")
    # A class in the place of an object: BUILD finds no state to set on it.
    hostile = b"\x80\x04\x8c\x20tianshou.data.buffer.buffer_base\x8c\x0cReplayBuffer\x93}\x8c\x05_metaK\x01sb."
    (tmp_path / "class").write_bytes(hostile)
    with pytest.raises(DataError, match="is no pickle"):
        read(tmp_path / "class")


def test_other_pickles_still_make_no_objects(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "file", held(rows(14), 20))
    with pytest.raises(DataError, match=r"its pickle uses NEWOBJ"):
        read(path, "pickled_paths")
