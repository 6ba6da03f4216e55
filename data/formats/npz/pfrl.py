"""What a PFRL replay buffer holds, exported as arrays: a bag of single transitions in an .npz archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..arrays import Array, flags, one_column
from ..format import RENAME, Imported, StepFormat
from .steps import npz_names, read_rows_of

NAMES = {  # d3ray's word: PFRL's
    "observations": ("state",),
    "actions": ("action",),
    "rewards": ("reward",),
    "next_observations": ("next_state",),
    "terminated": ("is_state_terminal",),
    "environment": ("env_id",),
    "log_prob": ("log_prob",),
}
REQUIRED = ("observations", "actions", "rewards", "next_observations", "terminated")


class PFRL(StepFormat):
    """Transitions of a PFRL buffer, the oldest first.

    Reads state [N, ...], action, reward, next_state [N, ...], is_state_terminal; where present env_id and log_prob. Write it with

        numpy.savez("buffer.npz", **{key: numpy.array([item[0][key] for item in buffer.memory]) for key in KEYS})

    Traps, and what is done:
    - PFRL marks no time limit: an interrupted episode just goes on with another state. An episode ends at is_state_terminal, at
      the last row and where next_state is not the next row's state, truncated there with its final observation.
    - Several environments fill one buffer in turns. Where there is env_id, rows are put in the order of environments first.
    - PFRL may keep no next_state of a terminal: NaN there stands for none, and the final observation is missing.
    - A buffer with num_steps above 1 keeps windows of several transitions, which are refused: items must be single ones.
    - PFRL's own file of a buffer is a pickle of its classes; that is refused, export arrays.

    Source: PFRL 0.4.0, `pfrl/replay_buffers/replay_buffer.py` and `pfrl/replay_buffer.py`.
    """

    name = "pfrl"
    description = "PFRL's replay buffer as .npz: state, action, reward, next_state, is_state_terminal"
    rename: Mapping[str, str] = RENAME

    @classmethod
    def detect(cls, path: Path) -> bool:
        return {NAMES[word][0] for word in REQUIRED} <= set(npz_names(path))

    def read(self, path: Path) -> Imported:
        found, source = read_rows_of(path, NAMES, REQUIRED, self.rename, self.name, unread=("",)), str(path)
        raw, called, end = found.raw, found.called, np.zeros(found.n, bool)
        if raw["rewards"].ndim == 2 and (window := raw["rewards"].shape[1]) > 1:
            raise DataError(
                f"{source}: {called['rewards']!r} has windows of {window} steps; export single transitions (num_steps=1)."
            )
        if "environment" in raw:
            environment = one_column(source, called["environment"], raw["environment"])
            order = np.argsort(environment, kind="stable")
            raw = {word: array[order] for word, array in raw.items()}
            end[:-1] = np.diff(environment[order]) != 0
        terminated = flags(source, called["terminated"], raw["terminated"])
        absent = _absent(raw["next_observations"]) & terminated
        raw["next_observations"][absent] = raw["observations"][absent]
        terminated, truncated = self.limited(source, terminated, end & ~terminated, found.notes)
        return self.imported(
            source,
            raw["observations"],
            self.actions(source, raw["actions"]),
            one_column(source, called["rewards"], raw["rewards"]),
            terminated,
            truncated,
            notes=found.notes,
            limits_known=True,
            recorded=~absent,
            next_observations=raw["next_observations"],
            extra={"log_prob": one_column(source, called["log_prob"], raw["log_prob"])} if "log_prob" in raw else None,
        )


def _absent(column: Array) -> Array:
    """Mark rows of nothing but NaN, [N] bool."""
    rows = column.reshape(len(column), -1)
    return np.asarray(np.isnan(rows).all(1)) if column.dtype.kind == "f" else np.zeros(len(rows), bool)
