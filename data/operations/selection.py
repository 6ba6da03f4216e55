"""Some of a dataset's episodes: views over the same columns, nothing copied, nothing read but what a condition looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import ConfigError, DataError
from ..recording import Recording, say_function
from ..storage.episode_table import best_episodes
from ..storage.fingerprint import digest
from .expressions import Expression

if TYPE_CHECKING:
    from ..episodes import Episode, Episodes

Keep = str | Callable[["Episode"], bool]
_LISTED = 100  # episodes that provenance gives by number
FIELDS = ("return", "steps", "terminated", "truncated", "final_recorded", "episode")  # of an expression over episodes


def keep(dataset: Recording, condition: Keep) -> Recording:
    """Keep the episodes that satisfy a condition, in their order.

    It is an expression over the fields of an episode: `return` (undiscounted sum of rewards), `steps`, `terminated`, `truncated`,
    `final_recorded` and `episode` (its number, from 0), as in `return > 100 and steps >= 50 and terminated`; see `expressions`. Or
    a function of an `Episode`, which is called for each, now. Raises ConfigError, or DataError where no episode satisfies it.
    """
    episodes = dataset.episodes
    if isinstance(condition, str):
        expression = Expression(condition, FIELDS)
        kept = expression.condition(episode_fields(episodes, expression.names), len(episodes))
    else:
        kept = np.fromiter((bool(condition(episode)) for episode in episodes), bool, len(episodes))
    said = condition if isinstance(condition, str) else say_function(condition)
    if not kept.any():
        raise DataError(f"{dataset.name} has no episode that satisfies {said!r}.")
    return dataset.view(np.flatnonzero(kept), f"{dataset.name} (filtered)", "filter", {"keep": said})


def episode_fields(episodes: Episodes, names: frozenset[str] | Sequence[str] = FIELDS) -> dict[str, np.ndarray]:
    """Return those of the fields of episodes, [E] each, that `names` says."""
    fields: dict[str, Callable[[], np.ndarray]] = {
        "return": lambda: episodes.returns,
        "steps": lambda: episodes.steps,
        "terminated": lambda: np.asarray(episodes.terminated, bool),
        "truncated": lambda: ~np.asarray(episodes.terminated, bool),
        "final_recorded": lambda: np.asarray(episodes.final_recorded, bool),
        "episode": lambda: np.arange(len(episodes)),
    }
    return {name: fields[name]() for name in names}


def take(dataset: Recording, which: int | Sequence[int] | np.ndarray) -> Recording:
    """Keep the first so many episodes, or those with the given numbers, in the order given. Raises ConfigError."""
    n = dataset.n_episodes
    if isinstance(which, Integral):
        if not 1 <= int(which) <= n:
            raise ConfigError(f"take is {which}; {dataset.name} has {n:,} episodes.")
        return dataset.view(np.arange(int(which)), f"{dataset.name} (first {which})", "take", {"episodes": int(which)})
    index = np.asarray(which)
    if index.ndim != 1 or len(index) == 0 or index.dtype.kind not in "iu":
        raise ConfigError("take is given neither how many episodes nor their numbers.")
    if (outside := (index < 0) | (index >= n)).any():
        raise ConfigError(f"take is given episode {index[outside.argmax()]}; {dataset.name} has 0 to {n - 1}.")
    numbers, counts = np.unique(index, return_counts=True)
    if (counts > 1).any():
        raise ConfigError(f"take is given episode {numbers[(counts > 1).argmax()]} twice.")
    given: Any = index.tolist() if len(index) <= _LISTED else {"count": len(index), "sha256": digest(index.astype(np.int64)).hex()}
    return dataset.view(index.astype(np.int64), f"{dataset.name} (some)", "take", {"episodes": given})


def shuffle(dataset: Recording, seed: int) -> Recording:
    """Put all episodes in an order that the seed decides, the same on any machine."""
    return dataset.view(shuffled(dataset.n_episodes, seed, "shuffle"), f"{dataset.name} (shuffled)", "shuffle", {"seed": seed})


def top(dataset: Recording, fraction: float, by: Literal["episodes", "transitions"]) -> Recording:
    """Keep the episodes of the highest returns, in their order; of equal returns the earlier one comes first.

    `fraction` of the dataset is above 0 and at most 1, and one episode is kept at least; `by` says what it is a share of, see
    `best_episodes`. Raises ConfigError.
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"top is {fraction}; it is a share of the dataset, above 0 and at most 1.")
    if by not in ("episodes", "transitions"):
        raise ConfigError(f"top counts by 'episodes' or 'transitions', not {by!r}.")
    best = best_episodes(dataset.episodes.returns, dataset.episodes.steps, fraction, by)
    parameters = {"fraction": fraction, "by": by}
    return dataset.view(best, f"{dataset.name} (top {fraction:.4g})", "top", parameters)


def split(dataset: Recording, shares: float | Sequence[float], seed: int) -> tuple[Recording, ...]:
    """Split episodes into parts that have none in common, each in their order.

    `shares` is one number, the test's share of train and test, or several that add up to 1, for as many parts in this order, of one
    episode at least. The same seed gives the same split, on any machine. Raises ConfigError for other shares, DataError where there
    are fewer episodes than parts.
    """
    n, order = dataset.n_episodes, shuffled(dataset.n_episodes, seed, "split")
    if isinstance(shares, int | float):
        if not 0 < shares < 1:
            raise ConfigError(f"test_size is {shares}; it is a share of the episodes, above 0 and below 1.")
        if n < 2:
            raise DataError(f"{dataset.name} has one episode only; a split needs two or more.")
        n_test = min(max(round(n * shares), 1), n - 1)
        parts = {"train": order[n_test:], "test": order[:n_test]}
        about: dict[str, Any] = {"test_size": shares}
    else:
        cuts = _cuts(list(shares), n, dataset.name)
        parts = {f"part {k + 1} of {len(shares)}": part for k, part in enumerate(np.split(order, cuts))}
        about = {"shares": list(shares)}
    return tuple(
        dataset.view(np.sort(index), f"{dataset.name} ({part})", "split", {**about, "seed": seed, "part": part})
        for part, index in parts.items()
    )


def _cuts(shares: list[float], n: int, name: str) -> np.ndarray:
    """Cut n shuffled episodes so that every part has one."""
    if len(shares) < 2 or not all(0 < share < 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise ConfigError(f"The shares of a split are {shares}; give two or more above 0 that add up to 1.")
    if n < len(shares):
        raise DataError(f"{name} has {n} episodes; a split into {len(shares)} parts needs as many.")
    k = np.arange(1, len(shares))
    cuts = np.round(np.cumsum(shares[:-1]) * n).astype(np.int64)
    return np.minimum(np.maximum.accumulate(np.maximum(cuts, k) - k), n - len(shares)) + k


def folds(dataset: Recording, k: int, seed: int) -> Iterator[tuple[Recording, Recording]]:
    """Yield pairs of train and test, k of them; every episode is in one test part. Raises ConfigError or DataError of such a k."""
    if k < 2:
        raise ConfigError(f"The number of folds is {k}; it is 2 or more.")
    if dataset.n_episodes < k:
        raise DataError(f"{dataset.name} has {dataset.n_episodes} episodes; {k} folds need as many.")
    order = shuffled(dataset.n_episodes, seed, "split")
    parts = np.array_split(order, k)
    for fold, test in enumerate(parts):
        train = np.concatenate([part for other, part in enumerate(parts) if other != fold])
        pair = [
            dataset.view(np.sort(index), f"{dataset.name} ({part} {fold + 1} of {k})", "fold", about)
            for part, index in (("train", train), ("test", test))
            for about in [{"folds": k, "fold": fold, "seed": seed, "part": part}]
        ]
        yield pair[0], pair[1]


def shuffled(n: int, seed: int, purpose: str) -> np.ndarray:
    """Put 0 … n - 1 in an order that (seed, purpose) decides: [n] int64."""
    from ..random import bits, fold, root_key

    return np.argsort(bits(fold(root_key(seed), purpose), n).numpy(), kind="stable")
