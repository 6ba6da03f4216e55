"""What samplers draw from: recorded episodes, which stay as they are, or experience that grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..episodes import Episode
from ..errors import DataError
from ..recording import Recording
from ..spec import Spec, is_shown
from .windows import Until


class Growing(Protocol):
    """Experience that is still being gathered, as in a `ReplayBuffer`: it knows itself what of it may be drawn."""

    spec: Spec
    n_envs: int

    @property
    def columns(self) -> Mapping[str, np.ndarray]: ...

    def windows(self, td_steps: int = 1, frames: int = 1, until: Until = "observation", ahead: int = 0) -> Any:
        """Return the transitions that may be drawn now, alike to `Windows` in what samplers use."""
        ...

    def whole(self, bootstrap: bool = False) -> Any:
        """Return the finished episodes that may be drawn now, alike to `Runs`."""
        ...

    def episode(self, slot: int) -> Episode: ...

    def finished_rows(self, env: int = 0, since: int = 0) -> tuple[np.ndarray, int]: ...


Experience = Recording | Growing


def needed_columns(source: Experience, extra: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Return the columns that a batch is made of. Raises DataError where an extra one is missing."""
    columns = source.columns
    return {name: columns[name] for name in needed_names(columns, extra)}


def needed_names(there: Iterable[str], extra: Sequence[str]) -> list[str]:
    """Name those of the columns that a batch is made of. Raises DataError as `needed_columns`."""
    names = list(there)
    for name in extra:
        if name not in names:
            raise DataError(f"This algorithm needs the column {name!r}, which the data do not have.")
    return [name for name in names if name in ("action", "reward", "terminated", *extra) or is_shown(name)]
