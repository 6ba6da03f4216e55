"""The token that clients show: a file's, the environment's, or one of this machine's user."""

from __future__ import annotations

import ipaddress
import os
import secrets
from pathlib import Path

from ...data.errors import ConfigError
from ...data.storage.files import storage_errors

VARIABLE = "D3RAY_SERVE_TOKEN"
SHORTEST = 16  # characters of one that guards a service which others reach


def service_token(host: str, file: str | None) -> tuple[str, str]:
    """The token, and where clients find it.

    Args:
        host: That the service binds.
        file: Said by the user; None: the variable, else on loopback a file of the user's own, which is made where there is none.

    Raises:
        ConfigError: the file is not there or empty; or others reach the service, and no token, or a short one, was said for it.
        StorageError: a file cannot be read or written.
    """
    if file is not None:
        place = Path(file).expanduser()
        if not place.is_file():
            raise ConfigError(f"token is {file}, and no file is there: write the token to it, or set {VARIABLE}.")
        token, where = _first_line(place), str(place)
    elif given := os.environ.get(VARIABLE, "").strip():
        token, where = given, f"${VARIABLE}"
    elif is_loopback(host):
        place = Path.home() / ".d3ray" / "serve_token"
        token, where = _own(place), str(place)
    else:
        raise ConfigError(
            f"host={host} is open to the network, so clients have to show a token: say token=FILE, or set {VARIABLE}."
        )
    if not token:
        raise ConfigError(f"The token of {where} is empty.")
    if not is_loopback(host) and len(token) < SHORTEST:
        raise ConfigError(f"host={host} is open to the network, and the token of {where} has fewer than {SHORTEST} characters.")
    return token, where


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches what binds a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _first_line(place: Path) -> str:
    with storage_errors("read", place):
        return (place.read_text().splitlines() or [""])[0].strip()


def _own(place: Path) -> str:
    """The token of a file that only its owner reads; it is made where it is not there."""
    with storage_errors("written", place):
        place.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            place.chmod(0o600)
            return _first_line(place)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(f"{secrets.token_urlsafe(24)}\n")
    return _first_line(place)
