"""People with passwords and roles, where a page has accounts: who they are, and how they come in.

The link that `d3ray web` prints lets its opener in as the owner, who makes accounts for others. A viewer looks, an editor changes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast, get_args

from ...data.errors import ConfigError, did_you_mean
from .passwords import LONGEST, Passwords, WrongTries
from .sessions import OWNER, Person, Role, Sessions

if TYPE_CHECKING:
    from .records import Records

SHORTEST = 10  # characters of a password
_NAME = re.compile(r"[\w][\w.@+-]{0,60}")


class People:
    """The accounts of a page, kept with hashes of passwords alone; `passwords.work` makes those. Raises ConfigError: no argon2."""

    def __init__(self, records: Records, sessions: Sessions) -> None:
        self._records, self._sessions = records, sessions
        self.passwords = Passwords()
        self._wrong = WrongTries()

    def add(self, name: str, password: str, role: str) -> None:
        """Makes an account, or gives one another password and role, which ends its sessions. Raises ConfigError."""
        if not _NAME.fullmatch(name) or name == OWNER.name:
            raise ConfigError(f"Nobody can be called {name[:70]!r} here: letters, digits, dots and dashes, at most 61.")
        if role not in ("viewer", "editor"):
            raise ConfigError(f"{role!r} is no role{did_you_mean(role, get_args(Role)[:2])}")
        if not SHORTEST <= len(password) <= LONGEST:
            raise ConfigError(f"A password has {SHORTEST} to {LONGEST} characters.")
        self._records.keep_person(name, self.passwords.hash(password), role)

    def enter(self, name: str, password: str, address: str) -> str | None:
        """A new session's token; None: the name or the password is wrong. Raises LaterError: too many wrong ones of late."""
        return self._sessions.begin(name) if self._is_right(name, password, address) else None

    def change(self, who: Person, password: str, new: str, address: str) -> str | None:
        """Gives somebody another password, and a new session's token; None: the old password is wrong.

        Raises:
            ConfigError: the new one cannot be used; LaterError: too many wrong ones of late.
        """
        if not self._is_right(who.name, password, address):
            return None
        self.add(who.name, new, who.role)
        return self._sessions.begin(who.name)

    def _is_right(self, name: str, password: str, address: str) -> bool:
        self._wrong.check(name, address)
        hashed = (self._records.person(name) or ("",))[0]
        if not self.passwords.is_right(password, hashed):
            self._wrong.add(name, address)
            return False
        self._wrong.forget(name, address)
        return True

    def remove(self, name: str) -> None:
        """Deletes an account and its sessions. Raises ConfigError: it is the owner's."""
        if name == OWNER.name:
            raise ConfigError("The owner has no account that could be removed: end the page, and start it anew.")
        self._records.delete_person(name)

    def all(self) -> list[Person]:
        return [Person(name, cast("Role", role)) for name, role in self._records.people() if name != OWNER.name]
