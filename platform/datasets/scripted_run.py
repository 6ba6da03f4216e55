"""Steps of one of OGBench's scripted policies and the datasets that come of them: without rewards, and of its single tasks.

Each episode has a seed of its own, and some of them make a piece, a dataset in the run's `pieces/`. Pieces are made side by side,
in any order, by whoever comes first; a killed run has those that are whole. A dataset is put together of all of them, shard by
shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...algos.environments.make import make
from ...data.catalog.local import alone
from ...data.catalog.recipe import Script
from ...data.dataset import Dataset
from ...data.formats.npz.ogbench_tasks import find_task
from ...data.seeds import fold, integers, root_key
from ...data.spec import Environment, Spec
from ...data.storage.manifest import MANIFEST
from ...data.storage.shards import ShardRecord, write_shard
from ...data.storage.steps import StepTable, concat_steps
from ...data.storage.writing import Draft
from ..surroundings import surroundings
from .recipes_run import Done

_PIECE = 5_000  # steps: a manipulator's take some twenty seconds
_SHARD = 50  # pieces


@dataclass(frozen=True)
class ScriptedDataset:
    """A dataset that is to be made: its name, the single task whose rewards it has, where it is from, and its folder."""

    name: str
    task: str | None
    environment: Environment
    folder: Path


@dataclass(frozen=True)
class ScriptedPiece:
    """Some episodes of a run, from number `first` on, and their folder."""

    script: Script
    first: int
    episodes: int
    folder: Path

    @property
    def steps(self) -> int:
        return self.episodes * self.script.episode

    @property
    def is_there(self) -> bool:
        return (self.folder / MANIFEST).exists()

    def make(self) -> Iterator[Done]:
        """Makes the piece where it is not there. Raises as `ScriptedRun.make`."""
        spec = spec_of_script(self.script)
        from ...algos.environments.ogbench_scripts import episodes

        with alone(self.folder, f"waiting for another process that makes {self.folder.name}"):
            if not self.is_there:
                key = fold(root_key(self.script.seed), "script")
                seeds = [integers(fold(key, self.first + k), 1, 2**31 - 1)[0] for k in range(self.episodes)]
                tables: list[StepTable] = []
                for table in episodes(self.script, seeds):
                    tables.append(table)
                    yield Done(len(tables) * self.script.episode, self.script.environment)
                where = Environment(id=self.script.environment)
                Dataset.from_steps(concat_steps(tables), name=self.folder.name, spec=spec, environment=where).write(self.folder)
        yield Done(self.steps, self.script.environment)


@dataclass(frozen=True)
class ScriptedRun:
    """Steps of a script and what is to be made of them.

    Args:
        folder: where the steps are kept.
        script: of any of its datasets.
        wanted: the datasets to make.
    """

    folder: Path
    script: Script
    wanted: tuple[ScriptedDataset, ...]

    @cached_property
    def missing(self) -> tuple[ScriptedPiece, ...]:
        """The pieces that were not there when this was first asked."""
        return tuple(piece for piece in self._pieces if not piece.is_there)

    @property
    def steps(self) -> int:
        """Of the pieces that are missing."""
        return sum(piece.steps for piece in self.missing)

    def check(self) -> None:
        """Raises ConfigError: OGBench is not installed, or has no such environment."""
        spec_of_script(self.script)

    def make(self) -> Iterator[Done]:
        """Makes the pieces that are still missing, then the datasets that are not there.

        Raises:
            ConfigError: as `check`.
            StorageError: the disk is full, or a folder cannot be written. What is whole stays; nothing else is left.
        """
        self.check()
        done = 0
        for piece in [piece for piece in self._pieces if not piece.is_there]:
            for said in piece.make():
                yield Done(done + said.steps, said.note)
            done += piece.steps
        with alone(self.folder, f"waiting for another process that makes datasets of {self.script.environment}"):
            for wanted in self.wanted:
                if not (wanted.folder / MANIFEST).exists():
                    yield Done(done, f"{wanted.name} is written")
                    self._write(wanted)
        yield Done(done, f"{self.script.environment} is done")

    @property
    def _pieces(self) -> list[ScriptedPiece]:
        script = self.script
        size = max(1, _PIECE // script.episode)
        n = script.steps // script.episode
        folders = self.folder / "pieces"
        return [ScriptedPiece(script, k, min(size, n - k), folders / f"{k:06d}") for k in range(0, n, size)]

    def _write(self, wanted: ScriptedDataset) -> None:
        pieces, records, first = self._pieces, list[ShardRecord](), 0
        task = None if wanted.task is None else find_task(wanted.task)
        of = -(-len(pieces) // _SHARD)
        with Draft(wanted.folder) as draft:
            for k in range(of):
                parts = pieces[k * _SHARD : (k + 1) * _SHARD]
                table = concat_steps([Dataset.open(piece.folder).to_steps() for piece in parts])
                table = table if task is None else task.of(table)
                records.append(write_shard(draft.folder, k, of, table, first_episode=first))
                first += table.n_episodes
            draft.commit(
                records,
                name=wanted.name,
                spec=spec_of_script(self.script),
                environment=wanted.environment,
                provenance={"made": self._provenance(wanted)},
            )

    def _provenance(self, wanted: ScriptedDataset) -> dict[str, Any]:
        machine = surroundings()
        return {
            "script": self.script.model_copy(update={"task": wanted.task}).told(),
            "procedure": "OGBench's (Park et al. 2025, arXiv:2410.20092), with the scripted policies of its package",
            "versions": {**machine["versions"], "ogbench": version("ogbench")},
            "machine": {"system": machine["system"], "processor": machine["processor"]},
        }


def spec_of_script(script: Script) -> Spec:
    """The spaces of a script's environment. Raises ConfigError where it cannot be made."""
    with make(script.environment) as vector:
        return vector.spec
