"""Returns to go: the sum of the rewards, or of the costs, from each step to the end of its episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError
from ..scalers.reward import RewardTransform
from .base import Experience

WINDOW = "window_action"  # no column either: the actions of a window
RETURNS = "return_to_go"  # what algorithms call it among their `extra_columns`
COSTS = "cost_to_go"  # the same of the column `cost`
INITIAL = "initial"  # how much a step counts as the first of an episode
MADE = (RETURNS, COSTS, INITIAL, WINDOW)  # what batches carry beside columns
CHUNK = 1 << 20  # rows at once, and at least one episode


def returns_to_go(
    reward: np.ndarray, first_row: np.ndarray, steps: np.ndarray, gamma: float = 1.0, dtype: Any = np.float32
) -> np.ndarray:
    """Sum γᵏ r over the rest of the episode, for every row of these episodes [E]; 0 elsewhere: [len(reward)].

    Added up in float64 by doubling: after pass i every row holds the sum of the next 2ⁱ rewards, so episodes of T steps take
    log₂ T passes and no loop over steps.
    """
    out = np.zeros(len(reward), dtype)
    ends, start = np.cumsum(steps), 0
    while start < len(steps):
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] - steps[start] + CHUNK)))
        length = steps[start:stop]
        within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        rows = np.repeat(first_row[start:stop], length) + within
        left = np.repeat(length, length) - within
        total, reach = reward[rows].astype(np.float64), 1
        while reach < length.max(initial=0):
            on = left > reach  # the row `reach` on belongs to the same episode
            total[on] += gamma**reach * total[np.flatnonzero(on) + reach]
            reach *= 2
        out[rows] = total
        start = stop
    return out


def range_of_returns(dataset: Any, gamma: float, transform: RewardTransform | None) -> tuple[float, float]:
    """Return the least and the largest discounted return from any step on, of rewards that are transformed."""
    reward = np.asarray(dataset.columns["reward"], np.float64)
    if transform is not None:
        reward = transform.transform(torch.from_numpy(reward)).numpy()
    steps, first = (np.asarray(part, np.int64) for part in (dataset.episodes.steps, dataset.episodes.first_row))
    found = returns_to_go(reward, first, steps, gamma)[~np.asarray(dataset.columns["closing"], bool)]
    return float(found.min()), float(found.max())


def endless_returns(out: np.ndarray, reward: np.ndarray, first_row: np.ndarray, steps: np.ndarray, gamma: float) -> None:
    """Write r / (1 - γ) into `out` [rows] for the steps of these episodes, not empty, whose rewards are all the same r < 0.

    A failure costs at each step, and cost is all that such an episode shows. Rewards that were earned would be summed to far more
    than an episode can earn: they count as far as they go. Raises ConfigError where γ is 1.
    """
    if gamma >= 1:
        raise ConfigError("endless takes an episode to go on for ever, which has no return where gamma is 1.")
    if not len(steps):
        return
    ends = np.stack((first_row, first_row + steps), 1).ravel()
    highest = np.maximum.reduceat(reward, ends)[::2]
    failed = (np.minimum.reduceat(reward, ends)[::2] == highest) & (highest < 0)
    for first, n in zip(first_row[failed].tolist(), steps[failed].tolist(), strict=True):
        out[first : first + n] = reward[first] / (1 - gamma)


class ReturnsToGo:
    """Discounted returns to go of the rows of a dataset, or of finished episodes of a replay buffer, of scaled rewards, or costs.

    They are summed for all rows when they are first asked for, and again when γ was written in place; of a buffer, as episodes end.
    What followed where an episode was cut counts as nothing.

    Args:
        source: Where the rows are.
        windows: Of a buffer, what is drawn from it: it says when all its rows became others.
        gamma: () or (S,), one a seed.
        transform: How each reward is scaled, before the sum; None: not at all.
        endless: Whether an episode that was cut, and had the same scaled reward r < 0 at each step, counts as going on with it:
            r / (1 - γ).
        dtype, device: Of what is given.
        column: What is summed.
    """

    def __init__(
        self,
        source: Experience,
        windows: Any,
        gamma: Tensor,
        transform: RewardTransform | None,
        endless: bool,
        dtype: torch.dtype,
        device: torch.device,
        column: str = "reward",
    ) -> None:
        self._source: Any = source
        self._column = column
        self._windows, self._gamma, self._transform, self._endless = windows, gamma, transform, endless
        self._dtype, self._device = str(dtype).removeprefix("torch."), device
        self._known: tuple[int, int] | None = None
        self._gammas: list[float]
        self._table: Tensor  # [gammas · rows]
        self._offset: Tensor  # of each seed, where the rows of its γ begin
        self._summed: list[int]  # of each ring of a buffer, how many rows

    def __call__(self, rows: Tensor) -> Tensor:
        grows = not hasattr(self._source, "episodes")
        known = self._gamma._version, self._windows.version if grows else 0
        if known != self._known:
            self._known = known
            self._begin(grows)
        if grows:
            self._follow()
        if len(self._gammas) > 1:
            rows = rows + self._offset
        return self._table.index_select(0, rows.reshape(-1)).reshape(rows.shape)

    def _begin(self, grows: bool) -> None:
        """Make the table; of a dataset it is then whole."""
        source, each = self._source, self._gamma.double().reshape(-1).tolist()
        n, self._gammas = len(source.columns["reward"]), sorted(set(each))
        self._offset = torch.tensor([[self._gammas.index(gamma) * n] for gamma in each], device=self._device)
        table = np.zeros((len(self._gammas), n), self._dtype)
        if grows:
            self._summed = [0] * source.n_envs
        else:
            episodes = source.episodes
            steps, first = (np.asarray(part, np.int64) for part in (episodes.steps, episodes.first_row))
            self._sum(table, slice(None), source.columns[self._column], first, steps, ~np.asarray(episodes.terminated, bool))
        self._table = torch.from_numpy(table.reshape(-1)).to(self._device)  # the same memory, on the host

    def _follow(self) -> None:
        """Sum the episodes that have ended since."""
        source, table = self._source, self._table.numpy().reshape(len(self._gammas), -1)
        for e, since in enumerate(self._summed):
            slots, self._summed[e] = source.finished_rows(e, since)
            if len(slots):
                ends = np.flatnonzero(source.columns["closing"][slots])
                first = np.concatenate(([0], ends[:-1] + 1))
                there = ends > first  # of an episode that is all but overwritten the closing row may be left
                cut = ~source.columns["terminated"][slots[ends[there] - 1]]
                self._sum(table, slots, source.columns[self._column][slots], first[there], (ends - first)[there], cut)

    def _sum(self, table: np.ndarray, at: Any, reward: np.ndarray, first: np.ndarray, steps: np.ndarray, cut: np.ndarray) -> None:
        """Write what the rewards [rows] of episodes sum to into the columns `at` of the table."""
        scaled = np.array(reward, np.float64)
        if self._transform is not None:
            scaled = self._transform.transform(torch.from_numpy(scaled)).numpy()
        for row, gamma in zip(table, self._gammas, strict=True):
            found = returns_to_go(scaled, first, steps, gamma, table.dtype)
            if self._endless:
                endless_returns(found, scaled, first[cut], steps[cut], gamma)
            row[at] = found
