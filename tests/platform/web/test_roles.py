"""What each role may do, of every route, and what of others a role sees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests
from fastapi.routing import iter_route_contexts

from d3ray.platform.web.application import application

from ..results.fake_experiment import write_experiment
from .site_server import Served, serving

pytest.importorskip("argon2", reason="argon2 is not installed")
NAMES = {"ottilie": "viewer", "eduard": "editor", "wilhelmina": "editor"}
ORDER = ("anybody", "viewer", "editor", "owner")
ROUTES: Mapping[str, str] = {  # who may, and whoever is above
    "GET /static": "anybody",
    "GET /login": "anybody",
    "POST /login": "anybody",
    "GET /": "viewer",
    "GET /compare": "viewer",
    "GET /service": "viewer",
    "GET /service/{index}/page": "viewer",
    "GET /compare/table.csv": "viewer",
    "GET /datasets": "viewer",
    "GET /datasets/{name}": "viewer",
    "GET /datasets/{name}/inspected": "viewer",
    "GET /datasets/{name}/episodes/{index}": "viewer",
    "GET /datasets/{name}/episodes/{index}/steps.json": "viewer",
    "GET /datasets/{name}/episodes/{index}/{step}.png": "viewer",
    "GET /experiments": "viewer",
    "GET /experiments/{name}": "viewer",
    "GET /experiments/{name}/events": "viewer",
    "GET /experiments/{name}/log": "viewer",
    "GET /experiments/{name}/report": "viewer",
    "GET /experiments/{name}/rows.json": "viewer",
    "GET /experiments/{name}/state": "viewer",
    "GET /experiments/{name}/policy": "viewer",
    "GET /experiments/{name}/policy/play": "viewer",
    "GET /experiments/{name}/policy/video.gif": "viewer",
    "GET /experiments/{name}/policy/{format}": "viewer",
    "POST /experiments/{name}/policy/act": "viewer",
    "POST /logout": "viewer",
    "GET /password": "viewer",
    "POST /password": "viewer",
    "POST /datasets": "editor",
    "POST /datasets/shipped": "editor",
    "POST /datasets/{name}/again": "editor",
    "POST /datasets/{name}/cancel": "editor",
    "POST /datasets/{name}/split": "editor",
    "GET /datasets/{name}/delete": "editor",
    "POST /datasets/{name}/delete": "editor",
    "GET /experiments/new": "editor",
    "POST /experiments": "editor",
    "POST /experiments/check": "editor",
    "POST /experiments/part/{path:path}": "editor",
    "POST /experiments/plan": "editor",
    "POST /experiments/yaml": "editor",
    "POST /experiments/{name}/cancel": "editor",
    "POST /experiments/{name}/leave": "editor",
    "POST /experiments/{name}/resume": "editor",
    "GET /experiments/{name}/delete": "editor",
    "POST /experiments/{name}/delete": "editor",
    "POST /experiments/{name}/policy/judge": "editor",
    "POST /experiments/{name}/policy/promote": "editor",
    "POST /projects": "editor",
    "POST /uploads": "editor",
    "HEAD /uploads/{id}": "editor",
    "PATCH /uploads/{id}": "editor",
    "DELETE /uploads/{id}": "editor",
    "GET /people": "owner",
    "POST /people": "owner",
}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path, accounts=True) as found:
        for name, role in NAMES.items():
            found.site.people.add(name, f"{name} and a long word", role)  # pyright: ignore[reportOptionalMemberAccess]
        yield found


def of(served: Served, name: str) -> requests.Session:
    """A browser in which somebody has come in; nobody: one in which nobody has."""
    session = requests.Session()
    session.headers.update({"Accept": "text/html", "Sec-Fetch-Site": "same-origin"})
    if name == "owner":
        session.get(served.site.link, timeout=20)
    elif name != "nobody":
        session.post(f"{served.url}/login", {"name": name, "password": f"{name} and a long word"}, timeout=60)
    return session


def test_every_route_is_in_the_table(served: Served) -> None:
    found = {
        f"{method} {one.path}" for one in iter_route_contexts(application(served.site).routes) for method in one.methods or ["GET"]
    }
    assert found == ROUTES.keys()


@pytest.mark.parametrize("role", ORDER)
def test_a_role_may_do_what_the_table_says_and_no_more(served: Served, role: str) -> None:
    who = {"anybody": "nobody", "viewer": "ottilie", "editor": "eduard"}.get(role, "owner")
    browser = of(served, who)
    allowed: list[str] = []
    for route in sorted(ROUTES, key=lambda route: route.endswith("logout")):  # which ends the session
        method, _, path = route.partition(" ")
        path = {"/static": "/static/style.css"}.get(path, re.sub(r"{(index|step)}", "0", path))
        url = served.url + re.sub(r"{[^}]*}", "nothing", path)
        answer = browser.request(method, url, timeout=60, allow_redirects=False)
        if role != "anybody":
            refused = answer.status_code == 403
        else:
            refused = answer.headers.get("location") == "/login" or "d3ray web` printed" in answer.text
        assert answer.status_code < 500, route
        if not refused:
            allowed.append(route)
    assert set(allowed) == {route for route, lowest in ROUTES.items() if ORDER.index(lowest) <= ORDER.index(role)}


def test_the_names_of_people_are_the_owners_to_see(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """And files that others bring in are those of whoever may bring some in."""
    with monkeypatch.context() as patch:
        write_experiment(patch, Path(served.site.storage), "done", {0: [1.0], 1: [2.0]})
    served.upload("a-log-of-mine.csv", b"episode\n")
    paths = ("/datasets", "/experiments", "/experiments/done", "/experiments/done/log", "/compare?of=done", "/people", "/nowhere")
    for name in ("nobody", *NAMES):
        browser = of(served, name)
        texts = [browser.get(served.url + path, timeout=60).text for path in paths]
        seen = {other for other in NAMES for text in texts if other in text}
        assert seen == ({name} if name in NAMES else set())
        assert NAMES.get(name) == "editor" or not any("a-log-of-mine.csv" in text for text in texts)
    assert all(name in served.get("/people").text for name in NAMES)


def test_the_address_of_the_cluster_is_the_owners_to_see(tmp_path: Path) -> None:
    with serving(tmp_path, accounts=True, address="http://head.example:8265") as served:
        served.site.people.add("ottilie", "ottilie and a long word", "viewer")  # pyright: ignore[reportOptionalMemberAccess]
        told = [of(served, name).get(f"{served.url}/people", timeout=20).text for name in ("nobody", "ottilie", "owner")]
        unreachable = [of(served, name).get(f"{served.url}/experiments", timeout=60).text for name in ("ottilie", "owner")]
    assert ["head.example" in text for text in told] == [False, False, True]
    assert ["head.example" in text for text in unreachable] == [False, True]
    assert "on a cluster" in told[1]
