"""Whose turn it is: the versions of a policy that act, and how one of them takes over from another."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import Literal

from ...data.errors import ConfigError
from ..tracking.registered import pinned
from .settings import PolicySettings
from .versions import Version, check_beside, opened, same_spaces, unreadable

Role = Literal["champion", "canary", "shadow", "fallback"]
KEPT = 2  # versions before the champion that go on with episodes which they remember
_LOG = logging.getLogger("d3ray.service")


@dataclass(frozen=True)
class Turn:
    """Who acts now; exchanged as a whole."""

    champion: Version
    canary: Version | None = None
    shadow: Version | None = None
    before: tuple[Version, ...] = ()

    def known(self) -> dict[str, tuple[Version, Role]]:
        """Versions that may act, by label, the champion first."""
        before: list[tuple[Version | None, Role]] = [(version, "champion") for version in self.before]
        roles: list[tuple[Version | None, Role]] = [(self.champion, "champion"), (self.canary, "canary"), *before]
        found: dict[str, tuple[Version, Role]] = {}
        for version, role in roles:
            if version is not None:
                found.setdefault(version.label, (version, role))
        return found


class Turns:
    """Who acts as a policy of a service, as aliases of the registry say.

    Args:
        name: Of the policy in the service.
        settings: How it acts.
        tracking, storage: Where the registry is.

    Attributes:
        now: Who acts.
        trouble: Why a role's alias could not be followed, by role, in sentences.

    Raises:
        ConfigError: settings do not suit a version, or one cannot stand beside the champion.
        StorageError: one cannot be read.
    """

    def __init__(self, name: str, settings: PolicySettings, *, tracking: str | None, storage: str) -> None:
        self._name, self._settings, self._tracking, self._storage = name, settings, tracking, storage
        places = {role: self._place(role, said) for role, said in self._followed().items()}
        found = {role: self._opened(place) for role, place in places.items() if place is not None}
        self.now = Turn(found["champion"], canary=found.get("canary"), shadow=found.get("shadow"))
        for role, version in found.items():
            self._check(version, role)
            check_beside(found["champion"], version, role)
        self.trouble: dict[str, str] = {}
        self._over = threading.Event()
        self._watch: threading.Thread | None = None

    def keep_looking(self, seconds: float) -> None:
        """Look every so many seconds, in a thread, where there is an alias; 0: never."""
        if seconds > 0 and any("@" in said for said in self._followed().values()):
            self._watch = threading.Thread(target=self._look_again, args=(seconds,), daemon=True, name=f"d3ray-{self._name}")
            self._watch.start()

    def close(self) -> None:
        """Ends the looks."""
        self._over.set()
        if self._watch is not None:
            self._watch.join()

    def look(self) -> list[str]:
        """Look whether an alias is on another version, and take that over; the sentences of what changed.

        What cannot be read leaves who acts now; why is in `status` and the log. Where the alias of a canary or a shadow is gone,
        nobody is it any more.
        """
        changed: list[str] = []
        for role, said in self._followed().items():
            if "@" not in said:
                continue
            present: Version | None = getattr(self.now, role)
            try:
                place = self._place(role, said)
                if place == (present and present.source):
                    self.trouble.pop(role, None)
                    continue
                new = None if place is None else self._opened(place)
                if new is not None:
                    if not same_spaces(self.now.champion, new):
                        raise ConfigError(f"{place} has other spaces than {self.now.champion.source}: it cannot take over.")
                    self._check(new, role)
            except Exception as error:  # whatever a damaged package or an absent server leads to
                if self.trouble.get(role) != (why := unreadable(error)):
                    _LOG.error("%s stays on version %s: %s", self._name, present.label if present else "none", why)
                self.trouble[role] = why
                continue
            self.trouble.pop(role, None)
            before = (present, *self.now.before)[:KEPT] if role == "champion" and present is not None else self.now.before
            self.now = replace(self.now, **{role: new}, before=before)
            who, instead = (f"version {one.label}" if one is not None else "nobody" for one in (new, present))
            changed.append(f"{self._name}: {who} is the {role}, in place of {instead}.")
            _LOG.warning(changed[-1])
        return changed

    def _followed(self) -> dict[str, str]:
        said = {"champion": self._settings.source, "canary": self._settings.canary, "shadow": self._settings.shadow}
        return {role: source for role, source in said.items() if source is not None}

    def _place(self, role: str, said: str) -> str | None:
        """Which version a source is now; None of a canary or a shadow whose alias nobody has. Raises ConfigError, StorageError."""
        if "@" not in said:
            return said
        try:
            return pinned(said, self._tracking, self._storage)
        except ConfigError as error:
            if role != "champion" and error.missing:
                return None
            raise

    def _look_again(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            self.look()

    def _opened(self, source: str) -> Version:
        return opened(source, tracking=self._tracking, storage=self._storage, stacked=self._settings.stacked)

    def _check(self, version: Version, role: str) -> None:
        """Raises ConfigError where a version cannot explore as is said, or nobody tells a shadow which return it acts for."""
        if role == "shadow":
            version.start()
            return
        explore = self._settings.explore
        explore.check(version.spec, version.source, draws=version.draws)
        if explore.needs_values and not version.has_values:
            raise ConfigError(f"explore={explore.name} draws by values, and the package of {version.source} has none.")
