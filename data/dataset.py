"""A dataset: recorded episodes with operations on them, made from arrays or opened by path or name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast, overload

import numpy as np

from .episodes import Episode
from .errors import DataError
from .names import place_of
from .operations import difference, goals, joined, mapped, relabelled, selection
from .recording import Recording
from .spec import Environment, Spec, value_columns
from .storage.legal import IllegalActions
from .storage.steps import steps_from_arrays, steps_from_rows

if TYPE_CHECKING:
    from .operations.difference import Difference


_AIMED = "_aimed"  # what is remembered of `with_goals`


class Dataset(Recording):
    """Transitions in episodes. Make one with `from_arrays` or `from_steps`, or `open` a folder.

    Operations give a lazy dataset: views by episode, or columns that are worked out as they are read.
    """

    @classmethod
    def open(cls, where: str | Path) -> Self:
        """The dataset of a folder, a URI that pyarrow.fs opens, or a catalog name. Reads its manifest and episodes only.

        Raises:
            DataError: there is none, or a file of it is missing, truncated or damaged.
            StorageError: the place cannot be read.
        """
        from .folder import Folder

        return cls.of_folder(Folder(place_of(where)))

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
        action_mask: Any = None,
        final_action_mask: Any = None,
        illegal_actions: IllegalActions = "refuse",
        extra: Mapping[str, Any] | None = None,
        keep_float64: bool = False,
        spec: Spec | None = None,
        environment: Environment | None = None,
        name: str = "dataset",
    ) -> Self:
        """A dataset from arrays of steps, episodes back to back.

        Args:
            observations: [N, ...], or dicts and tuples of such arrays; what the agent saw. The dtype is kept: uint8 images stay
                uint8; only float64 becomes float32 unless `keep_float64`. [N] integers from 0 are discrete observations. Of a
                pandas DataFrame, here and as actions, the columns' names are kept.
            actions: [N, A] floats, [N] integers from 0 for discrete actions, [N, K] integers for multi-discrete or [N, n] bool for
                binary ones; what it did there.
            rewards: [N], any unit; what came of that action. d3rlpy's 2020 files hold it one row later: use their importer.
            terminated: [N] bool; the MDP ended with this step, so nothing is bootstrapped past it.
            truncated: [N] bool; the recording was cut after this step. The last row always ends an episode.
            final_observations: [E, ...], one an episode. None: each end repeats its last observation; truncated ends are then
                left out of windows that bootstrap.
            next_observations: [N, ...]; an episode is also cut where they are not the next row.
            action_mask: [N, n] bool; which of n discrete actions were legal where each step was taken. Algorithms, and what they
                learn, choose among those alone. It may also be the key `action_mask` of dict observations, and is then that of
                final and next ones too.
            final_action_mask: [E, n], of the final observations. None: all actions count as legal there.
            illegal_actions: what becomes of steps whose action was not legal: "refuse" raises; "keep" leaves them as they are, and
                losses then take what was done for legal where it was done.
            extra: further columns by name, such as `log_prob` [N], or `cost` [N], what algorithms with a limit of costs keep small.
            keep_float64: keep float64 observations, actions and further columns as they are.
            spec: the spaces; None: inferred from the arrays, without bounds. Kinds that begin at another number than 0, as those
                of gymnasium's `Discrete(3, start=1)`, need it: `Discrete(n=3, start=1)` here too.
            environment: where the steps were taken.
            name: what tables and runs call it.

        Returns:
            A dataset of N transitions in E episodes. Columns are copied once, to make room for E closing rows.

        Raises:
            DataError: lengths differ (both are named), an array is empty, a number is NaN or infinite, final_observations has not
                one row an episode, or the arrays are not of the given spec; a mask is of continuous actions or of another shape,
                has no legal action in a row, or an action was illegal that is not to be kept.
        """
        masks = {"action_mask": action_mask, "final_action_mask": final_action_mask}
        table = steps_from_arrays(
            observations,
            actions,
            rewards,
            terminated,
            truncated,
            final_observations=final_observations,
            next_observations=next_observations,
            extra={**(extra or {}), **{name: mask for name, mask in masks.items() if mask is not None}},
            keep_float64=keep_float64,
            illegal_actions=illegal_actions,
            starts=spec.starts() if spec else None,
        )
        called = _column_names({**value_columns(observations), "action": actions})
        return cls.from_steps(table, name=name, spec=spec, environment=environment, names=called)

    @classmethod
    def from_episodes(cls, episodes: Sequence[Episode]) -> Self:
        """Copy episodes, as scikit-learn's splitters hand them out, to a dataset. Raises DataError where columns differ."""
        given: Any = episodes
        if not isinstance(given, Iterable) or not all(isinstance(episode, Episode) for episode in cast("Iterable[Any]", given)):
            given = repr(given) if isinstance(given, str) else f"a {type(given).__name__}"  # pyright: ignore[reportUnknownArgumentType]
            raise DataError(f"Data are a Dataset, as Dataset.open(path or name) gives it, or a list of its episodes, not {given}.")
        if not len(episodes):
            raise DataError("A dataset needs one episode or more.")
        kinds = [{name: (c.dtype, c.shape[1:]) for name, c in episode.columns.items()} for episode in episodes]
        for k, kind in enumerate(kinds):
            if kind != kinds[0]:
                raise DataError(f"Episode {k} has other columns than the first.")
        columns = {name: np.concatenate([episode.columns[name] for episode in episodes]) for name in kinds[0]}
        table = steps_from_rows(columns, np.array([episode.final_recorded for episode in episodes]))
        return cls.from_steps(table, name="dataset", spec=episodes[0].spec)

    def filter(self, keep: selection.Keep) -> Dataset:
        """Keep episodes that satisfy an expression, such as `return > 100 and terminated`, or a function. See `selection.keep`."""
        return Dataset.of(selection.keep(self, keep))

    def take(self, which: int | Sequence[int] | np.ndarray) -> Dataset:
        """Keep the first so many episodes, or those with the given numbers. See `selection.take`."""
        return Dataset.of(selection.take(self, which))

    def shuffle(self, seed: int = 0) -> Dataset:
        """Put all episodes in an order that the seed decides."""
        return Dataset.of(selection.shuffle(self, seed))

    def top(self, fraction: float, by: Literal["episodes", "transitions"] = "episodes") -> Dataset:
        """Keep the episodes of the highest returns; `top(0.1)` is what 10 % BC learns from. See `selection.top`."""
        return Dataset.of(selection.top(self, fraction, by))

    @overload
    def split(self, test_size: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]: ...
    @overload
    def split(self, test_size: Sequence[float], seed: int = 0) -> tuple[Dataset, ...]: ...
    def split(self, test_size: float | Sequence[float] = 0.2, seed: int = 0) -> tuple[Dataset, ...]:
        """Split into train and test (a share of `test_size`), or into as many parts as there are shares. See `selection.split`."""
        return tuple(map(Dataset.of, selection.split(self, test_size, seed)))

    def folds(self, k: int, seed: int = 0) -> Iterator[tuple[Dataset, Dataset]]:
        """Yield k pairs of train and test, every episode in one test part. See `selection.folds`."""
        return ((Dataset.of(train), Dataset.of(test)) for train, test in selection.folds(self, k, seed))

    def relabel(self, reward: relabelled.Reward) -> Dataset:
        """Give the same steps other rewards: `reward - 1`, "success", or a function of arrays. See `relabelled.relabel`."""
        return Dataset.of(relabelled.relabel(self, reward))

    def with_goals(self, part: str | Sequence[int] | None = None) -> Dataset:
        """Return the same steps with goals beside observations, which training draws in hindsight. See `goals.with_goals`.

        It is made once, so that a second training on these data knows the same dataset.
        """
        known: dict[Any, Dataset] = self.__dict__.setdefault(_AIMED, {})
        key = part if part is None or isinstance(part, str) else tuple(part)
        if key not in known:
            known[key] = Dataset.of(goals.with_goals(self, part))
        return known[key]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _AIMED}  # which whoever gets it makes anew

    def map_batches(
        self,
        function: Callable[..., Any],
        *,
        batch_size: int = 4096,
        batch_format: mapped.BatchFormat = "numpy",
        arguments: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Return the same episodes with columns that a function (or a class of callable objects) makes of batches, in memory.

        See `mapped.map_batches`; `d3ray.map_batches` does it on a cluster, with GPUs, and writes a folder.
        """
        about: dict[str, Any] = {"batch_size": batch_size, "batch_format": batch_format, "arguments": arguments}
        return Dataset.of(mapped.map_batches(self, function, **about))

    @staticmethod
    def concat(datasets: Sequence[Dataset], *, name: str | None = None) -> Dataset:
        """Join datasets one after the other; nothing is copied until samplers need it. Raises DataError where columns differ."""
        return Dataset.of(joined.concat(datasets, name))

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
        return Dataset.of(joined.mix(datasets, shares, n_transitions, seed, name))

    def diff(self, other: Dataset) -> Difference:
        """Compare spaces, counts, columns, statistics and the first row that differs. See `difference.diff`."""
        return difference.diff(self, other)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {self.n_transitions:,} transitions in {self.n_episodes:,} episodes)"


def _column_names(columns: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Take names of entries from data frames and series, by column."""
    frames = {name: tuple(map(str, values.columns)) for name, values in columns.items() if hasattr(values, "columns")}
    named = {name: getattr(values, "name", None) for name, values in columns.items() if hasattr(values, "iloc")}
    series = {name: (title,) for name, title in named.items() if isinstance(title, str)}
    return frames | series
