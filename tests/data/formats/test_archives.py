"""Hostile and damaged archives: what would fill the memory is refused, and nothing is written to disk."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.untrusted import unpacking
from d3ray.data.formats.untrusted.archives import head, open_archive, open_gzip


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
