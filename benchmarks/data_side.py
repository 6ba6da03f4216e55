"""What the data benchmark asks of a process of its own: see `workers.py` and `data.py`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import torch
from workers import serve, timed

from d3ray.data.dataset import Dataset
from d3ray.data.sampling import PrioritizedSampler, TransitionSampler
from d3ray.platform.datasets.ingest import ingest


def one_core() -> None:
    """Keeps this process, and what it starts, on one core, where the system can (macOS cannot)."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def read_hdf5(file: str) -> dict[str, float]:
    """Every array of a file, into memory."""

    def work() -> None:
        found: list[np.ndarray] = []
        with h5py.File(file) as opened:
            opened.visititems(lambda _, item: found.append(item[()]) if isinstance(item, h5py.Dataset) else None)

    return timed(work, "cpu")


def ingest_hdf5(file: str, target: str) -> dict[str, float]:
    """The same file into a dataset folder that is whole: read, hashed, measured, written, synced."""
    shutil.rmtree(target, ignore_errors=True)
    return timed(lambda: ingest(file, target, format="d4rl", parallel=False), "cpu")


def open_folder(folder: str, n: int) -> dict[str, float]:
    """`n` times, the manifest and the table of episodes are read and checked, and the columns mapped."""

    def work() -> None:
        for _ in range(n):
            _ = Dataset.open(folder).columns

    return timed(work, "cpu")


class Draws:
    """Samplers and bare gathers by name, each set up once and warmed up."""

    def __init__(self) -> None:
        self.draw_one: dict[str, Callable[[], Any]] = {}

    def set_up(self, name: str, folder: str, batch_size: int, kind: str = "uniform", **options: Any) -> None:
        """A sampler ("uniform", "prioritised") of a dataset that is mapped, or a "gather" or "gather frames" from memory."""
        dataset = Dataset.open(folder)
        match kind:
            case "uniform":
                self.draw_one[name] = TransitionSampler(dataset, batch_size, 0, **options).sample
            case "prioritised":
                self.draw_one[name] = prioritised(dataset, batch_size)
            case "gather":
                self.draw_one[name] = gather(dataset, batch_size)
            case _:
                self.draw_one[name] = gather_frames(dataset, batch_size, **options)
        self.draw(name, 200)

    def draw(self, name: str, n: int) -> dict[str, float]:
        """`n` batches."""
        draw = self.draw_one[name]

        def work() -> None:
            batch = None
            for _ in range(n):
                batch = draw()  # the one before is there until then, as in a training loop: its memory cannot be written again
            del batch

        return timed(work, "cpu")


def prioritised(dataset: Dataset, batch_size: int) -> Callable[[], Any]:
    """A draw, and the errors of what was drawn handed back."""
    sampler = PrioritizedSampler(dataset, batch_size, 0)
    errors = torch.rand(64, batch_size).unbind()
    at = 0

    def draw() -> Any:
        nonlocal at
        at += 1
        batch = sampler.sample()
        sampler.update(batch.index, errors[at % 64])
        return batch

    return draw


def gather(dataset: Dataset, batch_size: int) -> Callable[[], Any]:
    """The rows of a batch and those after them, from tensors in memory, where the rows are known already."""
    columns = {
        name: torch.from_numpy(np.array(dataset.columns[name])) for name in ("observation", "action", "reward", "terminated")
    }
    known = torch.randint(0, len(columns["reward"]) - 1, (1024, batch_size), generator=torch.Generator().manual_seed(0))
    both, at = torch.cat((known, known + 1), 1), 0

    def draw() -> tuple[torch.Tensor, ...]:
        nonlocal at
        at = (at + 1) % 1024
        pairs = tuple(columns[name].index_select(0, both[at]) for name in ("observation", "action"))
        return *pairs, *(columns[name].index_select(0, known[at]) for name in ("reward", "terminated"))

    return draw


def gather_frames(dataset: Dataset, batch_size: int, frames: int) -> Callable[[], Any]:
    """The frames of a batch of stacks and of the stacks after them, as float32, where the rows are known already."""
    column = torch.from_numpy(np.array(dataset.columns["observation"]))
    first = torch.randint(0, len(column) - frames - 1, (1024, batch_size), generator=torch.Generator().manual_seed(0))
    rows, at = first[..., None] + torch.arange(frames + 1), 0

    def draw() -> torch.Tensor:
        nonlocal at
        at = (at + 1) % 1024
        return column.index_select(0, rows[at].reshape(-1)).to(torch.float32)

    return draw


if __name__ == "__main__":
    draws = Draws()
    serve({task.__name__: task for task in (one_core, read_hdf5, ingest_hdf5, open_folder, draws.set_up, draws.draw)})
