"""Recorded episodes: what is written, measured, sampled, and what operations take and give. A `Dataset` is one that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .episodes import ColumnSource, Episodes
from .errors import DataError
from .spec import Environment, Spec
from .storage.costs import COST, sum_costs
from .storage.episode_table import StepTables
from .storage.fingerprint import Summary, scan_blocks, summarise_scans
from .storage.rows import Columns, EpisodeRows, Memory
from .storage.schema import Kinds, check_spec, check_starts, infer_spec, kinds_of, largest_numbers, with_masks
from .storage.statistics import Statistics
from .storage.steps import StepTable

if TYPE_CHECKING:
    from .folder import Folder
    from .storage.shards import Compression


DEEPEST = 40  # operations that a provenance goes back; readers of JSON refuse what nests 200 deep, and an operation does by 4


@dataclass(frozen=True)
class Derivation:
    """Where derived episodes come from: one operation on others, described only when asked for, since that may read all of it."""

    operation: str
    parameters: Mapping[str, Any]  # JSON-able
    parents: tuple[Recording, ...]

    def provenance(self) -> dict[str, Any]:
        """`{"derived": {"operation": …, "parameters": {…}, "parents": [{"name": …, "fingerprint": …, "provenance": {…}}, …]}}`.

        A parent that is itself derived and was never written has `derived` of its own instead of a fingerprint, so what is
        named by fingerprint is what exists: a folder, or arrays. What is put together of what was put together has the parts
        of both as its parents, and what lies more than 40 operations back is `{"left_out": True}`.
        """
        parents = [self._parent(parent) for parent in self.parents]
        if self.operation == "concat":
            parents = [part for parent in parents for part in _parts(parent)]
        return _shallow({"derived": {"operation": self.operation, "parameters": dict(self.parameters), "parents": parents}})

    @staticmethod
    def _parent(parent: Recording) -> dict[str, Any]:
        if parent.derivation is not None:
            return {"name": parent.name, **parent.derivation.provenance()}
        return {"name": parent.name, "fingerprint": parent.fingerprint, "provenance": parent.provenance}


def _parts(parent: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a parent that was itself put together; else the parent."""
    match parent.get("provenance", parent):
        case {"derived": {"operation": "concat", "parents": list() as parts}}:
            return parts
        case _:
            return [parent]


def _shallow(provenance: dict[str, Any], most: int = DEEPEST) -> dict[str, Any]:
    match provenance:
        case {"provenance": dict() as inner}:
            return provenance | {"provenance": _shallow(inner, most)}
        case {"derived": {"parents": list() as parents} as derived}:
            if most == 0:
                kept = {"name": provenance["name"]} if "name" in provenance else {}
                return kept | {"left_out": True}
            return provenance | {"derived": {**derived, "parents": [_shallow(parent, most - 1) for parent in parents]}}
        case _:
            return provenance


def say_function(function: Any) -> str:
    """Name a Python function in provenance: it cannot be made again from this."""
    module, name = getattr(function, "__module__", "?"), getattr(function, "__qualname__", type(function).__qualname__)
    return f"the function {module}.{name}"


class Recording:
    """Episodes over columns that lie in memory, in a mapped file, in a node map, or follow from other recordings.

    Attributes:
        name: what tables and runs call it.
        spec: the spaces of observations and actions.
        environment: where the data comes from, if that is known.
        source: where its columns come from.
        derivation: the operation that made it of others; None for what was opened or made from arrays.
        cuts: episodes that were cut where the source's next observations were not the next row.
        episodes: a sequence of episodes, and arrays over them.
    """

    name: str
    spec: Spec
    environment: Environment | None
    source: ColumnSource
    derivation: Derivation | None
    cuts: int
    episodes: Episodes

    def __init__(
        self,
        source: ColumnSource,
        episodes: Episodes,
        *,
        name: str,
        spec: Spec,
        environment: Environment | None = None,
        provenance: Mapping[str, Any] | Derivation | None = None,
        cuts: int = 0,
        summary: Callable[[], Summary] | None = None,  # where the source has it measured
    ) -> None:
        self.name, self.spec, self.environment, self.cuts = name, spec, environment, cuts
        self.source, self.episodes = source, episodes
        self._measured = summary
        self.derivation = provenance if isinstance(provenance, Derivation) else None
        if not isinstance(provenance, Derivation):
            self.provenance = dict(provenance or {})

    @classmethod
    def of(cls, recording: Recording) -> Self:
        """Return the same recording as one of this class; nothing is copied."""
        made = cls.__new__(cls)
        made.__dict__.update(recording.__dict__)
        return made

    @classmethod
    def from_steps(
        cls,
        table: StepTable,
        *,
        name: str,
        spec: Spec | None = None,
        environment: Environment | None = None,
        provenance: Mapping[str, Any] | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> Self:
        """The episodes of a table, in memory over its own columns.

        Args:
            table: Of steps, with closing rows.
            name: Of the dataset.
            spec: Its spaces; None: inferred from the columns.
            environment: Where it was recorded; None: nobody knows.
            provenance: How; None: nobody knows.
            names: What entries of columns are called, see `Spec.with_names`.

        Raises:
            DataError: columns are not of the given spec.
        """
        kinds, largest = kinds_of(table.columns), largest_numbers(table.columns)
        spec = with_masks(kinds, spec) if spec else infer_spec(kinds, largest)
        check_spec(kinds, largest, spec)
        if spec.starts():
            check_starts({name: column[~table.columns["closing"]] for name, column in table.columns.items()}, spec)
        spec = spec.with_names(names or {})
        source = Memory(table.columns)
        about: dict[str, Any] = {"environment": environment, "provenance": provenance, "cuts": table.cuts}
        return cls.of(Recording(source, Episodes(table, source, spec), name=name, spec=spec, **about))

    @classmethod
    def of_folder(cls, folder: Folder) -> Self:
        """Open the episodes of a folder, measured when it was written."""
        manifest = folder.manifest
        made = Recording(
            folder,
            Episodes(folder.episodes(), folder, manifest.spec),
            name=manifest.name,
            spec=manifest.spec,
            environment=manifest.environment,
            provenance=manifest.provenance,
            cuts=manifest.cuts,
        )
        digests = {column.name: column.digest for column in manifest.columns}
        made.summary = Summary(digests, manifest.fingerprint, manifest.statistics)
        return cls.of(made)

    @property
    def columns(self) -> Columns:
        """Arrays by name, closing rows included; read-only. A view's columns are those of the whole: see `episodes.rows()`."""
        return self.source.columns()

    @property
    def kinds(self) -> Kinds:
        """Types and entry shapes of the columns, which cost nothing to know."""
        return self.source.kinds

    @property
    def n_transitions(self) -> int:
        """Every step, also those that no bootstrapping sampler may draw."""
        return self.episodes.n_transitions

    @property
    def n_episodes(self) -> int:
        return len(self.episodes)

    @property
    def n_rows(self) -> int:
        return self.n_transitions + self.n_episodes

    @property
    def is_whole(self) -> bool:
        """True where its episodes are all rows of its columns, in their order."""
        return self.episodes.contiguous and self.n_rows == self.source.table(in_order=True).n

    def rows(self, *, in_order: bool = True) -> EpisodeRows:
        """Return its logical rows, to be read in blocks, from first to last where `in_order`; only other orders map columns."""
        table = self.source.table(in_order=in_order and self.episodes.in_order)
        return EpisodeRows(table, self.episodes.first_row, self.episodes.steps)

    def in_place(self) -> EpisodeRows:
        """Return its logical rows, to be read in any order from where they lie, unmapped. Raises DataError of compressed ones."""
        return EpisodeRows(self.source.in_place(), self.episodes.first_row, self.episodes.steps)

    def tables(self) -> StepTables:
        """Return what reads ranges of its episodes as tables; picklable where it lies in folders."""
        return StepTables(self.rows(), self.kinds, self.episodes, piecewise=not all(f.is_mapped for f in self.folders))

    @property
    def statistics(self) -> Statistics:
        """Measured when first asked for, where they were not stored."""
        return self.summary.statistics

    @property
    def fingerprint(self) -> str:
        """A hash of the logical rows, 64 hexadecimal digits; the same whatever the name, shards, compression or place."""
        return self.summary.fingerprint

    @cached_property
    def summary(self) -> Summary:
        """Digests, fingerprint and statistics, measured in one pass over the rows where they were not stored."""
        if self._measured is not None:
            return self._measured()
        return summarise_scans(scan_blocks(self.rows(), self.spec), self.episodes, self.kinds)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """JSON-able notes on how it was made. Of what was derived: the operation and its parents, by fingerprint."""
        return self.derivation.provenance() if self.derivation else {}

    @cached_property
    def cost_returns(self) -> np.ndarray:
        """Undiscounted sums of each episode's costs, [E] float64. Raises DataError where there is no column `cost`."""
        if COST not in self.kinds:
            raise DataError(f"The dataset {self.name!r} has no column 'cost', one number a step.")
        return sum_costs(self.rows(), self.episodes.steps)

    def to_steps(self) -> StepTable:
        """Read its episodes into memory; views where they lie there back to back."""
        return self.tables().read(0, self.n_episodes, self.cuts)

    @property
    def folder(self) -> Folder | None:
        """The open folder that the columns are, of a view that of the whole; None for others."""
        from .folder import Folder

        return self.source if isinstance(self.source, Folder) else None

    @property
    def folders(self) -> tuple[Folder, ...]:
        """The open folders that columns are read from or worked out of; none where all is in memory."""
        return self.source.folders

    def prepare(self) -> None:
        """Build the node maps of `columns`, or read the files that are mapped as they are. Raises DataError or StorageError."""
        for folder in self.folders:
            if folder.is_mapped_as_it_is:
                folder.verify()
        _ = self.columns

    def verify(self) -> None:
        """Compare every shard with its SHA-256, and the manifest with the rows: see `verify_folder`. Raises DataError."""
        from .verifying import verify_folder

        for folder in self.folders:
            verify_folder(folder)

    def write(
        self,
        path: str | Path,
        *,
        n_shards: int | None = None,
        max_rows_per_shard: int | None = None,
        compression: Compression = None,
        overwrite: bool = False,
    ) -> Self:
        """Writes a dataset folder: all of it, or nothing. One shard at a time is in memory, whatever it is derived from.

        Args:
            path: a folder that is new or empty, or a URI.
            n_shards: this many files of whole episodes.
            max_rows_per_shard: rows of a file, closing rows included. None: about 1 GiB uncompressed.
            compression: "zstd", or None for files that are mapped as they are.
            overwrite: replace the dataset that is there.

        Returns:
            The same, opened where it was written.

        Raises:
            StorageError: there is a dataset already, the disk is full, or the place cannot be written.
        """
        from .folder import Folder
        from .storage.files import Place
        from .storage.shards import plan_shards, write_shard
        from .storage.writing import Draft

        plan = plan_shards(self.episodes.steps + 1, self.kinds, n_shards=n_shards, max_rows=max_rows_per_shard)
        with Draft(path, overwrite=overwrite) as draft:
            known = self.derivation is None or draft.target.local is None  # what is derived is worked out once: see `commit`
            summary, tables = self.summary if known else self.__dict__.get("summary"), self.tables()
            records = [
                write_shard(draft.folder, k, len(plan), tables.read(*part), first_episode=part[0], compression=compression)
                for k, part in enumerate(plan)
            ]
            draft.commit(
                records,
                name=self.name,
                spec=self.spec,
                environment=self.environment,
                provenance=self.provenance,
                summary=summary,
                cuts=self.cuts,
            )
        return self.of_folder(Folder(Place(path)))

    def snapshot(self) -> Recording:
        """Return what it is now: itself, since only an `MDPDataset` changes."""
        return self

    def view(self, index: np.ndarray, name: str, operation: str, parameters: Mapping[str, Any]) -> Recording:
        """Choose the episodes `index` [E] over the same columns, with a note on what chose them."""
        episodes, derivation = self.episodes.subset(index), Derivation(operation, parameters, (self.snapshot(),))
        return Recording(self.source, episodes, name=name, spec=self.spec, environment=self.environment, provenance=derivation)
