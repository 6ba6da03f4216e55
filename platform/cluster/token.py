"""The file with Ray's token: a password, which Ray itself would write for everybody of the machine to read."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path


def keep_token_private(*, make: bool = False) -> None:
    """Leaves `~/.ray/auth_token` to its owner alone; whoever can read it runs programs as the owner of the cluster.

    Where it cannot be written nothing is done, and Ray says what it lacks.

    Args:
        make: also makes the file where it is missing, as Ray would later: for a Ray that starts here.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return  # which come first with Ray; where they lie is their owner's affair
    file = Path.home() / ".ray" / "auth_token"  # Ray's place for it
    with suppress(OSError):
        if make and not file.exists():
            _make(file)
        file.chmod(0o600)


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
