"""Sessions: what the cookie is, when it ends, and who can read the file in which they are kept."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from http.cookies import Morsel, SimpleCookie
from pathlib import Path

import pytest
import requests

from d3ray.platform.web import sessions as module
from d3ray.platform.web.records import Records

from .site_server import Served, serving

WORD = "ed and a long word"
SAME = {"Sec-Fetch-Site": "same-origin"}
BEHIND_TLS = {"X-Forwarded-Proto": "https"}


@pytest.fixture
def accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A page with an editor `ed`."""
    pytest.importorskip("argon2", reason="argon2 is not installed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path, accounts=True, proxies="127.0.0.1") as found:
        found.site.people.add("ed", WORD, "editor")  # pyright: ignore[reportOptionalMemberAccess]
        yield found


def given(answer: requests.Response) -> Morsel[str]:
    """The one cookie that an answer sets."""
    (found,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return found


def by_link(served: Served, **headers: str) -> requests.Response:
    return requests.get(served.site.link, timeout=20, allow_redirects=False, headers=headers)


def by_name(served: Served, **headers: str) -> requests.Response:
    said = {"name": "ed", "password": WORD}
    return requests.post(f"{served.url}/login", said, headers={**SAME, **headers}, timeout=60, allow_redirects=False)


def status(served: Served, cookie: Morsel[str]) -> int:
    """Of a page, for whoever has this cookie."""
    headers = {"Cookie": f"{cookie.key}={cookie.value}"}
    return requests.get(f"{served.url}/datasets", headers=headers, timeout=20, allow_redirects=False).status_code


@pytest.mark.parametrize("come_in", [by_link, by_name])
def test_the_cookie_is_a_session_of_its_own(accounts: Served, come_in: Callable[..., requests.Response]) -> None:
    first, second = come_in(accounts), come_in(accounts)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookies = [given(one) for one in (first, second)]
    assert len({accounts.site.token, *(one.value for one in cookies)}) == 3  # another each time, and never the link's token
    for cookie in cookies:
        assert cookie.key == f"d3ray_{accounts.site.port}"
        assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "lax", "/", "")
        assert status(accounts, cookie) == 200
    content = b"".join(file.read_bytes() for file in accounts.site.home.glob("page.sqlite*"))
    assert not any(word in content for word in (WORD.encode(), accounts.site.token.encode(), cookies[0].value.encode()))
    assert given(come_in(accounts, **BEHIND_TLS))["secure"] is True


def test_the_token_itself_is_no_session(accounts: Served) -> None:
    for value in (accounts.site.token, "", "x", accounts.site.token[:-1]):
        cookie = Morsel[str]()
        cookie.set(f"d3ray_{accounts.site.port}", value, value)
        assert status(accounts, cookie) == 303


def test_only_a_proxy_that_was_named_says_https(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert given(by_link(served, **BEHIND_TLS))["secure"] == ""


@pytest.mark.parametrize("come_in", [by_link, by_name])
def test_going_out_ends_it(accounts: Served, come_in: Callable[..., requests.Response]) -> None:
    mine, other = given(come_in(accounts)), given(come_in(accounts))
    headers = {**SAME, "Cookie": f"{mine.key}={mine.value}"}
    left = requests.post(f"{accounts.url}/logout", headers=headers, timeout=20, allow_redirects=False)
    assert (left.status_code, left.headers["location"]) == (303, "/login")
    assert (given(left).value, given(left)["max-age"]) == ("", "0")
    assert [status(accounts, one) for one in (mine, other)] == [303, 200]  # whoever kept the cookie is out


def test_a_page_without_accounts_can_be_left(served: Served) -> None:
    assert "Go out" in served.get("/datasets").text
    left = served.post("/logout")
    assert (left.status_code, left.url.endswith("/login")) == (200, True)
    assert "Open the address that <code>d3ray web</code> printed" in left.text
    assert "password" not in left.text
    assert served.get("/datasets").status_code == 401
    assert served.get(served.site.link.removeprefix(served.url)).status_code == 200


def test_it_ends_with_the_password_and_the_role_and_the_account(accounts: Served) -> None:
    people = accounts.site.people
    assert people is not None
    for change in (
        lambda: people.add("ed", f"{WORD} more", "editor"),
        lambda: people.add("ed", WORD, "viewer"),
        lambda: people.remove("ed"),
    ):
        people.add("ed", WORD, "editor")
        cookie = given(by_name(accounts))
        assert status(accounts, cookie) == 200
        change()
        assert status(accounts, cookie) == 303


def test_it_runs_out(accounts: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    cookies = [given(by_link(accounts)), given(by_name(accounts))]
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + module.SECONDS - 5)
    assert [status(accounts, one) for one in cookies] == [200, 200]
    monkeypatch.setattr(module.time, "time", lambda: now + module.SECONDS + 5)
    assert [status(accounts, one) for one in cookies] == [303, 303]
    by_link(accounts)  # and what has run out is forgotten
    db = sqlite3.connect(accounts.site.home / "page.sqlite")
    assert db.execute("select count(*) from session").fetchone() == (1,)
    db.close()


def test_a_page_that_is_started_anew_knows_accounts_alone(accounts: Served, tmp_path: Path) -> None:
    cookies = [given(by_link(accounts)), given(by_name(accounts))]
    with serving(tmp_path, accounts=True) as again:
        assert [status(accounts, one) for one in cookies] == [200, 200]  # of the other one, which runs still
        for cookie, expected in zip(cookies, (303, 200), strict=True):
            cookie.set(f"d3ray_{again.site.port}", cookie.value, cookie.value)
            assert status(again, cookie) == expected


def test_coming_in_by_another_name_ends_what_the_browser_had(accounts: Served) -> None:
    """A session that somebody put into the browser is not the one that its user gets."""
    planted = given(by_link(accounts))
    entered = by_name(accounts, Cookie=f"{planted.key}={planted.value}")
    assert given(entered).value != planted.value
    assert [status(accounts, one) for one in (planted, given(entered))] == [303, 200]


def test_nobody_is_led_elsewhere_by_the_link(served: Served) -> None:
    for path in ("//evil.example/x", "///evil.example/x"):
        answer = requests.get(f"{served.url}{path}?token={served.site.token}", timeout=20, allow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/evil.example/x")


def test_a_part_of_a_page_leads_whoever_is_out_to_the_way_in(accounts: Served) -> None:
    answer = requests.get(f"{accounts.url}/experiments", headers={"HX-Request": "true"}, timeout=20)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_records_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = tmp_path / "web" / "page.sqlite"
        Records(file)
        db = sqlite3.connect(file)
        db.execute("insert into project values ('a', 0)")
        assert {one.name: mode(one) for one in file.parent.iterdir()} == {file.name: 0o600, f"{file.name}-journal": 0o600}
        db.close()
        assert mode(file.parent) == 0o700
    finally:
        os.umask(before)


def test_records_that_were_open_are_closed(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    for folder in (own, shared):
        Records(folder / "page.sqlite")
        (folder / "uploads").mkdir()
        (folder / "page.sqlite-wal").touch()
        for path in (folder, *folder.glob("page*")):
            path.chmod(0o777)
    (shared / "notes.txt").touch()  # of somebody who keeps other things there
    for folder in (own, shared):
        Records(folder / "page.sqlite")
        assert {mode(path) for path in folder.glob("page*")} == {0o600}
    assert (mode(own), mode(shared)) == (0o700, 0o777)
