"""How the GPU table is measured: processes that are ready side by side and measured in turn, within a time for the whole."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_rows import CONTENDERS, OURS, PEERS, Work, written
from workers import Worker, peer_place

NO_PACKAGE = "No module named "


class Clock:
    """The time that the whole may take."""

    def __init__(self, seconds: float) -> None:
        self.begin = time.monotonic()
        self.end = self.begin + seconds

    def left(self) -> float:
        return self.end - time.monotonic()

    def since(self) -> float:
        return time.monotonic() - self.begin


class Patient(Worker):
    """A worker that is ended where an answer takes too long."""

    def ask(self, limit: float, task: str, **arguments: Any) -> Any:
        """The answer of a task. Raises RuntimeError when it failed or took longer than `limit` seconds."""
        stdout = self._process.stdout
        assert stdout is not None
        self.send(task, arguments)
        if not select.select([stdout], [], [], max(limit, 0.1))[0]:
            self._process.kill()
            raise RuntimeError(f"`{task}` was not done after {limit:.0f} s")
        return self.answer(task)

    def last_words(self) -> str:
        """The last line that it wrote beside its answers."""
        lines = self.log.read_text(errors="replace").split("\n") if self.log.is_file() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")

    def leave(self) -> None:
        """Lets it end, without waiting for that."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


@dataclass
class Cell:
    """A contender at a kind of work, and what came of it."""

    work: Work
    contender: str
    reason: str = ""  # why there is no number
    found: dict[str, Any] = field(default_factory=dict[str, Any])
    runs: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    worker: Patient | None = None

    def fail(self, error: BaseException | str) -> None:
        """Notes why it goes no further; its process ends."""
        self.reason = str(error).split("; its output is in ")[0].replace("\n", " ")
        if self.reason.endswith("the process died") and self.worker is not None:
            self.reason += f": {self.worker.last_words()}"
        if NO_PACKAGE in self.reason:
            self.reason = f"not installed: {self.reason.rpartition(NO_PACKAGE)[2]}".replace("'", "")
        self.reason = self.reason[:200]
        self.close()

    def close(self) -> None:
        if self.worker is not None:
            self.worker.leave()

    def told(self) -> dict[str, Any]:
        """What is kept of it."""
        kept = {"work": self.work.label, "contender": self.contender, "unit": self.work.unit, "seeds": self.work.seeds}
        kept |= {"plain": self.work.plain} if self.work.plain else {}
        return {**kept, "reason": self.reason, **self.found, "runs": self.runs}


@dataclass
class Bench:
    """The options of a run.

    Attributes:
        device: as torch names it.
        rows: of the data.
        seconds: of a measurement.
        rounds: of them.
        limit: seconds in which a cell has to be ready.
        at_once: cells that get ready side by side.
        alive: processes that are there at once.
        threads: of each.
        folder: of the data and the logs.
        clock: of the whole.
        reserve: seconds of it that are left for what follows.
        measuring: seconds of it that the measurements of a wave take, which getting ready leaves to them.
    """

    device: str
    rows: int
    seconds: float
    rounds: int
    limit: float
    at_once: int
    alive: int
    threads: int
    folder: Path
    clock: Clock
    reserve: float = 0.0
    measuring: float = 0.0

    @property
    def on_cuda(self) -> bool:
        return self.device.startswith("cuda")

    def left(self) -> float:
        return self.clock.left() - self.reserve

    def worker(self, script: str, name: str, python: str | None = None) -> Patient:
        """A process of `script`."""
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        environment |= {"D3RAY_CACHE": str(self.folder / "cache")}
        environment |= {} if self.on_cuda else {"JAX_PLATFORMS": "cpu"}
        return Patient(script, self.threads, self.folder / f"{name}.log", environment, python)

    def measure(self, rows: Sequence[tuple[str, Work]], contenders: Sequence[str]) -> Iterator[Cell]:
        """All cells, as they are done."""
        waiting = [[Cell(work, name) for name in work.contenders if name in contenders] for _, work in rows]
        control = self.worker("gpu_side.py", "control")
        with control:
            while waiting:
                wave = waiting.pop(0)
                while waiting and len(wave) + len(waiting[0]) <= self.alive:
                    wave += waiting.pop(0)
                yield from self.wave(wave, control)

    def wave(self, cells: list[Cell], control: Patient) -> list[Cell]:
        """Cells side by side: all get ready, then each is measured in every round, then traced."""
        for data in dict.fromkeys(cell.work.data for cell in cells):
            written(data, self.rows, self.folder)
        self.measuring = 1.3 * self.seconds * self.rounds * len(cells)
        with ThreadPoolExecutor(self.at_once) as pool:  # what takes longest to compile comes last: no other is late by it
            list(pool.map(self.prepare, sorted(cells, key=lambda cell: cell.contender == OURS[1])))
        for _ in range(self.rounds):
            for cell in cells:
                self.look(cell, control)
        for cell in cells:
            self.trace(cell)
            if not cell.runs and not cell.reason:
                cell.reason = "no time was left to measure it"
            cell.close()
        for cell in cells:
            if cell.worker is not None:
                cell.worker.__exit__()
        return cells

    def prepare(self, cell: Cell) -> None:
        """Starts a cell's process, does its first update, and finds out how many a measurement has."""
        if self.left() - self.measuring < 5:
            cell.reason = "no time was left to begin it"
        elif cell.contender in PEERS and CONTENDERS[cell.contender].compiled and not self.on_cuda:
            cell.reason = "it compiles for a CUDA device alone"
        if cell.reason:
            return
        begin = time.monotonic()
        name = "".join(c if c.isalnum() else "-" for c in f"{cell.work.label}-{cell.contender}")
        python = str(peer_place()) if cell.contender in PEERS and peer_place().is_file() else None
        try:
            cell.worker = self.worker(CONTENDERS[cell.contender].script, name, python)
            data = written(cell.work.data, self.rows, self.folder)
            told = {"work": cell.work.told(cell.contender), "device": self.device, "data": data, "rows": self.rows}
            cell.found |= cell.worker.ask(min(self.limit, self.left() - self.measuring), "begin", **told)
            left = min(self.limit - (time.monotonic() - begin), self.left() - self.measuring)
            warm = cell.worker.ask(left, "warm", seconds=self.seconds)
            cell.found |= {"n": warm["n"], "warm": warm["took"], "ready": time.monotonic() - begin}
            cell.found["versions"] = cell.worker.ask(30, "versions")
        except (OSError, RuntimeError, ValueError) as error:
            cell.fail(error)

    def look(self, cell: Cell, control: Patient) -> None:
        """One measurement, and the control loop just before it."""
        if cell.reason or (self.left() < 2 and cell.runs) or self.left() < 0:
            return
        assert cell.worker is not None
        try:
            product = control.ask(30, "product", device=self.device)
            found = cell.worker.ask(min(30 + 10 * self.seconds, self.left() + 10), "measure", n=cell.found["n"])
            cell.runs.append({**found, "control_ms": product})
            cell.found["memory_mib"] = cell.worker.ask(10, "memory")
        except (OSError, RuntimeError, ValueError) as error:
            cell.fail(error)

    def trace(self, cell: Cell) -> None:
        """Launches and device time of what is torch's."""
        if cell.reason or not cell.runs or cell.contender == "JAX":
            return
        if not self.on_cuda:
            cell.found["untraced"] = "no CUDA device"
        elif self.left() < 8:
            cell.found["untraced"] = "no time was left"
        else:
            assert cell.worker is not None
            quick = cell.runs[-1]["per_second"] / cell.work.seeds > 1_000
            try:
                cell.found |= cell.worker.ask(min(20, self.left()), "trace", n=100 if quick else 20)
            except (OSError, RuntimeError, ValueError) as error:
                cell.found["untraced"] = str(error).split("; its output is in ")[0][:100]


def cores() -> int:
    """Of this machine, for this process."""
    return len(os.sched_getaffinity(0))
