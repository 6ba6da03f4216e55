"""The alarm by which fallbacks act in place of policies: a file beside a log, which every replica looks at.

    alarm.json    {"on": true, "why": "the data have drifted", "policy": null}

Whoever watches the service writes it, by POST /alarm or by itself; one of `policy` null is for all. Where a service has several
policies, whose logs are folders of its log, one may stand in a policy's own folder too, and is for that policy.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from ...data.errors import ConfigError
from ...data.storage.files import storage_errors, write_atomically
from .wire import Alarm

FILE = "alarm.json"
_SECONDS = 0.2  # between two looks


class Alarms:
    """What is alarmed. `folder` is the log's; None: there is none, and alarms are this process's own, if `alone`."""

    def __init__(self, folder: Path | None, *, alone: bool = False) -> None:
        self._common, self._alone = _Alarmed(folder), alone
        self._own = dict[str, _Alarmed]()  # by policy
        self._folder = folder

    def of(self, policy: str) -> str | None:
        """Why a policy's fallback is to act, None where it is not. A file that cannot be read changes nothing."""
        own = self._own.get(policy)
        if own is None:
            own = self._own[policy] = _Alarmed(self._folder and self._folder / policy)
        known = self._common.known() | own.known()
        return known.get(policy, known.get(None))

    def set(self, alarm: Alarm) -> None:
        """Sets or ends an alarm. Raises ConfigError where there is no place for it, StorageError where that cannot be written."""
        if self._folder is None and not self._alone:
            raise ConfigError("An alarm stands beside the log, and this service keeps none: start it with log=FOLDER.")
        self._common.set(alarm)


class _Alarmed:
    """The file of one folder; None: what this process was told."""

    def __init__(self, folder: Path | None) -> None:
        self._file = folder and folder / FILE
        self._known, self._stamp, self._next = dict[str | None, str](), (0, 0), 0.0

    def known(self) -> dict[str | None, str]:
        if self._file is not None and (now := time.monotonic()) >= self._next:
            self._next = now + _SECONDS
            self._look(self._file)
        return self._known

    def set(self, alarm: Alarm) -> None:
        if self._file is not None:
            self._look(self._file)
        known = {policy: why for policy, why in self._known.items() if policy != alarm.policy and (alarm.policy or alarm.on)}
        known |= {alarm.policy: alarm.why or "alarm"} if alarm.on else {}
        if self._file is not None:
            told = [{"on": True, "why": why, "policy": policy} for policy, why in known.items()]
            with storage_errors("written", self._file):
                write_atomically(self._file, json.dumps(told).encode())
        self._known, self._next = known, 0.0

    def _look(self, file: Path) -> None:
        try:
            about = file.stat()
        except OSError:
            self._known, self._stamp = {}, (0, 0)
            return
        if (stamp := (about.st_mtime_ns, about.st_ino)) == self._stamp:
            return
        try:
            found = json.loads(file.read_bytes())
            each = [Alarm.checked(one) for one in (found if isinstance(found, list) else [found])]
        except (OSError, ValueError):
            return
        self._known, self._stamp = {one.policy: one.why or "alarm" for one in each if one.on}, stamp
