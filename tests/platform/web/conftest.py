"""A page for each test, whose passwords are hashed quickly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from .site_server import Served, serving


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By argon2 still."""
    with suppress(ImportError):
        import argon2

        quick = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
        monkeypatch.setattr(argon2, "PasswordHasher", quick)
