"""Metrics on their way to the tracking server: part files beside a trial's checkpoints.

A trial does not talk to MLflow. It keeps the metrics of each epoch as lines, and writes the lines since the last checkpoint into
one part file right before the next checkpoint is renamed into place. Whoever delivers reads parts up to the newest committed
checkpoint only, so what a kill rolls back was never delivered, and what is trained again is written under the same steps. A step
that a part has already is not written again: the first write wins, with the time it had, so delivering a part twice changes
nothing.

A line is JSON: `[step, milliseconds since 1970, {metric: value}]`; what is not finite is one of "nan", "inf", "-inf".
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ...data.storage.json_text import parse_json
from .folders import Folder

_NAME = re.compile(r"part-(\d{9})\.jsonl")


class Line(NamedTuple):
    """The metrics of one step."""

    step: int
    time: int  # milliseconds since 1970
    metrics: dict[str, float]


class Outbox:
    """The writing end, for one seed of a trial."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.last = -1  # step of the newest line
        self._lines: list[Line] = []

    def begin(self, committed: int) -> None:
        """Goes on after step `committed` (-1: none): parts beyond it, which no checkpoint stands for, are deleted."""
        steps = part_steps(self.folder)
        self.folder.delete(_name(step) for step in steps if step > committed)
        self.last = max((step for step in steps if step <= committed), default=-1)
        self._lines = []

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keeps the metrics of a step, unless they were written before."""
        if step > self.last:
            self._lines.append(Line(step, time.time_ns() // 1_000_000, dict(metrics)))
            self.last = step

    def write(self, step: int) -> None:
        """Puts the lines since the last part on the disk, as part `step`. Raises StorageError."""
        if self._lines:
            self.folder.write(_name(step), "".join(map(_text, self._lines)).encode())

    def written(self) -> None:
        """The checkpoint that the part belongs to stands: its lines are done with."""
        self._lines = []


def part_steps(folder: Folder) -> list[int]:
    return sorted(int(found[1]) for name in folder.names() if (found := _NAME.fullmatch(name)))


def lines(folder: Folder, after: int, upto: int) -> Iterator[Line]:
    """Lines beyond step `after`, of the parts up to step `upto`, in order."""
    for step in part_steps(folder):
        if after < step <= upto:
            for text in (folder.read(_name(step)) or b"").splitlines():
                if (line := _line(text)).step > after:
                    yield line


def newest_lines(folder: Folder, upto: int) -> Iterator[Line]:
    """The lines of the parts up to step `upto`, the newest first; parts are read as lines are asked for."""
    for step in reversed(part_steps(folder)):
        if step <= upto:
            for text in reversed((folder.read(_name(step)) or b"").splitlines()):
                yield _line(text)


def lines_of_points(metrics: Mapping[str, Iterable[tuple[int, float]]]) -> list[Line]:
    """Lines in order, of metrics that are known as (step, value) each for itself."""
    by_step: dict[int, dict[str, float]] = {}
    for name, points in metrics.items():
        for step, value in points:
            by_step.setdefault(step, {})[name] = value
    return [Line(step, 0, by_step[step]) for step in sorted(by_step)]


def _line(text: bytes) -> Line:
    step, when, metrics = parse_json(text)
    return Line(step, when, {name: float(value) for name, value in metrics.items()})


def _name(step: int) -> str:
    return f"part-{step:09d}.jsonl"


def _text(line: Line) -> str:
    metrics = {name: value if math.isfinite(value) else str(value) for name, value in line.metrics.items()}
    return json.dumps([line.step, line.time, metrics], allow_nan=False) + "\n"
