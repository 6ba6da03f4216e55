"""People with passwords and roles, where a page has accounts: who they are, and how they come in.

The link that `d3ray web` prints lets its opener in as the owner, who makes accounts for others. A viewer looks, an editor changes.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

from ...data.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from .records import Records

Role = Literal["viewer", "editor", "owner"]
SESSION_SECONDS = 30 * 86400
SHORTEST = 10  # characters of a password
_LONGEST = 200
_TRIES, _WITHIN = 5, 300.0  # wrong passwords of a name, and the seconds for which they count
_NAME = re.compile(r"[\w][\w.@+-]{0,60}")


@dataclass(frozen=True)
class Person:
    """Who asks."""

    name: str
    role: Role

    @property
    def may_change(self) -> bool:
        """Whether more than looking is allowed."""
        return self.role != "viewer"


OWNER = Person("owner", "owner")  # whoever has the printed link


class People:
    """The accounts of a page.

    Args:
        records: Where they are kept: hashes of passwords and of sessions alone.

    Raises:
        ConfigError: argon2 is not installed.
    """

    def __init__(self, records: Records) -> None:
        try:
            from argon2 import PasswordHasher
        except ImportError:
            raise ConfigError("Accounts need argon2: pip install 'd3ray[accounts]' brings it.") from None
        self._records, self._hasher = records, PasswordHasher()
        self._one_at_a_time = threading.Lock()  # a hash takes 64 MiB and half a second: twenty at once would take a machine down
        self._wrong: dict[str, list[float]] = {}
        self._nobody = self._hasher.hash(secrets.token_hex())

    def add(self, name: str, password: str, role: str) -> None:
        """Makes an account, or gives one another password and role. Raises ConfigError."""
        if not _NAME.fullmatch(name) or name == OWNER.name:
            raise ConfigError(f"Nobody can be called {name[:70]!r} here: letters, digits, dots and dashes, at most 61.")
        if role not in ("viewer", "editor"):
            raise ConfigError(f"{role!r} is no role{did_you_mean(role, get_args(Role)[:2])}")
        if not SHORTEST <= len(password) <= _LONGEST:
            raise ConfigError(f"A password has {SHORTEST} to {_LONGEST} characters.")
        with self._one_at_a_time:
            hashed = self._hasher.hash(password)
        self._records.keep_person(name, hashed, role)

    def enter(self, name: str, password: str) -> str | None:
        """A new session's token; None: the name or the password is wrong. Raises ConfigError: too many wrong ones of late."""
        from argon2.exceptions import VerifyMismatchError

        now, known = time.monotonic(), self._records.person(name)
        recent = [at for at in self._wrong.get(name, []) if now - at < _WITHIN]
        if len(recent) >= _TRIES:
            raise ConfigError("Too many wrong passwords: wait five minutes.")
        with self._one_at_a_time:
            try:  # of somebody unknown too, so that it takes as long
                right = self._hasher.verify(known[0] if known else self._nobody, password[:_LONGEST]) and known is not None
            except VerifyMismatchError:
                right = False
        if not right:
            self._wrong = {who: tries for who, tries in self._wrong.items() if now - tries[-1] < _WITHIN}
            self._wrong[name] = [*recent, now]
            return None
        token = secrets.token_urlsafe(32)
        self._records.keep_session(_hash(token), name, time.time() + SESSION_SECONDS)
        return token

    def of(self, token: str) -> Person | None:
        """Whose session it is."""
        found = self._records.session(_hash(token), time.time()) if token else None
        return None if found is None else Person(found[0], cast("Role", found[1]))

    def leave(self, token: str) -> None:
        """Ends a session."""
        self._records.end_session(_hash(token))

    def remove(self, name: str) -> None:
        """Deletes an account and its sessions."""
        self._records.delete_person(name)

    def all(self) -> list[Person]:
        """Everybody."""
        return [Person(name, cast("Role", role)) for name, role in self._records.people()]


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()  # of a random token; a password's hash is slow instead
