"""Files that come in: in chunks, on after a break, and nowhere but into their own folder."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.web import uploads as module
from d3ray.platform.web.records import Records
from d3ray.platform.web.site import Site
from d3ray.platform.web.uploads import BROKEN_SECONDS, EACH, MOST, WHOLE_SECONDS, Uploads, plain_name

from .site_server import Served, serving

SAME = {"Sec-Fetch-Site": "same-origin"}


def test_an_upload_goes_on_where_it_broke_off(served: Served, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    url = served.url + "/uploads"
    begun = served.session.post(url, params={"name": "log.csv"}, headers={**SAME, "Upload-Length": "300000"}, timeout=20)
    one = f"{url}/{begun.json()['id']}"

    def patch(offset: int, body: bytes) -> tuple[int, str | None]:
        answer = served.session.patch(one, data=body, headers={**SAME, "Upload-Offset": str(offset)}, timeout=20)
        return answer.status_code, answer.headers.get("Upload-Offset")

    assert patch(0, content[:100_000]) == (204, "100000")
    assert patch(0, content[:100_000]) == (409, "100000")  # it came twice: the server says where it is
    assert patch(200_000, content[200_000:]) == (409, "100000")
    with serving(tmp_path) as again:  # a page that was started anew knows it
        found = again.session.head(f"{again.url}/uploads/{begun.json()['id']}", timeout=20).headers
        assert (found["Upload-Offset"], found["Upload-Length"]) == ("100000", "300000")
        assert "log.csv" in again.get("/datasets").text
    assert patch(100_000, content[100_000:] + b"more") == (413, None)
    assert patch(100_000, content[100_000:]) == (204, "300000")
    assert (served.site.uploads.folder / begun.json()["id"]).read_bytes() == content
    assert served.session.delete(one, headers=SAME, timeout=20).status_code == 204
    assert list(served.site.uploads.folder.iterdir()) == []
    assert served.session.head(one, timeout=20).status_code == 404
    assert patch(0, b"x")[0] == 404


def begun(served: Served, size: int) -> str:
    """Address of a new upload."""
    headers = {**SAME, "Upload-Length": str(size)}
    answer = served.session.post(f"{served.url}/uploads", params={"name": "log.csv"}, headers=headers, timeout=20)
    return f"{served.url}/uploads/{answer.json()['id']}"


def offset(served: Served, one: str) -> int:
    return int(served.session.head(one, timeout=20).headers["Upload-Offset"])


def half_sent(served: Served, one: str, body: bytes, length: int, at: int = 0) -> socket.socket:
    """A connection on which the beginning of a chunk is sent."""
    line = socket.create_connection(("127.0.0.1", served.site.port))
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in served.session.cookies)
    told = {"Host": f"127.0.0.1:{served.site.port}", "Cookie": cookies, "Sec-Fetch-Site": "same-origin"}
    told |= {"Upload-Offset": str(at), "Content-Length": str(length)}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    line.sendall(f"PATCH {one.removeprefix(served.url)} HTTP/1.1\r\n{head}\r\n".encode() + body)
    return line


def until_it_comes(served: Served) -> None:
    end = time.monotonic() + 20
    while not served.site.uploads._written:  # pyright: ignore[reportPrivateUsage]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_two_chunks_at_once_do_not_mix(served: Served) -> None:
    """The second one is refused, whatever it holds, and the first is all that is there."""
    one, size = begun(served, 200_000), 200_000
    with half_sent(served, one, b"a" * 100_000, size) as line:
        until_it_comes(served)
        second = served.session.patch(one, data=b"b", headers={**SAME, "Upload-Offset": "0"}, timeout=20)
        assert (second.status_code, "coming in" in second.text) == (423, True)
        assert offset(served, one) == 0
        line.sendall(b"a" * 100_000)
        assert line.recv(100).startswith(b"HTTP/1.1 204")
    assert served.site.uploads.file(one.rpartition("/")[2]).read_bytes() == b"a" * size


def test_many_at_one_offset_leave_one_of_them(served: Served) -> None:
    one, size = begun(served, 400_000), 400_000

    def patch(k: int) -> int:
        return served.session.patch(one, data=bytes([k]) * size, headers={**SAME, "Upload-Offset": "0"}, timeout=20).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(patch, range(8)))
    assert answers.count(204) == 1
    assert set(answers) <= {204, 409, 423}
    assert served.site.uploads.file(one.rpartition("/")[2]).read_bytes() == bytes([answers.index(204)]) * size


def test_a_chunk_that_broke_off_is_not_there(served: Served) -> None:
    one = begun(served, 200_000)
    with half_sent(served, one, b"a" * 100_000, 200_000):
        until_it_comes(served)
    end = time.monotonic() + 20
    while served.session.patch(one, data=b"b" * 1000, headers={**SAME, "Upload-Offset": "0"}, timeout=20).status_code == 423:
        assert time.monotonic() < end
    assert offset(served, one) == 1000
    (file,) = served.site.uploads.folder.iterdir()
    assert file.read_bytes() == b"b" * 1000


def test_a_chunk_is_what_its_checksum_says(served: Served) -> None:
    one = begun(served, 10)

    def patch(body: bytes, checksum: str) -> int:
        headers = {**SAME, "Upload-Offset": "0", "Upload-Checksum": checksum}
        return served.session.patch(one, data=body, headers=headers, timeout=20).status_code

    said = f"sha256 {base64.b64encode(hashlib.sha256(b'0123456789').digest()).decode()}"
    assert patch(b"0123456780", said) == 460
    assert offset(served, one) == 0
    for unreadable in ("sha256 x", "sha256 YQ==", "md5 YQ==", "x"):
        assert patch(b"0123456789", unreadable) == 400
    assert patch(b"0123456789", said) == 204


def room(folder: Path, most: int = 10**12) -> Uploads:
    folder.joinpath("web").mkdir(exist_ok=True)
    return Uploads(folder / "web" / "uploads", Records(folder / "web" / "page.sqlite"), most)


def free(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": n_bytes})())


def test_what_is_too_large_is_refused_before_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = room(tmp_path, most=10**9)
    with pytest.raises(ConfigError, match=r"has 10 GB; this server takes files of 1 GB at most"):
        uploads.begin("all.csv", 10**10, "ann")
    free(monkeypatch, 10**8)
    with pytest.raises(StorageError, match=r"disk has room for 0 bytes\."):
        uploads.begin("all.csv", 10**8, "ann")
    assert list(uploads.folder.iterdir()) == []


def test_the_disk_has_room_for_all_that_are_coming_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = room(tmp_path)
    free(monkeypatch, 11 * 10**9)
    first = uploads.begin("a.csv", 6 * 10**9, "ann")
    with pytest.raises(StorageError, match=r"room for 3\.93 GB beside 6 GB that are coming in"):
        uploads.begin("b.csv", 6 * 10**9, "bob")
    os.truncate(uploads.file(first.id), 3 * 10**9)  # so much of it has come, which the disk counts itself
    uploads.begin("b.csv", 6 * 10**9, "bob")
    uploads.delete(first.id)
    uploads.begin("c.csv", 3 * 10**9, "cid")


def test_so_many_files_may_come_in_at_once(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    first = uploads.begin("0.csv", 5, "ann")
    for k in range(1, EACH):
        uploads.begin(f"{k}.csv", 5, "ann")
    with pytest.raises(ConfigError, match=f"{EACH} files of yours"):
        uploads.begin("more.csv", 5, "ann")
    uploads.file(first.id).write_bytes(b"12345")
    uploads.begin("more.csv", 5, "ann")  # for one of them is here
    for k in range(EACH, MOST):
        uploads.begin(f"{k}.csv", 5, f"person {k}")
    with pytest.raises(StorageError, match="Too many files"):
        uploads.begin("more.csv", 5, "bob")


def test_who_lies_about_a_size(served: Served) -> None:
    for said in ("", "-1", "1e9", "x"):
        headers = {**SAME, "Upload-Length": said}
        assert served.session.post(served.url + "/uploads?name=a", headers=headers, timeout=20).status_code == 400
    headers = {**SAME, "Upload-Length": str(10**13)}
    answer = served.session.post(served.url + "/uploads?name=a", headers={**headers, "Accept": "*/*"}, timeout=20)
    assert (answer.status_code, "at most" in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("log.csv", "log.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\logs\\a b.csv", "a_b.csv"),
        ("/abs/.ssh/../x.h5", "x.h5"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("", "file"),
        ("..", "file"),
        ("<script>alert(1)</script>.csv", "script_.csv"),
        ("a\0b\nc.csv", "a_b_c.csv"),
        ("x" * 300 + ".csv", "x" * 96 + ".csv"),
    ],
)
def test_names_become_plain(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_files_go_to_their_dataset_under_their_names(served: Served, tmp_path: Path) -> None:
    ids = [served.upload("../a.csv", b"1"), served.upload("b.zip", b"2")]
    files = served.site.uploads.take(ids, tmp_path / "mine")
    assert [file.relative_to(tmp_path).as_posix() for file in files] == ["mine/a.csv", "mine/b.zip"]
    assert served.site.records.uploads() == []
    twice = [served.upload("a.csv", b"1"), served.upload("a.csv", b"2")]
    with pytest.raises(ConfigError, match="same name"):
        served.site.uploads.take(twice, tmp_path / "other")
    half = served.session.post(served.url + "/uploads?name=c", headers={**SAME, "Upload-Length": "5"}, timeout=20).json()["id"]
    for unknown in (half, "nobody", "../web/page.sqlite"):
        with pytest.raises(ConfigError, match="not come in yet"):
            served.site.uploads.take([unknown], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_nobody_goes_on_with_is_deleted(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    broken, whole, fresh = (uploads.begin(name, 5, "ann") for name in ("broken", "whole", "fresh"))
    uploads.file(whole.id).write_bytes(b"12345")

    def left_for(seconds: float) -> None:
        past = time.time() - seconds - 60
        for one in (broken, whole):
            if uploads.file(one.id).exists():
                os.utime(uploads.file(one.id), (past, past))
        with uploads.records._open() as db:  # pyright: ignore[reportPrivateUsage]
            db.execute("update upload set begun = ? where id != ?", (past, fresh.id))

    left_for(BROKEN_SECONDS)
    uploads.begin("next", 5, "bob")
    assert {one.name for one, _ in uploads.all()} == {"whole", "fresh", "next"}
    left_for(WHOLE_SECONDS)
    assert {one.name for one, _ in room(tmp_path).all()} == {"fresh", "next"}
    assert len(list(uploads.folder.iterdir())) == 2


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_server_that_is_killed_knows_what_is_on_the_disk(tmp_path: Path) -> None:
    """A chunk that it was still receiving is not there; one that it had answered is."""

    def start() -> tuple[subprocess.Popen[str], Served]:
        command = [sys.executable, "-m", "d3ray.jobs", "web", "port=0"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = re.fullmatch(r"Open (http://127.0.0.1:(\d+))/\?token=(\S+)\n", process.stdout.readline())
        assert said is not None
        page = Served(Site(tmp_path / "d3ray_web", "", "", port=int(said[2]), token=said[3]), said[1], requests.Session())
        assert page.session.get(page.site.link, timeout=60).status_code == 200
        return process, page

    process, page = start()
    try:
        one = begun(page, 300_000)
        first = page.session.patch(one, data=b"a" * 100_000, headers={**SAME, "Upload-Offset": "0"}, timeout=20)
        assert first.status_code == 204
        with half_sent(page, one, b"b" * 100_000, 200_000, at=100_000):
            end = time.monotonic() + 20
            meanwhile = {**SAME, "Upload-Offset": "100000"}  # 423: the other chunk is coming in; 409: this one was there before it
            while page.session.patch(one, data=b"c", headers=meanwhile, timeout=20).status_code not in (409, 423):
                assert time.monotonic() < end
            process.kill()
            process.wait(20)
        process, page = start()
        one = f"{page.url}/uploads/{one.rpartition('/')[2]}"
        (file,) = (tmp_path / "d3ray_web" / "uploads").iterdir()
        assert offset(page, one) == file.stat().st_size
        assert file.read_bytes() in (b"a" * 100_000, b"a" * 100_000 + b"c")
    finally:
        process.kill()
        process.wait(20)


def test_records_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "page.sqlite") as db:
        db.executescript(
            "create table upload (id text primary key, name text not null, size integer not null, begun real not null);"
        )
        db.execute("insert into upload values ('a', 'log.csv', 5, 1.0)")
        db.execute("pragma user_version = 1")
    (found,) = Records(tmp_path / "page.sqlite").uploads()
    assert (found.name, found.person) == ("log.csv", "")


def test_an_empty_file_is_refused(served: Served) -> None:
    answer = served.session.post(
        f"{served.url}/uploads", params={"name": "log.csv"}, headers={**SAME, "Upload-Length": "0"}, timeout=20
    )
    assert answer.status_code == 400
    assert "log.csv is empty" in answer.text
