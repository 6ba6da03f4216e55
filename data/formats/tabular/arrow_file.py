"""Arrow files of strangers: their buffers may be compressed, and nothing that they say of themselves is taken on trust."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..untrusted.unpacking import needs, unpacking, unpacks

_MAGIC = 8  # bytes before the messages of a file, which are those of a stream
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3  # fields of Message, DictionaryBatch, RecordBatch in Message.fbs


def read_arrow(path: Path) -> Any:
    """Read the table in a file, once its buffers are known to unpack to no more than may be made of it."""
    with unpacking(path), pa.memory_map(str(path)) as file:
        file.seek(_MAGIC)
        for message in pa.ipc.MessageReader.open_stream(file):
            unpacks(str(path), _unpacked(message))
        file.seek(_MAGIC)
        with pa.ipc.open_stream(file) as reader:
            table = reader.read_all()
    needs(str(path), table.nbytes)
    table.validate(full=True)
    return table


def _unpacked(message: Any) -> int:
    """Count bytes of a message's buffers; of compressed ones what they declare, as whoever unpacks them believes."""
    body, about = message.body, memoryview(message.metadata)
    if not body:
        return 0
    batch = _table(about, _follow(about, _table(about, _follow(about, 0))(_HEADER)))
    if message.type == "dictionary":
        batch = _table(about, _follow(about, batch(_DATA)))
    if not batch(_COMPRESSION):
        return body.size
    start, held, total = _follow(about, batch(_BUFFERS)), memoryview(body), 0
    for k in range(struct.unpack_from("<I", about, start)[0]):
        offset, length = struct.unpack_from("<qq", about, start + 4 + 16 * k)
        said = struct.unpack_from("<q", held, offset)[0] if length >= 8 else 0
        total += length if said < 0 else said
    return total


def _follow(about: memoryview, place: int) -> int:
    """Follow an offset in FlatBuffers."""
    return place + struct.unpack_from("<i", about, place)[0]


def _table(about: memoryview, at: int) -> Callable[[int], int]:
    """Read a table of FlatBuffers: a function gives the place of a field's value by its number, 0 where it is not there."""
    fields = at - struct.unpack_from("<i", about, at)[0]
    size = struct.unpack_from("<H", about, fields)[0]

    def place(number: int) -> int:
        here = 4 + 2 * number
        found = struct.unpack_from("<H", about, fields + here)[0] if here + 2 <= size else 0
        return at + found if found else 0

    return place
