"""Requests that do not come in time, and answers that do."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from d3ray.platform.web import serving as limits

from .site_server import Served, serving


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.6)
    monkeypatch.setattr(limits, "BODY_SECONDS", 1.2)
    monkeypatch.setattr(limits, "_LOOK_SECONDS", 0.1)
    with serving(tmp_path) as found:
        yield found


def closed_after(served: Served, first: bytes, every: bytes) -> float:
    """Seconds until the server closes a connection on which a piece comes every now and then."""
    with socket.create_connection(("127.0.0.1", served.site.port), timeout=10) as connection:
        begun = time.monotonic()
        connection.sendall(first)
        connection.settimeout(0.2)
        while time.monotonic() - begun < 10:
            try:
                if not connection.recv(1000):
                    break
            except TimeoutError:
                try:
                    connection.sendall(every)
                except OSError:
                    break
            except OSError:
                break
        return time.monotonic() - begun


def test_a_head_that_never_ends(hasty: Served) -> None:
    host = f"127.0.0.1:{hasty.site.port}"
    assert 0.4 < closed_after(hasty, f"GET / HTTP/1.1\r\nHost: {host}\r\n".encode(), b"X-A: b\r\n") < 3


def test_an_answer_does_not_wait_for_its_heads_acknowledgement(served: Served) -> None:
    """Which a system delays by 40 ms, once a connection has been used a few times."""
    served.get("/static/page.js")
    waited: list[float] = []
    for _ in range(60):
        begun = time.perf_counter()
        assert served.get("/datasets").status_code == 200
        waited.append(time.perf_counter() - begun)
    assert min(waited[20:]) < 0.035


def test_nothing_at_all(hasty: Served) -> None:
    assert 0.4 < closed_after(hasty, b"", b"") < 3


def test_a_body_that_never_ends(hasty: Served) -> None:
    head = (
        f"POST /experiments/check HTTP/1.1\r\nHost: 127.0.0.1:{hasty.site.port}\r\nSec-Fetch-Site: same-origin\r\n"
        f"Cookie: {hasty.cookie}\r\nContent-Length: 100000\r\n\r\n"
    )
    assert 1 < closed_after(hasty, head.encode(), b"x") < 5
    assert hasty.get("/datasets").status_code == 200  # others are served meanwhile and after
