"""What formats of recorded episodes share: rows of observations with final ones among them, and steps that lie in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import DataError
from ..masks import ACTION_MASK, bare, mask_of
from ..storage.costs import COST
from ..storage.legal import FINAL_ACTION_MASK
from ..storage.steps import StepTable, steps_from_arrays
from .arrays import Array, apply_time_limit, finite, flags, log_probability, one_column
from .format import Imported, StepFormat
from .untrusted.values import Leaves, info_columns, leaves, numbers, plain


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


TREES = ("observations", "next_observations")  # arrays, or (nested) dicts and tuples of them


@dataclass
class Batch:
    """Columns of N steps by d3ray's words; parts of observations are `observations/KEY`."""

    source: str
    columns: dict[str, Array]
    infos: Leaves = field(default_factory=dict[str, Array])

    def __len__(self) -> int:
        return len(self.columns["rewards"])

    def tree(self, word: str) -> Leaves:
        """Return the parts of observations by key; a single one is called ""."""
        return {name.partition("/")[2]: column for name, column in self.columns.items() if name.partition("/")[0] == word}


def part(word: str, key: str) -> str:
    return f"{word}/{key}" if key else word


def batch_of(
    source: str,
    values: Mapping[str, Any],
    found: Mapping[str, str],
    unpack: Callable[[str, Any], Any] = lambda source, value: value,
) -> Batch:
    """Columns from what a file holds under its own names (`found` has them by d3ray's words), all numbers, finite, of one length.

    `unpack` is given what errors call a value, and the value.
    """
    batch = Batch(source, {})
    for word, name in found.items():
        if word == "probability" and "log_prob" in found:
            continue
        value = unpack(f"{source}: {name!r}", values[name])
        if word in TREES:
            batch.columns |= {part(word, key): leaf for key, leaf in leaves(source, name, value).items()}
        elif word == "infos":
            batch.infos = info_columns(value)
        else:
            batch.columns[word] = numbers(source, name, value, text=word in ("episode", "agent"))
    n = len(batch)
    called = {name: part(found[name.partition("/")[0]], name.partition("/")[2]) for name in batch.columns}
    for name, column in batch.columns.items():
        if len(column) != n:
            raise DataError(f"{source}: {found['rewards']!r} has {n} rows, but {called[name]!r} has {len(column)}.")
    if not n:
        raise DataError(f"{source}: {found['rewards']!r} has no rows.")
    batch.infos = {name: column for name, column in batch.infos.items() if len(column) == n}
    finite(source, **{called[name]: column for name, column in batch.columns.items()})
    return batch


def joined(parts: Sequence[Batch], source: str) -> Batch:
    columns = join([part.columns for part in parts], [part.source for part in parts])
    names = [name for name in parts[0].infos if all(name in part.infos for part in parts)]
    return Batch(source, columns, {name: np.concatenate([part.infos[name] for part in parts]) for name in names})


def imported(
    format: StepFormat,
    batch: Batch,
    found: Mapping[str, str],
    notes: Sequence[str] = (),
    on_actions: Callable[[Array], list[str]] = lambda actions: [],
) -> Imported:
    """Put steps in the order of their episodes; `on_actions` gives notes on the actions."""
    source, notes = batch.source, list(notes)
    order, last = _order(batch)
    batch = Batch(source, *({k: column[order] for k, column in columns.items()} for columns in (batch.columns, batch.infos)))
    columns, following = batch.columns, batch.tree("next_observations")
    terminated = flags(source, found["terminated"], columns["terminated"])
    truncated, limits_known = last & ~terminated, "truncated" in found
    if "truncated" in columns:
        truncated |= flags(source, found.get("truncated", "truncated"), columns["truncated"]) & ~terminated
    if found["terminated"] == "dones" and not limits_known and format.timeout_at is None and terminated.any():
        notes.append("'dones' was taken as terminated: nothing is bootstrapped past it, at a time limit neither.")
    terminated, truncated = format.limited(source, terminated, truncated, notes)
    actions = format.actions(source, columns["actions"])
    extra = {f"info/{name}": column for name, column in batch.infos.items()}
    if COST in columns:
        extra[COST] = one_column(source, found[COST], columns[COST])
    if "log_prob" in columns:
        extra["log_prob"] = one_column(source, found["log_prob"], columns["log_prob"]).astype(np.float32)
    elif "probability" in columns:
        extra["log_prob"] = log_probability(source, found["probability"], columns["probability"], actions)
    return format.imported(
        source,
        plain(batch.tree("observations")),
        actions,
        one_column(source, found["rewards"], columns["rewards"]),
        terminated,
        truncated,
        notes=notes + on_actions(actions),
        limits_known=limits_known,
        next_observations=plain(following) if following else None,
        extra=extra,
    )


def _order(batch: Batch) -> tuple[Any, Array]:
    """Rows sorted by episode (in order of first appearance), agent and step, and [N] bool: the sorted row is an episode's last.

    Without episode ids rows stay as they are, and only the very last is an end.
    """
    n, columns = len(batch), batch.columns
    codes = np.zeros(n, np.int64)
    for word in ("episode", "agent"):
        if word in columns:
            codes = _by_appearance(codes, one_column(batch.source, word, columns[word]))
    numbered = {"step", "episode"} <= columns.keys()
    number = one_column(batch.source, "t", columns["step"]) if numbered else np.zeros(n)
    order = np.lexsort((number, codes))  # stable: without numbers, rows of an episode keep their order
    last = np.ones(n, bool)
    last[:-1] = np.diff(codes[order]) != 0
    if numbered:
        twice = (np.diff(number[order]) == 0) & ~last[:-1]
        if twice.any():
            row = int(order[1:][twice][0])
            raise DataError(
                f"{batch.source}: step {number[row]} of episode {columns['episode'][row]} is there twice (again in row {row})."
            )
        if not batch.tree("next_observations"):  # with them, a gap is seen there
            last[:-1] |= np.diff(number[order]) > 1
    return (slice(None) if (np.diff(order) == 1).all() else order), last


def _by_appearance(codes: Array, values: Array) -> Array:
    """Code pairs of a code and a value, numbered as they appear first."""
    _, values = np.unique(values, return_inverse=True)
    _, first, inverse = np.unique(codes * (int(values.max()) + 1) + values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
