"""Small lists of transitions as arrays, as d3rlpy's users handle them. Training does not come this way: samplers gather rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d3ray.data.episodes import Episode, Transition, observations_of
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Box, space_columns


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
