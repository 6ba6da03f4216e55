"""Hostile and damaged archives: each is refused in one sentence before a member is read, and nothing is written to disk."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.untrusted.archives import Limits, head, open_archive, open_gzip

SMALL = Limits(total=1 << 22, ratio=20, small=1 << 16, members=50, empty=10)


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, compression)
    return path


def tarred(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as file:  # pyright: ignore[reportArgumentType, reportCallIssue]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


GOOD = {"a/one.txt": b"first", "b.txt": b"second" * 100}


@pytest.mark.parametrize("write", [zipped, tarred, lambda path, members: tarred(path, members, "w:gz")])
def test_members_by_name(tmp_path: Path, write: Callable[[Path, dict[str, bytes]], Path]) -> None:
    with open_archive(write(tmp_path / "file", GOOD)) as archive:
        assert archive.names == list(GOOD)
        assert {name: archive.read(name) for name in reversed(archive.names)} == GOOD
        with archive.open("b.txt") as stream:
            assert stream.read(6) == b"second"
        with pytest.raises(DataError, match=r"file has no 'c\.txt'\.$"):
            archive.read("c.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("write", [zipped, tarred])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../up.txt", r"'\.\./up\.txt' leads out of the archive's folder\."),
        ("a/../../up.txt", r"leads out of the archive's folder\."),
        ("a\\..\\up.txt", r"leads out of the archive's folder\."),
        ("/etc/passwd", r"'/etc/passwd' is an absolute path; names in an archive are relative\."),
        ("C:/windows", r"is an absolute path"),
        ("\\share", r"is an absolute path"),
    ],
)
def test_names_that_leave_the_folder(
    tmp_path: Path, write: Callable[[Path, dict[str, bytes]], Path], name: str, message: str
) -> None:
    with pytest.raises(DataError, match=message), open_archive(write(tmp_path / "file", GOOD | {name: b"x"})):
        pass


def test_links_and_devices(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as file:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match=r"'link' is a link; only plain files"), open_archive(tmp_path / "link.zip"):
        pass
    for kind, what in ((tarfile.SYMTYPE, "a link"), (tarfile.LNKTYPE, "a link"), (tarfile.CHRTYPE, "a device")):
        with tarfile.open(tmp_path / "link.tar", "w") as file:
            info = tarfile.TarInfo("link")
            info.type, info.linkname = kind, "/etc/passwd"
            file.addfile(info)
        with pytest.raises(DataError, match=f"'link' is {what}; only plain files"), open_archive(tmp_path / "link.tar"):
            pass


def test_bombs(tmp_path: Path) -> None:
    zeros = {"zeros": bytes(1 << 20)}
    for path in (zipped(tmp_path / "a", zeros), tarred(tmp_path / "b", zeros, "w:gz")):
        with pytest.raises(DataError, match="unfolds to more than 20 times its"), open_archive(path, SMALL) as archive:
            archive.read("zeros")
    (tmp_path / "c").write_bytes(gzip.compress(bytes(1 << 20)))
    with pytest.raises(DataError, match="unfolds to more than 20 times its"), open_gzip(tmp_path / "c", SMALL) as stream:
        stream.read()
    large = {str(k): bytes(1 << 20) for k in range(5)}
    with (
        pytest.raises(DataError, match=r"unfolds to 5,242,880 bytes or more, and 4,194,304 are allowed"),
        open_archive(zipped(tmp_path / "d", large, zipfile.ZIP_STORED), SMALL),
    ):
        pass
    with open_archive(zipped(tmp_path / "e", {"zeros": bytes(1 << 15)}), SMALL) as archive:
        assert len(archive.read("zeros")) == 1 << 15  # small enough to be let through whatever the ratio


def test_members_that_share_their_bytes(tmp_path: Path) -> None:
    """A zip whose list names one member's bytes three times, under three names."""
    data = zipped(tmp_path / "file", {"aa": bytes(range(256)) * 40}, zipfile.ZIP_STORED).read_bytes()
    start = data.index(b"PK\x01\x02")
    stop = data.index(b"PK\x05\x06")
    entry = data[start:stop]
    entries = entry + entry.replace(b"aa", b"ab") + entry.replace(b"aa", b"ac")
    end = bytearray(data[stop:])
    end[8:12] = (3).to_bytes(2, "little") * 2
    end[12:16] = len(entries).to_bytes(4, "little")
    (tmp_path / "file").write_bytes(data[:start] + entries + bytes(end))
    with pytest.raises(DataError, match="has members that overlap"), open_archive(tmp_path / "file"):
        pass


def test_too_many_members_and_empty_ones(tmp_path: Path) -> None:
    empty = {f"{k}": b"" for k in range(10_000)}
    for path in (zipped(tmp_path / "a", empty), tarred(tmp_path / "b", empty)):
        with pytest.raises(DataError, match=r"has 10,000 empty members, and 1,000 are allowed\.$"), open_archive(path):
            pass
        with pytest.raises(DataError, match=r"has more than 50 members\.$"), open_archive(path, SMALL):
            pass


def test_encrypted_and_twice(tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "a", {"secret": b"words"}).read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match=r"'secret' is encrypted; no password can be given\.$"), open_archive(tmp_path / "a"):
        pass
    with zipfile.ZipFile(tmp_path / "b", "w") as file:
        file.writestr("one", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("one", b"2")
    with pytest.raises(DataError, match=r"has 'one' twice\.$"), open_archive(tmp_path / "b"):
        pass


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
    with pytest.raises(DataError, match=r"c is no zip or tar archive\.$"), open_archive(tmp_path / "c"):
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
