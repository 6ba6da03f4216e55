"""A page for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .site_server import Served, serving


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path) as found:
        yield found
