"""Passwords are hashed by a thread of their own, for which few may wait, and are not tried for ever."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...data.errors import ConfigError

LONGEST = 200  # characters of a password
WAIT, EACH = 16, 8  # who may wait for the thread: everybody, and those of one address
TRIES, WITHIN = 5, 300.0  # wrong passwords of a name from an address, and the seconds for which they count
MOST_COUNTED = 10_000  # names and addresses with wrong passwords
_RETRY_SECONDS = 5

T = TypeVar("T")


class LaterError(ConfigError):
    """Tell the client to retry after `seconds`; `status` is the response's."""

    def __init__(self, sentence: str, status: int, seconds: float) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, {"Retry-After": str(math.ceil(seconds))}


class Passwords:
    """Makes and compares hashes. One takes 64 MiB and up to half a second: many at once would take a machine down."""

    def __init__(self) -> None:
        try:
            from argon2 import PasswordHasher
        except ImportError:
            raise ConfigError("Accounts need argon2: pip install 'd3ray[accounts]' brings it.") from None
        self._hasher = PasswordHasher()
        self._nobody = self._hasher.hash(secrets.token_hex())
        self._thread = ThreadPoolExecutor(1, "passwords")
        self._wait = Counter[bytes]()

    async def work(self, address: str, work: Callable[[], T]) -> T:
        """Does what hashes, in its thread. Raises LaterError: too many wait; half of the room is left to other addresses."""
        place = _network(address)
        if self._wait.total() >= WAIT or self._wait[place] >= EACH:
            raise LaterError("Too many come in at once: try again in a few seconds.", 503, _RETRY_SECONDS)
        self._wait[place] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._wait -= Counter({place: 1})  # which forgets those of whom none is left

    def hash(self, password: str) -> str:
        return self._hasher.hash(password)

    def is_right(self, password: str, hashed: str | None) -> bool:
        """Check a password against its hash; without one, return False after as long."""
        from argon2.exceptions import VerifyMismatchError

        try:
            return self._hasher.verify(hashed or self._nobody, password[: LONGEST + 1])
        except VerifyMismatchError:
            return False


class WrongTries:
    """How often a wrong password was said of late, by the name and the address from which it came.

    So whoever guesses keeps out nobody who comes from elsewhere.
    """

    def __init__(self) -> None:
        self._tries = OrderedDict[bytes, list[float]]()

    def check(self, name: str, address: str) -> None:
        """Raises LaterError where there were too many."""
        recent = self._recent(_key(name, address))
        if len(recent) >= TRIES:
            seconds = WITHIN - (time.monotonic() - recent[0])
            raise LaterError("Too many wrong passwords: wait five minutes.", 429, seconds)

    def add(self, name: str, address: str) -> None:
        key = _key(name, address)
        self._tries[key] = [*self._recent(key), time.monotonic()]
        self._tries.move_to_end(key)
        if len(self._tries) > MOST_COUNTED:
            self._tries.popitem(last=False)

    def forget(self, name: str, address: str) -> None:
        """After the right one."""
        self._tries.pop(_key(name, address), None)

    def _recent(self, key: bytes) -> list[float]:
        now = time.monotonic()
        return [at for at in self._tries.get(key, []) if now - at < WITHIN]


def _key(name: str, address: str) -> bytes:
    """Small, however long the name."""
    return hashlib.sha256(_network(address) + b"\0" + name.encode("utf-8", "replace")).digest()


def _network(address: str) -> bytes:
    """Of an IPv6 address the network, of which whoever is in it has any number; else the address."""
    try:
        found = ipaddress.ip_address(address)
        return (getattr(found, "ipv4_mapped", None) or found).packed[:8]
    except ValueError:
        return address.encode()
