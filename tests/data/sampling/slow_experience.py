"""Random episodes as lists of numbers, and the same as datasets and replay buffers: what samplers are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from d3ray.data.dataset import Dataset
from d3ray.data.replay import ReplayBuffer
from d3ray.data.spec import Box, Spec

SPEC = Spec(observation=Box(shape=(1,)), action=Box(shape=(1,)))
IMAGE = Spec(observation=Box(shape=(2, 3, 3), dtype="uint8", low=0, high=255), action=Box(shape=(1,)))
ENDS = ("terminated", "truncated", "blind")  # blind: truncated, and the final observation was not recorded


@dataclass
class Story:
    """One episode. Step t of episode e has the observation 16 e + t + 1, so that each is told from all others and none is 0."""

    number: int
    steps: int
    end: str

    def observation(self, t: int) -> int:
        """What is seen before step t; t = steps is the final observation, or what is there in its place."""
        return 16 * self.number + (t - 1 if t == self.steps and self.end == "blind" else t) + 1

    def reward(self, t: int) -> float:
        return self.observation(t) * 0.5 - 3

    def action(self, t: int) -> float:
        return self.observation(t) / 8

    def discount(self, t: int, gamma: float) -> float:
        return 0.0 if self.end == "terminated" and t == self.steps - 1 else gamma

    def drawable(self, td_steps: int = 1, bootstrap: bool = True) -> list[int]:
        """The steps that may be drawn."""
        return [t for t in range(self.steps) if not (bootstrap and self.end == "blind" and t + td_steps >= self.steps)]


def stories(max_episodes: int = 8, max_steps: int = 9) -> st.SearchStrategy[list[Story]]:
    """One episode at least, of one step at least; many short ones, for their ends are where things go wrong."""
    steps = st.one_of(st.integers(1, 2), st.integers(1, max_steps))
    lists = st.lists(st.tuples(steps, st.sampled_from(ENDS)), min_size=1, max_size=max_episodes)
    return lists.map(lambda parts: [Story(e, steps, end) for e, (steps, end) in enumerate(parts)])


def image(value: float, channels_last: bool = False) -> np.ndarray:
    """Two channels, the second one 128 more."""
    frame = np.empty((2, 3, 3), np.uint8)
    frame[0], frame[1] = value, value + 128
    return np.moveaxis(frame, 0, -1) if channels_last else frame


def as_dataset(told: list[Story], *, images: bool = False, channels_last: bool = False) -> Dataset:
    """All episodes, back to back."""

    def seen(value: float) -> np.ndarray:
        return image(value, channels_last) if images else np.array([value], np.float32)

    parts = [
        Dataset.from_arrays(
            np.stack([seen(s.observation(t)) for t in range(s.steps)]),
            np.array([[s.action(t)] for t in range(s.steps)], np.float32),
            np.array([s.reward(t) for t in range(s.steps)], np.float32),
            np.array([s.end == "terminated" and t == s.steps - 1 for t in range(s.steps)]),
            final_observations=None if s.end == "blind" else seen(s.observation(s.steps))[None],
        )
        for s in told
    ]
    return Dataset.concat(parts)


@dataclass
class Played:
    """A replay buffer of one environment that saw the episodes, and the rows that a list of its size would still have."""

    buffer: ReplayBuffer
    rows: list[tuple[Story, int]] = field(default_factory=list)  # (episode, step); step = steps: the closing row

    def kept(self) -> list[tuple[Story, int]]:
        return self.rows[-self.buffer.rows :]


def as_buffer(
    told: list[Story], rows: int, *, images: bool = False, unfinished: int = 0, drawn: tuple[Any, ...] | None = None
) -> Played:
    """The episodes one after the other; of the last one `unfinished` steps at its end are not played.

    `drawn`: arguments of windows that are kept up to date from the start, and whole episodes too.
    """
    played = Played(ReplayBuffer(rows, IMAGE if images else SPEC))
    if drawn:
        played.buffer.windows(*drawn)
        for bootstrap in (False, True):
            played.buffer.whole(bootstrap)

    def seen(value: float) -> np.ndarray:
        return image(value) if images else np.array([value], np.float32)

    for s in told:
        for t in range(s.steps - (unfinished if s is told[-1] else 0)):
            last = t == s.steps - 1
            final = None if s.end == "blind" or not last else seen(s.observation(s.steps))
            ended, cut = last and s.end == "terminated", last and s.end != "terminated"
            played.buffer.add(seen(s.observation(t)), np.array([s.action(t)], np.float32), s.reward(t), ended, cut, final)
            played.rows += [(s, t), *([(s, s.steps)] if last else [])]
    return played
