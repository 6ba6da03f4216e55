"""What formats of recorded episodes share: rows of observations, some of which are only the last thing that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import DataError
from ..masks import ACTION_MASK, bare, mask_of
from ..storage.legal import FINAL_ACTION_MASK
from ..storage.steps import StepTable, steps_from_arrays
from .arrays import Array, apply_time_limit


@dataclass(frozen=True)
class Runs:
    """Episodes back to back, each of T steps and, where it was recorded, the observation after the last of them."""

    observations: Any  # [R, ...], or a dict of them, or `Masked`: N steps and final observations, each in its place
    final: Array  # [R] bool: only a final observation; never the first row of an episode
    last: Array  # [N] bool: the last step of an episode
    actions: Array  # [N, ...]
    rewards: Array  # [N]
    terminated: Array  # [N] bool
    truncated: Array  # [N] bool
    extra: Mapping[str, Array]  # further columns, [N, ...]

    def steps(self, source: str, timeout_at: int | None = None) -> tuple[StepTable, list[str]]:
        """Build the table, and notes; a flag within an episode ends it there, the next row's observation being its final one."""
        terminated, truncated = self.terminated, (self.truncated | self.last) & ~self.terminated
        notes: list[str] = []
        if timeout_at is not None:
            terminated, truncated, notes = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=True)
        end = terminated | truncated
        row = np.flatnonzero(~self.final)[end]  # of the last step of each episode
        recorded = ~self.last[end] | np.r_[self.final[1:], False][row]
        following = row + recorded
        shown, mask = bare(self.observations), mask_of(self.observations)
        several = isinstance(shown, Mapping)
        columns: Mapping[str, Array] = shown if several else {"": shown}
        seen = {name: column[~self.final] for name, column in columns.items()}
        final = {name: column[following] for name, column in columns.items()}
        masks = {} if mask is None else {ACTION_MASK: mask[~self.final], FINAL_ACTION_MASK: _after(mask, following, recorded)}
        table = steps_from_arrays(
            seen if several else seen[""],
            self.actions,
            self.rewards,
            terminated,
            truncated,
            final_observations=final if several else final[""],
            extra={**self.extra, **masks},
            source=source,
        )
        return replace(table, final_recorded=recorded), notes


def _after(mask: Array, following: Array, recorded: Array) -> Array:
    """Return masks of final observations; all actions are legal where there is none."""
    return np.where(recorded[:, None], mask[following], np.ones_like(mask[:1]))


def ends_of(rows: Array, steps: Array) -> tuple[Array, Array]:
    """Mark final observations [R] and last steps [N] of episodes with as many rows of observations as steps, or one more."""
    final, last = np.zeros(int(rows.sum()), bool), np.zeros(int(steps.sum()), bool)
    final[np.cumsum(rows)[rows > steps] - 1] = True
    last[np.cumsum(steps) - 1] = True
    return final, last


def join(parts: list[dict[str, Array]], names: list[str]) -> dict[str, Array]:
    """Concatenate the arrays of all episodes by name; all must have the same. Errors call the episodes `names`."""
    first = parts[0]
    for part, name in zip(parts, names, strict=True):
        if odd := sorted(part.keys() ^ first.keys()):
            raise DataError(f"{name} has other arrays than {names[0]}: only one of them has {odd[0]!r}.")
        for key, array in part.items():
            if array.shape[1:] != first[key].shape[1:]:
                theirs, ours = list(array.shape[1:]), list(first[key].shape[1:])
                raise DataError(f"{name}: {key!r} has entries of shape {theirs}, and in {names[0]} of {ours}.")
    return {key: np.concatenate([part[key] for part in parts]) for key in first}


def join_actions(source: str, leaves: Mapping[str, Array]) -> tuple[Array, list[str]]:
    """Join actions that are several arrays of floats side by side, [N, A], with a note on their order."""
    if len(leaves) == 1:
        return next(iter(leaves.values())), []
    if whole := [name for name, array in leaves.items() if array.dtype.kind not in "f"]:
        raise DataError(f"{source}: actions have several parts and {whole[0]!r} holds no floats; name one with rename.action.")
    order = ", ".join(f"{name} ({int(np.prod(array.shape[1:]))})" for name, array in leaves.items())
    flat: list[Any] = [array.reshape(len(array), -1) for array in leaves.values()]
    return np.concatenate(flat, axis=1), [f"Actions have several parts; their entries stand side by side: {order}."]
