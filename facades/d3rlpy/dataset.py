"""d3rlpy's `dataset`: datasets and replay buffers by its names, which are d3ray's.

What a batch is made of belongs to the algorithm here, and to the buffer there: `fit` takes what a buffer's transition picker says
(steps of a return, frames of a stack) for the algorithm's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Self

import numpy as np

from d3ray.algos.environments.make import is_given, make
from d3ray.data.episodes import Episode, action_size, observation_shape
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import ReplayBuffer as Ring
from d3ray.data.spec import space_columns
from d3ray.data.storage.checks import as_array
from d3ray.data.storage.claims import scratch_names

from ..mdp_dataset import MDPDataset as OurMDPDataset

UNLIMITED = 1_000_000  # rows of a ring for a buffer without a limit; memory is touched only as it fills


@dataclass(frozen=True)
class BasicTransitionPicker:
    """Single transitions; base of the others, and what tells algorithms how to draw."""

    @property
    def settings(self) -> dict[str, Any]:
        """What an algorithm is told."""
        return {}


@dataclass(frozen=True)
class MultiStepTransitionPicker(BasicTransitionPicker):
    """Returns of `n_steps` steps. `gamma` is the algorithm's own here."""

    n_steps: int
    gamma: float = 0.99

    @property
    def settings(self) -> dict[str, Any]:
        return {"td_steps": self.n_steps}


@dataclass(frozen=True)
class FrameStackTransitionPicker(BasicTransitionPicker):
    """Stacks of the latest `n_frames` images."""

    n_frames: int = 4

    @property
    def settings(self) -> dict[str, Any]:
        return {"sampler": {"name": "uniform", "frames": self.n_frames}}


class BasicTrajectorySlicer:
    """Stretches of an episode, as Decision Transformers draw them."""


@dataclass
class InfiniteBuffer:
    """A buffer that keeps everything, up to a million rows."""

    limit: int = UNLIMITED


@dataclass
class FIFOBuffer:
    """A buffer that keeps the latest `limit` steps."""

    limit: int


@dataclass(frozen=True)
class TransitionMiniBatch:
    """Transitions as arrays, unscaled.

    Attributes:
        observations: [B, ...].
        actions: [B, A], of discrete ones [B, 1].
        rewards: [B, 1].
        next_observations: [B, ...].
        terminals: [B, 1].
        intervals: [B, 1], steps from one observation to the other.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: Any
    terminals: np.ndarray
    intervals: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards)


class _Drawn:
    """What is drawn from a dataset of d3rlpy's by hand; d3ray's own samplers are what `fit` draws by."""

    def sample_transition(self) -> Any:
        """One transition, of any step that has a next observation."""
        return _draw(self, 1)[0]

    def sample_transition_batch(self, batch_size: int) -> TransitionMiniBatch:
        """Several of them."""
        drawn = _draw(self, batch_size)

        def column(name: str) -> np.ndarray:
            return np.stack([np.asarray(getattr(one, name)) for one in drawn])

        rewards, terminals, actions = column("reward"), column("terminal"), column("action")
        actions = actions[:, None] if actions.ndim == 1 else actions
        intervals = np.ones((batch_size, 1), np.float32)
        rewards, terminals = rewards[:, None].astype(np.float32), terminals[:, None].astype(np.float32)
        return TransitionMiniBatch(column("observation"), actions, rewards, column("next_observation"), terminals, intervals)


def _draw(data: Any, n: int) -> list[Any]:
    """Transitions of a dataset or a buffer, by NumPy's generator, which `seed` seeds."""
    episodes: Sequence[Episode] = data.episodes
    ends = np.cumsum([len(episode) for episode in episodes])
    drawn = np.random.randint(ends[-1], size=n)
    which = np.searchsorted(ends, drawn, side="right")
    return [episodes[k][at - (ends[k - 1] if k else 0)] for k, at in zip(which.tolist(), drawn.tolist(), strict=True)]


class MDPDataset(OurMDPDataset, _Drawn):
    """`d3ray.MDPDataset` with d3rlpy's further arguments.

    Args:
        observations: [N, ...], and so on as `d3ray.MDPDataset`'s.
        actions: "
        rewards: "
        terminals: "
        timeouts: "
        action_space: `ActionSpace.DISCRETE` or `CONTINUOUS`; None: by the actions.
        action_size: What the data are checked against; it follows from them.
        transition_picker: What `fit` draws.
        trajectory_slicer: Taken, and not looked at.
        discrete_action: As in d3rlpy's first versions.
    """

    transition_picker: Any = None

    def __init__(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminals: Any,
        timeouts: Any = None,
        transition_picker: Any = None,
        trajectory_slicer: Any = None,
        action_space: Any = None,
        action_size: int | None = None,
        *,
        discrete_action: bool | None = None,
    ) -> None:
        if action_space is not None:
            discrete_action = "DISCRETE" in str(action_space).upper()
        given = {"actions": actions, "rewards": rewards, "terminals": terminals}
        values, rewards, terminals = (as_array(name, value) for name, value in given.items())
        if values.ndim == 2 and values.shape[1] == 1 and (discrete_action or values.dtype.kind in "biu"):
            values = values[:, 0]
        super().__init__(observations, values, rewards.reshape(-1), terminals.reshape(-1), timeouts, discrete_action)
        self.transition_picker = transition_picker
        found = self.get_action_size()
        if action_size is not None and action_size < found:
            raise DataError(f"action_size is {action_size}, and the actions need {found}.")

    @property
    def dataset_info(self) -> Any:
        """`action_size`, and the other things that d3rlpy tells of a dataset."""
        return _Info(self.get_action_size(), self.get_observation_shape(), self.is_action_discrete())

    def dump(self, fname: str | Path | BinaryIO) -> None:
        """d3rlpy's HDF5 into an open file; else as `d3ray.MDPDataset.dump`."""
        if isinstance(fname, str | Path):
            super().dump(fname)
            return
        with TemporaryDirectory(prefix=scratch_names("file")) as folder:
            file = Path(folder) / "dataset.h5"
            super().dump(file)
            fname.write(file.read_bytes())

    @classmethod
    def load(cls, fname: str | Path | BinaryIO, buffer: Any = None) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `dump` wrote, of a name or an open file; any file that d3ray imports."""
        if isinstance(fname, str | Path):
            return super().load(fname)  # pyright: ignore[reportReturnType]
        with TemporaryDirectory(prefix=scratch_names("file")) as folder:
            file = Path(folder) / "dataset.h5"
            file.write_bytes(fname.read())
            loaded = super().load(file)
            loaded.columns  # noqa: B018  # before the file goes
            return loaded  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class _Info:
    action_size: int
    observation_shape: Any
    discrete: bool


class ReplayBuffer(_Drawn):
    """A buffer that is filled by acting in an environment, or of episodes that there are.

    Args:
        buffer: `FIFOBuffer(limit)` or `InfiniteBuffer()`.
        transition_picker: What algorithms draw.
        trajectory_slicer: Taken, and not looked at.
        writer_preprocessor: "
        episodes: What it holds at first.
        env: Whose spaces it is for; needed where there are no episodes.
        cache_size: "
        action_space: "
        action_size: "

    Raises:
        ConfigError: there is neither an environment nor an episode.
    """

    def __init__(
        self,
        buffer: Any,
        transition_picker: Any = None,
        trajectory_slicer: Any = None,
        writer_preprocessor: Any = None,
        episodes: Sequence[Episode] | None = None,
        env: Any = None,
        action_space: Any = None,
        action_size: int | None = None,
        cache_size: int | None = None,
    ) -> None:
        self.transition_picker = transition_picker
        self.buffer = buffer
        held = None if episodes is None or not len(episodes) else OurMDPDataset.from_episodes(list(episodes))
        if env is not None:
            vector = make(env)
            spec = vector.spec
            if not is_given(env):
                vector.close()
        elif held is not None:
            spec = held.spec
        else:
            raise ConfigError("A replay buffer needs to know its spaces: give it env, or episodes.")
        self.ring = Ring(buffer.limit, spec)
        for episode in () if held is None else held.episodes:
            self.append_episode(episode)

    def append_episode(self, episode: Episode) -> None:
        """One episode more."""
        for step in episode:
            last = step.index + 1 == len(episode)
            ended, cut = last and episode.terminated, last and not episode.terminated
            final = step.next_observation if last and episode.final_recorded else None
            self.ring.add(step.observation, step.action, step.reward, ended, cut, final)

    def append(self, observation: Any, action: Any, reward: float) -> None:
        """One step; `clip_episode` ends the episode after it."""
        if self.ring.spec.discrete:
            action = int(np.asarray(action).reshape(()))
        self._flush()
        self._held = (observation, action, float(np.asarray(reward).reshape(())))

    _held: Any = None

    def _flush(self, *, terminated: bool = False, truncated: bool = False) -> None:
        if self._held is not None:
            observation, action, reward = self._held
            self.ring.add(observation, action, reward, terminated, truncated)
            self._held = None

    def clip_episode(self, terminated: bool) -> None:
        """Ends the episode: by a terminal step, or cut."""
        self._flush(terminated=terminated, truncated=not terminated)

    @property
    def episodes(self) -> Sequence[Episode]:
        """What it holds, an unfinished episode too."""
        return self.to_mdp_dataset().episodes

    @property
    def transition_count(self) -> int:
        """Steps that it holds."""
        return self.ring.n_transitions

    def size(self) -> int:
        """Episodes that it holds."""
        return len(self.episodes)

    def __len__(self) -> int:
        return self.transition_count

    @property
    def dataset_info(self) -> Any:
        """`action_size` and so on."""
        spec = self.ring.spec
        shapes = {name: leaf.shape for name, leaf in space_columns(spec.observation).items()}
        return _Info(action_size(spec), observation_shape(shapes), spec.discrete)

    def to_mdp_dataset(self) -> OurMDPDataset:
        """What it holds as a dataset."""
        self._flush()
        return OurMDPDataset.of(self.ring.to_dataset())

    def dump(self, f: str | Path | BinaryIO) -> None:
        """As `MDPDataset.dump`."""
        MDPDataset.dump(MDPDataset.of(self.to_mdp_dataset()), f)

    @classmethod
    def load(cls, f: str | Path | BinaryIO, buffer: Any = None, **more: Any) -> MDPDataset:
        """What `dump` wrote, as a dataset."""
        return MDPDataset.load(f)


def create_fifo_replay_buffer(limit: int, episodes: Any = None, env: Any = None, **more: Any) -> ReplayBuffer:
    """A buffer of the latest `limit` steps."""
    return ReplayBuffer(FIFOBuffer(limit), episodes=episodes, env=env, **more)


def create_infinite_replay_buffer(episodes: Any = None, env: Any = None, **more: Any) -> ReplayBuffer:
    """A buffer of everything."""
    limit = UNLIMITED + sum(len(episode) + 1 for episode in episodes or ())
    return ReplayBuffer(InfiniteBuffer(limit), episodes=episodes, env=env, **more)


def opened(data: Any) -> Any:
    """What d3ray's algorithms train on: a buffer's dataset; all else, datasets and lists of episodes, as it is."""
    return data.to_mdp_dataset() if isinstance(data, ReplayBuffer) else data
