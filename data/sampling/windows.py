"""Which transitions of a dataset may be drawn, and in which rows they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError

if TYPE_CHECKING:
    from ..dataset import Dataset


class Windows:
    """Which transitions of a dataset may be drawn, and where they lie: O(episodes) memory, whatever the number of steps.

    Args:
        dataset: Where episodes lie.
        td_steps: n of the n-step return.
        bootstrap: Whether what is drawn looks at the next observation. Windows that end at a truncation whose final observation
            is missing are then left out, for there is nothing to bootstrap from.
        device: Where the arithmetic runs.
    """

    def __init__(self, dataset: Dataset, td_steps: int = 1, *, bootstrap: bool = True, device: torch.device | str = "cpu") -> None:
        episodes = dataset.episodes
        steps = np.asarray(episodes.steps, np.int64)
        blind = ~(np.asarray(episodes.terminated) | np.asarray(episodes.final_recorded)) & bootstrap
        drawable = np.where(blind, np.maximum(steps - td_steps, 0), steps)
        ends = np.cumsum(drawable)
        self.n = int(ends[-1]) if len(ends) else 0
        if self.n == 0:
            raise DataError(f"The dataset {dataset.name!r} has no transition that can be drawn with td_steps={td_steps}.")
        first = np.asarray(episodes.first_row, np.int64)
        closing = first + steps
        self._ends, self._offset, self._closing = (
            torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (ends, first - (ends - drawable), closing)
        )

    def locate(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Window numbers [...] to their rows [...] and the steps left in their episodes [...]."""
        episode = torch.searchsorted(self._ends, index, right=True)
        rows = index + self._offset[episode]
        return rows, self._closing[episode] - rows
