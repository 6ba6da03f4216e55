"""A dataset: episodes over columns that lie in memory, in a mapped file, or in a node map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .episodes import Columns, ColumnSource, Episodes
from .errors import ConfigError, DataError
from .rows import ArrayRows, Rows
from .scan import Summary, scan_blocks, summarise_scans
from .schema import check_spec, infer_spec, kinds_of, largest_numbers
from .spec import Environment, Spec
from .statistics import Statistics
from .steps import StepTable, concat_steps, steps_from_arrays, steps_from_rows

if TYPE_CHECKING:
    from .folder import Folder
    from .shards import Compression


class _Memory:
    """Columns that are there."""

    def __init__(self, columns: Columns) -> None:
        self._columns = {key: _read_only(column) for key, column in columns.items()}

    def columns(self) -> Columns:
        return self._columns


class Dataset:
    """Transitions in episodes. Make one with `from_arrays` or `from_steps`, or `open` a folder.

    Attributes:
        name: what tables and runs call it.
        spec: the spaces of observations and actions.
        environment: where the data comes from, if that is known.
        provenance: JSON-able notes on how it was made.
        cuts: episodes that were cut where the source's next observations were not the next row.
        episodes: a sequence of episodes, and arrays over them.
    """

    name: str
    spec: Spec
    environment: Environment | None
    provenance: dict[str, Any]
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
        provenance: Mapping[str, Any] | None = None,
        cuts: int = 0,
    ) -> None:
        self._source = source
        self.name, self.spec, self.environment, self.cuts = name, spec, environment, cuts
        self.provenance, self.episodes = dict(provenance or {}), episodes

    @classmethod
    def open(cls, where: str | Path) -> Dataset:
        """The dataset of a folder, a URI that pyarrow.fs opens, or a catalog name. Reads its manifest and episodes only.

        Raises:
            DataError: there is none, or a file of it is missing, truncated or damaged.
            StorageError: the place cannot be read.
        """
        from .catalog import find
        from .folder import Folder

        return cls._of_folder(Folder(find(where)))

    @classmethod
    def _of_folder(cls, folder: Folder) -> Dataset:
        manifest, arrays = folder.manifest, folder.episodes()
        names = ("first_row", "steps", "terminated", "final_recorded", "return")
        dataset = cls(
            folder,
            Episodes(*(arrays[name] for name in names), source=folder),
            name=manifest.name,
            spec=manifest.spec,
            environment=manifest.environment,
            provenance=manifest.provenance,
            cuts=manifest.cuts,
        )
        digests = {column.name: column.digest for column in manifest.columns}
        dataset._summary = Summary(digests, manifest.fingerprint, manifest.statistics)
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
            observations: [N, ...] or a dict of such arrays; what the agent saw. The dtype is kept: uint8 images stay uint8;
                only float64 becomes float32 unless `keep_float64`.
            actions: [N, A] floats, or [N] integers for discrete actions; what it did there.
            rewards: [N], any unit; what came of that action. d3rlpy's 2020 files hold it one row later: use their importer.
            terminated: [N] bool; the MDP ended with this step, so nothing is bootstrapped past it.
            truncated: [N] bool; the recording was cut after this step. The last row always ends an episode.
            final_observations: [E, ...], one an episode. None: each end repeats its last observation; truncated ends are then
                left out of windows that bootstrap.
            next_observations: [N, ...]; an episode is also cut where they are not the next row.
            extra: further columns by name, such as `log_prob` [N].
            keep_float64: keep float64 observations and further columns as they are.
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
        return cls.from_steps(table, name=name, spec=spec, environment=environment)

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
        source = _Memory(table.columns)
        episodes = Episodes(table.first_row, table.steps, table.terminated, table.final_recorded, table.returns, source)
        return cls(source, episodes, name=name, spec=spec, environment=environment, provenance=provenance, cuts=table.cuts)

    @classmethod
    def concat(cls, datasets: Sequence[Dataset], *, name: str | None = None) -> Dataset:
        """The episodes of all, one dataset after the other, in memory.

        Raises:
            DataError: there is none, or columns differ in name, dtype or shape.
        """
        table = concat_steps([dataset.to_steps() for dataset in datasets])
        specs, environments = [d.spec for d in datasets], [d.environment for d in datasets]
        spec = specs[0] if all(s == specs[0] for s in specs) else None
        return cls.from_steps(
            table,
            name=name or " + ".join(dataset.name for dataset in datasets),
            spec=spec,
            environment=environments[0] if all(e == environments[0] for e in environments) else None,
            provenance={"concat": [{"name": d.name, "provenance": d.provenance} for d in datasets]},
        )

    @property
    def columns(self) -> Columns:
        """Arrays by name, closing rows included; read-only. A split's columns are those of the whole: see `episodes.rows()`."""
        return self._source.columns()

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

    def rows(self) -> Rows:
        """This dataset's logical rows, to be read in blocks."""
        return ArrayRows(self.columns, self.episodes)

    @property
    def statistics(self) -> Statistics:
        """Measured when first asked for, where they were not stored."""
        return self._summary.statistics

    @property
    def fingerprint(self) -> str:
        """A hash of the logical rows, 64 hexadecimal digits; the same whatever the name, shards, compression or place."""
        return self._summary.fingerprint

    @cached_property
    def _summary(self) -> Summary:
        return summarise_scans(scan_blocks(self.rows(), self.spec), self.episodes, kinds_of(self.columns))

    def to_steps(self) -> StepTable:
        """The rows of this dataset's episodes; views where they lie back to back, copies for a split."""
        table = self._part(0, self.n_episodes)
        return replace(table, cuts=self.cuts)

    @property
    def folder(self) -> Folder | None:
        """The open folder that the columns come from; None for a dataset in memory. For a split it is the folder of the whole."""
        from .folder import Folder

        return self._source if isinstance(self._source, Folder) else None

    def prepare(self) -> None:
        """Makes sure that `columns` gives what was written: builds the node map, or reads the one file that is mapped as it is.

        Raises:
            DataError: a shard is missing or not what was written.
            StorageError: the node map has no room.
        """
        _ = self.columns
        if self.folder is not None and self.folder.is_mapped_as_it_is:
            self.folder.verify()

    def verify(self) -> None:
        """Compares every shard with its SHA-256 in the manifest. Raises DataError, which names the first that differs."""
        if self.folder is not None:
            self.folder.verify()

    def write(
        self,
        path: str | Path,
        *,
        n_shards: int | None = None,
        max_rows_per_shard: int | None = None,
        compression: Compression = None,
        overwrite: bool = False,
    ) -> Dataset:
        """Writes a dataset folder: all of it, or nothing.

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
        from .files import Place
        from .folder import Folder
        from .shards import plan_shards, write_shard
        from .writing import Draft

        kinds = kinds_of(self.columns)
        plan = plan_shards(self.episodes.steps + 1, kinds, n_shards=n_shards, max_rows=max_rows_per_shard)
        with Draft(path, overwrite=overwrite) as draft:
            records = [
                write_shard(draft.folder, k, len(plan), self._part(*part), first_episode=part[0], compression=compression)
                for k, part in enumerate(plan)
            ]
            draft.commit(
                records,
                name=self.name,
                spec=self.spec,
                environment=self.environment,
                provenance=self.provenance,
                summary=self._summary,
                cuts=self.cuts,
            )
        return Dataset._of_folder(Folder(Place(path)))

    def _part(self, start: int, stop: int) -> StepTable:
        """Episodes `start` … `stop - 1`."""
        episodes = self.episodes[start:stop]
        rows = episodes.rows()
        views = rows[-1] - rows[0] == len(rows) - 1
        taken = slice(int(rows[0]), int(rows[-1]) + 1) if views else rows
        columns = {key: column[taken] for key, column in self.columns.items()}
        return steps_from_rows(columns, episodes.final_recorded)

    def split(self, test_size: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Train and test: views over the same columns, each with some of the episodes, in their order.

        Args:
            test_size: share of the episodes, above 0 and below 1; each side gets one at least.
            seed: the same seed gives the same split, on any machine.

        Raises:
            ConfigError: test_size is no such share.
            DataError: there are fewer than two episodes.
        """
        if not 0 < test_size < 1:
            raise ConfigError(f"test_size is {test_size}; it is a share of the episodes, above 0 and below 1.")
        n = self.n_episodes
        if n < 2:
            raise DataError(f"{self.name} has one episode only; a split needs two or more.")
        from .random import bits, fold, root_key

        order = np.argsort(bits(fold(root_key(seed), "split"), n).numpy(), kind="stable")
        n_test = min(max(round(n * test_size), 1), n - 1)
        train, test = np.sort(order[n_test:]), np.sort(order[:n_test])
        return self._subset(train, f"{self.name} (train)"), self._subset(test, f"{self.name} (test)")

    def _subset(self, index: np.ndarray, name: str) -> Dataset:
        provenance = {**self.provenance, "part": name}
        return Dataset(
            self._source,
            self.episodes.subset(index),
            name=name,
            spec=self.spec,
            environment=self.environment,
            provenance=provenance,
        )

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {self.n_transitions:,} transitions in {self.n_episodes:,} episodes)"


def MDPDataset(  # noqa: N802 - d3rlpy's spelling
    observations: Any,
    actions: Any,
    rewards: Any,
    terminals: Any,
    timeouts: Any = None,
    discrete_action: bool | None = None,
) -> Dataset:
    """`Dataset.from_arrays` with d3rlpy's names.

    Args:
        observations: [N, ...].
        actions: [N, A] floats, or [N] integers.
        rewards: [N], of the action in the same row.
        terminals: [N]; the MDP ended with this step.
        timeouts: [N]; the recording was cut after this step.
        discrete_action: None: integers are discrete. True takes whole numbers stored as floats too, False takes integers as floats.
    """
    values = np.asarray(actions)
    if discrete_action is True and values.dtype.kind == "f":
        if not (values == np.floor(values)).all():
            raise DataError("actions are not whole numbers, and discrete_action is true.")
        values = values.astype(np.int64)
    elif discrete_action is False and values.dtype.kind in "biu":
        values = values.astype(np.float32)
    return Dataset.from_arrays(observations, values, rewards, terminals, timeouts)


def _read_only(column: np.ndarray) -> np.ndarray:
    view = column.view()
    view.flags.writeable = False
    return view
