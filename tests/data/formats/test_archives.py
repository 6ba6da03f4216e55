"""Hostile and damaged archives, and files that unpack to what fills a memory: refused in one sentence, before it is taken."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import read
from d3ray.data.formats.untrusted import unpacking
from d3ray.data.formats.untrusted.archives import head, open_archive, open_gzip

from .bombs import HOLLOW, LYING, SQUEEZED, Bomb, flat, hdf5_without_a_chunk


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files may unpack to 20 times their size, or to 64 KiB."""
    monkeypatch.setattr(unpacking, "SMALL", 1 << 16)
    monkeypatch.setattr(unpacking, "RATIO", 20)


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, compression)
    return path


GOOD = {"a/one.txt": b"first", "b.txt": b"second" * 100}


def test_members_by_name(tmp_path: Path) -> None:
    with open_archive(zipped(tmp_path / "file", GOOD)) as archive:
        assert archive.names == list(GOOD)
        assert {name: archive.read(name) for name in reversed(archive.names)} == GOOD
        with archive.open("b.txt") as stream:
            assert stream.read(6) == b"second"
        with pytest.raises(DataError, match=r"file has no 'c\.txt'\.$"):
            archive.read("c.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_name_is_only_a_word(tmp_path: Path) -> None:
    """Names that leave the folder, and a link: nothing is written or followed, so they are members like others."""
    outside, inside = tmp_path / "secret", tmp_path / "in"
    outside.write_text("secret")
    inside.mkdir()
    path = zipped(inside / "file", {"../up.txt": b"up", str(outside): b"mine", "a/../../b": b"b"})
    with zipfile.ZipFile(path, "a") as file:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        file.writestr(link, str(outside))
    with open_archive(path) as archive:
        assert [archive.read(name) for name in archive.names] == [b"up", b"mine", b"b", str(outside).encode()]
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")) == ["in", "in/file", "secret"]


@pytest.mark.usefixtures("little")
def test_bombs(tmp_path: Path) -> None:
    refused = r"^\S+ unpacks to 262 kB or more, and \d+ bytes are stored: 65\.5 kB is the most that is made of it\. If you trust"
    with open_archive(zipped(tmp_path / "a", {"zeros": bytes(1 << 18)})) as archive, pytest.raises(DataError, match=refused):
        archive.read("zeros")
    with open_archive(tmp_path / "a") as archive, archive.open("zeros") as stream, pytest.raises(DataError, match="unpacks to 1"):
        stream.read(1 << 17)
    (tmp_path / "c").write_bytes(gzip.compress(bytes(1 << 20)))
    with open_gzip(tmp_path / "c") as stream, pytest.raises(DataError, match=r"unpacks to \d+\.\d kB"):
        stream.read()
    with open_archive(zipped(tmp_path / "e", {"zeros": bytes(1 << 15)})) as archive:
        assert len(archive.read("zeros")) == 1 << 15  # small enough to be let through whatever the ratio


def test_members_that_share_their_bytes(tmp_path: Path) -> None:
    """A zip whose list names one member's bytes a hundred times, under a hundred names."""
    data = zipped(tmp_path / "file", {"aaa": bytes(range(256)) * 40}, zipfile.ZIP_STORED).read_bytes()
    start = data.index(b"PK\x01\x02")
    stop = data.index(b"PK\x05\x06")
    entry = data[start:stop]
    entries = b"".join(entry.replace(b"aaa", b"%03d" % k) for k in range(100))
    end = bytearray(data[stop:])
    end[8:12] = (100).to_bytes(2, "little") * 2
    end[12:16] = len(entries).to_bytes(4, "little")
    (tmp_path / "file").write_bytes(data[:start] + entries + bytes(end))
    with open_archive(tmp_path / "file") as archive, pytest.raises(DataError, match="'000' is an archive that is cut short or dam"):
        archive.read("000")


def test_encrypted_and_twice(tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "a", {"secret": b"words"}).read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match=r"'secret'.* is encrypted"), open_archive(tmp_path / "a") as archive:
        archive.read("secret")
    with zipfile.ZipFile(tmp_path / "b", "w") as file:
        file.writestr("one", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("one", b"22")
    with open_archive(tmp_path / "b") as archive:
        assert (archive.read("one"), archive.sizes) == (b"22", {"one": 2})


def test_damaged(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a", {"one": b"word" * 1000}, zipfile.ZIP_STORED)
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"X" + data[101:])
    with pytest.raises(DataError, match=r"'one' is an archive that is cut short or damaged"), open_archive(path) as archive:
        archive.read("one")
    path.write_bytes(data[:2000])
    with pytest.raises(DataError, match="is an archive that is cut short or damaged"), open_archive(path):
        pass
    (tmp_path / "b").write_bytes(gzip.compress(b"word" * 1000)[:-12])
    with pytest.raises(DataError, match="is an archive that is cut short or damaged"), open_gzip(tmp_path / "b") as stream:
        stream.read()
    (tmp_path / "c").write_bytes(b"word")
    with pytest.raises(DataError, match=r"c is no zip archive\.$"), open_archive(tmp_path / "c"):
        pass
    with open_gzip(tmp_path / "c") as stream:  # what is no gzip comes as it is
        assert stream.read() == b"word"


def test_the_head_of_anything(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"words " * 10_000))
    assert head(tmp_path / "a", 8, unpacked=True) == b"words wo"
    assert head(tmp_path / "a", 2) == b"\x1f\x8b"
    (tmp_path / "b").write_bytes(b"\x1f\x8bnothing")
    assert head(tmp_path / "b", 8, unpacked=True) == b""
    assert head(tmp_path, 8) == b""
    assert head(tmp_path / "none", 8) == b""


FREE = 1 << 28  # bytes of memory that the child is told are free: half of them may be made of a file
GROWTH = 400 << 20  # bytes by which it may grow at most
CHILD = """
import json, resource, sys, time
from d3ray.data.errors import D3rayError
from d3ray.data.formats.registry import read
from d3ray.data.formats.untrusted import unpacking

if free := int(sys.argv[1]):
    unpacking.free_memory = lambda: free
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 30), resource.RLIM_INFINITY))


def status(word):  # not getrusage, whose maximum is that of the process that forked this one, where that is larger
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(word))


for path in sys.argv[2:]:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the largest size so far
    before, said, start = status("VmRSS"), "", time.monotonic()
    try:
        read(path)
    except D3rayError as error:
        said = str(error)
    print(json.dumps({"said": said, "grown": status("VmHWM") - before, "seconds": time.monotonic() - start}), flush=True)
"""


@dataclass(frozen=True)
class Told:
    """What a process of its own says of a file."""

    said: str
    grown: int  # bytes, at most while it was read
    seconds: float


def read_in_child(paths: Sequence[Path], free: int = 0) -> list[Told]:
    """Reads files one after the other. With `free` the process takes so many bytes of memory to be free."""
    arguments = [sys.executable, "-c", CHILD, str(free), *map(str, paths)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=240, env=environment, check=False)
    told = [Told(**json.loads(line)) for line in done.stdout.splitlines()]
    assert len(told) == len(paths), f"{paths[len(told)]} ended it: {done.stderr[-1000:]}"
    return told


def made(bombs: Sequence[Bomb], folder: Path) -> list[Path]:
    paths: list[Path] = []
    for bomb in bombs:
        (mine := folder / bomb.__name__).mkdir()
        paths.append(bomb(mine))
    return paths


def test_what_is_declared_is_held_against_what_is_stored(tmp_path: Path) -> None:
    for bomb, told in zip(HOLLOW, read_in_child(made(HOLLOW, tmp_path)), strict=True):
        assert "unpacks to" in told.said, bomb.__name__
        assert "are stored: " in told.said, bomb.__name__
        assert "D3RAY_UNPACK_LIMIT=" in told.said, bomb.__name__
        assert told.grown < GROWTH, bomb.__name__


@pytest.mark.long
def test_what_is_made_is_held_against_the_memory(tmp_path: Path) -> None:
    for bomb, told in zip(SQUEEZED, read_in_child(made(SQUEEZED, tmp_path), FREE), strict=True):
        assert "half of the memory that is free here, is 134 MB" in told.said, bomb.__name__
        assert told.grown < GROWTH, bomb.__name__


@pytest.mark.long
def test_what_is_said_leads_to_nothing_large(tmp_path: Path) -> None:
    for bomb, told in zip(LYING, read_in_child(made(LYING, tmp_path)), strict=True):
        assert told.said, bomb.__name__
        assert told.grown < GROWTH, bomb.__name__
        assert told.seconds < 10, bomb.__name__


def folder_of_frames(n: int = 10_000) -> dict[str, Any]:
    """71 MB of black frames."""
    terminals = np.arange(n) % 100 == 99
    return {
        "observations": np.zeros((n, 1, 84, 84), np.uint8),
        "actions": np.zeros(n, int),
        "rewards": np.zeros(n),
        "terminals": terminals,
    }


def test_honest_frames_of_zeros_are_read(tmp_path: Path) -> None:
    raw = folder_of_frames()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array in raw.items():
            file.create_dataset(name, data=array, compression="gzip", compression_opts=4, chunks=(1000, *array.shape[1:]))
    np.savez_compressed(tmp_path / "b.npz", **raw)
    images = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(84 * 84), len(raw["rewards"]), [None, pa.py_buffer(raw["observations"])]
    )
    table = flat(len(raw["rewards"]), images) | {"terminated": raw["terminals"]}
    table |= {"reward": np.random.default_rng(0).normal(size=len(raw["rewards"]))}
    pq.write_table(pa.table(table), tmp_path / "c.parquet", compression="gzip")
    for path in sorted(tmp_path.iterdir()):
        assert raw["observations"].nbytes > 500 * path.stat().st_size, path
        steps = read(path).steps
        assert steps.n_transitions == len(raw["rewards"])
        assert steps.columns["observation"].size == (len(raw["rewards"]) + 100) * 84 * 84
        assert not steps.columns["observation"].any()


def test_the_way_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals"):
            file.create_dataset(name, (3_000_000,), "f8", chunks=(1000,))
    with pytest.raises(DataError, match=r"a\.h5: '\w+' unpacks to 72 MB or more, and 2\.22 kB are stored: 67\.1 MB is the most"):
        read(tmp_path / "a.h5")
    monkeypatch.setenv("D3RAY_UNPACK_LIMIT", "90MB")
    with pytest.raises(DataError, match=r"unpacks to 144 MB or more, and D3RAY_UNPACK_LIMIT allows 90 MB\.$"):
        read(tmp_path / "a.h5")
    monkeypatch.setenv("D3RAY_UNPACK_LIMIT", "1GB")
    assert read(tmp_path / "a.h5").steps.n_transitions == 3_000_000
    monkeypatch.setenv("D3RAY_UNPACK_LIMIT", "much")
    with pytest.raises(ConfigError, match="D3RAY_UNPACK_LIMIT is 'much'; give bytes, or a size such as '50GB'"):
        read(hdf5_without_a_chunk(tmp_path))


def test_all_files_of_an_import_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "free_memory", lambda: 1 << 40)
    (tmp_path / "a").write_bytes(bytes(20_000))
    (tmp_path / "b").write_bytes(bytes(30_000))
    with unpacking.unpacking(tmp_path / "a"), unpacking.unpacking(tmp_path / "a", tmp_path / "b") as now:
        assert now.limit == 200_000_000
        unpacking.unpacks("a", 150_000_000)
        unpacking.needs("a", 50_000_000)
        unpacking.needs("a", 50_000_000)  # for a moment only, so they do not add up
        with pytest.raises(DataError, match=r"^b unpacks to 250 MB or more, and 50 kB are stored: 4,000 times that"):
            unpacking.unpacks("b", 100_000_000)
        assert unpacking.left() == 50_000_000


def test_a_container_has_the_memory_that_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group: dict[str, str] = {"memory.max": "4000000", "memory.current": "3000000", "memory.stat": "anon 5\ninactive_file 2000000\n"}
    for name, text in group.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(unpacking, "GROUP", tmp_path)
    assert unpacking.free_memory() == 3_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert unpacking.free_memory() > 4_000_000
