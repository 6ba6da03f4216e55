"""Single transitions and small lists of them, as d3rlpy's users handle them: views of an episode's columns, made when looked at.

Nothing of it is stored: a transition is an episode and a number. Training does not come this way; samplers gather rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ConfigError, DataError
from .spec import Box, space_columns

if TYPE_CHECKING:
    from .episodes import Episode


class Transition:
    """Transition t of an episode of T.

    d3ray's rewards are in the row of their action. So `reward` is what came of `action`, and what is learned from is
    (observation, action, reward, next_observation, terminal). `next_reward` is that of the *next* action, and 0 at the end.
    (In d3rlpy's of 2020 rewards are one row later: what is `next_reward` there is `reward` here.)
    """

    __slots__ = ("episode", "index")

    def __init__(self, episode: Episode, index: int) -> None:
        self.episode, self.index = episode, index  # index: t, from 0 to T - 1

    @property
    def observation(self) -> Any:
        """What the agent saw, or a dict of it."""
        return observations_of(self.episode.columns, self.index)

    @property
    def action(self) -> Any:
        """What it did: an array, or an integer."""
        return self.episode.columns["action"][self.index]

    @property
    def reward(self) -> float:
        """What came of that action."""
        return float(self.episode.columns["reward"][self.index])

    @property
    def next_observation(self) -> Any:
        """What it saw then; the same as `observation` at an end whose final observation was not recorded."""
        return observations_of(self.episode.columns, self.index + 1)

    @property
    def next_action(self) -> Any:
        """What it did then; zeros at the end of the episode."""
        return self.episode.columns["action"][self.index + 1]

    @property
    def next_reward(self) -> float:
        """What came of `next_action`; 0 at the end of the episode."""
        return float(self.episode.columns["reward"][self.index + 1])

    @property
    def terminal(self) -> float:
        """1 where this step ended the MDP, else 0. A recording that was cut is no terminal."""
        return float(self.episode.columns["terminated"][self.index])

    @property
    def prev_transition(self) -> Transition | None:
        """The one before it in the episode, or None."""
        return Transition(self.episode, self.index - 1) if self.index else None

    @property
    def next_transition(self) -> Transition | None:
        """The one after it in the episode, or None."""
        return Transition(self.episode, self.index + 1) if self.index + 1 < len(self.episode) else None

    def get_observation_shape(self) -> Any:
        """As `Episode.get_observation_shape`."""
        return self.episode.get_observation_shape()

    def get_action_size(self) -> int:
        """As `Episode.get_action_size`."""
        return self.episode.get_action_size()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transition):
            return NotImplemented
        return self.index == other.index and _address(self) == _address(other)

    def __hash__(self) -> int:
        return hash((self.index, _address(self)))

    def __repr__(self) -> str:
        return f"Transition({self.index + 1} of {len(self.episode)}, reward {self.reward:g})"


def _address(transition: Transition) -> int:
    """Where the episode's rewards lie, so that two views of one transition are equal."""
    return transition.episode.columns["reward"].__array_interface__["data"][0]


class TransitionMiniBatch:
    """B transitions as arrays.

    Args:
        transitions: of one dataset or several alike.
        n_frames: how many images are stacked along their channels, the newest last: [B, C, H, W] becomes
            [B, C * n_frames, H, W] ([B, H, W, C * n_frames] where the dataset's space has channels last). Frames from before
            the episode began are zeros, and none comes from another episode. Other observations are not stacked.

    Raises:
        DataError: there is no transition.
        ConfigError: n_frames is below 1.

    Attributes:
        transitions: as given.
        observations, next_observations: [B, ...], or dicts of such arrays.
        actions, next_actions: [B, A] or [B].
        rewards, next_rewards, terminals: [B] float32. (d3rlpy's of 2020 are [B, 1].)
    """

    def __init__(self, transitions: Sequence[Transition], n_frames: int = 1) -> None:
        if n_frames < 1:
            raise ConfigError(f"n_frames is {n_frames}; it is 1 or more.")
        if not len(transitions):
            raise DataError("A mini-batch needs one transition or more.")
        self.transitions, self.n_frames = list(transitions), n_frames
        self.observations, self.next_observations = self._observations(0), self._observations(1)
        self.actions, self.next_actions = self._column("action", 0), self._column("action", 1)
        self.rewards, self.next_rewards = self._column("reward", 0), self._column("reward", 1)
        self.terminals = self._column("terminated", 0).astype(np.float32)

    def size(self) -> int:
        """B."""
        return len(self.transitions)

    def __len__(self) -> int:
        return len(self.transitions)

    def _column(self, name: str, ahead: int) -> np.ndarray:
        return np.stack([t.episode.columns[name][t.index + ahead] for t in self.transitions])

    def _observations(self, ahead: int) -> Any:
        names = [name for name in self.transitions[0].episode.columns if name.split("/")[0] == "observation"]
        return observations_of({name: self._stacked(name, ahead) for name in names}, slice(None))

    def _stacked(self, name: str, ahead: int) -> np.ndarray:
        column = self.transitions[0].episode.columns[name]
        if self.n_frames == 1 or column.ndim != 4:
            return self._column(name, ahead)
        out = np.zeros((len(self.transitions), self.n_frames, *column.shape[1:]), column.dtype)
        for i, t in enumerate(self.transitions):
            stop = t.index + ahead + 1
            frames = t.episode.columns[name][max(stop - self.n_frames, 0) : stop]
            out[i, self.n_frames - len(frames) :] = frames
        if _channels_last(self.transitions[0].episode, name):
            return np.moveaxis(out, 1, 3).reshape(*out.shape[:1], *out.shape[2:4], -1)
        return out.reshape(len(out), -1, *out.shape[3:])


def _channels_last(episode: Episode, name: str) -> bool:
    space = space_columns(episode.spec.observation)[name] if episode.spec else None
    return isinstance(space, Box) and space.channels == "last"


def observations_of(columns: Mapping[str, np.ndarray], rows: Any) -> Any:
    """Rows of the column `observation`, or a dict of those of each `observation/KEY`."""
    if "observation" in columns:
        return columns["observation"][rows]
    return {name.removeprefix("observation/"): c[rows] for name, c in columns.items() if name.startswith("observation/")}
