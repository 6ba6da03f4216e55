"""Passwords: who guesses them is held up and nobody else is, and comparing them holds up nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import requests

from d3ray.platform.web import passwords as module
from d3ray.platform.web.passwords import EACH, TRIES, WAIT, LaterError, Passwords, WrongTries
from d3ray.platform.web.people import People

from .site_server import Served, serving

Hasher = pytest.importorskip("argon2", reason="argon2 is not installed").PasswordHasher
WORD = "the right password"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    """A page with an editor `ed`, behind a proxy."""
    with serving(tmp_path, accounts=True, proxies="127.0.0.1") as found:
        of(found).add("ed", WORD, "editor")
        yield found


def of(served: Served) -> People:
    assert served.site.people is not None
    return served.site.people


def come_in(served: Served, password: str, address: str = "192.0.2.1", name: str = "ed") -> requests.Response:
    headers = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html", "X-Forwarded-For": address}
    said = {"name": name, "password": password}
    return requests.post(f"{served.url}/login", said, headers=headers, timeout=60, allow_redirects=False)


def test_who_guesses_keeps_out_himself_alone(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [come_in(page, "a wrong one").status_code for _ in range(TRIES)] == [401] * TRIES
    refused = come_in(page, WORD)
    assert (refused.status_code, "wait five minutes" in refused.text) == (429, True)
    assert 0 < int(refused.headers["retry-after"]) <= module.WITHIN
    assert come_in(page, WORD, "192.0.2.2").status_code == 303  # the account's owner, from elsewhere
    assert come_in(page, "a wrong one", name="other").status_code == 401
    monkeypatch.setattr(module, "WITHIN", 0.0)  # five minutes later
    assert come_in(page, WORD).status_code == 303


def test_nobody_learns_by_a_refusal_who_has_an_account(page: Served) -> None:
    told: list[list[tuple[int, str]]] = []
    for name in ("ed", "nobody"):
        answers = [come_in(page, "a wrong one", name=name) for _ in range(TRIES + 1)]
        told.append([(one.status_code, one.text) for one in answers])
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["ed", "nobody", "owner", "", "e" * 100_000])
def test_a_wrong_password_is_compared_with_a_hash_whoever_it_is_of(
    page: Served, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    verify = Hasher.verify

    def keep(self: Any, hashed: str, word: str) -> bool:
        compared.append(hashed)
        return verify(self, hashed, word)

    monkeypatch.setattr(Hasher, "verify", keep)
    assert of(page).enter(name, "a wrong one", "192.0.2.1") is None
    (hashed,) = compared
    assert hashed.startswith("$argon2id$")


def test_what_follows_a_password_counts(page: Served) -> None:
    word = "x" * module.LONGEST
    of(page).add("long", word, "viewer")
    assert of(page).enter("long", f"{word}y", "") is None
    assert of(page).enter("long", word, "")


def test_networks_are_addresses(page: Served) -> None:
    del page
    tries = WrongTries()
    for k in range(TRIES):
        tries.add("ed", f"2001:db8:1:2::{k}")
        tries.add("ed", "::ffff:192.0.2.1")
    for address in ("2001:db8:1:2:ffff::1", "192.0.2.1"):
        with pytest.raises(LaterError):
            tries.check("ed", address)
    for address in ("2001:db8:1:3::1", "::ffff:192.0.2.2", "", "testclient"):
        tries.check("ed", address)


def test_counters_are_few_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_COUNTED", 50)
    tries = WrongTries()
    for k in range(200):
        tries.add(f"{k}", "192.0.2.1")
    kept = tries._tries  # pyright: ignore[reportPrivateUsage]
    assert (len(kept), {len(key) for key in kept}) == (50, {32})
    for _ in range(TRIES):
        tries.add("ed", "192.0.2.1")
    tries.forget("ed", "192.0.2.1")  # he came in
    tries.check("ed", "192.0.2.1")


def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Semaphore, threading.Event]:
    """Comparing begins, which the semaphore counts, and goes on once the event is set."""
    begun, go = threading.Semaphore(0), threading.Event()

    def compare(self: Passwords, password: str, hashed: str | None) -> bool:
        begun.release()
        assert go.wait(60)
        return False

    monkeypatch.setattr(Passwords, "is_right", compare)
    return begun, go


def test_sixty_who_come_in_at_once_hold_up_nobody(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = slow(monkeypatch)
    with ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(come_in, page, "a wrong one", name=f"a{k}") for k in range(60)]
        try:
            assert begun.acquire(timeout=20)
            for _ in range(3):
                assert page.session.get(f"{page.url}/datasets", timeout=5).status_code == 200
            refused = [one.result() for one in islice(as_completed(asked, timeout=20), 60 - EACH)]
            made = page.post(
                "/people", {"name": "more", "password": WORD, "role": "viewer"}, headers={"X-Forwarded-For": "192.0.2.1"}
            )
        finally:
            go.set()
        answers = [one.result(60) for one in asked]
    assert made.status_code == 503  # as the sixty, in one sentence
    assert "Too many come in at once" in made.text
    assert made.headers["retry-after"] == "5"
    assert {one.status_code for one in refused} == {503}
    assert sorted(one.status_code for one in answers) == [401] * EACH + [503] * (60 - EACH)
    assert {one.headers.get("retry-after") for one in answers if one.status_code == 503} == {"5"}


def test_half_of_the_room_is_left_to_other_addresses() -> None:
    passwords, go = Passwords(), threading.Event()

    async def asked() -> list[bool]:
        waiting: list[asyncio.Task[bool]] = []
        refused: list[bool] = []
        for address, n in (("2001:db8::1", EACH), ("2001:db8::2", 1), ("b", WAIT - EACH), ("c", 1)):
            for _ in range(n):
                waiting.append(asyncio.create_task(passwords.work(address, lambda: go.wait(60))))
                await asyncio.sleep(0)
                refused.append(waiting[-1].done())
        go.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await passwords.work("a", lambda: True)  # nobody waits any more
        return refused

    found = asyncio.run(asked())
    assert [k for k, one in enumerate(found) if one] == [EACH, WAIT + 1]
