"""Minari's storages, episode by episode: HDF5 with a group an episode, and a folder of Arrow or Parquet files an episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..arrays import Array, damaged
from ..hdf5.arrays import arrays_below, attribute, find_group, open_hdf5, read_rows
from ..tabular.arrow_columns import array_of, read_arrow
from ..tabular.images import decode_images, is_encoded
from ..tabular.parquet_table import open_parquet, read_table
from .spaces import Json, shape_of

PARTS = ("observations", "actions", "rewards", "terminations", "truncations")
TUPLE = "_index_"  # how HDF5 names the parts of a tuple
MISSING = "final_observation_missing"  # what d3ray's exporter says of an episode: its last observation is the one before it again


@dataclass
class Stored:
    """One episode of T steps, by the places of leaves within spaces and infos ("" for a single one)."""

    name: str
    observations: dict[str, Array] = field(default_factory=dict[str, Array])  # T + 1 rows
    actions: dict[str, Array] = field(default_factory=dict[str, Array])  # T rows
    infos: dict[str, Array] = field(default_factory=dict[str, Array])  # T + 1 rows, or T
    flat: dict[str, Array] = field(default_factory=dict[str, Array])  # rewards, terminations, truncations: T rows
    left_out: set[str] = field(default_factory=set[str])  # text, and infos that are no numbers
    final_missing: bool = False

    def add(self, place: str, values: Array | None) -> None:
        """Put the array of "observations/camera/left" where it belongs; None: it is no array of numbers."""
        part, _, leaf = place.partition("/")
        if values is None:
            if part not in ("observations", "infos"):
                raise DataError(f"{self.name}: {place!r} holds text; numbers are needed.")
            self.left_out.add(place)
        elif part in ("observations", "actions", "infos"):
            {"observations": self.observations, "actions": self.actions, "infos": self.infos}[part][leaf] = values
        else:
            self.flat[part] = values


Spaces = Mapping[str, Json]  # "observations/camera/left": the leaf's JSON


def hdf5_metadata(path: Path) -> dict[str, Any]:
    """Read the attributes of the file, where Minari before 0.5 kept what is in metadata.json now."""
    with open_hdf5(path) as file:
        return {name: attribute(file, name) for name in file.attrs}


def _in_file(path: Path, file: h5py.File) -> list[int]:
    return _numbers(path, (str(n).removeprefix("episode_") for n in file if str(n).startswith("episode_")))


def _group(file: h5py.File, number: int) -> h5py.Group:
    if (found := find_group(file, f"episode_{number}")) is None:
        raise DataError(f"{file.filename}: episode {number} is no group of arrays.")
    return found


@dataclass(frozen=True)
class Outline:
    """Rows of an episode's arrays and entry shapes of its infos, both by place, as its headers give them."""

    rows: dict[str, int]
    infos: dict[str, tuple[int, ...]]


def hdf5_outline(path: Path) -> list[Outline]:
    """Outline each episode, by number. Raises DataError where one has no rewards."""
    found: list[Outline] = []
    with open_hdf5(path) as file:
        for number in _in_file(path, file):
            name = f"{path}, episode {number}"
            there = dict(arrays_below(_group(file, number), name))
            shapes = {place.replace(TUPLE, ""): one.shape or (0,) for place, one in there.items() if _holds(one)}
            if "rewards" not in shapes:
                raise DataError(f"{name} has no 'rewards'.")
            n = shapes["rewards"][0]
            infos = {p.removeprefix("infos/"): s[1:] for p, s in shapes.items() if p.startswith("infos/") and s[0] in (n, n + 1)}
            found.append(Outline({p: s[0] for p, s in shapes.items() if p.partition("/")[0] in PARTS}, infos))
    return found


def hdf5_episodes(path: Path, spaces: Spaces, some: slice) -> Iterator[Stored]:
    with open_hdf5(path) as file:
        for number in _in_file(path, file)[some]:
            group = _group(file, number)
            episode = Stored(f"{path}, episode {number}")
            for place, dataset in arrays_below(group, episode.name):
                if place.partition("/")[0] in (*PARTS, "infos"):
                    episode.add(
                        place.replace(TUPLE, ""), _read(dataset, place, episode.name, _shape(spaces, place.replace(TUPLE, "")))
                    )
            episode.final_missing = bool(attribute(group, MISSING))
            yield episode


def folder_episodes(folder: Path, spaces: Spaces, some: slice) -> Iterator[Stored]:
    """Yield episodes of a folder with a subfolder of Arrow or Parquet files each."""
    for number in _numbers(folder, (path.name for path in folder.iterdir() if path.is_dir()))[some]:
        episode = Stored(f"{folder}, episode {number}")
        table = _table(folder / str(number))
        for place, column, column_field in _columns(table):
            values = _from_arrow(place, column, column_field, episode.name, _shape(spaces, place))
            # There is one row an observation; what belongs to steps has an empty one at its end.
            episode.add(place, values if values is None or place.startswith(("observations", "infos")) else values[:-1])
        yield episode


def _numbers(where: Path, names: Iterator[str]) -> list[int]:
    """Sort episode numbers. Raises DataError where one is missing between two others, or there is none."""
    numbers = sorted({int(name) for name in names if name.isdecimal()})
    if not numbers:
        raise DataError(f"{where} has no episodes.")
    if (gap := next((k for k, number in enumerate(numbers) if number != k), None)) is not None:
        raise DataError(f"{where} has an episode {numbers[-1]} and no episode {gap}.")
    return numbers


def _shape(spaces: Spaces, place: str) -> tuple[int, ...] | None:
    return shape_of(spaces[place]) if place in spaces else None


# HDF5


def _holds(dataset: h5py.Dataset) -> bool:
    """Tell whether it is an array of numbers, or of images from JPEG."""
    images = h5py.check_vlen_dtype(dataset.dtype) == np.uint8
    return dataset.shape is not None and (dataset.dtype.kind in "biuf" or images)


def _read(dataset: h5py.Dataset, place: str, where: str, shape: tuple[int, ...] | None) -> Array | None:
    """Read numbers, or images from JPEG; None for text and what is no array."""
    if not _holds(dataset):
        return None
    if h5py.check_vlen_dtype(dataset.dtype) == np.uint8:
        return _pictures(_Rows(dataset), f"{where}: {place!r}", shape)
    values: Any = read_rows(dataset, place)
    # JPEGs of one length are stored as rows of bytes, which a space of another shape tells from numbers.
    images = values.dtype == np.uint8 and values.ndim == 2 and len(values) and is_encoded(values[0].tobytes())
    if images and (shape is None or values.shape[1:] != shape):
        return _pictures([row.tobytes() for row in values], f"{where}: {place!r}", shape)
    return values


class _Rows(Sequence[bytes]):
    """Rows of bytes that are read one by one: many of them may be the same stored ones."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: Any) -> Any:
        if row >= len(self):
            raise IndexError(row)
        return self._dataset[row].tobytes()


# Arrow


def _table(folder: Path) -> Any:
    files = sorted(file for file in folder.iterdir() if file.suffix in (".arrow", ".parquet"))
    if not files:
        raise DataError(f"{folder} has no Arrow or Parquet file.")
    with damaged(f"{folder}: {files[0].name}", "a file", (pa.ArrowException, OSError, ValueError)):
        return pa.concat_tables([_read_table(file) for file in files])


def _read_table(file: Path) -> Any:
    if file.suffix != ".parquet":
        return read_arrow(file)
    with open_parquet(file) as opened:
        return read_table(opened, str(file))


def _columns(table: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each leaf of the columns of an episode, with its place."""

    def below(place: str, column: Any, about: Any) -> Iterator[tuple[str, Any, Any]]:
        if not pa.types.is_struct(about.type):
            yield place, column, about
            return
        for k, part in enumerate(column.flatten()):
            child = about.type.field(k)
            yield from below(f"{place}/{child.name}", part, child)

    for name in (*PARTS, "infos"):
        if name in table.column_names:
            yield from below(name, table.column(name), table.schema.field(name))


def _from_arrow(place: str, column: Any, about: Any, where: str, shape: tuple[int, ...] | None) -> Array | None:
    kind = about.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _pictures(column.to_pylist(), f"{where}: {place!r}", shape)
    if not (pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_primitive(kind)):
        return None
    values = array_of(where, place, column, about)
    if isinstance(values, dict):
        return None
    if shape is None and (said := (about.metadata or {}).get(b"shape")) is not None:
        shape = tuple(int(n) for n in said.decode().split(",") if n.isdecimal())
    if shape is not None and len(values) and values[:1].size != np.prod(shape, dtype=np.int64):
        raise DataError(f"{where}: {place!r} has entries of {values[:1].size} numbers; its space has the shape {list(shape)}.")
    return values if shape is None else values.reshape(len(values), *shape)


def _pictures(images: Sequence[bytes], what: str, shape: tuple[int, ...] | None) -> Array:
    flat = shape is not None and len(shape) == 2
    pixels = decode_images(images, what, (*shape, 1) if shape is not None and flat else shape)
    return pixels[..., 0] if flat else pixels
