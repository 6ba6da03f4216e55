"""What a format cannot carry of a dataset, in sentences, and what must not be written, as readers would take it for more."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..dataset import Dataset
from ..errors import ConfigError
from ..masks import ACTION_MASK
from .blocks import observation_columns


def only_array(dataset: Dataset, format: str) -> None:
    """Raise ConfigError for observations of parts where a format has one array."""
    if parts := sorted(set(observation_columns(dataset)) - {""}):
        raise ConfigError(
            f"The observations have parts ({', '.join(parts)}), and {format} holds one array: say format=minari, or parquet."
        )


def final_observations(dataset: Dataset) -> tuple[bool, list[str]]:
    """Whether final observations are written, and what is lost, for formats that have them of all episodes or of none.

    They are written where every truncated episode has one: a repeated last observation would be bootstrapped from. Of a terminated
    episode without one the last observation is repeated, from which nobody bootstraps.
    """
    episodes = dataset.episodes
    cut, known = ~episodes.terminated, episodes.final_recorded
    missing = int(np.sum(cut & ~known))
    if missing:
        lost = int(known.sum())
        note = (
            f"{missing} of {int(cut.sum())} truncated episodes have no final observation, so those of {lost} others are left out."
        )
        return False, [note] if lost else []
    repeated = int(np.sum(~known))
    if repeated and repeated < len(known):
        return True, [f"{repeated} terminated episodes have no final observation; the last one is written again in its place."]
    return not repeated, []


def left_out(columns: Iterable[str]) -> list[str]:
    names = sorted(columns)
    return [f"Left out, having no place in the format: {', '.join(names)}."] if names else []


def others(dataset: Dataset) -> list[str]:
    """List columns that are neither part of a transition, nor `action_mask`, `log_prob` or `info/NAME`."""
    own = {"action", "reward", "terminated", "truncated", "closing", "log_prob", ACTION_MASK}
    return [name for name in dataset.kinds if name not in own and name.partition("/")[0] not in ("observation", "info")]
