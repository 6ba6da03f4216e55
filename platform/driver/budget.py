"""What experiments may spend, and what they have spent over every resume: kept in their folders as `spent.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..settings.config import Limits
from ..storage.folders import Folder

_SECONDS_BETWEEN = 10.0  # two writes; so much is forgotten at most when the driver is killed


class Spent:
    """Time during which trials run, and time of the GPUs that they hold. What writes raises StorageError.

    `limits` say when nothing new begins, `time_limit` after how many seconds what runs is to end too.

    Attributes:
        seconds: In which at least one trial ran.
        gpu_seconds: Seconds of epochs, each times the GPUs of its trial.
    """

    def __init__(
        self,
        folder: Folder,
        limits: Limits | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        time_limit: float | None = None,
    ) -> None:
        self._folder, self._limits, self._clock, self._time_limit = folder, limits, clock, time_limit
        there = folder.read_json("spent.json") or {}  # kept without limits too: a resume may set one
        self.seconds, self.gpu_seconds = float(there.get("seconds", 0)), float(there.get("gpu_seconds", 0))
        self._running = set[str]()
        self._last = clock()  # when time was last added
        self._written = -_SECONDS_BETWEEN

    def began(self, identity: str) -> None:
        self._tick()
        self._running.add(identity)

    def epoch(self, result: Mapping[str, Any]) -> None:
        """Adds an epoch as Tune reports it, with the config of its trial."""
        gpus = float(result.get("config", {}).get("trial", {}).get("resources", {}).get("gpu", 0))
        self.gpu_seconds += float(result.get("time_this_iter_s", 0.0)) * gpus
        self._tick()

    def ended(self, identity: str) -> None:
        self._tick(last=self._running == {identity})
        self._running.discard(identity)

    @property
    def is_over(self) -> bool:
        self._tick()
        hours, gpu_hours = (None, None) if self._limits is None else (self._limits.hours, self._limits.gpu_hours)
        over = hours is not None and self.seconds >= hours * 3600
        return over or (gpu_hours is not None and self.gpu_seconds >= gpu_hours * 3600)

    @property
    def is_time_up(self) -> bool:
        """True once the time limit is up."""
        self._tick()
        return self._time_limit is not None and self.seconds >= self._time_limit

    def _tick(self, *, last: bool = False) -> None:
        """Adds the time since the last call, if anything ran then, and writes it down now and then, and at the end."""
        now = self._clock()
        if self._running:
            self.seconds += now - self._last
            if last or now - self._written >= _SECONDS_BETWEEN:
                self._folder.write_json("spent.json", {"seconds": self.seconds, "gpu_seconds": self.gpu_seconds})
                self._written = now
        self._last = now
