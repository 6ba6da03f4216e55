"""TFRecord files and tf.train.Examples, written byte by byte as their formats say, by nothing that reads them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum, a bit at a time."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32)


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def varint(n: int) -> bytes:
    n %= 2**64
    out = bytearray()
    while n >= 128:
        out.append(n % 128 + 128)
        n //= 128
    return bytes([*out, n])


def message(number: int, content: bytes) -> bytes:
    return varint(number * 8 + 2) + varint(len(content)) + content


def feature(values: Any, *, packed: bool = True) -> bytes:
    values = list(values)
    if all(isinstance(value, bytes) for value in values) and values:
        return message(1, b"".join(message(1, value) for value in values))
    if np.asarray(values).dtype.kind == "f":
        floats = [struct.pack("<f", value) for value in values]
        return message(2, message(1, b"".join(floats)) if packed else b"".join(varint(8 + 5) + f for f in floats))
    integers = [varint(int(value)) for value in values]
    return message(3, message(1, b"".join(integers)) if packed else b"".join(varint(8) + i for i in integers))


def example(features: Mapping[str, Any], *, packed: bool = True) -> bytes:
    entries = (message(1, message(1, k.encode()) + message(2, feature(v, packed=packed))) for k, v in features.items())
    return message(1, b"".join(entries))


def tensor(shape: Iterable[int] = (), dtype: str = "float32", encoding: str = "none") -> dict[str, Any]:
    dimensions = {"dimensions": [str(n) for n in shape]} if shape else {}
    return {"pythonClassName": "….tensor_feature.Tensor", "tensor": {"shape": dimensions, "dtype": dtype, "encoding": encoding}}


def image(shape: Iterable[int], encoding: str = "png") -> dict[str, Any]:
    about = {"shape": {"dimensions": [str(n) for n in shape]}, "dtype": "uint8", "encodingFormat": encoding}
    return {"pythonClassName": "….image_feature.Image", "image": about}


def mapping(features: Mapping[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": "….features_dict.FeaturesDict", "featuresDict": {"features": dict(features)}}


FLAGS = {name: tensor(dtype="bool") for name in ("is_first", "is_last", "is_terminal")}


def write_rlds(
    folder: Path,
    step: Mapping[str, Any],
    episodes: Iterable[Mapping[str, Any]],
    episode: Mapping[str, Any] | None = None,
    name: str = "toy-train.tfrecord-00000-of-00001",
) -> Path:
    """A dataset of one file: `step` and `episode` say what features there are, each episode has the lists by flat names."""
    folder.mkdir(exist_ok=True)
    steps = {"pythonClassName": "….dataset_feature.Dataset", "sequence": {"feature": mapping(step), "length": "-1"}}
    (folder / "features.json").write_text(json.dumps(mapping({"steps": steps, **(episode or {})})))
    (folder / "dataset_info.json").write_text(json.dumps({"name": "toy", "version": "1.0.0"}))
    (folder / name).write_bytes(b"".join(framed(example(e)) for e in episodes))
    return folder / name
