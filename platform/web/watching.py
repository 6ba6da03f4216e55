"""Reading experiments and datasets for many viewers: one reads, all see."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ...data.errors import ConfigError
from .. import api as d3ray
from ..record.datasets import DatasetStatus, Inspected
from ..record.status import Status

_STATUS_SECONDS = 0.5  # for which what was read serves every viewer
ROWS_SECONDS = 1.0


class Watch:
    """Cache what is read of a storage's experiments and of datasets, for all concurrent viewers."""

    def __init__(self, storage: str, address: str | None, datasets: str, beside: str | None = None) -> None:
        self._storage, self._address, self._datasets, self._beside = storage, address, datasets, beside
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}
        self._handles: dict[str, d3ray.ExperimentHandle] = {}
        self._busy: dict[tuple[str, str], threading.Lock] = {}
        self._looked: dict[tuple[str, float], Future[Inspected]] = {}  # by dataset and when it changed
        self._looks = threading.Lock()  # each look is a process that reads all of a dataset: one at a time

    def handle(self, name: str) -> d3ray.ExperimentHandle:
        with self._lock:
            known = self._handles.get(name)
        if known is None:
            known = d3ray.open(name, storage=self._storage, address=self._address)
            with self._lock:
                self._handles[name] = known
        return known

    def forget(self, name: str = "") -> None:
        """After an experiment was deleted, or begun anew; without a name after a dataset was."""
        with self._lock:
            self._handles.pop(name, None)
            for key in [key for key in self._kept if key[1] in (name, "")]:
                del self._kept[key]

    def all(self) -> list[Status]:
        return self._read("list", "", _STATUS_SECONDS, lambda: d3ray.list(self._storage, address=self._address))

    def datasets(self) -> list[DatasetStatus]:
        def read() -> list[DatasetStatus]:
            return d3ray.datasets.list(self._datasets, experiments=self._experiments(), beside=self._beside)

        return self._read("datasets", "", _STATUS_SECONDS, read)

    def dataset(self, name: str) -> d3ray.datasets.DatasetHandle:
        return d3ray.datasets.open(name, folder=self._datasets, experiments=self._experiments(), beside=self._beside)

    def inspected(self, name: str) -> Future[Inspected]:
        """Run the doctor once on a dataset; the Future raises DataError if it cannot be read.

        Raises ConfigError: there is no such dataset.
        """
        mine = self.dataset(name)
        key = (str(mine.folder), mine.status().changed)
        with self._lock:
            looks = self._looked.get(key)
            if looks is None:
                for old in [old for old in self._looked if old[0] == key[0]]:
                    del self._looked[old]
                looks = self._looked[key] = Future[Inspected]()
                threading.Thread(target=self._look, args=(mine, key, looks), daemon=True).start()
        return looks

    def _look(self, mine: d3ray.datasets.DatasetHandle, key: tuple[str, float], looks: Future[Inspected]) -> None:
        try:
            with self._looks:
                looks.set_result(mine.inspect())
        except BaseException as error:
            with self._lock:
                self._looked.pop(key, None)  # the next one tries again
            looks.set_exception(error)

    def _experiments(self) -> Iterator[Status]:
        yield from self.all()  # once somebody asks for them

    def status(self, name: str) -> Status:
        return self._read("status", name, _STATUS_SECONDS, lambda: self.handle(name).status())

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All that was measured: group, seed, step and metrics, in the order of steps."""

        def read() -> list[dict[str, Any]]:
            labels = {trial.identity: trial.label for trial in self.status(name).trials}
            try:
                measured = self.handle(name).metrics()
            except ConfigError:  # it has not begun
                return []
            found = [
                {"group": labels.get(row.trial, ""), "seed": row.seed, "step": row.step, "metrics": _finite(row.metrics)}
                for row in measured
            ]
            return sorted(found, key=lambda row: row["step"])

        return self._read("rows", name, ROWS_SECONDS, read)

    def verdicts(self, name: str) -> list[str]:
        """Compare a sweep's best configuration with the next one, again once another trial has finished."""
        now, key = self.status(name), ("verdicts", name)
        ended = (now.created, [(trial.identity, trial.step) for trial in now.trials if trial.state == "FINISHED"])
        with self._lock:
            if key in self._kept and self._kept[key][1][0] != ended:
                del self._kept[key]
        return self._read(*key, math.inf, lambda: (ended, self.handle(name).verdicts()))[1]

    def _read(self, what: str, name: str, seconds: float, read: Any) -> Any:
        key = (what, name)
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept[0] < seconds:
            return kept[1]
        if not busy.acquire(blocking=kept is None):
            assert kept is not None
            return kept[1]  # somebody reads it now: what was read before will do
        try:
            newest = self._kept.get(key)
            if newest is None or newest is kept:  # else somebody else has read it meanwhile
                newest = self._kept[key] = (time.monotonic(), read())
        finally:
            busy.release()
        return newest[1]


async def ended(future: Future[Any], seconds: float | None = None) -> None:
    """Waits for it, in no thread, however it ends; for so many seconds at most."""
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(end.set))
    with suppress(TimeoutError):
        await asyncio.wait_for(end.wait(), seconds)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if abs(value) < float("inf")}
