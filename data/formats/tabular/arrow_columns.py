"""Arrow columns of strangers as arrays, and Arrow files, of which nothing that they say of themselves is taken on trust."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ...storage.json_text import parse_json
from ..arrays import Array
from ..untrusted.unpacking import needs, unpacking, unpacks

EXTENSION = b"ARROW:extension:metadata"  # where a field's metadata keeps what an extension type that is not registered says


def array_of(source: str, name: str, column: Any, field: Any) -> Array | dict[str, Any]:
    """[N, ...] of a column, or a dict of such arrays for a struct.

    Lists must be of one length; lists of lists become more axes, tensors get their shape. Bytes of one length become uint8.
    Ray's tensors are read from their storage, whether Ray has registered them or not, so nothing of theirs is run.
    """
    whole = column.combine_chunks()
    chunk = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    return _array(f"{source}: column {name!r}", chunk, field)


def _array(where: str, array: Any, field: Any) -> Array | dict[str, Any]:
    kind, n = array.type, len(array)
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{where} has no value in row {row}.")
    if isinstance(kind, pa.FixedShapeTensorType):
        return array.to_numpy_ndarray()
    shape = _shape(kind, field)
    if isinstance(kind, pa.BaseExtensionType):
        array = array.storage
        kind = array.type
    if pa.types.is_struct(kind):
        children = [kind.field(i) for i in range(kind.num_fields)]
        parts = {c.name: _array(f"{where}.{c.name}", child, c) for c, child in zip(children, array.flatten(), strict=True)}
        data, shapes = parts.get("data"), parts.get("shape")
        if parts.keys() == {"data", "shape"} and isinstance(data, np.ndarray) and isinstance(shapes, np.ndarray):
            if len(np.unique(shapes, axis=0)) > 1:  # Ray's tensor of variable shape
                raise DataError(f"{where} has entries of different shapes.")
            return _shaped(where, data, tuple(shapes[0].tolist()) if n else ())
        return parts
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        size = _length(where, array.value_lengths().to_numpy(zero_copy_only=False))
        values = _array(where, array.flatten(), kind.value_field)
        if isinstance(values, dict):
            raise DataError(f"{where} has lists of structs; arrays of numbers are needed.")
        return _shaped(where, values.reshape(n, size, *values.shape[1:]), shape)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if pa.types.is_fixed_size_binary(kind):
            starts = (array.offset + np.arange(n + 1)) * kind.byte_width
        else:
            array = array.cast(pa.large_binary())
            starts = np.frombuffer(array.buffers()[1], np.int64)[array.offset :][: n + 1]
        size = _length(where, np.diff(starts))
        values = np.frombuffer(array.buffers()[-1] or b"", np.uint8)[starts[0] : starts[-1]]
        return _shaped(where, values.reshape(n, size), shape)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{where} holds {kind}, not numbers.")
    return array.to_numpy(zero_copy_only=False)


def _length(where: str, lengths: Array) -> int:
    if len(lengths) and (other := np.flatnonzero(lengths != lengths[0])).size:
        raise DataError(f"{where} has {lengths[other[0]]} entries in row {other[0]} and {lengths[0]} in row 0.")
    return int(lengths[0]) if len(lengths) else 0


def _shape(kind: Any, field: Any) -> tuple[int, ...] | None:
    """Return what an extension type, or the trace of one that is not registered, says of an entry's shape."""
    shape: Any = getattr(kind, "shape", None) if isinstance(kind, pa.BaseExtensionType) else None
    if shape is None and (said := (field.metadata or {}).get(EXTENSION)):
        try:
            shape = parse_json(said)
            shape = shape.get("shape") if isinstance(shape, dict) else shape
        except ValueError:
            return None
    ok = isinstance(shape, list | tuple) and all(isinstance(k, int) and k >= 0 for k in shape)
    return tuple(shape) if ok and shape is not None else None


def _shaped(where: str, values: Array, shape: tuple[int, ...] | None) -> Array:
    if shape is None:
        return values
    if math.prod(shape) != values[0:1].size and len(values):
        raise DataError(f"{where} has entries of {values[0].size} numbers, and its type says the shape {list(shape)}.")
    return values.reshape(len(values), *shape)


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
