"""Files that come in: in chunks, on after a break, and nowhere but into their own folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.web import uploads as module
from d3ray.platform.web.records import Records
from d3ray.platform.web.uploads import KEEP_SECONDS, Uploads, plain_name

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


def test_what_is_too_large_is_refused_before_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("web").mkdir()
    uploads = Uploads(tmp_path / "web" / "uploads", Records(tmp_path / "web" / "page.sqlite"), most=10**9)
    with pytest.raises(ConfigError, match=r"has 10\.0 GB; this server takes files of 1\.0 GB at most"):
        uploads.begin("all.csv", 10**10)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10**8})())
    with pytest.raises(StorageError, match=r"disk has 0\.1 GB free"):
        uploads.begin("all.csv", 10**8)
    assert list(uploads.folder.iterdir()) == []


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
    records = Records(tmp_path / "page.sqlite")
    uploads = Uploads(tmp_path / "uploads", records, most=100)
    old, fresh = uploads.begin("old", 5), uploads.begin("fresh", 5)
    past = time.time() - KEEP_SECONDS - 60
    os.utime(uploads.file(old.id), (past, past))
    with records._open() as db:  # pyright: ignore[reportPrivateUsage]
        db.execute("update upload set begun = ? where id = ?", (past, old.id))
    again = Uploads(tmp_path / "uploads", records, most=100)
    assert [one.id for one in records.uploads()] == [fresh.id]
    assert [file.name for file in again.folder.iterdir()] == [fresh.id]
