"""Transitions as flat columns, a row each, as other programs have them: of a `StepTable`, and back, in whatever order they come."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import DataError, did_you_mean
from ..spec import is_shown
from . import checks
from .legal import IllegalActions
from .schema import Kinds
from .steps import StepTable, steps_from_arrays

RECORDED = "next_recorded"  # false where an episode's final observation is missing, and `next_observation` repeats the last one
REQUIRED = ("episode", "step", "observation", "action", "reward", "terminated")


def called(names: Collection[str], columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return d3ray's name of each column of flat transitions, by its own. Raises DataError where one is not there.

    `columns` says what d3ray's names are called here, where they are called otherwise; `observation` stands for its parts too.
    """
    said = {theirs: ours for ours, theirs in (columns or {}).items()}
    for ours, theirs in (columns or {}).items():
        if theirs not in names and not any(name.startswith(f"{theirs}/") for name in names):
            raise DataError(f"There is no column {theirs!r} to be taken for {ours!r}{did_you_mean(theirs, names)}")
    found = {name: _ours(name, said) for name in names if name not in (columns or {}) or name in said}
    roots = {name.partition("/")[0] for name in found.values()}
    for name in REQUIRED:
        if name not in roots:
            raise DataError(f"There is no column {name!r}{did_you_mean(name, names)}")
    return found


def _ours(name: str, said: Mapping[str, str]) -> str:
    if name in said:
        return said[name]
    root, slash, key = name.partition("/")
    return f"{said[root]}/{key}" if slash and root in said else name


def put_in_order(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sort flat transitions by episode and step. Raises DataError where a step comes twice."""
    episode, step = columns["episode"], checks.one_column("step", columns["step"])
    order = np.lexsort((step, episode))
    out = {name: column[order] for name, column in columns.items()}
    again = (out["episode"][1:] == out["episode"][:-1]) & (out["step"][1:] == out["step"][:-1])
    if again.any():
        k = int(again.argmax())
        raise DataError(f"Step {out['step'][k]} of episode {out['episode'][k]} comes twice.")
    return out


def steps_from_flat(
    columns: Mapping[str, Any],
    *,
    keep_float64: bool = False,
    illegal_actions: IllegalActions = "refuse",
    starts: Mapping[str, np.ndarray] | None = None,
) -> StepTable:
    """Build the table of flat transitions that lie in order, episode after episode. Raises DataError as `steps_from_arrays`.

    Columns: `episode` [N] (numbers or text), `step` [N], `observation` (or `observation/KEY` each), `action`, `reward`,
    `terminated` and, where they are known, `truncated`, `action_mask`, `next_observation`, `next_action_mask` and
    `next_recorded` [N] bool; all else becomes a column of the dataset.

    An episode ends where `terminated` or `truncated` says so, at its last row, before a step that is missing, and where
    `next_observation` is not the next row.
    """
    columns = dict(columns)
    episode, step = columns.pop("episode"), columns.pop("step")
    last = np.concatenate([(episode[1:] != episode[:-1]) | (step[1:] != step[:-1] + 1), [True]])
    return steps_in_order(columns, last, keep_float64=keep_float64, illegal_actions=illegal_actions, starts=starts)


def steps_in_order(
    columns: Mapping[str, Any],
    last: np.ndarray,
    *,
    keep_float64: bool | None = None,
    illegal_actions: IllegalActions | None = None,
    starts: Mapping[str, np.ndarray] | None = None,
    source: str = "the rows",
) -> StepTable:
    """Build the table of flat transitions of which `last` [N] bool ends episodes; see `steps_from_flat`."""
    columns = dict(columns)
    truncated = checks.flags("truncated", np.asarray(columns.pop("truncated", np.zeros(len(last), bool)))) | last
    following = _observation(columns, "next_observation")
    recorded = columns.pop(RECORDED, None)
    observation = _observation(columns, "observation")
    action, reward, terminated = (columns.pop(name) for name in ("action", "reward", "terminated"))
    table = steps_from_arrays(
        observation,
        action,
        reward,
        terminated,
        truncated,
        next_observations=following,
        extra=columns,
        keep_float64=keep_float64,
        illegal_actions=illegal_actions,
        starts=starts,
        source=source,
    )
    if recorded is not None and following is not None:
        ends = np.cumsum(table.steps) - 1
        return replace(table, final_recorded=checks.flags(RECORDED, np.asarray(recorded))[ends])
    return table


def transitions(columns: Any, kinds: Kinds, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Take those that lie in `rows` of a table's columns, each beside what was shown after it."""
    out = {name: columns[name][rows] for name in kinds if name != "closing"}
    return out | {f"next_{name}": columns[name][rows + 1] for name in kinds if is_shown(name)}


def _observation(columns: dict[str, Any], root: str) -> Any:
    """Take out the column of that name, or its parts by key; None where there is neither."""
    if root in columns:
        return columns.pop(root)
    parts = {name.partition("/")[2]: columns.pop(name) for name in list(columns) if name.startswith(f"{root}/")}
    return parts or None
