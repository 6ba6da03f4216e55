"""What experiments may spend, and what they have spent over every resume: kept in their folders as `spent.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..storage.folders import Folder

_SECONDS_BETWEEN = 10.0  # two writes; so much is forgotten at most when the driver is killed


class Spent:
    """Time during which trials run, and time of the GPUs that they hold.

    Args:
        folder: The experiment's.
        clock: Seconds since some moment.

    Attributes:
        seconds: In which at least one trial ran.
        gpu_seconds: Seconds of epochs, each times the GPUs of its trial.
    """

    def __init__(self, folder: Folder, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        there = folder.read_json("spent.json") or {}
        self.seconds, self.gpu_seconds = float(there.get("seconds", 0)), float(there.get("gpu_seconds", 0))
        self._last: float | None = None  # when time was last added; None: nothing runs
        self._written = -_SECONDS_BETWEEN

    def tick(self, running: int) -> None:
        """Adds the time since the last call, if anything ran then; `running`: how many trials do now. Raises StorageError."""
        now = self._clock()
        if self._last is not None:
            self.seconds += now - self._last
        was, self._last = self._last, now if running else None
        if was is not None and (now - self._written >= _SECONDS_BETWEEN or not running):
            self._folder.write_json("spent.json", {"seconds": self.seconds, "gpu_seconds": self.gpu_seconds})
            self._written = now

    def add_epoch(self, result: Mapping[str, Any]) -> None:
        """Adds an epoch as Tune reports it, with the config of its trial."""
        gpus = float(result.get("config", {}).get("trial", {}).get("resources", {}).get("gpu", 0))
        self.gpu_seconds += float(result.get("time_this_iter_s", 0.0)) * gpus

    def is_over(self, hours: float | None, gpu_hours: float | None) -> bool:
        """Whether a limit is reached; None: there is none."""
        over = hours is not None and self.seconds >= hours * 3600
        return over or (gpu_hours is not None and self.gpu_seconds >= gpu_hours * 3600)
