"""TFRecord files and the `tf.train.Example`s in them, read without TensorFlow.

A file is a row of records: length (8 bytes, little-endian), masked CRC32C of the length, the bytes, masked CRC32C of the bytes.
An Example is a protobuf message that maps names to lists of bytes, of float32 or of int64. Both checksums are compared, and the
message is read by its wire format: a packed list of floats is the very memory of an array.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np

from ...errors import DataError
from ..imported import Array, existing_file

Feature = list[bytes] | Array  # bytes, or [n] float32, or [n] int64

_HEAD = struct.Struct("<QI")  # length and its checksum
_CHECKSUM = struct.Struct("<I")
_LONGEST = 10  # bytes of a varint


def is_tfrecord(path: Path) -> bool:
    """Whether the file begins with a record's length and the checksum of that length."""
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
    return len(head) == _HEAD.size and _masked(head[:8]) == _HEAD.unpack(head)[1]


def records(path: Path | str) -> Iterator[bytes]:
    """The records of a file, in order.

    Raises:
        DataError: the file is cut short, or a checksum is not that of what it covers; the record is named.
    """
    path = existing_file(path)
    left = path.stat().st_size
    with path.open("rb") as file:
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
    """The features of a serialised `tf.train.Example`, by name.

    Args:
        record: the bytes.
        source: what an error names.

    Raises:
        DataError: the bytes are no Example.
    """
    found: dict[str, Feature] = {}
    try:
        for features in _messages(memoryview(record), 1):
            for entry in _messages(features, 1):
                parts = dict(_fields(entry))
                found[bytes(_block(parts, 1)).decode()] = _feature(_block(parts, 2))
    except (_DamagedError, UnicodeDecodeError):
        raise DataError(f"{source} is not a tf.train.Example.") from None
    return found


class _DamagedError(Exception):
    pass


def _masked(data: bytes) -> int:
    """CRC32C, turned and shifted as TFRecord does, so that a record that holds checksums has another one."""
    checksum = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _feature(data: memoryview) -> Feature:
    for number, value in _fields(data):
        match number:
            case 1:
                return [bytes(item) for item in _messages(_as_block(value), 1)]
            case 2:
                return np.concatenate([np.zeros(0, np.float32), *map(_floats, _values(value))])
            case 3:
                return np.concatenate([np.zeros(0, np.int64), *map(_integers, _values(value))])
            case _:
                raise _DamagedError
    return []


def _values(value: int | memoryview) -> Iterator[int | memoryview]:
    """What stands in a list of numbers: packed blocks of them, or single ones."""
    return (v for number, v in _fields(_as_block(value)) if number == 1)


def _floats(value: int | memoryview) -> Array:
    if isinstance(value, int):
        value = memoryview(value.to_bytes(8, "little").rstrip(b"\0").ljust(4, b"\0"))
    if len(value) % 4:
        raise _DamagedError
    return np.frombuffer(value, "<f4")


def _integers(value: int | memoryview) -> Array:
    """Packed varints: seven bits a byte, lowest first, the highest bit set where more bytes follow."""
    if isinstance(value, int):
        return np.array([value], np.uint64).view(np.int64)
    data = np.frombuffer(value, np.uint8)
    last = np.flatnonzero(data < 128)
    if len(last) == len(data):
        return data.astype(np.int64)
    first = np.r_[0, last[:-1] + 1]
    if not last.size or last[-1] != len(data) - 1 or (last - first).max() >= _LONGEST:
        raise _DamagedError
    position = np.arange(len(data)) - np.repeat(first, last - first + 1)
    return np.bitwise_or.reduceat((data & 127).astype(np.uint64) << (7 * position).astype(np.uint64), first).view(np.int64)


def _messages(data: memoryview, number: int) -> Iterator[memoryview]:
    return (_as_block(value) for n, value in _fields(data) if n == number)


def _block(parts: dict[int, int | memoryview], number: int) -> memoryview:
    return _as_block(parts.get(number, memoryview(b"")))


def _as_block(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise _DamagedError
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of a message, which must end with its last one."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        match tag & 7:
            case _ if tag < 8:  # fields count from 1
                raise _DamagedError
            case 0:  # wire types: 0 a varint, 2 a length and bytes, 1 and 5 eight and four bytes
                value, at = _varint(data, at)
            case 2:
                size, at = _varint(data, at)
                value = data[at : at + size]
                at += size
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                value = int.from_bytes(data[at : at + size], "little")
                at += size
            case _:
                raise _DamagedError
        if at > end:
            raise _DamagedError
        yield tag >> 3, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _LONGEST, 7):
        if at >= len(data):
            raise _DamagedError
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise _DamagedError
