"""Numbers of some steps of some episodes, which two datasets are compared by: a column for each number that a step has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..recording import Recording
from ..seeds import fold, many_integers, root_key
from ..spec import Discrete, Leaf, MultiBinary, MultiDiscrete, Spec, space_columns
from ..storage.costs import COST


@dataclass(frozen=True)
class Column:
    """One number of each step.

    Attributes:
        name: As `observation[3]`, `action`, `reward`; `first observation[3]` of an episode's first step alone.
        group: What it belongs to: observation, first observation, action, reward or cost.
        values: [N] float64, of steps in the order of their episodes.
        episode: [N] int64, the episode of each, from 0.
        kinds: Whether it has categories, so that its order means nothing.
    """

    name: str
    group: str
    values: np.ndarray
    episode: np.ndarray
    kinds: bool = False


@dataclass(frozen=True)
class Measured:
    """Columns of some steps, and which episodes they belong to.

    Attributes:
        columns: By name.
        episode: [N] int64, from 0.
        n_episodes: How many there are.
        first: [N] bool: an episode's first step.
        seen: [N, D] float64, the observation's numbers.
    """

    columns: dict[str, Column]
    episode: np.ndarray
    n_episodes: int
    first: np.ndarray
    seen: np.ndarray


def some_episodes(n: int, most: int, *address: str) -> np.ndarray:
    """Choose up to `most` of `n` episodes at random by an address: their numbers in random order, int64."""
    key = root_key(0)
    for name in address:
        key = fold(key, name)
    return many_integers(key, n, 1 << 62).argsort(kind="stable")[:most]


def measured(data: Recording, episodes: np.ndarray, most_steps: int) -> Measured:
    """Measure episodes of a dataset by steps at even distances, the first included: about `most_steps` in all, one each."""
    each = max(1, most_steps // max(1, len(episodes)))
    steps, begin = data.episodes.steps[episodes], data.episodes.first_row[episodes]
    at = [np.unique(np.linspace(0, n - 1, min(each, int(n))).astype(np.int64)) for n in steps]
    rows = np.concatenate([first + own for first, own in zip(begin, at, strict=True)] or [np.zeros(0, np.int64)])
    episode = np.repeat(np.arange(len(episodes)), [len(own) for own in at])
    first = np.concatenate([own == 0 for own in at] or [np.zeros(0, bool)])
    order = np.argsort(rows, kind="stable")  # rows are read from front to back
    found: dict[str, np.ndarray] = {}
    for name in _names(data):
        column = data.columns[name]
        found[name] = np.empty((len(rows), *column.shape[1:]), column.dtype)
        found[name][order] = column[rows[order]]
    columns = _numbers(data.spec, found, episode)
    seen = [column.values for column in columns if column.group == "observation"]
    return Measured({column.name: column for column in columns}, episode, len(episodes), first, np.stack(seen, axis=1))


def _names(data: Recording) -> list[str]:
    there = [*space_columns(data.spec.observation), "action", "reward"]
    return [*there, COST] if COST in data.kinds else there


def _numbers(spec: Spec, rows: dict[str, np.ndarray], episode: np.ndarray) -> list[Column]:
    """Take rows of columns [N, ...] apart into numbers. Of an image there are two: the mean over it, and the standard deviation."""
    made: list[Column] = []
    for name, leaf in space_columns(spec.observation).items():
        made += _apart(name, "observation", leaf, rows[name], episode)
    made += _apart("action", "action", spec.action, rows["action"], episode)
    return made + [Column(name, name, rows[name].astype(np.float64), episode) for name in ("reward", COST) if name in rows]


def _apart(name: str, group: str, leaf: Leaf, rows: np.ndarray, episode: np.ndarray) -> list[Column]:
    values = np.asarray(rows, np.float64)
    if values.ndim > 2:
        axes = tuple(range(1, values.ndim))
        of_image = {"mean": values.mean(axes), "standard deviation": values.std(axes)}
        return [Column(f"{what} of {name}", group, number, episode) for what, number in of_image.items()]
    kinds = isinstance(leaf, Discrete | MultiDiscrete | MultiBinary)
    if values.ndim == 1:
        return [Column(name, group, values, episode, kinds)]
    return [Column(f"{name}[{k}]", group, values[:, k], episode, kinds) for k in range(values.shape[1])]
