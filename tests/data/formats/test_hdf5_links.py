"""HDF5 files of strangers that name other files of this machine: nothing of these is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.registry import detect, plan, read

from .fuzz_files import tiny_files

N = 6
ROWS = {"observations": np.ones((N, 2)), "actions": np.ones((N, 1)), "rewards": np.ones(N), "terminals": np.arange(N) == N - 1}
MORE = {"infos/goal": np.zeros((N, 2)), "infos/far/away": np.zeros(N), "metadata/algorithm": "SAC"}
UNREAD = ("columns", "create_mask", "_random_state", "options")  # what no importer looks at


def d4rl(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in (ROWS | MORE).items():
            file[name] = array
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every HDF5 file of every format, by what it is called."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny = {name: path / "data" / "main_data.hdf5" if path.is_dir() else path for name, path in tiny_files(folder).items()}
    found = {name: path for name, path in tiny.items() if path.is_file() and h5py.is_hdf5(path)}
    assert {"d4rl", "d3rlpy", "d3rlpy 2020", "minari", "tianshou"} <= found.keys()
    return found | {"d4rl with more": d4rl(folder / "more.h5")}


def external(file: h5py.File, place: str, other: str) -> None:
    file[place] = h5py.ExternalLink(other, place)


def soft_to_external(file: h5py.File, place: str, other: str) -> None:
    file["elsewhere"] = h5py.ExternalLink(other, place)
    file[place] = h5py.SoftLink("/elsewhere")


def soft_through_external(file: h5py.File, place: str, other: str) -> None:
    file["elsewhere"] = h5py.ExternalLink(other, "/")
    file[place] = h5py.SoftLink(f"/elsewhere/{place}")


def soft_through_softs(file: h5py.File, place: str, other: str) -> None:
    file["way/out"] = h5py.ExternalLink(other, "/")
    file["way/a"] = h5py.SoftLink("out")  # from the group that it is in
    file["way/b"] = h5py.SoftLink("./a")
    file[place] = h5py.SoftLink(f"/way/b/{place}")


def soft_through_hard(file: h5py.File, place: str, other: str) -> None:
    file["way/out"] = h5py.ExternalLink(other, "/")
    file["hard"] = file["way"]
    file[place] = h5py.SoftLink(f"/hard/out/{place}")


def virtual(file: h5py.File, place: str, other: str, *, inner: bool, shape: Any, dtype: Any) -> None:
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(other, place, shape)
    if inner:
        file.create_virtual_dataset("inner", layout)
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(".", "inner", shape)
    file.create_virtual_dataset(place, layout)


def stored(file: h5py.File, place: str, other: str, *, offset: int, shape: Any, dtype: Any) -> None:
    size = int(np.prod(shape)) * dtype.itemsize
    file.create_dataset(place, shape, dtype, external=[(other, offset, size)])


LINKS = [external, soft_to_external, soft_through_external, soft_through_softs, soft_through_hard]


def ways_out(path: Path) -> list[tuple[str, Callable[[h5py.File, str, str], None]]]:
    """Each group and array of a file, with ways to put there what leads to another file: the last, and one in turn."""
    found: list[tuple[str, Callable[[h5py.File, str, str], None]]] = []

    def note(name: str, one: Any) -> None:
        ways: list[Callable[[h5py.File, str, str], None]] = [*LINKS]
        if isinstance(one, h5py.Dataset) and one.shape and one.dtype.kind in "biuf" and one.id.get_offset() is not None:
            about: dict[str, Any] = {"shape": one.shape, "dtype": one.dtype}
            ways += [partial(virtual, inner=inner, **about) for inner in (False, True)]
            ways.append(partial(stored, offset=one.id.get_offset(), **about))
        found.extend((name, way) for way in (ways[len(found) // 2 % len(ways)], ways[-1]))

    with h5py.File(path) as file:
        file.visititems(note)
    return found


def read_in_parts(path: Path, format: str) -> None:
    for part in plan(path, format, n_bytes=100).parts:
        part()


def test_ways_out_of_the_file(files: dict[str, Path], tmp_path: Path) -> None:
    other, bad, tried = tmp_path / "other.h5", tmp_path / "bad.h5", set[Any]()
    for name, path in files.items():
        for k, (place, way) in enumerate(ways_out(path)):
            shutil.copy(path, other)
            shutil.copy(path, bad)
            with h5py.File(bad, "a") as file:
                del file[place]
                way(file, place, str(other))
            said = ""
            try:
                (read_in_parts if k % 2 else read)(bad, name.split()[0])
            except DataError as error:
                said = str(error)
            assert ("another file" in said) == (place not in UNREAD), (name, place, way, said)
            tried.add(getattr(way, "func", way))
    assert len(tried) == len(LINKS) + 2


def test_links_within_the_file_are_followed(tmp_path: Path) -> None:
    path, expected = d4rl(tmp_path / "a.h5"), read(d4rl(tmp_path / "b.h5")).steps
    with h5py.File(path, "a") as file:
        file.move("rewards", "kept/here/r")
        file["kept/soft"] = h5py.SoftLink("here")
        file["rewards"] = h5py.SoftLink("kept/soft/./r")
        file.move("infos", "kept/infos")
        file["infos"] = h5py.SoftLink("/kept/infos")
        file["hard"] = file["observations"]
        del file["observations"]
        file["observations"] = h5py.SoftLink("//hard")
    assert detect(path) == "d4rl"
    found = read(path).steps
    assert found.columns.keys() == expected.columns.keys()
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(found.columns[name], column)


def test_links_in_a_circle_and_to_nowhere(tmp_path: Path) -> None:
    path = d4rl(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        del file["rewards"], file["infos"]
        file["infos"], file["rewards"] = h5py.SoftLink("/infos/x"), h5py.SoftLink("/nothing")
    with pytest.raises(DataError, match=r"it has no 'rewards'|no known layout|'rewards'"):
        read(path, "d4rl")
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file["rewards"] = np.ones(N)
    with pytest.raises(DataError, match="'infos' is a link to a link, and so on"):
        read(path)
