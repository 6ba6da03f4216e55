"""What `torch.save` wrote, without torch's unpickler: tensors come out as NumPy arrays, and nothing in the file is run.

Such a file is a ZIP archive of uncompressed members: `NAME/data.pkl`, a pickle in which each tensor is a call of
`torch._utils._rebuild_tensor_v2` over a storage that it refers to by number, and `NAME/data/NUMBER`, the numbers' bytes. The pickle
is read by `restricted_pickle`, to which only those names mean something.
"""

from __future__ import annotations

import io
import math
import reprlib
import zipfile
from typing import Any

import numpy as np

from ...errors import DataError, reason
from ..arrays import Array
from . import restricted_pickle
from .restricted_pickle import HeldArray, RefusedError

# fmt: off
_TYPES = {
    "FloatStorage": "f4", "DoubleStorage": "f8", "HalfStorage": "f2", "LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2",
    "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?",
}
# fmt: on


def read_torch(data: bytes, *, source: str) -> Any:
    """Return what was given to `torch.save`: dicts, lists, tuples, numbers and text, with arrays in place of tensors."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if any(m.compress_type != zipfile.ZIP_STORED for m in members) or sum(m.file_size for m in members) > len(data):
                raise DataError(
                    f"{source} is no file of torch.save: its members are compressed or overlap."
                )  # they could fill the memory
            parts = {member.filename: archive.read(member) for member in members}  # compares each with its CRC-32
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{source} is damaged, or no file of torch.save ({reason(error)}).") from None
    roots = [name.removesuffix("/data.pkl") for name in parts if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise DataError(f"{source} is no file of torch.save: it has {len(roots)} members named data.pkl.")
    (root,) = roots
    if parts.get(f"{root}/byteorder", b"little") != b"little":
        raise DataError(f"{source} was written on a machine with another byte order.")

    def storage(pid: Any) -> _Storage:
        kind, of, key, _, _ = pid
        if kind != "storage" or not isinstance(of, _Type) or not isinstance(key, str):
            raise RefusedError(f"refers to {reprlib.repr(kind)}, which is no tensor's storage.")
        held = parts.get(f"{root}/data/{key}")
        if held is None:
            raise RefusedError(f"lacks the storage {key} of a tensor.")
        return _Storage(np.frombuffer(held, of.dtype))

    return restricted_pickle.loads(parts[f"{root}/data.pkl"], source=source, names=_NAMES, persistent=storage)


class _Type:
    """A storage's class, which says what its numbers are. It may not be called."""

    def __init__(self, code: str) -> None:
        self.dtype = np.dtype(code)

    def __call__(self, *arguments: Any) -> Any:
        raise RefusedError("makes a storage of its own.")


class _Storage:
    """The numbers of one or more tensors."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers

    def __setstate__(self, state: object) -> None:
        raise RefusedError("sets attributes of a storage.")


class _Ordered(dict[Any, Any]):
    """An `OrderedDict`; its attributes (torch keeps versions of modules there) are left out."""

    def __init__(self, *arguments: Any) -> None:
        if arguments:  # each call with a dict would copy it, so a small file could fill the memory
            raise RefusedError("makes an OrderedDict of something; torch.save writes empty ones that it fills.")
        super().__init__()

    def __setstate__(self, state: object) -> None:
        del state


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *others: Any) -> HeldArray:
    """Make a tensor over its storage, within which every entry lies, and which has no fewer entries."""
    numbers = [offset, *size, *stride]
    if not isinstance(storage, _Storage) or not all(type(n) is int and n >= 0 for n in numbers) or len(size) != len(stride):
        raise RefusedError(f"holds a tensor of size {reprlib.repr(size)} and stride {reprlib.repr(stride)}.")
    count = math.prod(size)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if count else offset
    if count > len(storage.numbers) or last >= len(storage.numbers) + (not count) or len(size) > 32:
        raise RefusedError(f"holds a tensor of size {reprlib.repr(size)} at {offset} of {len(storage.numbers)} numbers.")
    width = storage.numbers.itemsize
    return HeldArray(
        np.lib.stride_tricks.as_strided(storage.numbers[offset:], size, [step * width for step in stride], writeable=False)
    )


_NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Ordered,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    **{("torch", name): _Type(code) for name, code in _TYPES.items()},
}
