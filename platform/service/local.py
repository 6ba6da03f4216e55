"""A service within the program that calls for it: the same application as replicas have, in one process and without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from ...data.errors import DataError, did_you_mean
from ...data.spec import Spec
from ...data.uris import is_remote
from . import wire
from .alarms import Alarms
from .application import Doors, application, digest_of, together
from .policy import ServedPolicy
from .recording import Ledger, Logged, Recorder, Unkept
from .settings import PolicySettings, ServiceSettings
from .versions import Version


@dataclass(frozen=True)
class Service:
    """A service of this process.

    Attributes:
        app: The ASGI application.
        policies: What it serves, by name.
    """

    app: FastAPI
    policies: dict[str, ServedPolicy]
    ledgers: Ledgers | None = None

    def close(self) -> None:
        """Ends the looks at the registry, and closes the log's files."""
        for policy in self.policies.values():
            policy.close()
        if self.ledgers is not None:
            self.ledgers.close()


def local_service(
    settings: ServiceSettings, *, token: str | None = None, record: Callable[[str, Version], Recorder] | None = None
) -> Service:
    """Open a service here.

    Args:
        settings: Of the service.
        token: That requests have to show; None: none, as behind another program's own guard.
        record: Makes what keeps a policy's decisions; None: as `settings.log` says.

    Raises:
        ConfigError: nothing is served, or settings do not suit a policy.
        StorageError: a policy or the log cannot be opened.
    """
    alarms = Alarms(alarm_folder(settings), alone=True)
    policies: dict[str, ServedPolicy] = {}
    for name, one in settings.served().items():
        policies[name] = served_policy(name, one, settings, alarms=alarms, record=record or recorder(settings))
    ledgers = None if settings.log is None else Ledgers(settings, {name: policy.champion.spec for name, policy in policies.items()})
    digest = None if token is None else digest_of(token)

    def doors(policy: str | None) -> Doors:
        async def outcomes(given: Sequence[wire.Outcome]) -> list[dict[str, Any]]:
            assert ledgers is not None
            return await asyncio.to_thread(ledgers.record, given, policy)

        return Doors(settings.bounds, digest, alarms, None if ledgers is None else outcomes)

    apps = {name: application(policy, doors(name)) for name, policy in policies.items()}

    async def status_of(name: str) -> dict[str, Any]:
        return policies[name].status()

    app = next(iter(apps.values())) if len(apps) == 1 else together(tuple(policies), status_of, doors(None), apps)
    return Service(app, policies, ledgers)


def served_policy(name: str, one: PolicySettings, settings: ServiceSettings, **more: Any) -> ServedPolicy:
    """One policy of a service; `more` as `ServedPolicy` takes it."""
    place = {"seed": settings.seed, "tracking": settings.tracking, "storage": settings.storage}
    return ServedPolicy(name, one, poll_seconds=settings.poll_seconds, **place, **more)


def alarm_folder(settings: ServiceSettings) -> Path | None:
    """Where an alarm's file stands: in the log's folder, where that is one."""
    if settings.log is None or is_remote(settings.log.folder):
        return None
    folder = Path(settings.log.folder).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def recorder(settings: ServiceSettings) -> Callable[[str, Version], Recorder]:
    """What makes the logs of policies."""
    if (log := settings.log) is None:
        return lambda name, version: Unkept()
    return lambda name, version: Logged(log, log_folder(settings, name), version.spec, name)


def log_folder(settings: ServiceSettings, name: str) -> str:
    """Where the log of a policy is: of the only one the log itself, else a folder of its name."""
    assert settings.log is not None
    place = settings.log.folder if is_remote(settings.log.folder) else str(Path(settings.log.folder).expanduser().absolute())
    return place if len(settings.served()) == 1 else f"{place.rstrip('/')}/{name}"


class Ledgers:
    """Takes outcomes for every policy of a service. Raises StorageError where a log cannot be opened."""

    def __init__(self, settings: ServiceSettings, spaces: Mapping[str, Spec]) -> None:
        assert settings.log is not None
        self._of = {name: Ledger(settings.log, log_folder(settings, name), spec) for name, spec in spaces.items()}

    def record(self, given: Sequence[wire.Outcome], policy: str | None = None) -> list[dict[str, Any]]:
        """Record outcomes, in their order. Raises DataError where one says no policy, though there are several, or an unknown one.

        Args:
            given: The outcomes.
            policy: Whose they are, where they say nothing.
        """
        alone = policy or (next(iter(self._of)) if len(self._of) == 1 else None)
        found: list[dict[str, Any]] = []
        for name, rows in groupby(given, key=lambda one: one.policy or alone):
            if name not in self._of:
                known = did_you_mean(name or "", self._of)
                raise DataError(
                    f"There is no policy {name!r}{known}" if name else f"An outcome has to say whose it is, as policy{known}"
                )
            found += self._of[name].record(list(rows))
        return found

    def close(self) -> None:
        for ledger in self._of.values():
            ledger.close()
