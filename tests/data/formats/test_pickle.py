"""The unpickler for strangers' files: what numpy pickles comes back equal, all else is refused before anything runs."""

from __future__ import annotations

import builtins
import collections
import datetime
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.untrusted.restricted_pickle import load, loads

PROTOCOLS = [0, 1, 2, 3, 4, 5]


class Calls:
    """Pickles to a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def same(a: Any, b: Any) -> bool:
    """Equal in type, value, dtype and shape, all the way down."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


VALUES = {
    "paths": [{"observation": np.arange(6.0).reshape(2, 3), "terminal": np.array([False, True]), "name": "é"}, {}],
    "dtypes": [
        np.array([0, 1, 2]).astype(code)
        for code in ("?", "i1", "<i2", ">i4", "i8", "u1", "u8", "f2", ">f4", "f8", "c8", "U3", "S2")
    ],
    "shapes": [np.zeros(()), np.zeros((0, 4)), np.zeros((2, 0)), np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(9)[::3]],
    "plain": [None, True, -1, 1 << 80, 1.5, "text", b"\x00\xff", bytearray(b"ab"), (1, [2, ()]), {1, 2}, frozenset({3})],
    "large": np.arange(100_000, dtype=np.float32),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", VALUES)
def test_arrays_and_plain_containers_come_back(name: str, protocol: int) -> None:
    value = VALUES[name]
    if protocol < 5 and name == "plain":
        value = [v for v in VALUES[name] if not isinstance(v, bytearray | set | frozenset)]  # calls of their classes
    assert same(loads(pickle.dumps(value, protocol)), value)


def test_names_of_numpy_1_and_2_are_known() -> None:
    data = pickle.dumps(np.arange(3.0), 2)
    assert b"numpy._core.multiarray" in data
    old = data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert loads(old).tolist() == loads(data).tolist() == [0, 1, 2]


def test_numpy_scalars_come_back_as_numbers() -> None:
    assert loads(pickle.dumps([np.float32(0.5), np.int64(7), np.bool_(True)])) == [0.5, 7, True]
    assert loads(pickle.dumps([np.float64(0.1)], 0)) == [0.1]


def test_what_is_shared_stays_shared() -> None:
    part = {"a": np.ones(2)}
    back = loads(pickle.dumps([part, part]))
    assert back[0] is back[1]
    assert back[0]["a"] is back[1]["a"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "builtins.getattr", "numpy.load", "Path.touch", "np.dtype.type"])
def test_nothing_is_run(tmp_path: Path, name: str, protocol: int) -> None:
    ran = tmp_path / "ran"
    call = {
        "os.system": Calls(os.system, f"touch {ran}"),
        "builtins.eval": Calls(builtins.eval, f"open({str(ran)!r}, 'w').close()"),
        "builtins.getattr": Calls(builtins.getattr, "x", "upper"),
        "numpy.load": Calls(np.load, str(ran)),
        "Path.touch": Calls(Path.touch, ran),
        "np.dtype.type": Calls(np.float64, 1.0),
    }[name]
    data = pickle.dumps([{"reward": np.ones(2)}, call], protocol)
    if name == "os.system":  # the pickle is what it claims to be
        pickle.loads(data)
        assert ran.exists()
        ran.unlink()
    with pytest.raises(DataError) as caught:
        loads(data, source="evil.pkl")
    assert not ran.exists()
    assert "evil.pkl" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_name_that_was_refused_is_named() -> None:
    with pytest.raises(DataError, match=r"names (posix|nt)\.system; only NumPy arrays and plain containers"):
        loads(pickle.dumps(Calls(os.system, "true")))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([{"a": 1}, None], dtype=object), "array of Python objects"),
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), "only arrays of numbers, booleans and text"),
        (np.array(["2020-01-01"], "datetime64[D]"), "only arrays of numbers, booleans and text"),
        (np.ma.array([1, 2], mask=[0, 1]), r"names numpy\.ma"),
        (collections.OrderedDict(a=1), r"names collections\.OrderedDict"),
        (datetime.date(2020, 1, 1), r"names datetime\.date"),
        (np.dtype("f8"), "a type or a function where data was expected"),
        (os.system, r"names (posix|nt)\.system"),
        (np.ndarray, "a type or a function where data was expected"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_other_objects_are_refused(value: Any, message: str, protocol: int) -> None:
    with pytest.raises(DataError, match=rf"{message}|its pickle uses NEWOBJ"):
        loads(pickle.dumps(value, protocol))


def test_an_array_of_objects_is_refused_before_its_objects_are_made(tmp_path: Path) -> None:
    hidden = np.empty(1, object)
    hidden[0] = Calls(os.system, f"touch {tmp_path / 'ran'}")
    with pytest.raises(DataError):
        loads(pickle.dumps(hidden))
    assert not (tmp_path / "ran").exists()


def by_hand(*parts: bytes) -> bytes:
    return b"\x80\x04" + b"".join(parts) + b"."


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def build_of_function() -> bytes:
    """`_reconstruct.__defaults__ = ()`, as a BUILD with a slot state would set it."""
    return by_hand(name("numpy.core.multiarray", "_reconstruct"), b"N", b"}\x8c\x0c__defaults__)s", b"\x86", b"b")


def array_state(shape: tuple[int, ...], data: bytes, code: str = "f8") -> bytes:
    """An array whose state says `shape` and holds `data`."""
    made = by_hand(name("numpy.core.multiarray", "_reconstruct"), name("numpy", "ndarray"), b"K\x00\x85C\x01b\x87R")[:-1]
    dtype = name("numpy", "dtype") + b"\x8c" + bytes([len(code)]) + code.encode() + b"\x85R"
    state = b"(K\x01" + pickle.dumps(shape, 2)[2:-1] + dtype + b"\x89" + b"C" + bytes([len(data)]) + data + b"t"
    return made + state + b"b."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (build_of_function(), "sets attributes of a function"),
        (array_state((2,), b"\0" * 8), r"shape \(2,\) and float64 with 8 bytes"),
        (array_state((1 << 40,), b"\0" * 8), "with 8 bytes"),
        (array_state((-1,), b"\0" * 8), r"shape \(-1,\)"),
        (array_state((1,), b"\0" * 8, "O"), "Python objects"),
        (array_state((1,), b"", "S0"), "entries have no size"),
        (array_state((1,), b"\0" * 8, "f8,f8"), "array of 'f8,f8'"),
        (by_hand(name("numpy", "ndarray"), b")R"), r"calls numpy\.ndarray"),
        (by_hand(b")", name("numpy", "dtype"), b"0", b"i"), "no pickle"),
        (by_hand(b"]\x940h\x00h\x00a"), "contains itself"),
        (by_hand(b"N", b"r" + struct.pack("<I", 0xFFFFFFF0)), "memo entry 4294967280"),
        (by_hand(b"\x96" + struct.pack("<Q", 1 << 60)), "no pickle"),
        (by_hand(b"Pname\n"), "uses PERSID"),
        (by_hand(b"\x82\x01"), "uses EXT1"),
        (by_hand(b"(ios\nsystem\n"), "uses INST"),
        (b"]" * 100_000 + b"a" * 99_999 + b".", "nested too deeply"),
        (b"", "no pickle"),
        (b"not a pickle", "no pickle"),
        (pickle.dumps(np.ones(1000))[:-600], "no pickle"),
    ],
)
def test_crafted_and_damaged_pickles_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        loads(data, source="crafted.pkl")
    assert str(caught.value).startswith("crafted.pkl ")
    assert "\n" not in str(caught.value)


def test_the_crafted_array_is_read_when_it_is_whole() -> None:
    assert loads(array_state((1, 2), np.array([1.0, 2.0]).tobytes())).tolist() == [[1, 2]]


def test_bytes_written_as_text_cannot_multiply() -> None:
    text = "a" * 10_000
    once = (
        name("_codecs", "encode")
        + b"\x94"
        + b"X"
        + struct.pack("<I", len(text))
        + text.encode()
        + b"\x94"
        + b"\x8c\x06latin1\x94\x86R"
    )
    assert loads(by_hand(once)) == text.encode()
    again = b"h\x00h\x01h\x02\x86R"
    with pytest.raises(DataError, match="more bytes than it has"):
        loads(by_hand(b"]\x94(".replace(b"\x94", b""), once, again * 50, b"e"))


def test_files_have_a_limit_and_errors_name_them(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    path.write_bytes(pickle.dumps({"a": np.arange(3)}))
    assert load(path)["a"].tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"data\.pkl has more than the 10 bytes"):
        load(path, max_bytes=10)
    with pytest.raises(DataError, match="There is no file"):
        load(tmp_path / "absent")
