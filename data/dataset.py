"""A dataset: episodes over columns that lie in memory, in a mapped file, or in a node map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .episodes import Columns, Episodes
from .errors import ConfigError, DataError
from .fingerprint import column_digest, fingerprint
from .rows import ArrayRows, Rows
from .scan import BlockScan, columns_of, scan_blocks
from .spec import Box, Dict, Discrete, Environment, Spec
from .statistics import Statistics, summarise
from .steps import StepTable, concat_steps, steps_from_arrays, steps_from_rows


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
        columns: Columns,
        episodes: Episodes,
        *,
        name: str,
        spec: Spec,
        environment: Environment | None = None,
        provenance: Mapping[str, Any] | None = None,
        cuts: int = 0,
    ) -> None:
        self._columns = {key: _read_only(column) for key, column in columns.items()}
        self.name, self.spec, self.environment, self.cuts = name, spec, environment, cuts
        self.provenance, self.episodes = dict(provenance or {}), episodes

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
        if spec is None:
            spec = infer_spec(table.columns)
        check_spec(table.columns, spec)
        columns = {key: _read_only(column) for key, column in table.columns.items()}
        episodes = Episodes(
            table.first_row, table.steps, table.terminated, table.final_recorded, table.returns, columns=lambda: columns
        )
        return cls(columns, episodes, name=name, spec=spec, environment=environment, provenance=provenance, cuts=table.cuts)

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
        return self._columns

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
        return self._scanned[1]

    @property
    def fingerprint(self) -> str:
        """A hash of the logical rows, 64 hexadecimal digits; the same whatever the name, shards, compression or place."""
        return self._scanned[0]

    @cached_property
    def _scanned(self) -> tuple[str, Statistics]:
        scans: list[BlockScan] = scan_blocks(self.rows(), self.spec)
        digests = {key: column_digest(blocks) for key, blocks in columns_of(scans).items()}
        kinds = {key: (column.dtype.name, column.shape[1:]) for key, column in self.columns.items()}
        text = fingerprint(self.n_rows, kinds, digests, self.episodes.final_recorded)
        return text, summarise([scan.statistics for scan in scans], self.episodes)

    def to_steps(self) -> StepTable:
        """The rows of this dataset's episodes; views where they lie back to back, copies for a split."""
        if self.episodes.contiguous:
            columns = {key: column[: self.n_rows] for key, column in self.columns.items()}
        else:
            rows = self.episodes.rows()
            columns = {key: column[rows] for key, column in self.columns.items()}
        return steps_from_rows(columns, self.episodes.final_recorded, self.cuts)

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
        from .random import bits, fold, root_key  # noqa: PLC0415 - loads torch, which opening a dataset does not need

        order = np.argsort(bits(fold(root_key(seed), "split"), n).numpy(), kind="stable")
        n_test = min(max(round(n * test_size), 1), n - 1)
        train, test = np.sort(order[n_test:]), np.sort(order[:n_test])
        return self._subset(train, f"{self.name} (train)"), self._subset(test, f"{self.name} (test)")

    def _subset(self, index: np.ndarray, name: str) -> Dataset:
        episodes = self.episodes.subset(index, lambda: self.columns)
        return Dataset(self._columns, episodes, name=name, spec=self.spec, environment=self.environment, provenance=self.provenance)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {self.n_transitions:,} transitions in {self.n_episodes:,} episodes)"


def MDPDataset(  # noqa: N802, PLR0917 - d3rlpy's spelling
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


def infer_spec(columns: Columns) -> Spec:
    """Spaces without bounds from columns; the number of discrete actions is the largest one and one."""
    keys = [name for name in columns if name.startswith("observation/")]
    boxes = {name: Box(shape=c.shape[1:], dtype=c.dtype.name) for name, c in columns.items() if name in [*keys, "observation"]}
    action = columns["action"]
    return Spec(
        observation=Dict(spaces={name.removeprefix("observation/"): boxes[name] for name in keys})
        if keys
        else boxes["observation"],
        action=Discrete(n=int(action.max()) + 1) if action.ndim == 1 else Box(shape=action.shape[1:], dtype=action.dtype.name),
    )


def check_spec(columns: Columns, spec: Spec) -> None:
    """Raises DataError where columns have other keys, shapes or kinds of number than the spaces, or an unknown discrete action."""
    if isinstance(spec.observation, Dict):
        expected = {f"observation/{key}": box for key, box in spec.observation.spaces.items()}
    else:
        expected = {"observation": spec.observation}
    seen = {name for name in columns if name.split("/")[0] == "observation"}
    if seen != expected.keys():
        raise DataError(f"The spec has the observation columns {sorted(expected)} and the data has {sorted(seen)}.")
    action = columns["action"]
    if isinstance(spec.action, Discrete):
        if action.ndim != 1:
            raise DataError(f"The spec has discrete actions and the data has actions of shape {list(action.shape[1:])}.")
        if len(action) and int(action.max()) >= spec.action.n:
            row = int((action >= spec.action.n).argmax())
            raise DataError(
                f"The spec has {spec.action.n} actions, 0 to {spec.action.n - 1}, and row {row} has action {action[row]}."
            )
    for name, space in [*expected.items(), ("action", spec.action)]:
        if columns[name].shape[1:] != space.shape:
            raise DataError(f"The spec has {name} of shape {list(space.shape)} and the data has {list(columns[name].shape[1:])}.")


def _read_only(column: np.ndarray) -> np.ndarray:
    view = column.view()
    view.flags.writeable = False
    return view
