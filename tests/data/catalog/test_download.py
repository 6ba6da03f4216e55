"""Downloads from a server that stalls, cuts, refuses, lies and changes its mind: whole and right, or one sentence and nothing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from d3ray.data.catalog import RemoteFile
from d3ray.data.catalog.download import Patience, download
from d3ray.data.errors import DataError, StorageError

from .file_server import Fault, FileServer, Served

CONTENT = np.random.default_rng(0).bytes(400_000)
OTHER = np.random.default_rng(1).bytes(400_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SOON = Patience(connect=2, stall=0.4, attempts=4, first_wait=0.01)


@pytest.fixture
def server() -> Generator[FileServer]:
    with FileServer() as running:
        yield running


def remote(server: FileServer, path: str = "/a.bin", **known: Any) -> RemoteFile:
    return RemoteFile(url=server.url + path, **known)


def left(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def test_a_file_comes_whole_and_alone(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(CONTENT)
    target, told = tmp_path / "deep" / "er" / "a.bin", list[tuple[int, int | None]]()
    download(remote(server, bytes=len(CONTENT), sha256=SHA256), target, lambda *at: told.append(at), SOON)
    assert target.read_bytes() == CONTENT
    assert left(target) == ["a.bin"]
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    download(remote(server, bytes=len(CONTENT), sha256=SHA256), target, patience=SOON)
    assert len(server.seen) == 1


@pytest.mark.parametrize("kind", ["cut", "stall"])
@pytest.mark.parametrize("validator", [{"etag": '"v1"'}, {"etag": 'W/"v1"', "modified": "Sat, 01 Jan 2022 00:00:00 GMT"}])
def test_the_rest_is_asked_for_where_it_stopped(server: FileServer, tmp_path: Path, kind: str, validator: dict[str, str]) -> None:
    server.files["/a.bin"] = Served(CONTENT, **validator, faults=[Fault(kind, 150_000), Fault(kind, 100_000)])
    download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert left(tmp_path / "a.bin") == ["a.bin"]
    first, second, third = server.seen
    assert "Range" not in first.headers
    strong = validator["etag"] if not validator["etag"].startswith("W/") else validator["modified"]
    assert second.headers["If-Range"] == third.headers["If-Range"] == strong
    starts = [int(seen.headers["Range"].removeprefix("bytes=").removesuffix("-")) for seen in (second, third)]
    assert 64_000 < starts[0] <= 150_000
    assert starts[0] + 32_000 < starts[1] <= 250_000
    assert third.sent[0] == len(CONTENT) - starts[1]


def test_what_was_left_by_a_process_is_gone_on_with(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(CONTENT, faults=[Fault("cut", 200_000), *[Fault("status")] * 3])
    with pytest.raises(StorageError, match=r"a\.bin cannot be downloaded \(the server answers 500\).*bytes that arrived are kept"):
        download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert left(tmp_path / "a.bin") == ["a.bin.part", "a.bin.part.json"]
    download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.seen[-1].sent[0] <= 400_000 - 131_072


def test_what_had_come_whole_is_not_fetched_again(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(CONTENT, faults=[Fault("cut", 200_000), *[Fault("status")] * 3])
    with pytest.raises(StorageError):
        download(remote(server), tmp_path / "a.bin", patience=SOON)
    (tmp_path / "a.bin.part").write_bytes(CONTENT)  # as a process leaves it that is killed before it renames
    download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.seen[-1].headers["Range"] == "bytes=400000-"


def test_the_wait_grows_and_the_server_may_say_how_long(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    asks = Fault("status", status=503, headers={"Retry-After": "7"})
    server.files["/a.bin"] = Served(CONTENT, faults=[Fault("status"), Fault("drop"), asks, Fault("status", status=429)])
    download(remote(server), tmp_path / "a.bin", patience=Patience(connect=2, stall=2, attempts=5, first_wait=1, longest_wait=3))
    assert [wait for wait in waits if wait >= 1] == [1, 2, 7, 3]
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_headway_is_patience(server: FileServer, tmp_path: Path) -> None:
    content = np.random.default_rng(2).bytes(6 << 20)
    server.files["/a.bin"] = Served(content, faults=[Fault("cut", 1_200_000) for _ in range(4)])
    download(remote(server), tmp_path / "a.bin", patience=Patience(connect=2, stall=2, attempts=2, first_wait=0.01))
    assert (tmp_path / "a.bin").read_bytes() == content


def test_without_ranges_it_begins_anew(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(CONTENT, ranges=False, faults=[Fault("cut", 200_000)])
    download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert [seen.sent[0] for seen in server.seen] == [200_000, 400_000]


@pytest.mark.parametrize("heeds", [True, False])
def test_a_file_that_changed_meanwhile_comes_whole(server: FileServer, tmp_path: Path, heeds: bool) -> None:
    server.files["/a.bin"] = Served(CONTENT, etag='"old"', faults=[Fault("cut", 200_000), *[Fault("status")] * 3])
    with pytest.raises(StorageError):
        download(remote(server), tmp_path / "a.bin", patience=SOON)
    server.files["/a.bin"] = Served(OTHER, etag='"new"', heeds_if_range=heeds)
    download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == OTHER


def test_another_address_never_goes_on_with_these_bytes(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(CONTENT, faults=[Fault("cut", 200_000), *[Fault("status")] * 3])
    server.files["/b.bin"] = Served(OTHER)
    with pytest.raises(StorageError):
        download(remote(server), tmp_path / "a.bin", patience=SOON)
    download(remote(server, "/b.bin"), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == OTHER


def test_without_a_version_or_a_hash_nothing_is_glued_together(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(CONTENT, etag="", faults=[Fault("cut", 200_000)])
    download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert not any("Range" in seen.headers for seen in server.seen)


def test_a_wrong_beginning_is_fetched_again_once(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(OTHER, etag="", faults=[Fault("cut", 200_000), *[Fault("status")] * 3])
    with pytest.raises(StorageError):
        download(remote(server, sha256=SHA256), tmp_path / "a.bin", patience=SOON)
    server.files["/a.bin"] = Served(CONTENT, etag="")
    download(remote(server, sha256=SHA256), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert ["Range" in seen.headers for seen in server.seen[-2:]] == [True, False]


def test_wrong_bytes_are_refused_and_deleted(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(OTHER, faults=[Fault("cut", 200_000)])
    with pytest.raises(DataError, match=r"a\.bin sent other bytes than were published: its SHA-256 is .*; they were deleted\.$"):
        download(remote(server, sha256=SHA256), tmp_path / "a.bin", patience=SOON)
    assert left(tmp_path / "a.bin") == []
    assert len(server.seen) == 3


def test_a_file_of_another_size_is_not_read(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(CONTENT)
    with pytest.raises(DataError, match=r"has 400,000 bytes and 17 were published"):
        download(remote(server, bytes=17), tmp_path / "a.bin", patience=SOON)
    assert left(tmp_path / "a.bin") == []


@pytest.mark.parametrize("announces", [True, False])
def test_an_end_that_comes_too_early_is_not_taken_for_the_end(server: FileServer, tmp_path: Path, announces: bool) -> None:
    server.files["/a.bin"] = Served(CONTENT, announces_length=announces, faults=[Fault("cut", 300_000)])
    download(remote(server, bytes=400_000), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "sentence"), [(404, "There is no file"), (410, "There is no file"), (403, "is not given")])
def test_what_is_not_there_is_said_at_once(server: FileServer, tmp_path: Path, status: int, sentence: str) -> None:
    server.files["/a.bin"] = Served(CONTENT, faults=[Fault("status", status=status)])
    with pytest.raises(DataError, match=rf"{sentence}.*the server answers {status}\.$") as refused:
        download(remote(server), tmp_path / "a.bin", patience=SOON)
    assert f"{server.url}/a.bin" in str(refused.value)
    assert left(tmp_path / "a.bin") == []
    assert len(server.seen) == 1


def test_a_web_page_is_not_taken_for_the_file(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.bin"] = Served(b"<html>gone</html>", kind="text/html; charset=utf-8")
    with pytest.raises(DataError, match=r"is a web page, not the file a\.bin"):
        download(remote(server), tmp_path / "a.bin", patience=SOON)


def test_redirects_are_followed_over_the_web_only(server: FileServer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    server.files["/a.bin"] = Served(CONTENT)
    server.redirects = {"/1": "/2", "/2": "/a.bin", "/out": "ftp://127.0.0.1/a.bin", "/in": f"file://{secret}", "/round": "/round"}
    download(remote(server, "/1", name="a.bin"), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    for path in ("/out", "/in", "/round"):
        with pytest.raises(StorageError, match=r"cannot be (downloaded|reached)"):
            download(remote(server, path, name="b.bin"), tmp_path / "b.bin", patience=SOON)
        assert not (tmp_path / "b.bin").exists()


def test_without_a_network_it_says_where_to_put_a_copy(tmp_path: Path) -> None:
    url, target = "http://127.0.0.1:9/a.bin", tmp_path / "a.bin"  # nothing listens at the port of "discard"
    with pytest.raises(StorageError) as refused:
        download(RemoteFile(url=url), target, patience=SOON)
    assert str(refused.value) == (
        f"{url} cannot be downloaded (the connection is refused): look at the network and its proxy, or put a copy at {target} "
        "(or make a dataset of one: d3ray ingest FILE TARGET)."
    )
    target.write_bytes(CONTENT)
    download(RemoteFile(url=url, sha256=SHA256), target, patience=SOON)
    target.write_bytes(OTHER)
    with pytest.raises(DataError, match=r"a\.bin is not the file that was published: its SHA-256"):
        download(RemoteFile(url=url, sha256=SHA256), target, patience=SOON)
    assert target.read_bytes() == OTHER  # who put it there may want it


def test_the_proxy_of_the_environment_is_asked(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.files["/a.bin"] = Served(CONTENT)
    download(RemoteFile(url="http://elsewhere.invalid/a.bin"), tmp_path / "a.bin", patience=SOON)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.seen[0].path == "http://elsewhere.invalid/a.bin"


def test_a_full_disk_is_called_so(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/a.bin"] = Served(CONTENT)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
        with pytest.raises(StorageError, match=r"needs 400,000 bytes more and the disk of .* has 1,000"):
            download(remote(server), tmp_path / "a.bin", patience=SOON)
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from d3ray.data.catalog import RemoteFile; from d3ray.data.catalog.download import download\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: download(RemoteFile(url=sys.argv[1]), Path(sys.argv[2]))\n"
        "except OSError as error: print(type(error).__name__, error)"
    )
    command = [sys.executable, "-c", code, f"{server.url}/a.bin", str(tmp_path / "a.bin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("StorageError ")
    assert "cannot be written: the file would be larger than is allowed here." in said


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_of_this_machine_are_copied_and_compared(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a.bin").write_bytes(CONTENT)
    source = RemoteFile(url=f"{scheme}{tmp_path}/from/a.bin", sha256=SHA256)
    download(source, tmp_path / "to" / "a.bin")
    assert (tmp_path / "to" / "a.bin").read_bytes() == CONTENT
    (tmp_path / "from" / "a.bin").write_bytes(OTHER)
    with pytest.raises(DataError, match="has other bytes than were published"):
        download(source, tmp_path / "again" / "a.bin")
    assert left(tmp_path / "again" / "a.bin") == []
    with pytest.raises(StorageError, match=r"b\.bin cannot be copied: no such file"):
        download(RemoteFile(url=f"{scheme}{tmp_path}/from/b.bin"), tmp_path / "to" / "b.bin")


@pytest.mark.parametrize("name", ["../a", "/a", "a/../b", "", "a//b"])
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(ValueError, match="needs a name within a folder"):
        RemoteFile(url="http://127.0.0.1/x/" if not name else "http://127.0.0.1/x", name=name)
