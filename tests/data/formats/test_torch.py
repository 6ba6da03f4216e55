"""Files of torch.save, read without torch's unpickler: tensors come back equal, and nothing in a file is run."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from d3ray.data.errors import DataError
from d3ray.data.formats.untrusted.torch_archive import read_torch


def saved(value: Any) -> bytes:
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


class Calls:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


WHOLE = saved({"weight": torch.arange(12.0).reshape(3, 4), "step": torch.tensor(3)})


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
    found = read_torch(saved(tensors), source="a")
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.numpy().dtype, name
        assert np.array_equal(found[name], tensor.numpy()), name


def test_the_state_of_modules_and_optimisers_comes_back() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.5)
    module(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    found = read_torch(saved({"module": module.state_dict(), "optim": optimizer.state_dict()}), source="a")
    assert found["module"].keys() == module.state_dict().keys()
    assert all(np.array_equal(found["module"][name], tensor.numpy()) for name, tensor in module.state_dict().items())
    assert found["optim"]["param_groups"][0]["lr"] == 0.5
    assert float(found["optim"]["state"][0]["step"]) == 1
    assert type(read_torch(saved(OrderedDict(a=1)), source="a")) is dict


@pytest.mark.parametrize("function", ["os.system", "torch.load", "builtins.eval"])
def test_nothing_is_run(tmp_path: Any, function: str) -> None:
    ran = tmp_path / "ran"
    call = {
        "os.system": Calls(os.system, f"touch {ran}"),
        "torch.load": Calls(torch.load, str(ran)),
        "builtins.eval": Calls(eval, f"open({str(ran)!r}, 'w').close()"),
    }[function]
    with pytest.raises(DataError, match=r"^evil names .*; only NumPy arrays and plain containers") as caught:
        read_torch(saved({"weight": torch.ones(2), "extra": call}), source="evil")
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
    return rewritten(saved({"weight": torch.arange(4.0)}), {"data.pkl": data})


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
