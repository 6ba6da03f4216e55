"""Pickles of strangers: NumPy arrays, numbers, text and plain containers come out; anything else is refused, and nothing is run.

This is the only module of d3ray that imports `pickle`. No name in the file is ever looked up: the few that an array's pickle
needs stand for functions below, and everything else is an error before a single opcode runs.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
import reprlib  # what a file holds is shown with it: of tuples that share parts, repr would write each part again and again
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...errors import DataError, reason
from ..arrays import Array
from .archives import open_gzip
from .unpacking import needs

MAX_BYTES = 1 << 32
_OBJECT, _LOOKS = 64, 1 << 16  # bytes of what an opcode makes, about, and opcodes after which these are counted
MULTIARRAY, NUMERIC = ("numpy.core.multiarray", "numpy._core.multiarray"), ("numpy.core.numeric", "numpy._core.numeric")
# What may stand in a file: constants, containers, the memo, and three ways to name and make objects, all through `find_class`.
# fmt: off
OPCODES = frozenset([
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "NONE", "NEWTRUE", "NEWFALSE", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8", "FLOAT", "BINFLOAT", "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET", "POP", "DUP", "MARK", "POP_MARK",
    "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
    "PROTO", "STOP", "FRAME",
])
# fmt: on
Names = Mapping[tuple[str, str], Any]  # by module and name: what is called in its place
Persistent = Callable[[Any], Any]
KINDS = re.compile(r"[?biufcSU]\d*|b1")  # type codes of numbers, booleans and text of fixed width


class RefusedError(Exception):
    """Reason for refusal, as the end of a sentence that begins with the file's name. Raised by stand-ins for names."""


class KeptObject:
    """An object of a class that is not imported: its state is kept, as plain as the rest of the pickle, and nothing is run.

    Where a class is given in `names` this may stand for it: then the pickle makes objects of it as it would of that class.
    """

    __slots__ = ("state",)

    def __new__(cls, *arguments: Any) -> Self:  # what the class would have been given
        del arguments
        made = super().__new__(cls)
        made.state = None
        return made

    state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state


def load(path: Path | str, *, max_bytes: int = MAX_BYTES, names: Names | None = None) -> Any:
    """Read a pickle of arrays, Python's numbers, text, bytes, None, and lists, tuples, dicts and sets of these from a file.

    Sets and bytearrays are read where pickle writes them without naming a class: since protocol 4 and 5. NumPy scalars come back
    as Python's numbers. Arrays may be views of the file's bytes and then are read-only. Memory stays within a small multiple of the
    file's size, and one of more than `max_bytes` is refused. `names`: see `loads`.
    """
    with open_gzip(path) as stream:
        data = io.BytesIO()
        while part := stream.read(1 << 20):  # a read of so many makes room for all of them first
            data.write(part)
            if data.tell() > max_bytes:
                raise DataError(f"{path} has more than the {max_bytes:,} bytes that are allowed for a pickle.")
    return loads(data.getvalue(), source=str(path), names=names)


def loads(data: bytes, *, source: str = "the pickle", names: Names | None = None, persistent: Persistent | None = None) -> Any:
    """Read a pickle from bytes, as `load`.

    `names` are further ones that it may contain, each with what is called in its place; if `KeptObject` is one of these,
    arrays of objects are lists. `persistent` resolves a reference to something outside the pickle; None: there may be none.
    """
    try:
        more = {"NEWOBJ"} if _keeps_objects(names or {}) else set[str]()
        _scan(data, OPCODES | more | (set() if persistent is None else {"BINPERSID"}), source)
        return _plain(_Unpickler(data, names or {}, persistent).load(), {})
    except RefusedError as error:
        raise DataError(f"{source} {error}") from None
    except DataError:
        raise
    except RecursionError:
        raise DataError(f"{source} is nested too deeply.") from None
    except MemoryError:
        raise DataError(f"{source} does not fit into memory.") from None
    except Exception as error:  # a damaged pickle fails in any way there is
        raise DataError(f"{source} is no pickle that can be read ({reason(error)}).") from None


def _keeps_objects(names: Names) -> bool:
    return any(found is KeptObject for found in names.values())


def _scan(data: bytes, opcodes: frozenset[str], source: str) -> None:
    """Look at the opcodes before any runs: none makes objects by another way, and the memo is no larger than the file."""
    for k, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if not k % _LOOKS:
            needs(source, k * _OBJECT)
        if opcode.name not in opcodes:
            raise RefusedError(f"holds more than arrays and plain containers (its pickle uses {opcode.name}).")
        # The C unpickler makes room for as many memo entries as the index says.
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(argument, int) and argument > len(data):
            raise RefusedError(f"is damaged: memo entry {argument} in {len(data)} bytes.")


class _Unpickler(pickle.Unpickler):
    """`find_class` is the one way from a pickle to code: it knows a few names and looks none of them up."""

    def __init__(self, data: bytes, names: Names, persistent: Persistent | None) -> None:
        super().__init__(io.BytesIO(data))
        self._allowed = {**ALLOWED, ("_codecs", "encode"): _Encoder(len(data)), **names}
        if _keeps_objects(names):
            self._allowed["numpy", "dtype"] = _AnyDtype
        self._persistent = persistent

    def find_class(self, module: str, name: str, /) -> Any:
        if (found := self._allowed.get((module, name))) is None:
            raise RefusedError(f"names {module}.{name}; only NumPy arrays and plain containers are read from a pickle.")
        return found if found is KeptObject else _Name(found)  # NEWOBJ takes a class alone

    def persistent_load(self, pid: Any, /) -> Any:
        if self._persistent is None or not isinstance(pid, tuple):
            raise RefusedError("refers to something outside of it.")
        return self._persistent(tuple(part.stands_for if isinstance(part, _Name) else part for part in pid))


class _Name:
    """Stand-in for a name in the pickle. It may only be called: a BUILD cannot set attributes of it."""

    __slots__ = ("stands_for",)

    def __init__(self, stands_for: Any) -> None:
        self.stands_for = stands_for

    def __call__(self, *arguments: Any) -> Any:
        return self.stands_for(*arguments)

    def __setstate__(self, state: object) -> None:
        raise RefusedError("sets attributes of a function.")


class _Dtype:
    """A dtype being unpickled; only numbers, booleans and text of fixed width."""

    __slots__ = ("dtype",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        if not isinstance(code, str) or not KINDS.fullmatch(code):
            what = "Python objects" if isinstance(code, str) and code.startswith("O") else reprlib.repr(code)
            raise RefusedError(f"holds an array of {what}; only arrays of numbers, booleans and text are read.")
        self.dtype = np.dtype(code)
        if not self.dtype.itemsize:
            raise RefusedError("holds an array whose entries have no size.")

    def __setstate__(self, state: Any) -> None:
        _, order, subarray, names, fields, *_ = state
        if subarray is not None or names is not None or fields is not None:
            raise RefusedError("holds an array of records; only arrays of numbers, booleans and text are read.")
        if order not in ("<", ">", "|", "="):
            raise RefusedError(f"names a byte order {reprlib.repr(order)}.")
        self.dtype = self.dtype.newbyteorder(order)


class _AnyDtype(_Dtype):
    """One that may also be of objects; an array of those is the list of them."""

    __slots__ = ()

    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        if code in ("O8", "O"):
            self.dtype = np.dtype(object)
        else:
            super().__init__(code, align, copy)

    def __setstate__(self, state: Any) -> None:
        if self.dtype != np.dtype(object):
            super().__setstate__(state)


class HeldArray:
    """An array being unpickled; `value` once its state has been set."""

    __slots__ = ("value",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, value: Array | list[Any] | None = None) -> None:
        self.value = value

    def __setstate__(self, state: Any) -> None:
        *_, shape, dtype, fortran, data = state
        if isinstance(dtype, _AnyDtype) and dtype.dtype == np.dtype(object) and isinstance(data, list):
            self.value = data
            return
        self.value = _view(data, dtype, shape, "F" if fortran else "C")


def _view(data: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """View the bytes of the pickle as an array: shape, dtype and bytes must agree, so nothing larger than the file is made."""
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
        raise RefusedError("holds an array whose parts are not bytes, a dtype and a shape.")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
        raise RefusedError(f"holds an array of shape {reprlib.repr(shape)}.")
    if math.prod(shape) * dtype.dtype.itemsize != len(data):
        raise RefusedError(f"holds an array of shape {shape} and {dtype.dtype} with {len(data)} bytes.")
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=order) if data else np.zeros(shape, dtype.dtype)


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any, axis_order: Any = None) -> HeldArray:
    if axis_order is not None:
        raise RefusedError("holds an array with its axes in an unusual order; save it with np.ascontiguousarray.")
    return HeldArray(_view(data, dtype, shape, order))


def _reconstruct(kind: Any, shape: Any, code: Any) -> HeldArray:
    if not isinstance(kind, _Name) or kind.stands_for is not _ndarray:
        raise RefusedError("holds an array of an unknown class.")
    return HeldArray()


def _scalar(dtype: Any, data: Any = b"") -> Any:
    return _view(data.encode("latin1") if isinstance(data, str) else data, dtype, (), "C").item()


class _Encoder:
    """How Python 2, and protocol 2 since, write bytes: as text. Together they cannot be more than the file has."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def __call__(self, text: Any, encoding: Any) -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise RefusedError(f"encodes text as {reprlib.repr(encoding)}.")
        self._budget -= len(text)
        if self._budget < 0:
            raise RefusedError("makes more bytes than it has.")
        return text.encode("latin1")


def _no_bytes(*arguments: Any) -> bytes:
    """Make b"" as protocols 0 to 2 write it."""
    if arguments:
        raise RefusedError("makes bytes in an unusual way.")
    return b""


def _ndarray(*arguments: Any) -> Any:
    raise RefusedError("calls numpy.ndarray; arrays are written by numpy's own pickling.")


ALLOWED: dict[tuple[str, str], Any] = {
    **{(module, "_reconstruct"): _reconstruct for module in MULTIARRAY},
    **{(module, "scalar"): _scalar for module in MULTIARRAY},
    **{(module, "_frombuffer"): _frombuffer for module in NUMERIC},
    **{(module, "bytes"): _no_bytes for module in ("builtins", "__builtin__")},
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Dtype,
}


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """Put arrays in place of `HeldArray`s; what was shared stays shared, and what holds itself is refused."""
    if isinstance(value, HeldArray):
        if value.value is None:
            raise RefusedError("holds an array without its values.")
        if not isinstance(value.value, list):
            return value.value
        value = value.value
    if isinstance(value, _Dtype | _Name):
        raise RefusedError("holds a type or a function where data was expected.")
    if not isinstance(value, list | tuple | dict | set | frozenset | KeptObject):
        return value
    if id(value) in done:
        if done[id(value)] is None:
            raise RefusedError("holds a container that contains itself.")
        return done[id(value)]
    done[id(value)] = None
    if isinstance(value, KeptObject):
        value.state = _plain(value.state, done)
        result: Any = value
    elif isinstance(value, dict):
        result = {_plain(k, done): _plain(v, done) for k, v in value.items()}
    else:
        result = type(value)(_plain(v, done) for v in value)
    done[id(value)] = result
    return result
