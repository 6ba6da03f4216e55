"""The token: on loopback one of the user's own, elsewhere one that was said."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.service.running import running
from d3ray.platform.service.settings import ServeSettings
from d3ray.platform.service.token import service_token


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("D3RAY_SERVE_TOKEN", raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.0.1"])
def test_on_this_machine_alone_it_is_made_once_for_its_owner(host: str, tmp_path: Path) -> None:
    token, where = service_token(host, None)
    assert (token, where) == service_token(host, None)
    assert len(token) >= 32
    file = tmp_path / ".d3ray/serve_token"
    assert (str(file), file.stat().st_mode & 0o777) == (where, 0o600)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "robot.example"])
def test_elsewhere_it_has_to_be_said(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="open to the network"):
        service_token(host, None)
    monkeypatch.setenv("D3RAY_SERVE_TOKEN", "short")
    with pytest.raises(ConfigError, match="fewer than 16"):
        service_token(host, None)
    (tmp_path / "token").write_text("abcdefghijklmnopqrstuvwxyz\nmore\n")
    assert service_token(host, str(tmp_path / "token"))[0] == "abcdefghijklmnopqrstuvwxyz"


def test_a_file_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file is there"):
        service_token("127.0.0.1", str(tmp_path / "token"))
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        service_token("127.0.0.1", str(tmp_path / "token"))


def test_what_cannot_serve_is_said_before_ray_starts(discrete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d3ray.platform.service.running.ray_session", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases: list[tuple[dict[str, object], type[Exception], str]] = [
            ({"sources": str(discrete), "host": "0.0.0.0"}, ConfigError, "open to the network"),
            ({"sources": str(tmp_path / "none")}, ConfigError, "nothing is there"),
            ({"sources": str(discrete), "explore": "gaussian"}, ConfigError, "for continuous actions"),
            ({"sources": str(discrete), "port": port}, StorageError, "say another port"),
        ]
        for settings, kind, part in cases:
            with pytest.raises(kind, match=part), running(ServeSettings.checked(settings)):
                pass
