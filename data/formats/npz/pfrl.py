"""What a PFRL replay buffer holds, exported as arrays: a bag of single transitions in an .npz archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...errors import DataError
from ...storage.steps import steps_from_arrays
from ..imported import Array, Imported, apply_time_limit, count_notes, flags, one_column, same_rows, typed_actions
from ..untrusted.values import names_in
from .steps import npz_names, open_npz

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


def is_pfrl(path: Path) -> bool:
    """Whether the file is an archive with PFRL's five arrays."""
    return {NAMES[word][0] for word in REQUIRED} <= set(npz_names(path))


def read_pfrl(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
) -> Imported:
    """Steps of a PFRL replay buffer that was exported as arrays, one transition a row; none is dropped.

    Reads state [N, ...], action, reward, next_state [N, ...], is_state_terminal; where present env_id and log_prob. Write it with

        numpy.savez("buffer.npz", **{key: numpy.array([item[0][key] for item in buffer.memory]) for key in KEYS})

    Traps, and what is done:
    - PFRL marks no time limit: an interrupted episode just goes on with another state. An episode ends at is_state_terminal, at
      the last row and where next_state is not the next row's state, truncated there with its final observation.
    - Several environments fill one buffer in turns. Where there is env_id, rows are put in the order of environments first.
    - PFRL may keep no next_state of a terminal: NaN there stands for none, and the final observation is missing.
    - A buffer with num_steps above 1 keeps windows of several transitions, which are refused: items must be single ones.
    - PFRL's own file of a buffer is a pickle of its classes; that is refused, export arrays.

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integer actions in one column are discrete.
        rename: what this file calls an array, by d3ray's word (`observations`, `next_observations`, `environment`, ...).

    Raises:
        DataError: not an archive, damaged, an array missing or of objects, lengths that differ, NaN or infinity (column and row are
            named), no rows, or windows of several steps.

    Source: PFRL 0.4.0, `pfrl/replay_buffers/replay_buffer.py` and `pfrl/replay_buffer.py`.
    """
    source = str(path)
    with open_npz(path) as archive:
        found = names_in(archive.names, NAMES, REQUIRED, source, rename, "pfrl")
        raw = {word: archive.read(name) for word, name in found.items()}
        notes = archive.left_out()
    if raw["rewards"].ndim == 2 and raw["rewards"].shape[1] > 1:
        window = raw["rewards"].shape[1]
        raise DataError(f"{source}: {found['rewards']!r} has windows of {window} steps; export single transitions (num_steps=1).")
    n = same_rows(source, **{found[word]: array for word, array in raw.items()})
    end = np.zeros(n, bool)
    if "environment" in raw:
        environment = one_column(source, found["environment"], raw["environment"])
        order = np.argsort(environment, kind="stable")
        raw = {word: array[order] for word, array in raw.items()}
        end[:-1] = np.diff(environment[order]) != 0
    terminated = flags(source, found["terminated"], raw["terminated"])
    absent = _absent(raw["next_observations"]) & terminated
    raw["next_observations"][absent] = raw["observations"][absent]
    truncated = end & ~terminated
    if timeout_at is not None:
        terminated, truncated, said = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=True)
        notes += said
    table = steps_from_arrays(
        raw["observations"],
        typed_actions(source, raw["actions"], discrete_action),
        one_column(source, found["rewards"], raw["rewards"]),
        terminated,
        truncated,
        next_observations=raw["next_observations"],
        extra={"log_prob": one_column(source, found["log_prob"], raw["log_prob"])} if "log_prob" in raw else None,
        source=source,
    )
    if absent.any():
        table = replace(table, final_recorded=~absent[np.cumsum(table.steps) - 1])
    notes += count_notes(table, limits_known=True)
    return Imported(table, notes=notes, provenance={"format": "pfrl", "file": Path(path).name})


def _absent(column: Array) -> Array:
    """[N] bool: a row of nothing but NaN."""
    rows = column.reshape(len(column), -1)
    return np.asarray(np.isnan(rows).all(1)) if column.dtype.kind == "f" else np.zeros(len(rows), bool)
