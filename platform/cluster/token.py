"""The file with Ray's token: a password, which Ray itself would write for everybody of the machine to read."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # in the order in which Ray takes them
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def keep_token_private(*, make: bool = False) -> None:
    """Leaves `~/.ray/auth_token` to its owner alone; whoever can read it runs programs as the owner of the cluster.

    Where it cannot be written nothing is done, and Ray says what it lacks.

    Args:
        make: also makes the file where it is missing, as Ray would later: for a Ray that starts here.
    """
    if token_place() in _VARIABLES:
        return  # which come first with Ray; where they lie is their owner's affair
    file = _file()
    with suppress(OSError):
        if make and not file.exists():
            _make(file)
        file.chmod(0o600)


def token_place() -> str:
    """Where Ray has its token from: a variable's name, or its file's."""
    return next((name for name in _VARIABLES if os.environ.get(name)), "~/.ray/auth_token")


def token() -> str:
    """Read Ray's token from its variables or its file; empty: there is none."""
    if named := os.environ.get("RAY_AUTH_TOKEN"):
        return named
    with suppress(OSError):
        return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or _file()).read_text().strip()
    return ""


@contextmanager
def shown_here(address: str | None) -> Generator[None]:
    """Lets a connection to a Ray of this machine show the token, unless `RAY_AUTH_MODE` says something else.

    A token is made where there is none: Ray ends a process that is to show one and has none. To be entered before Ray is imported.

    Args:
        address: where to; None: to the Ray that was started on this machine.
    """
    if "RAY_AUTH_MODE" in os.environ or not (address is None or is_loopback(address)):
        yield
        return
    keep_token_private(make=True)
    os.environ["RAY_AUTH_MODE"] = "token"
    try:
        yield
    finally:
        os.environ.pop("RAY_AUTH_MODE", None)


def is_loopback(address: str) -> bool:
    """Return True if a URL names only this machine; it may be a tunnel's near end."""
    return urlsplit(address).hostname in _LOOPBACK


def _file() -> Path:
    return Path.home() / ".ray" / "auth_token"  # Ray's place for it


def _make(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    made, name = tempfile.mkstemp(prefix=".auth_token-", dir=file.parent)  # which its owner alone can read
    try:
        os.write(made, secrets.token_hex(32).encode())
        with suppress(FileExistsError):  # another command was quicker: its Ray may run with that token already
            os.link(name, file)
    finally:
        os.close(made)
        Path(name).unlink()
