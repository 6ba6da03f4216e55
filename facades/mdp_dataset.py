"""A dataset that behaves as d3rlpy's `MDPDataset`: made from arrays, a list of episodes, and it can grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, overload

import numpy as np

from d3ray.data.dataset import Dataset
from d3ray.data.episodes import Episode, Episodes, action_size, observation_shape
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.masks import ACTION_MASK
from d3ray.data.storage.checks import as_array
from d3ray.data.storage.manifest import MANIFEST
from d3ray.data.storage.statistics import Moments


class MDPDataset(Dataset):
    """`Dataset.from_arrays` with d3rlpy's names, and a list of its episodes: indexing, `len` and iteration are over episodes.

    So scikit-learn's `train_test_split(dataset)` gives two lists of episodes, `KFold` their numbers, and `from_episodes` makes
    a dataset of such a list again (`split` and `folds` give views and copy nothing). Everything that takes a `Dataset` takes it.

    Where d3rlpy's versions differ or say nothing:
    - `rewards[t]` came of `actions[t]`. d3rlpy's of 2020 hold it one row later; import its files with `load`.
    - A `terminals` of 1 ends the MDP, `timeouts` cut the recording. Steps after the last of these are an episode too, cut
      where the data end. None is dropped.
    - `append`, `extend` and `clip_reward` change this object. Episodes, views and batches that were taken before stay as
      they were.

    Args:
        observations: [N, ...], or dicts and tuples of such arrays.
        actions: [N, A] floats, [N] integers, or what else `Dataset.from_arrays` takes.
        rewards: [N], of the action in the same row.
        terminals: [N]; the MDP ended with this step.
        timeouts: [N]; the recording was cut after this step.
        discrete_action: None: integers are discrete. True takes whole numbers stored as floats too, False takes integers as floats.
        action_mask: [N, n]; which discrete actions were legal, as `Dataset.from_arrays` takes it. None: it is not told.

    Raises:
        DataError: as `Dataset.from_arrays`; or actions are not whole numbers where `discrete_action` is true.
    """

    def __init__(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminals: Any,
        timeouts: Any = None,
        discrete_action: bool | None = None,
        action_mask: Any = None,
    ) -> None:
        values = as_array("actions", actions)
        if discrete_action is True and values.dtype.kind == "f":
            if not (values == np.floor(values)).all():
                raise DataError("actions are not whole numbers, and discrete_action is true.")
            actions = values.astype(np.int64)
        elif discrete_action is False and values.dtype.kind in "biu":
            actions = values.astype(np.float32)
        self._become(Dataset.from_arrays(observations, actions, rewards, terminals, timeouts, action_mask=action_mask))

    def _become(self, dataset: Dataset) -> None:
        self.__dict__.clear()  # what was measured goes too
        self.__dict__.update(dataset.__dict__)

    def snapshot(self) -> Dataset:
        """The dataset as it is now, which does not change."""
        return Dataset.of(self)

    # A list of episodes.

    def __len__(self) -> int:
        """Number of episodes."""
        return self.n_episodes

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Episodes: ...
    def __getitem__(self, index: int | slice) -> Episode | Episodes:
        return self.episodes[index]

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    def size(self) -> int:
        """Number of episodes."""
        return self.n_episodes

    @property
    def transition_count(self) -> int:
        """Number of transitions, N."""
        return self.n_transitions

    # Arrays of all steps, without closing rows.

    @property
    def observations(self) -> Any:
        """[N, ...], or a dict of such arrays; a copy."""
        found = {name: self._steps_of(name) for name in self.kinds if name.split("/")[0] == "observation"}
        return found.get("observation", {name.partition("/")[2]: column for name, column in found.items()})

    @property
    def actions(self) -> np.ndarray:
        """[N, A] or [N]; a copy."""
        return self._steps_of("action")

    @property
    def rewards(self) -> np.ndarray:
        """[N] float32; a copy."""
        return self._steps_of("reward")

    @property
    def terminals(self) -> np.ndarray:
        """[N] float32: 1 where the MDP ended; a copy."""
        return self._steps_of("terminated").astype(np.float32)

    @property
    def timeouts(self) -> np.ndarray:
        """[N] float32: 1 where the recording was cut; a copy."""
        return self._steps_of("truncated").astype(np.float32)

    @property
    def action_mask(self) -> np.ndarray | None:
        """[N, n] uint8: 1 where an action was legal; a copy. None where the data do not tell."""
        return self._steps_of(ACTION_MASK) if self.spec.action_mask else None

    def _steps_of(self, name: str) -> np.ndarray:
        return self.columns[name][self.episodes.transition_rows()]

    # What changes it.

    def append(
        self, observations: Any, actions: Any, rewards: Any, terminals: Any, timeouts: Any = None, action_mask: Any = None
    ) -> None:
        """More steps, as episodes of their own. The number of discrete actions grows where they have larger ones.

        Raises:
            DataError: as the constructor, or they are not like the steps that are there.
        """
        columns = (observations, actions, rewards, terminals, timeouts)
        if self.spec.starts():  # which the arrays alone do not tell
            self.extend(Dataset.from_arrays(*columns, action_mask=action_mask, spec=self.spec))
        else:
            self.extend(MDPDataset(*columns, True if self.spec.discrete else None, action_mask))

    def extend(self, dataset: Dataset) -> None:
        """The episodes of another dataset, after these. Raises DataError where columns differ."""
        self._become(Dataset.concat([self, dataset], name=self.name))

    def clip_reward(self, low: float | None = None, high: float | None = None) -> None:
        """Rewards below `low` become `low`, those above `high` become `high`; None leaves a side open.

        Raises:
            ConfigError: low is above high.
        """
        if low is not None and high is not None and low > high:
            raise ConfigError(f"Rewards are to be clipped from {low} to {high}; the first is above the second.")
        text = "reward" if low is None else f"max(reward, {float(low)!r})"
        text = text if high is None else f"min({text}, {float(high)!r})"
        if text != "reward":
            name = self.name
            self._become(self.relabel(text))
            self.name = name

    # What it tells.

    def compute_stats(self) -> dict[str, dict[str, Any]]:
        """`mean`, `std`, `min` and `max` of `return`, `reward`, `action` (continuous ones, by entry) and `observation` (by entry;
        over all entries for images; by key where observations are named, then as `observation/KEY`). Every reward counts.
        """  # noqa: D205 - one sentence of four
        found: dict[str, Any] = {"return": self.statistics.return_, "reward": self.statistics.reward}
        if self.statistics.action is not None:
            found["action"] = self.statistics.action
        seen = self.statistics.observation
        found |= {"observation": seen} if isinstance(seen, Moments) else {f"observation/{k}": m for k, m in seen.items()}
        return {
            name: {key: np.asarray(value) if isinstance(value, tuple) else value for key, value in moments.model_dump().items()}
            for name, moments in found.items()
        }

    def get_action_size(self) -> int:
        """Entries of an action; or how many discrete actions there are: the largest one and one, unless the spaces are known."""
        return action_size(self.spec)

    def get_observation_shape(self) -> Any:
        """Shape of one observation; a dict of them where observations are named."""
        return observation_shape({name: shape for name, (_, shape) in self.kinds.items()})

    def is_action_discrete(self) -> bool:
        """Whether actions are integers that name one of several."""
        return self.spec.discrete

    # Files.

    @classmethod
    def load(cls, fname: str | Path) -> MDPDataset:
        """Any file that `d3ray ingest` reads (d3rlpy's HDF5 of 0.x, 1.x and 2.x among them), or a dataset folder.

        Raises:
            DataError: it cannot be read.
        """
        path = Path(fname)
        if (path / MANIFEST).exists() or not path.exists():
            return cls.open(fname)
        from d3ray.data.formats.registry import read

        imported = read(path)
        about: dict[str, Any] = {key: getattr(imported, key) for key in ("spec", "environment", "provenance", "names")}
        return cls.from_steps(imported.steps, name=path.stem, **about)

    def dump(self, fname: str | Path) -> None:
        """Writes d3rlpy's HDF5 of 2.x where the name ends in `.h5` or `.hdf5`, else a dataset folder.

        The folder also keeps what HDF5 of that kind has no place for: final observations, the spaces, further columns.

        Raises:
            ConfigError: d3rlpy's HDF5 cannot hold such observations (a dict).
            StorageError: there is something already, or it cannot be written.
        """
        if Path(fname).suffix in (".h5", ".hdf5"):
            from d3ray.data.exporters.d3rlpy_hdf5 import write_d3rlpy

            write_d3rlpy(self, fname)
        else:
            self.write(fname)
