"""The unpicklers for strangers' files: what numpy and torch write comes back equal, all else is refused before anything runs."""

from __future__ import annotations

import builtins
import collections
import datetime
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray.data.errors import DataError
from d3ray.data.formats.untrusted.restricted_pickle import load, loads
from d3ray.data.formats.untrusted.torch_archive import read_torch

from .bombs import Calls

PROTOCOLS = [0, 1, 2, 3, 4, 5]


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


def saved_by_torch(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def rewritten(data: bytes, change: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """The archive with some members replaced, by the end of their names."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, next((part for end, part in change.items() if name.endswith(end)), old.read(name)))
    return stream.getvalue()


WHOLE = saved_by_torch({"weight": torch.arange(12.0).reshape(3, 4), "step": torch.tensor(3)})


def test_tensors_come_back_whatever_their_layout() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors: dict[str, Any] = {
        "turned": base.t(),
        "part": base[1:, 2:],
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(5),
        "double": base.double(),
        "flags": torch.tensor([True, False]),
        "bytes": torch.arange(3, dtype=torch.uint8),
    }
    found = read_torch(saved_by_torch(tensors), source="a")
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.numpy().dtype, name
        assert np.array_equal(found[name], tensor.numpy()), name


def test_the_state_of_modules_and_optimisers_comes_back() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.5)
    module(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    found = read_torch(saved_by_torch({"module": module.state_dict(), "optim": optimizer.state_dict()}), source="a")
    assert found["module"].keys() == module.state_dict().keys()
    assert all(np.array_equal(found["module"][name], tensor.numpy()) for name, tensor in module.state_dict().items())
    assert found["optim"]["param_groups"][0]["lr"] == 0.5
    assert float(found["optim"]["state"][0]["step"]) == 1
    assert type(read_torch(saved_by_torch(OrderedDict(a=1)), source="a")) is dict


@pytest.mark.parametrize("function", ["os.system", "torch.load", "builtins.eval"])
def test_nothing_in_torchs_archives_is_run(tmp_path: Any, function: str) -> None:
    ran = tmp_path / "ran"
    call = {
        "os.system": Calls(os.system, f"touch {ran}"),
        "torch.load": Calls(torch.load, str(ran)),
        "builtins.eval": Calls(eval, f"open({str(ran)!r}, 'w').close()"),
    }[function]
    with pytest.raises(DataError, match=r"^evil names .*; only NumPy arrays and plain containers") as caught:
        read_torch(saved_by_torch({"weight": torch.ones(2), "extra": call}), source="evil")
    assert not ran.exists()
    assert "\n" not in str(caught.value)


def tensor_pickle(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, key: str = "0", kind: str = "FloatStorage"
) -> bytes:
    """A pickle of one tensor over four numbers, written by hand."""
    reference = b"(X\x07\x00\x00\x00storage" + f"ctorch\n{kind}\n".encode() + pickle.dumps(key, 2)[2:-1]
    reference += pickle.dumps("cpu", 2)[2:-1] + b"K\x04tQ"
    arguments = (
        b"(" + reference + pickle.dumps(offset, 2)[2:-1] + pickle.dumps(size, 2)[2:-1] + pickle.dumps(stride, 2)[2:-1] + b"\x89Nt"
    )
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R."


def crafted(data: bytes) -> bytes:
    return rewritten(saved_by_torch({"weight": torch.arange(4.0)}), {"data.pkl": data})


def test_the_crafted_tensor_is_read_when_it_is_whole() -> None:
    assert read_torch(crafted(tensor_pickle((2, 2), (2, 1))), source="a").tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (crafted(tensor_pickle((5,), (1,))), r"size \(5,\) at 0 of 4 numbers"),
        (crafted(tensor_pickle((2, 2), (3, 1), 1)), r"size \(2, 2\) at 1 of 4"),
        (crafted(tensor_pickle((1 << 40,), (0,))), "of 4 numbers"),
        (crafted(tensor_pickle((2,), (-1,))), r"stride \(-1,\)"),
        (crafted(tensor_pickle((2,), (1,), key="7")), "lacks the storage 7"),
        (crafted(tensor_pickle((2,), (1,), kind="BFloat16Storage")), r"names torch\.BFloat16Storage"),
        (crafted(b"\x80\x02X\x01\x00\x00\x00aQ."), "refers to something outside"),
        (crafted(b"\x80\x02ctorch\nFloatStorage\n)R."), "makes a storage of its own"),
        (crafted(b"\x80\x02ccollections\nOrderedDict\n}\x85R."), "makes an OrderedDict of something"),
        (rewritten(WHOLE, {}, zipfile.ZIP_DEFLATED), "compressed"),
        (rewritten(WHOLE, {"byteorder": b"big"}), "another byte order"),
        (WHOLE[:-40], "damaged, or no file of torch.save"),
        (WHOLE.replace(np.float32(11).tobytes(), np.float32(12).tobytes()), "damaged.*CRC"),
        (b"not an archive", "damaged, or no file of torch.save"),
        (b"", "damaged, or no file of torch.save"),
    ],
)
def test_crafted_and_damaged_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_torch(data, source="crafted")
    assert str(caught.value).startswith("crafted ")
    assert "\n" not in str(caught.value)


SHARED = b"K\x01" + b"2\x86" * 18  # a pair of one pair twice, and so on: 18 deep, 2^18 numbers when written out


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00" + SHARED + b")tR.", "holds a tensor of size"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00)" + SHARED + b"tR.", "holds a tensor of size"),
        (b"(" + SHARED + b"NNNNtQ.", "which is no tensor's storage"),
        (b"cnumpy\ndtype\n" + SHARED + b"\x85R.", "holds an array of"),
        (b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85R(N" + SHARED + b"NNNtb.", "names a byte order"),
        (b"c_codecs\nencode\nX\x01\x00\x00\x00a" + SHARED + b"\x86R.", "encodes text as"),
        (
            b"cnumpy.core.numeric\n_frombuffer\n(B\x01\x00\x00\x00acnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R"
            + SHARED
            + b"X\x01\x00\x00\x00CtR.",
            "holds an array of shape",
        ),
    ],
)
def test_what_shares_its_parts_is_not_written_out(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_torch(crafted(b"\x80\x03" + data), source="crafted")
    assert len(str(caught.value)) < 2000


def test_an_archive_without_a_pickle_is_no_file_of_torch_save() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("readme", "x")
    with pytest.raises(DataError, match=r"has 0 members named data\.pkl"):
        read_torch(stream.getvalue(), source="a")
