"""HDF5 files as importers read them: plain numeric arrays that lie in the file itself."""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5l  # pyright: ignore[reportAttributeAccessIssue]

from ...errors import DataError
from ..arrays import Array, damaged, existing_file, native, same_rows
from ..untrusted.unpacking import DEFLATE, ROW, needs, unpacking, unpacks

_MOST_LINKS = 16  # that lead from one to the next
_DEEPEST, _MOST_NAMES = 16, 1 << 14  # groups within each other, and names below a group
_TRIED = 1 << 28  # bytes that a chunk may become untried
_SPARE = 1 << 12  # bytes of a chunk that filters add, as a checksum


@contextmanager
def open_hdf5(path: Path | str) -> Generator[h5py.File]:
    """Open a file for reading; what h5py raises inside becomes a DataError."""
    path = existing_file(path)
    if not is_hdf5(path):
        raise DataError(f"{path} is not an HDF5 file.")
    with unpacking(path), damaged(str(path), "an HDF5 file", (OSError, RuntimeError, KeyError)), h5py.File(path, "r") as file:
        yield file


def is_hdf5(path: Path) -> bool:
    return bool(h5py.is_hdf5(path))


def node(group: h5py.Group, name: str) -> h5py.Group | h5py.Dataset | None:
    """Return the object of that name, or None if there is none. Links within the file are followed, one by one.

    Links to other files, which an untrusted file has no business to name, are refused and not opened.
    """
    here: Any = group
    ahead, followed = _steps(name), 0
    while ahead:
        if (part := ahead.pop()) == "/":
            here = group.file["/"]
            continue
        link = part.encode(errors="surrogateescape")
        if not isinstance(here, h5py.Group) or not here.id.links.exists(link):
            return None
        kind = here.id.links.get_info(link).type
        if kind == h5l.TYPE_HARD:
            here = here[part]
        elif kind == h5l.TYPE_SOFT:
            if (followed := followed + 1) > _MOST_LINKS:
                raise DataError(f"{group.file.filename}: {name!r} is a link to a link, and so on.")
            ahead += _steps(here.id.links.get_val(link).decode("utf-8", "replace"))
        else:
            raise DataError(f"{group.file.filename}: {name!r} is a link to another file.")
    if isinstance(here, h5py.Dataset) and (here.is_virtual or here.external):
        raise DataError(f"{group.file.filename}: the values of {name!r} lie in another file.")
    return here


def _steps(path: str) -> list[str]:
    """Split a path, its first part last; "/" stands for the file's own group."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return [*reversed(parts), *(["/"] if path.startswith("/") else [])]


def find_group(file: h5py.Group, name: str) -> h5py.Group | None:
    found = node(file, name)
    return found if isinstance(found, h5py.Group) else None


def find(file: h5py.Group, name: str) -> h5py.Dataset | None:
    found = node(file, name)
    return found if isinstance(found, h5py.Dataset) else None


def read_array(file: h5py.File, name: str) -> Array | None:
    dataset = find(file, name)
    return None if dataset is None else read_rows(dataset, name)


def read_rows(dataset: h5py.Dataset, name: str, rows: slice | None = None) -> Array:
    if dataset.shape is None or dataset.dtype.kind not in "biuf":
        raise DataError(f"{dataset.file.filename}: {name!r} holds {dataset.dtype}, not numbers.")
    count_bytes(dataset, name, rows)
    return native(np.asarray(dataset[() if rows is None else rows]))


def count_bytes(dataset: h5py.Dataset, name: str, rows: slice | None = None) -> None:
    """Count bytes of an array, or of some of its rows, before they are read: a file may declare rows that it does not store."""
    source, shape = f"{dataset.file.filename}: {name!r}", dataset.shape or ()
    n = 1 if not shape else shape[0] if rows is None else len(range(*rows.indices(shape[0])))
    unpacks(source, n * (math.prod(shape[1:]) * dataset.dtype.itemsize + ROW))
    if dataset.chunks:
        needs(source, chunk_bytes := math.prod(dataset.chunks) * dataset.dtype.itemsize)
        _check_chunks(dataset, chunk_bytes, source)


def _check_chunks(dataset: h5py.Dataset, chunk_bytes: int, source: str) -> None:
    """Try chunks that could fill memory: HDF5 inflates one for as long as it goes on, whatever its size is said to be."""
    if dataset.compression != "gzip":
        return
    due, large = chunk_bytes + _SPARE, list[Any]()
    dataset.id.chunk_iter(lambda chunk: large.append(chunk.chunk_offset) if chunk.size * DEFLATE > max(4 * due, _TRIED) else None)
    for offset in large:
        unpack, size, packed = zlib.decompressobj(), 0, dataset.id.read_direct_chunk(offset)[1]
        while packed and not unpack.eof and size <= due:
            size += len(unpack.decompress(packed, 1 << 20))
            packed = unpack.unconsumed_tail
        if size > due:
            raise DataError(f"{source} has a chunk that unpacks to more than the {chunk_bytes:,} bytes that are said.")


def find_arrays(
    file: h5py.File, required: tuple[str, ...], optional: tuple[str, ...], kind: str, rename: Mapping[str, str]
) -> dict[str, h5py.Dataset]:
    """Find those of the arrays that are there, all of one length; `rename` has the file's names by the usual ones."""
    called = {name: rename.get(name, name) for name in (*required, *optional)}
    there = {name: dataset for name, said in called.items() if (dataset := find(file, said)) is not None}
    for name in (*required, *rename):
        if name not in there:
            raise DataError(f"{file.filename} is not {kind} file: it has no {called[name]!r}, only {listed(file)}.")
    same_rows(file.filename, **there)  # from the headers, before anything is loaded
    return there


def scalar(file: h5py.File, name: str) -> Any:
    """Read a single value as Python's own (bytes as text); None where there is none."""
    dataset = find(file, name)
    if dataset is None or dataset.shape != ():
        return None
    count_bytes(dataset, name)
    value: Any = dataset[()]
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def listed(file: h5py.File) -> str:
    """List the names at the top of the file, at most eight, for a sentence."""
    names = sorted(str(name)[:40] for name in file)  # a damaged one is bytes, and may be long
    return (", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "nothing"


def arrays_below(group: h5py.Group, what: str) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield all arrays below a group by name, groups joined by '/'."""
    seen = 0

    def below(inside: h5py.Group, prefix: str) -> Iterator[tuple[str, h5py.Dataset]]:
        nonlocal seen
        for name in map(str, inside):
            if (seen := seen + 1) > _MOST_NAMES or prefix.count("/") > _DEEPEST:
                raise DataError(f"{what} is nested too deeply.")
            found = node(inside, name)
            if isinstance(found, h5py.Group):
                yield from below(found, f"{prefix}{name}/")
            elif isinstance(found, h5py.Dataset):
                yield f"{prefix}{name}", found

    return below(group, "")


def attribute(node: h5py.Group | h5py.Dataset, name: str) -> Any:
    """Read an attribute as Python's own value or a list of them, bytes as text; None where there is none."""
    if name not in node.attrs:
        return None
    about = node.attrs.get_id(name)
    if about.dtype.kind == "O":  # each may be the same text of any length, stored once
        needs(f"{node.file.filename}: the attribute {name!r}", math.prod(about.shape) * Path(node.file.filename).stat().st_size)
    value: Any = node.attrs[name]
    value = value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
