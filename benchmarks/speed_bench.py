"""What a row of the speed table is, and what its processes read."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from arrays import cartpole_like, for_peer, frames_like, hopper_like
from workers import Worker

from d3ray.data.dataset import Dataset

Measure = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Side:
    """One side of a row: what it is called, what measures it, and how much work a measurement is."""

    label: str
    measure: Measure
    amount: int


@dataclass(frozen=True)
class Row:
    """One row: A over B in units a second, and what the ratio should be."""

    label: str
    unit: str
    a: Side
    b: Side
    at_least: float | None = None
    at_most: float | None = None  # B's time for one unit as a share of A's


class Bench:
    """The options of a run and the files that its processes read."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.threads, self.scale = folder, options.threads, options.scale
        self.log = folder / "workers.log"
        os.environ["D3RAY_CACHE"] = str(folder / "cache")  # node maps are built here, and go with it

    def amount(self, n: int) -> int:
        return max(4, int(n * self.scale))

    def worker(self, script: str) -> Worker:
        return Worker(script, self.threads, self.log)

    def data(self, name: str, make: Callable[[int], Dataset], n: int) -> tuple[str, str, str]:
        """The same transitions as a dataset of one shard, as one of four shards (which has a node map), and for the peer."""
        one, four, peer = (self.folder / f"{name}-{kind}" for kind in ("one", "four", "peer.npz"))
        if not peer.exists():
            dataset = make(n)
            dataset.write(one, n_shards=1)
            dataset.write(four, n_shards=4)
            for_peer(dataset, peer)
        return str(one), str(four), str(peer)

    def hopper(self) -> tuple[str, str, str]:
        """1 M rows of Hopper's shapes."""
        return self.data("hopper", hopper_like, 1_000_000)

    def cartpole(self) -> tuple[str, str, str]:
        """100,000 rows of CartPole's shapes."""
        return self.data("cartpole", cartpole_like, 100_000)

    def frames(self) -> tuple[str, str, str]:
        """10,000 rows of an Atari game's shapes."""
        return self.data("frames", frames_like, 10_000)


Group = Callable[[Bench, str], AbstractContextManager[list[Row]]]
