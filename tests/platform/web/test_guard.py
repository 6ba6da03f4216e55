"""Who is let in: the attacks that a page on a loopback address has to fear, each answered before anything is done."""

from __future__ import annotations

import http.client
import re
from pathlib import Path

import pytest
import requests

from d3ray.platform.web.guard import HEADERS

from .site_server import Served, serving

CHANGES = ("POST", "PATCH", "PUT", "DELETE")


def status(served: Served, method: str, path: str, headers: dict[str, str]) -> int:
    """Of a request with these headers and no others."""
    connection = http.client.HTTPConnection("127.0.0.1", served.site.port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Content-Length": "0", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    found = connection.getresponse().status
    connection.close()
    return found


@pytest.fixture
def cookie(served: Served) -> str:
    return served.cookie


def test_nobody_comes_in_without_the_token(served: Served) -> None:
    for path in ("/", "/datasets", "/experiments", "/uploads/x", "/nowhere"):
        assert requests.get(served.url + path, timeout=20, allow_redirects=False).status_code == 401
    wrong = requests.get(served.url + "/?token=guess", timeout=20)
    assert (wrong.status_code, "d3ray web" in wrong.text) == (401, True)


def test_other_names_of_the_server_are_refused(served: Served, cookie: str) -> None:
    """A page of another name that resolves to this machine: DNS rebinding."""
    port = served.site.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        assert status(served, "GET", "/datasets", {"Host": host, "Cookie": cookie}) == 403
    assert status(served, "GET", "/datasets", {"Host": f"127.0.0.1:{port}", "Cookie": cookie.replace("=", "=x")}) == 401
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert status(served, "GET", "/datasets", {"Host": host, "Cookie": cookie}) == 200


@pytest.mark.parametrize("method", CHANGES)
def test_forged_changes_are_refused(served: Served, cookie: str, method: str) -> None:
    own = {"Host": f"127.0.0.1:{served.site.port}", "Cookie": cookie}
    forged: list[dict[str, str]] = [
        {},  # neither header: no browser's form of this page
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": f"http://127.0.0.1:{served.site.port + 1}"},  # another server of this machine, which cookies do not tell apart
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
    ]
    assert [status(served, method, "/uploads/x", {**own, **one}) for one in forged] == [403] * len(forged)
    right = [{"Origin": served.url}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "same-origin", "Origin": served.url}]
    assert 403 not in [status(served, method, "/uploads/x", {**own, **one}) for one in right]


def test_other_pages_may_lead_here_and_put_nothing_into_theirs(served: Served, cookie: str) -> None:
    own = {"Host": f"127.0.0.1:{served.site.port}", "Cookie": cookie}
    for site in ("cross-site", "same-site"):
        found = [
            status(served, "GET", "/datasets", {**own, "Sec-Fetch-Site": site, "Sec-Fetch-Dest": what})
            for what in ("document", "iframe", "image", "empty", "object", "")
        ]
        assert found == [200] + [403] * 5


def test_a_fault_of_the_page_tells_nothing(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError(f"somewhere in {tmp_path}")

    monkeypatch.setattr(served.site.watch, "all", fail)
    for headers in ({}, {"HX-Request": "true"}, {"Accept": "application/json"}):
        answer = served.get("/experiments", headers=headers)
        assert (answer.status_code, answer.text.count("\n"), str(tmp_path) in answer.text) == (500, 0, False)
        assert "fault of the page" in answer.text
        assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
        assert answer.headers["Cache-Control"] == "no-store"


def test_a_socket_is_no_way_in(served: Served, cookie: str) -> None:
    wish = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * 22 + "=="}
    assert status(served, "GET", "/nowhere", {"Host": f"127.0.0.1:{served.site.port}", "Cookie": cookie, **wish}) == 404


def test_every_answer_forbids_scripts_of_others(served: Served) -> None:
    for path in ("/datasets", "/nowhere", "/static/page.js"):
        found = served.get(path).headers
        assert {name: found[name] for name in HEADERS} == dict(HEADERS)
    assert "script-src 'self'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert served.get("/datasets").headers["Cache-Control"] == "no-store"
    assert "server" not in served.get("/datasets").headers


def test_no_page_has_scripts_or_styles_inside() -> None:
    from d3ray.platform.web import application

    templates = Path(application.__file__).parent / "templates"
    texts = {file.name: file.read_text() for file in templates.rglob("*.html")}
    assert len(texts) > 15
    for name, text in texts.items():
        assert "style=" not in text, name
        assert "<script>" not in text, name
        assert "|safe" not in text, name
        assert not re.search(r"\son\w+=", text), name


def test_behind_a_proxy_the_page_has_another_name_and_path(tmp_path: Path) -> None:
    with serving(tmp_path, hosts=("page.example:443", "other.example:8443"), base="/d3ray") as served:
        cookie = served.cookie
        hosts = ("page.example", "page.example:443", "other.example:8443", "other.example")
        found = [status(served, "GET", "/datasets", {"Host": host, "Cookie": cookie}) for host in hosts]
        assert found == [200, 200, 200, 403]  # browsers leave out the port that a scheme has by default
        text = served.get("/d3ray/datasets").text
        taken_off = requests.get(f"{served.url}/datasets", headers={"Cookie": cookie, "Accept": "text/html"}, timeout=20).text
        assert taken_off == text  # whether the proxy takes the path off or leaves it
        assert 'href="/d3ray/static/style.css"' in text
        assert 'action="/d3ray/datasets"' in text
        assert served.post("/d3ray/datasets/shipped", {"name": "x"}).status_code == 400
