"""What a study of the learning table is, and what a comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FIVE = (0, 1, 2, 3, 4)
NEW_SEEDS = tuple(range(100, 110))  # they decide where the first seeds say that something is below; named before any was run
PLAYED = ("half-random", "t-maze")  # data that `ours.open_dataset` plays, beside random actions
OPEN_SIDE = "d3ray, decoder without tanh"


@dataclass(frozen=True)
class Study:
    """One algorithm on one dataset, or in one environment, with some seeds.

    Attributes:
        name: of its cells.
        data: file below the folder of recorded data; None: it learns online.
        environment: gymnasium id to evaluate in, and to learn in where there is no data.
        algorithm: name, preset and settings of ours.
        peer: name and settings of the peer's; None: it is not run.
        n_steps: gradient steps.
        every: gradient steps between evaluations.
        at_least: score that the last evaluation of the seeds must reach; "data": the data's own mean return; a study's name and a
            share: that share of its mean, in the mean over the seeds.
        at_most: score that the last evaluation of no seed may pass: what can be reached by what it lacks the means to surpass.
        note: what a reader should know.
        seeds: of its cells.
        needed: how many seeds must reach `at_least`; None: all.
        episodes: of an evaluation.
        online: arguments of `fit_online`.
        rival: the peer.
        counts: which score is held against `at_least`: of the "last" evaluation, or the "best".
        stacked: whether seeds of ours that are missing are trained as one stack.
    """

    name: str
    data: str | None
    environment: str
    algorithm: dict[str, Any]
    peer: tuple[str, dict[str, Any]] | None
    n_steps: int
    every: int
    at_least: float | str | tuple[str, float] | None
    note: str
    at_most: float | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    needed: int | None = None
    episodes: int = 10
    online: dict[str, Any] = field(default_factory=dict)
    rival: str = "d3rlpy"
    stacked: bool = False
    counts: str = "last"

    @property
    def is_played(self) -> bool:
        """Whether what it learns from is played here, so that no folder of recorded data is needed."""
        return self.data is None or self.data in PLAYED or self.data.startswith("random/")

    def sides(self) -> list[str]:
        return ["d3ray", self.rival] if self.peer else ["d3ray"]

    def called(self, side: str) -> str:
        """A side as tables have it: what no user can choose says so."""
        return OPEN_SIDE if self.algorithm["name"].startswith("Open") else side


@dataclass(frozen=True)
class Comparison:
    """Whether A's scores lie below B's; rows of one family are corrected together. A and B are (study, side)."""

    family: str
    a: tuple[str, str]
    b: tuple[str, str]
