"""A dataset: episodes over columns that lie in memory, in a mapped file, in a node map, or follow from other datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from .episodes import Columns, ColumnSource, Episodes
from .operations import difference, joined, relabelled, selection
from .operations.derivation import Derivation
from .operations.tables import StepTables
from .spec import Environment, Spec
from .storage.memory import Memory
from .storage.rows import EpisodeRows
from .storage.scan import Summary, scan_blocks, summarise_scans
from .storage.schema import Kinds, check_spec, infer_spec, kinds_of, largest_numbers
from .storage.statistics import Statistics
from .storage.steps import StepTable, steps_from_arrays

if TYPE_CHECKING:
    from .folder import Folder
    from .operations.difference import Difference
    from .storage.shards import Compression


class Dataset:
    """Transitions in episodes. Make one with `from_arrays` or `from_steps`, or `open` a folder.

    Attributes:
        name: what tables and runs call it.
        spec: the spaces of observations and actions.
        environment: where the data comes from, if that is known.
        source: where its columns come from.
        derivation: the operation that made it of other datasets; None for what was opened or made from arrays.
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
    ) -> None:
        self.name, self.spec, self.environment, self.cuts = name, spec, environment, cuts
        self.source, self.episodes = source, episodes
        self.derivation = provenance if isinstance(provenance, Derivation) else None
        if not isinstance(provenance, Derivation):
            self.provenance = dict(provenance or {})

    @classmethod
    def open(cls, where: str | Path) -> Dataset:
        """The dataset of a folder, a URI that pyarrow.fs opens, or a catalog name. Reads its manifest and episodes only.

        Raises:
            DataError: there is none, or a file of it is missing, truncated or damaged.
            StorageError: the place cannot be read.
        """
        from .catalog import find
        from .folder import Folder

        return Dataset._of_folder(Folder(find(where)))

    @staticmethod
    def _of_folder(folder: Folder) -> Dataset:
        manifest, arrays = folder.manifest, folder.episodes()
        names = ("first_row", "steps", "terminated", "final_recorded", "return")
        dataset = Dataset(
            folder,
            Episodes(*(arrays[name] for name in names), source=folder, spec=manifest.spec),
            name=manifest.name,
            spec=manifest.spec,
            environment=manifest.environment,
            provenance=manifest.provenance,
            cuts=manifest.cuts,
        )
        digests = {column.name: column.digest for column in manifest.columns}
        dataset.summary = Summary(digests, manifest.fingerprint, manifest.statistics)
        return dataset

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any = None,
        *,
        final_observations: Any = None,
        next_observations: Any = None,
        extra: Mapping[str, Any] | None = None,
        keep_float64: bool = False,
        spec: Spec | None = None,
        environment: Environment | None = None,
        name: str = "dataset",
    ) -> Dataset:
        """A dataset from arrays of steps, episodes back to back.

        Args:
            observations: [N, ...], or dicts and tuples of such arrays; what the agent saw. The dtype is kept: uint8 images stay
                uint8; only float64 becomes float32 unless `keep_float64`. [N] integers from 0 are discrete observations.
            actions: [N, A] floats, [N] integers from 0 for discrete actions, [N, K] integers for multi-discrete or [N, n] bool for
                binary ones; what it did there.
            rewards: [N], any unit; what came of that action. d3rlpy's 2020 files hold it one row later: use their importer.
            terminated: [N] bool; the MDP ended with this step, so nothing is bootstrapped past it.
            truncated: [N] bool; the recording was cut after this step. The last row always ends an episode.
            final_observations: [E, ...], one an episode. None: each end repeats its last observation; truncated ends are then
                left out of windows that bootstrap.
            next_observations: [N, ...]; an episode is also cut where they are not the next row.
            extra: further columns by name, such as `log_prob` [N].
            keep_float64: keep float64 observations, actions and further columns as they are.
            spec: the spaces; None: inferred from the arrays, without bounds.
            environment: where the steps were taken.
            name: what tables and runs call it.

        Returns:
            A dataset of N transitions in E episodes. Columns are copied once, to make room for E closing rows.

        Raises:
            DataError: lengths differ (both are named), an array is empty, a number is NaN or infinite, final_observations has not
                one row an episode, or the arrays are not of the given spec.
        """
        table = steps_from_arrays(
            observations,
            actions,
            rewards,
            terminated,
            truncated,
            final_observations=final_observations,
            next_observations=next_observations,
            extra=extra,
            keep_float64=keep_float64,
        )
        return Dataset.from_steps(table, name=name, spec=spec, environment=environment)

    @classmethod
    def from_steps(
        cls,
        table: StepTable,
        *,
        name: str,
        spec: Spec | None = None,
        environment: Environment | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """A dataset in memory over the table's own columns. Raises DataError where they are not of the given spec."""
        kinds, largest = kinds_of(table.columns), largest_numbers(table.columns)
        spec = spec or infer_spec(kinds, largest)
        check_spec(kinds, largest, spec)
        source = Memory(table.columns)
        episodes = Episodes(table.first_row, table.steps, table.terminated, table.final_recorded, table.returns, source, spec)
        return Dataset(source, episodes, name=name, spec=spec, environment=environment, provenance=provenance, cuts=table.cuts)

    @property
    def columns(self) -> Columns:
        """Arrays by name, closing rows included; read-only. A view's columns are those of the whole: see `episodes.rows()`."""
        return self.source.columns()

    @property
    def kinds(self) -> Kinds:
        """The columns' types and entry shapes, which cost nothing to know."""
        return self.source.kinds

    @property
    def n_transitions(self) -> int:
        """Every step, also those that no bootstrapping sampler may draw."""
        return self.episodes.n_transitions

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.episodes)

    @property
    def n_rows(self) -> int:
        """Transitions and closing rows of this dataset's episodes."""
        return self.n_transitions + self.n_episodes

    @property
    def is_whole(self) -> bool:
        """Whether its episodes are all rows of its columns, in their order."""
        return self.episodes.contiguous and self.n_rows == self.source.table(in_order=True).n

    def rows(self, *, in_order: bool = True) -> EpisodeRows:
        """This dataset's logical rows, to be read in blocks, from first to last where `in_order`. Nothing is mapped for it
        but the columns of a folder whose episodes are wanted in another order than that of their rows.
        """  # noqa: D205 - one sentence of two
        table = self.source.table(in_order=in_order and self.episodes.in_order)
        return EpisodeRows(table, self.episodes.first_row, self.episodes.steps)

    def tables(self) -> StepTables:
        """Ranges of its episodes as tables in memory, one at a time; picklable where it lies in folders."""
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
        return summarise_scans(scan_blocks(self.rows(), self.spec), self.episodes, self.kinds)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """JSON-able notes on how it was made. Of what was derived: the operation and its parents, by fingerprint."""
        return self.derivation.provenance() if self.derivation else {}

    def to_steps(self) -> StepTable:
        """The rows of this dataset's episodes, in memory; views where they lie there back to back."""
        return self.tables().read(0, self.n_episodes, self.cuts)

    @property
    def folder(self) -> Folder | None:
        """The open folder that the columns are; None for others. For a view it is the folder of the whole."""
        from .folder import Folder

        return self.source if isinstance(self.source, Folder) else None

    @property
    def folders(self) -> tuple[Folder, ...]:
        """The open folders that columns are read from or worked out of; none where all is in memory."""
        return self.source.folders

    def prepare(self) -> None:
        """Makes sure that `columns` gives what was written: builds the node map, or reads the one file that is mapped as it is.

        Raises:
            DataError: a shard is missing or not what was written.
            StorageError: the node map has no room.
        """
        for folder in self.folders:
            if folder.is_mapped_as_it_is:
                folder.verify()
        _ = self.columns

    def verify(self) -> None:
        """Compares every shard with its SHA-256 in the manifest. Raises DataError, which names the first that differs."""
        for folder in self.folders:
            folder.verify()

    def write(
        self,
        path: str | Path,
        *,
        n_shards: int | None = None,
        max_rows_per_shard: int | None = None,
        compression: Compression = None,
        overwrite: bool = False,
    ) -> Dataset:
        """Writes a dataset folder: all of it, or nothing. One shard at a time is in memory, whatever it is derived from.

        Args:
            path: a folder that is new or empty, or a URI.
            n_shards: this many files of whole episodes.
            max_rows_per_shard: rows of a file, closing rows included. None: about 1 GiB uncompressed.
            compression: "zstd", or None for files that are mapped as they are.
            overwrite: replace the dataset that is there.

        Returns:
            The dataset, opened where it was written.

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
        return Dataset._of_folder(Folder(Place(path)))

    def snapshot(self) -> Dataset:
        """The dataset as it is now: itself, since only an `MDPDataset` changes."""
        return self

    # Operations. Each gives a lazy dataset: views by episode, or columns that are worked out as they are read.

    def view(self, index: np.ndarray, name: str, operation: str, parameters: Mapping[str, Any]) -> Dataset:
        """The episodes `index` [E] over the same columns, with a note on what chose them."""
        episodes, derivation = self.episodes.subset(index), Derivation(operation, parameters, (self.snapshot(),))
        return Dataset(self.source, episodes, name=name, spec=self.spec, environment=self.environment, provenance=derivation)

    def filter(self, keep: selection.Keep) -> Dataset:
        """The episodes that satisfy an expression, such as `return > 100 and terminated`, or a function. See `selection.keep`."""
        return selection.keep(self, keep)

    def take(self, which: int | Sequence[int] | np.ndarray) -> Dataset:
        """The first so many episodes, or those with the given numbers. See `selection.take`."""
        return selection.take(self, which)

    def shuffle(self, seed: int = 0) -> Dataset:
        """All episodes in another order, which the seed decides."""
        return selection.shuffle(self, seed)

    def top(self, fraction: float, by: Literal["episodes", "transitions"] = "episodes") -> Dataset:
        """The episodes of the highest returns; `top(0.1)` is what 10 % BC learns from. See `selection.top`."""
        return selection.top(self, fraction, by)

    @overload
    def split(self, test_size: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]: ...
    @overload
    def split(self, test_size: Sequence[float], seed: int = 0) -> tuple[Dataset, ...]: ...
    def split(self, test_size: float | Sequence[float] = 0.2, seed: int = 0) -> tuple[Dataset, ...]:
        """Train and test, of which test has the share `test_size`; or as many parts as there are shares. See `selection.split`."""
        return selection.split(self, test_size, seed)

    def folds(self, k: int, seed: int = 0) -> Iterator[tuple[Dataset, Dataset]]:
        """Pairs of train and test, k of them, every episode in one test part. See `selection.folds`."""
        return selection.folds(self, k, seed)

    def relabel(self, reward: relabelled.Reward) -> Dataset:
        """The same steps with other rewards: `reward - 1`, "success", or by a function of arrays. See `relabelled.relabel`."""
        return relabelled.relabel(Dataset, self, reward)

    @staticmethod
    def concat(datasets: Sequence[Dataset], *, name: str | None = None) -> Dataset:
        """The episodes of all, one dataset after the other; nothing is copied until samplers need it (see `joined`).

        Raises:
            DataError: there is none, or columns differ in name, dtype or shape.
        """
        return joined.concat(Dataset, datasets, name)

    @staticmethod
    def mix(
        datasets: Sequence[Dataset],
        shares: Sequence[float],
        *,
        n_transitions: int | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> Dataset:
        """Random episodes of several datasets, drawn without replacement, so that each has its share of the transitions.

        Args:
            datasets: with the same columns.
            shares: one a dataset, above 0; they are scaled to add up to 1.
            n_transitions: of the mix, as nearly as whole episodes make; None: as many as the shares allow.
            seed: decides which episodes.
            name: None: the datasets' names.

        Raises:
            ConfigError: shares cannot be used.
            DataError: a dataset has too few transitions for its share, or columns differ.
        """
        return joined.mix(Dataset, datasets, shares, n_transitions, seed, name)

    def diff(self, other: Dataset) -> Difference:
        """What differs: spaces, counts, columns, statistics, the first row of each column that does. See `difference.diff`."""
        return difference.diff(self, other)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {self.n_transitions:,} transitions in {self.n_episodes:,} episodes)"
