"""Browsers that were let in: each has a random token in a cookie, of which only the hash is kept."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import Literal, cast, get_args

from starlette.requests import HTTPConnection
from starlette.responses import Response

from .records import Records

Role = Literal["viewer", "editor", "owner"]
SECONDS = 30 * 86400  # that a session lasts


@dataclass(frozen=True)
class Person:
    name: str
    role: Role

    def may_as(self, role: Role) -> bool:
        roles = get_args(Role)
        return roles.index(self.role) >= roles.index(role)


OWNER = Person("owner", "owner")  # whoever has the printed link


class Sessions:
    """Those of a page. Whoever starts it anew has a new link, so the owner's sessions of before are none any more; others go on."""

    def __init__(self, records: Records, link: str, cookie: str, path: str) -> None:
        self._records, self._link, self._cookie, self._path = records, link, cookie, path
        if records.person(OWNER.name) is None:
            records.keep_person(OWNER.name, "", OWNER.role)  # without a password nobody comes in by this name

    def begin(self, name: str) -> str:
        token = secrets.token_urlsafe(32)
        others, owners = self._hashes(token)
        self._records.keep_session(owners if name == OWNER.name else others, name, time.time(), SECONDS)
        return token

    def give(self, answer: Response, token: str, asked: HTTPConnection) -> None:
        """Sets the cookie.

        It is Lax and not Strict, so that a link to a page works wherever it is written; what changes something is no link, and the
        guard looks at where it comes from.
        """
        secure = asked.url.scheme == "https"
        answer.set_cookie(self._cookie, token, SECONDS, path=self._path, secure=secure, httponly=True, samesite="lax")

    def person(self, asked: HTTPConnection) -> Person | None:
        """Who asks; None: nobody who was let in."""
        token = asked.cookies.get(self._cookie)
        found = self._records.session(self._hashes(token), time.time()) if token else None
        return None if found is None else Person(found[0], cast("Role", found[1]))

    def end(self, asked: HTTPConnection) -> None:
        """Ends that of whoever asks."""
        if token := asked.cookies.get(self._cookie):
            self._records.end_session(self._hashes(token))

    def take(self, answer: Response) -> None:
        answer.delete_cookie(self._cookie, path=self._path)

    def _hashes(self, token: str) -> tuple[str, str]:
        """Return a token's hashes for account holders and for the owner; the owner's expires with the link."""
        others, owners = (hashlib.sha256(f"{link}{token}".encode()).hexdigest() for link in ("", self._link))
        return others, owners
