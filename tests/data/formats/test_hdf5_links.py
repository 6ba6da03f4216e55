"""HDF5 files of strangers that name other files of this machine: nothing of these is read, nor are they even opened."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.registry import detect, plan, read

from .tianshou_files import held, rows, write_hdf5

N = 6
ROWS = {"observations": np.ones((N, 2)), "actions": np.ones((N, 1)), "rewards": np.ones(N), "terminals": np.arange(N) == N - 1}


def d4rl(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in ROWS.items():
            file[name] = array
        file["infos/goal"], file["infos/far/away"], file["metadata/algorithm"] = np.zeros((N, 2)), np.zeros(N), "SAC"
    return path


def d3rlpy(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        for name in ("observations", "actions", "rewards"):
            file[f"{name}_0"] = ROWS[name].reshape(N, -1)
        file["terminated_0"], file["columns"], file["num_episodes"], file["version"] = True, "observations", 1, "2.8.1"
    return path


def minari(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        one = file.create_group("episode_0")
        for name, array in ROWS.items():
            one[name.replace("terminals", "terminations")] = array if name != "observations" else np.ones((N + 1, 2))
        one["truncations"], one["infos/far/away"] = np.zeros(N, bool), np.zeros(N)
    return path


def tianshou(path: Path) -> Path:
    return write_hdf5(path, held(rows(14), 20))


PLACES: list[tuple[Callable[[Path], Path], str]] = [
    (d4rl, "rewards"), (d4rl, "infos"), (d4rl, "infos/far"), (d4rl, "metadata"),
    (d3rlpy, "rewards_0"), (d3rlpy, "num_episodes"), (d3rlpy, "terminated_0"),
    (minari, "episode_0"), (minari, "episode_0/rewards"), (minari, "episode_0/infos"), (minari, "episode_0/infos/far"),
    (tianshou, "_meta"), (tianshou, "_meta/obs"), (tianshou, "_meta/info"), (tianshou, "last_index"),
]  # fmt: skip


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


LINKS = [external, soft_to_external, soft_through_external, soft_through_softs, soft_through_hard]


def refuses(path: Path) -> None:
    """No array of another file is in what comes of it, whatever asks: most ask for all, and then it is refused."""
    with pytest.raises(DataError, match="another file"):
        read(path)
    with pytest.raises(DataError, match="another file"):
        plan(path, n_bytes=100)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.__name__)
@pytest.mark.parametrize(("write", "place"), PLACES, ids=lambda value: value if isinstance(value, str) else value.__name__)
def test_links_out_of_the_file(write: Any, place: str, link: Any, tmp_path: Path) -> None:
    path, other = write(tmp_path / "bad.h5"), write(tmp_path / "other.h5")
    with h5py.File(path, "a") as file:
        del file[place]
        link(file, place, str(other))
    refuses(path)
    other.unlink()
    os.mkfifo(other)  # who opens it waits for ever
    refuses(path)


@pytest.mark.parametrize("write", [d4rl, d3rlpy, minari, tianshou], ids=lambda write: write.__name__)
def test_values_out_of_the_file(write: Any, tmp_path: Path) -> None:
    """Virtual arrays, also of virtual ones, and values stored in other files, at any depth."""
    other, kinds = write(tmp_path / "other.h5"), dict[str, tuple[Any, Any, int]]()

    def note(name: str, one: Any) -> None:
        if isinstance(one, h5py.Dataset) and one.shape and name != "_random_state":  # which nobody reads
            kinds[name] = one.shape, one.dtype, one.id.get_offset()

    with h5py.File(other) as file:
        file.visititems(note)
    assert len(kinds) > 2
    for place, (shape, dtype, offset) in kinds.items():
        for kind in ("virtual", "virtual of virtual", "external"):
            path = shutil.copy(other, tmp_path / "bad.h5")
            with h5py.File(path, "a") as file:
                del file[place]
                layout = h5py.VirtualLayout(shape, dtype)
                if kind == "external":
                    size = int(np.prod(shape)) * dtype.itemsize
                    file.create_dataset(place, shape, dtype, external=[(str(other), offset, size)])
                    continue
                layout[...] = h5py.VirtualSource(str(other), place, shape)
                if kind != "virtual":
                    file.create_virtual_dataset("inner", layout)
                    layout = h5py.VirtualLayout(shape, dtype)
                    layout[...] = h5py.VirtualSource(".", "inner", shape)
                file.create_virtual_dataset(place, layout)
            refuses(Path(path))


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
