"""Accounts: who comes in, what each role may do, and who guesses passwords."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from d3ray.data.errors import ConfigError

from .site_server import Served, serving

pytest.importorskip("argon2", reason="argon2 is not installed")
SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path, accounts=True) as found:
        yield found


def come_in(served: Served, name: str, password: str) -> requests.Session:
    session = requests.Session()
    session.headers.update({"Accept": "text/html", **SAME})
    session.post(f"{served.url}/login", {"name": name, "password": password}, timeout=60)
    return session


def test_who_has_no_account_sees_the_way_in_and_nothing_else(served: Served) -> None:
    for path in ("/", "/datasets", "/experiments/x/rows.json", "/people", "/uploads/x"):
        assert requests.get(served.url + path, timeout=20).url.endswith("/login")
    assert requests.post(served.url + "/people", headers=SAME, timeout=20).status_code == 401
    assert requests.get(served.url + "/static/style.css", timeout=20).status_code == 200
    wrong = requests.post(
        served.url + "/login", {"name": "nobody", "password": "x"}, headers={**SAME, "Accept": "text/html"}, timeout=60
    )
    assert (wrong.status_code, "is wrong" in wrong.text) == (401, True)
    assert (
        requests.post(served.url + "/login", {"name": "x"}, headers={"Origin": "http://evil.example"}, timeout=20).status_code
        == 403
    )


def test_everybody_has_a_password_of_their_own(served: Served) -> None:
    """And whoever has it changes it: the owner, who made it, does not know it then, and other browsers are out."""
    served.post("/people", {"name": "ed", "password": "what the owner said", "role": "viewer"})
    here, elsewhere = (come_in(served, "ed", "what the owner said") for _ in range(2))
    page = f"{served.url}/password"
    for said, status, words in (
        ({"password": "a wrong password", "new": "a new password"}, 401, "that you have had is another"),
        ({"password": "what the owner said", "new": "short"}, 400, "10 to 200"),
    ):
        answer = here.post(page, said, timeout=60)
        assert (answer.status_code, words in answer.text) == (status, True)
    assert elsewhere.get(page, timeout=20).status_code == 200
    said = {"name": "owner", "role": "owner", "password": "what the owner said", "new": "a new password"}
    assert here.post(page, said, timeout=60).status_code == 200
    found = [one.get(f"{served.url}/datasets", timeout=20) for one in (here, elsewhere, come_in(served, "ed", "a new password"))]
    assert [one.url.endswith("/datasets") for one in found] == [True, False, True]
    assert 'class="viewer"' in found[0].text
    assert come_in(served, "ed", "what the owner said").get(f"{served.url}/datasets", timeout=20).url.endswith("/login")


@pytest.mark.parametrize(
    ("name", "password", "role", "said"),
    [
        ("", "long enough!", "viewer", "Nobody can be called"),
        ("owner", "long enough!", "viewer", "Nobody can be called"),
        ("a b", "long enough!", "viewer", "Nobody can be called"),
        ("ed", "short", "viewer", "10 to 200"),
        ("ed", "x" * 201, "viewer", "10 to 200"),
        ("ed", "long enough!", "owner", "is no role"),
        ("ed", "long enough!", "editr", "did you mean 'editor'"),
    ],
)
def test_accounts_that_cannot_be(served: Served, name: str, password: str, role: str, said: str) -> None:
    people = served.site.people
    assert people is not None
    with pytest.raises(ConfigError, match=said):
        people.add(name, password, role)
    assert people.all() == []
