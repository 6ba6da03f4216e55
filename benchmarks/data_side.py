"""What the data benchmark asks of a process of its own: see `workers.py` and `data.py`."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from workers import control, serve, timed

from d3ray import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.sampling import PrioritizedSampler, TransitionSampler
from d3ray.platform.datasets.ingest import ingest

PAGE = 4096


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


class Training:
    """DQN on frames, a fixed number of updates at a time."""

    def set_up_training(self, folder: str, n: int, growth: int = 0) -> dict[str, float]:
        """From a folder that is mapped, with `growth` bytes of its own memory from here on; with 0 from a copy in memory."""
        dataset = Dataset.open(folder)
        if not growth:
            steps = dataset.to_steps()
            copied = {name: np.array(column) for name, column in steps.columns.items()}
            dataset = Dataset.from_steps(replace(steps, columns=copied), name="copied")
        learner = DQN(batch_size=32, encoder={"hidden_units": [64, 64]}, observation_scaler="pixel", device="cpu")
        self.epochs = learner.fitter(dataset, n_steps=10**9, n_steps_per_epoch=n)
        next(self.epochs)
        if growth:
            used = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
            resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + growth,) * 2)
        return {"bytes": float(sum(column.nbytes for column in dataset.columns.values()))}

    def train(self) -> dict[str, float]:
        """The next updates."""
        return timed(lambda: next(self.epochs), "cpu")


class Cold:
    """Draws from a map whose pages are dropped from the page cache before each, and reads of its largest file beside them."""

    step = 0

    def set_up_cold(self, folder: str, batch_size: int) -> dict[str, float]:
        """The size of the map in bytes, and pages of 4 KiB that a batch touches, on average."""
        self.dataset = Dataset.open(folder)
        self.sampler = TransitionSampler(self.dataset, batch_size, 0, next_action=False)
        used = ("observation", "action", "reward", "terminated")
        self.maps = [map_of(self.dataset.columns[name]) for name in used]
        sizes = {name: self.dataset.columns[name].nbytes // len(self.dataset.columns[name]) for name in used}
        pages: list[int] = []
        for step in range(8):
            rows = self.sampler.windows.locate(self.sampler.numbers(step)).rows.numpy()
            spans = [(rows * size, (rows + (2 if name == "observation" else 1)) * size - 1) for name, size in sizes.items()]
            pages.append(sum(distinct_pages(first, last) for first, last in spans))
        return {"bytes": sum(column.nbytes for column in self.dataset.columns.values()), "pages": float(np.mean(pages))}

    def drop(self) -> None:
        """Gives the map's pages back, and asks the kernel to forget them."""
        for mapped in self.maps:
            mapped.madvise(mmap.MADV_DONTNEED)
        for file in self.files():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def files(self) -> list[Path]:
        """The files of the map, the largest first."""
        from d3ray.data.node_maps.cache import cache_folder

        entry = cache_folder() / self.dataset.fingerprint
        return sorted(entry.glob("*.raw"), key=lambda file: -file.stat().st_size)

    def cold_draw(self, n: int) -> dict[str, float]:
        """`n` batches; the time of the drops between them does not count."""
        before, spent = control(), 0.0
        for _ in range(n):
            self.drop()
            self.step += 1
            begin = time.perf_counter()
            self.sampler.sample(self.step, size=self.sampler.batch_size)
            spent += time.perf_counter() - begin
        return {"seconds": spent, "control": (before + control()) / 2}

    def cold_read(self, n: int) -> dict[str, float]:
        """`n` reads of 4 KiB from random places of the map's largest file, one after the other."""
        file, before = self.files()[0], control()
        self.drop()
        pages = np.random.default_rng(time.time_ns()).integers(0, file.stat().st_size // PAGE, n)
        with file.open("rb", buffering=0) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            begin = time.perf_counter()
            for page in pages.tolist():
                os.pread(opened.fileno(), PAGE, page * PAGE)
            spent = time.perf_counter() - begin
        return {"seconds": spent, "control": (before + control()) / 2}


def distinct_pages(first: np.ndarray, last: np.ndarray) -> int:
    """How many pages lie under stretches of bytes."""
    return len({page for a, b in zip(first // PAGE, last // PAGE, strict=True) for page in range(a, b + 1)})


def map_of(column: np.ndarray) -> mmap.mmap:
    """The map that a column is a view of."""
    found: Any = column
    while not isinstance(found, mmap.mmap):
        found = found.obj if isinstance(found, memoryview) else found.base
    return found


if __name__ == "__main__":
    draws, cold, training = Draws(), Cold(), Training()
    named = [one_core, read_hdf5, ingest_hdf5, open_folder, draws.set_up, draws.draw]
    named += [training.set_up_training, training.train, cold.set_up_cold, cold.cold_draw, cold.cold_read]
    serve({task.__name__: task for task in named})
