"""`features.json` of TensorFlow Datasets: which features an episode has, their shapes and types, and how they are stored."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..arrays import Array
from ..tabular.images import decode_images
from ..untrusted.unpacking import left, needs, unpacks
from ..untrusted.values import json_file
from .tfrecord import Feature

FEATURES = "features.json"
NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)} | {"float16", "float32", "float64", "bool"}
_KINDS = ("tensor", "image", "classLabel", "boundingBox")  # what becomes an array; text, video, audio and nested sequences do not


@dataclass(frozen=True)
class Leaf:
    """One feature of a step, or of an episode."""

    name: str  # "steps/observation/state"
    kind: str  # "tensor", "image", …
    shape: tuple[int | None, ...] = ()
    dtype: str = "int64"
    encoding: str = "none"  # of a tensor: none, bytes or zlib

    def array(self, stored: Feature | None, n: int, where: str) -> Array:
        """Read [n, ...] numbers of n steps, from the list that the record holds."""
        what = f"{where}: feature {self.name!r}"
        if stored is None:
            raise DataError(f"{what} is in {FEATURES} and not in the record.")
        if self.kind == "image":
            return decode_images(self._bytes(stored, n, what), what, self.shape or None)
        if self.encoding != "none":
            return np.stack([self._decoded(data, what) for data in self._bytes(stored, n, what)])
        if isinstance(stored, list):
            if stored:
                raise DataError(f"{what} is stored as bytes; {FEATURES} says {self.dtype}.")
            stored = np.zeros(0, np.float32)
        shape = self._filled(len(stored) // max(n, 1))
        if len(stored) != n * int(np.prod(shape, dtype=np.int64)):
            raise DataError(f"{what} has {len(stored):,} numbers, not {n} times {list(shape)}.")
        if stored.dtype.kind == "i" and self.dtype.startswith("float"):
            raise DataError(f"{what} is stored as integers; {FEATURES} says {self.dtype}.")
        return stored.astype(self.dtype, copy=False).reshape(n, *shape)

    def _bytes(self, stored: Feature, n: int, what: str) -> list[bytes]:
        if not isinstance(stored, list) or len(stored) != n:
            raise DataError(f"{what} is not stored as {n} byte strings, one a step.")
        return stored

    def _decoded(self, data: bytes, what: str) -> Array:
        dtype = np.dtype(self.dtype)
        if self.encoding == "zlib":
            known = None not in self.shape
            most = self._size() * dtype.itemsize if known else left()
            needs(what, most)
            try:
                data = (unpack := zlib.decompressobj()).decompress(data, most + 1)  # never more than was announced
            except zlib.error:
                raise DataError(f"{what} is not compressed with zlib as {FEATURES} says.") from None
            unpacks(what, len(data))
            if unpack.unconsumed_tail:
                raise DataError(f"{what} unpacks to more than the {most:,} bytes that are announced.")
        shape = self._filled(len(data) // dtype.itemsize)
        if len(data) != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
            raise DataError(f"{what} has {len(data):,} bytes, which are no {self.dtype} of shape {list(shape)}.")
        return np.frombuffer(data, dtype).reshape(shape)

    def _size(self) -> int:
        return math.prod(size for size in self.shape if size is not None)

    def _filled(self, entries: int) -> tuple[int, ...]:
        """Return the shape, its unknown axis found from how many numbers there are."""
        return tuple(entries // max(self._size(), 1) if size is None else size for size in self.shape)


@dataclass(frozen=True)
class Features:
    """Features of a dataset's records."""

    leaves: Mapping[str, Leaf]  # numbers, by name
    others: tuple[str, ...]  # text, video, nested sequences

    def steps(self, under: str) -> dict[str, Leaf]:
        """Return the leaves of the step feature `under`, by their names below it; one that is a leaf itself is named ""."""
        name = f"steps/{under}"
        return {key[len(name) + 1 :]: leaf for key, leaf in self.leaves.items() if f"{key}/".startswith(f"{name}/")}


def read_features(folder: Path) -> Features | None:
    """Read the features of a dataset's folder; None where it has no `features.json` with steps."""
    path = folder / FEATURES
    try:
        content: Any = json_file(path)
    except FileNotFoundError:
        return None
    except DataError:
        raise
    except (OSError, ValueError):
        raise DataError(f"{path} is not JSON.") from None
    try:
        found = list(_leaves(content, "", nested=False))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise DataError(f"{path} does not describe features as TensorFlow Datasets does.") from None
    if not any(leaf.name.startswith("steps/") for leaf in found):
        return None
    numbers = {leaf.name: leaf for leaf in found if leaf.kind in _KINDS and leaf.dtype in NUMBERS}
    return Features(numbers, tuple(leaf.name for leaf in found if leaf.name not in numbers))


def _leaves(node: Any, name: str, *, nested: bool) -> Iterator[Leaf]:
    """Yield the features below a node, in the spelling of today (protobuf's JSON) or of before 2021 ("type" and "content")."""
    if "content" in node:
        node = _modern(node)
    if "featuresDict" in node:
        for key, child in node["featuresDict"].get("features", {}).items():
            yield from _leaves(child, f"{name}/{key}" if name else key, nested=nested)
    elif "sequence" in node:
        if nested or name != "steps":  # a sequence within a step has a length of its own in each
            yield Leaf(name, "sequence")
        else:
            yield from _leaves(node["sequence"]["feature"], name, nested=True)
    elif kind := next((kind for kind in _KINDS if kind in node), None):
        about = node[kind]
        shape = tuple(_axis(n) for n in about.get("shape", {}).get("dimensions", ()))
        default = {"image": "uint8", "classLabel": "int64"}.get(kind, "float32")
        encoding = about.get("encoding", "none") if kind == "tensor" else "none"
        many = kind != "image" and shape.count(None) > 1
        yield Leaf(name, "of unknown shape" if many else kind, shape, about.get("dtype") or default, str(encoding).lower())
    else:
        yield Leaf(name, "text")


def _axis(n: Any) -> int | None:
    return None if n in (None, "None") or int(n) < 0 else int(n)


def _modern(node: Any) -> dict[str, Any]:
    kind, content = str(node["type"]).rpartition(".")[2], node["content"] or {}
    shape = {"shape": {"dimensions": content["shape"]}} if isinstance(content, dict) and "shape" in content else {}
    match kind:
        case "FeaturesDict":
            return {"featuresDict": {"features": content}}
        case "Dataset" | "Sequence":
            return {"sequence": content}
        case "Tensor" | "Scalar" | "BBoxFeature":
            return {"tensor": content | shape}
        case "Image":
            return {"image": content | shape}
        case "ClassLabel":
            return {"classLabel": {}}
        case _:
            return {}
