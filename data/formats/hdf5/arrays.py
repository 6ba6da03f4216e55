"""HDF5 files as importers read them: plain numeric arrays that lie in the file itself."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import DataError
from ..imported import Array, damaged, existing_file, native, same_rows


@contextmanager
def open_hdf5(path: Path | str) -> Generator[h5py.File]:
    """The file, opened for reading; what h5py raises inside becomes a `DataError`.

    Raises:
        DataError: not there, not HDF5, cut short or damaged.
    """
    path = existing_file(path)
    if not is_hdf5(path):
        raise DataError(f"{path} is not an HDF5 file.")
    with damaged(str(path), "an HDF5 file", (OSError, RuntimeError, KeyError)), h5py.File(path, "r") as file:
        yield file


def is_hdf5(path: Path) -> bool:
    """Whether the file begins as HDF5 does (or has its signature after a user block)."""
    return bool(h5py.is_hdf5(path))


def find(file: h5py.File | h5py.Group, name: str) -> h5py.Dataset | None:
    """The array of that name, or None where there is none.

    Raises:
        DataError: its values lie in another file, which a file from elsewhere has no business to name.
    """
    group: Any = file
    for part in name.split("/"):
        if not isinstance(group, h5py.Group) or part not in group:
            return None
        if isinstance(group.get(part, getlink=True), h5py.ExternalLink):
            raise DataError(f"{file.file.filename}: {name!r} is a link to another file.")
        group = group[part]
    if not isinstance(group, h5py.Dataset):
        return None
    if group.external or group.is_virtual:
        raise DataError(f"{file.file.filename}: the values of {name!r} lie in another file.")
    return group


def read_array(file: h5py.File, name: str) -> Array | None:
    """The numbers of that name, or None where there is no such array. Raises as `read_rows`."""
    dataset = find(file, name)
    return None if dataset is None else read_rows(dataset, name)


def read_rows(dataset: h5py.Dataset, name: str, rows: slice | None = None) -> Array:
    """The numbers of an array, or of some of its rows.

    Raises:
        DataError: it holds something else than numbers or booleans.
    """
    if dataset.shape is None or dataset.dtype.kind not in "biuf":
        raise DataError(f"{dataset.file.filename}: {name!r} holds {dataset.dtype}, not numbers.")
    return native(np.asarray(dataset[() if rows is None else rows]))


def find_arrays(
    file: h5py.File, required: tuple[str, ...], optional: tuple[str, ...], kind: str, rename: Mapping[str, str] | None = None
) -> dict[str, h5py.Dataset]:
    """Those of the arrays that are there, all of one length. `rename` has what the file calls an array, by its usual name.

    Raises:
        DataError: a required or a renamed one is not (it is named, and so is what the file has), lengths differ, or there are no
            rows.
    """
    called = {name: (rename or {}).get(name, name) for name in (*required, *optional)}
    there = {name: dataset for name, said in called.items() if (dataset := find(file, said)) is not None}
    for name in (*required, *(rename or {})):
        if name not in there:
            raise DataError(f"{file.filename} is not {kind} file: it has no {called[name]!r}, only {listed(file)}.")
    same_rows(file.filename, **there)  # from the headers, before anything is loaded
    return there


def scalar(file: h5py.File, name: str) -> Any:
    """The single value of that name as Python's own (bytes as text), or None where there is none."""
    dataset = find(file, name)
    if dataset is None or dataset.shape != ():
        return None
    value: Any = dataset[()]
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def listed(file: h5py.File) -> str:
    """The names at the top of the file, at most eight, for a sentence."""
    names = sorted(str(name)[:40] for name in file)  # a damaged one is bytes, and may be long
    return (", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "nothing"


def array_names(group: h5py.Group) -> list[str]:
    """Names of all arrays below `group`, sorted, groups joined by '/'. Links to other places are not followed."""
    names: list[str] = []

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            names.append(name)

    group.visititems(visit)
    return sorted(names)
