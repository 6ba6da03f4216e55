"""HDF5 files that libhdf5 does not survive, or does not come back from, are damaged files and named so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.hdf5 import check as hdf5_check
from d3ray.data.formats.registry import read
from d3ray.platform.datasets.ingest import ingest


def write(path: Path, **attributes: object) -> Path:
    flags = np.array([0, 0, 1])
    arrays = {"observations": np.ones((3, 2)), "actions": np.ones((3, 1)), "rewards": np.ones(3), "terminals": flags}
    with h5py.File(path, "w") as file:
        for name, array in (arrays | attributes).items():
            file[name] = array
    return path


def test_a_file_that_kills_its_reader_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "file.hdf5")
    here = os.getpid()

    def die(*_: object, **__: object) -> None:
        assert os.getpid() != here
        os.kill(os.getpid(), signal.SIGSEGV)

    monkeypatch.setattr(hdf5_check, "look", die)
    with pytest.raises(DataError, match=r"file\.hdf5 is an HDF5 file that is damaged: it kills the process .* \(SIGSEGV\)\.$"):
        ingest(path, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.hdf5"]


def test_a_string_whose_heap_has_no_end(tmp_path: Path) -> None:
    """libhdf5 (2.0.0) goes round in circles where an object of a global heap has a size of nothing but ones."""
    path = write(tmp_path / "file.hdf5", **{"metadata/policy": "a string of no fixed length"})
    data = bytearray(path.read_bytes())
    at = data.index(b"GCOL") + 64  # behind the one string
    data[at : at + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"file\.hdf5 is an HDF5 file that is damaged: reading it does not end\.$"):
        read(path)


def test_what_python_can_say_is_left_to_the_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "file.hdf5")
    assert read(path).steps.n_transitions == 3
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="cut short or damaged"):
        read(path)


def test_each_state_of_a_file_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, forks, fork = write(tmp_path / "file.hdf5"), list[int](), os.fork

    def counted() -> int:
        child = fork()
        forks.append(child)
        return child

    monkeypatch.setattr(os, "fork", counted)
    read(path)
    read(path)
    assert len(forks) == 1
    os.utime(path, (1, 1))
    read(path)
    assert len(forks) == 2
    # Nothing of it stays behind.
    for child in forks:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, 0)
