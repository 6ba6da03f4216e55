"""TFRecord files and the `tf.train.Example`s in them, read without TensorFlow.

A file is a row of records: length (8 bytes, little-endian), masked CRC32C of the length, the bytes, masked CRC32C of the bytes.
An Example is a protobuf message that maps names to lists of bytes, of float32 or of int64. Both checksums are compared.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ...errors import DataError
from ..arrays import Array, existing_file
from ..untrusted.unpacking import OBJECTS, left, needs, unpacking

Feature = list[bytes] | Array  # bytes, or [n] float32, or [n] int64

_HEAD = struct.Struct("<QI")  # length and its checksum
_CHECKSUM = struct.Struct("<I")
_OF_A_LENGTH = 2  # protobuf's kind of field that says how many bytes it has
_WAY = (b"\x0a", b"\x0a", b"\x12", b"\x0a\x12", b"\x0a")  # to a value: features, feature, value, a list of bytes or floats, value
_LOOKED_AT, _LONG = 1 << 16, 1 << 10  # fields, and bytes of a value
_MESSAGES = {  # tensorflow/core/example/example.proto and feature.proto: fields from number 1 on, and whether they are repeated
    "BytesList": [("value", Field.TYPE_BYTES, True)],
    "FloatList": [("value", Field.TYPE_FLOAT, True)],
    "Int64List": [("value", Field.TYPE_INT64, True)],
    "Feature": [("bytes_list", "BytesList", False), ("float_list", "FloatList", False), ("int64_list", "Int64List", False)],
    "Entry": [("key", Field.TYPE_STRING, False), ("value", "Feature", False)],
    "Features": [("feature", "Entry", True)],
    "Example": [("features", "Features", False)],
}


def is_tfrecord(path: Path) -> bool:
    """Compare the length at the beginning of a file with its checksum."""
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
    return len(head) == _HEAD.size and _masked(head[:8]) == _HEAD.unpack(head)[1]


def records(path: Path | str) -> Iterator[bytes]:
    path = existing_file(path)
    left = path.stat().st_size
    with unpacking(path), path.open("rb") as file:
        k = 0
        while head := file.read(_HEAD.size):
            left -= _HEAD.size
            if len(head) < _HEAD.size:
                raise DataError(f"{path} is cut short in record {k}.")
            length, checksum = _HEAD.unpack(head)
            if _masked(head[:8]) != checksum:
                raise DataError(f"{path} is damaged, or no TFRecord file: the length of record {k} does not have its checksum.")
            if length + _CHECKSUM.size > left:  # before memory is asked for
                raise DataError(f"{path} is cut short in record {k}: it has {length:,} bytes, the file ends after {left:,}.")
            record = file.read(length)
            if _masked(record) != _CHECKSUM.unpack(file.read(_CHECKSUM.size))[0]:
                raise DataError(f"{path} is damaged: record {k} does not have its checksum.")
            left -= length + _CHECKSUM.size
            yield record
            k += 1


def parse_example(record: bytes, source: str) -> dict[str, Feature]:
    if (most := OBJECTS * len(record)) > left():
        most -= (OBJECTS - 2) * _bulk(record)
    needs(source, most)
    try:
        entries = _example().FromString(record).features.feature
    except DecodeError:
        raise DataError(f"{source} is not a tf.train.Example.") from None
    return {entry.key: _feature(entry.value) for entry in entries}


def _bulk(record: bytes) -> int:
    """Bytes of the record that are long values, as images are: they are copied once or twice, and do not become many objects.

    Nothing where the record is cut short; values behind the first so many fields are not looked for.
    """
    found, inside = 0, [(0, len(record))]
    for _ in range(_LOOKED_AT):
        while inside and inside[-1][0] == inside[-1][1]:
            inside.pop()
        if not inside:
            break
        at, stop = inside.pop()
        tag = record[at]
        if tag & 7 != _OF_A_LENGTH:  # numbers one by one
            inside.append((stop, stop))
            continue
        size, at = _varint(record, at + 1, stop)
        if at + size > stop:
            return 0
        inside.append((at + size, stop))
        if tag in _WAY[len(inside) - 1]:
            if len(inside) < len(_WAY):
                inside.append((at, at + size))
            elif size >= _LONG:
                found += size
    return found


def _varint(record: bytes, at: int, stop: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, and where it ends; one that does not end before `stop` is larger than what there is."""
    value = 0
    for k, byte in enumerate(record[at : min(at + 10, stop)]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at + k + 1
    return len(record) + 1, at


def _feature(value: Any) -> Feature:
    if value.HasField("float_list"):
        return np.array(value.float_list.value, np.float32)
    return np.array(value.int64_list.value, np.int64) if value.HasField("int64_list") else list(value.bytes_list.value)


@functools.cache
def _example() -> Any:
    """Make the class of `tf.train.Example`, with its map written as the repeated entries that it is on the wire."""
    file = FileDescriptorProto(name="d3ray/example.proto", package="d3ray", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind, repeated) in enumerate(fields, 1):
            label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
            what = {"type_name": f".d3ray.{kind}"} if isinstance(kind, str) else {"type": kind}
            message.field.add(name=field, number=number, label=label, **what)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("d3ray.Example"))


def _masked(data: bytes) -> int:
    """Turn and shift a CRC32C as TFRecord does, so that a record that holds checksums has another one."""
    checksum = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
