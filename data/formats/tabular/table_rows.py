"""Rows of tables, whatever file they came in: which are an episode, in which order, and where episodes end."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...config import setting
from ...errors import DataError
from ...masks import ACTION_MASK, masked
from ...storage.costs import COST
from ...storage.flat import RECORDED, steps_in_order
from ...storage.steps import StepTable
from ..arrays import Array, flags, log_probability, one_column
from ..format import RENAME, StepFormat
from ..runs import Runs


@dataclass(frozen=True)
class Ids:
    """Which episode each row is of."""

    code: Array  # [N] number of the episode, by the order of their ids
    names: Sequence[Any]  # the ids, in their order
    together: bool  # whether the rows of each lie together


def episode_ids(source: str, name: str, column: Any) -> Ids:
    """Code the episodes of an Arrow column of numbers or text; numbers written as text are in the order of numbers."""
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
    if not (is_text or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{source}: column {name!r} holds {kind}; episodes are numbers or text.")
    if is_text:
        column = pc.utf8_trim_whitespace(column.cast(pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries().combine_chunks()  # of each name once: the texts may be more than an array can hold
    found: list[Any] = encoded.dictionary.to_pylist()
    index = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if (lacking := np.flatnonzero((index == -1) | (index == (found.index("") if "" in found else -1)))).size:
        raise DataError(f"{source}: column {name!r} has no value in row {int(lacking[0])}.")
    numbers = is_text and all(re.fullmatch(r"-?\d+", text) for text in found)
    order = sorted(range(len(found)), key=lambda k: int(found[k]) if numbers else found[k])
    place = np.empty(len(found), np.int64)
    place[order] = np.arange(len(found))
    code = place[index]
    runs = int(np.count_nonzero(code[1:] != code[:-1])) + 1
    return Ids(code, [found[k] for k in order], runs == len(np.unique(code)))


@dataclass(frozen=True)
class Order:
    """How rows are read."""

    rows: Array | None  # [N] the order that they are read in; None: as they lie
    ends: Array  # [N] bool, in that order: the last row of an episode
    unit: float | None = None  # by how much steps of an episode rise from row to row; None: that is not looked at
    gaps: int = 0  # ends that stand before a step that is missing


def order_of(
    source: str,
    called: Mapping[str, str],
    ids: Ids | None,
    step: Array | None,
    flag: Mapping[str, Array],
    unit: float | None = None,
) -> Order:
    """The order of a table's rows, and where episodes end in it.

    An episode ends where its id changes, at a flag (or at the closing row behind it), before a step that is missing, and at the
    last row. Steps put rows in order; without them the rows of an episode lie together, in their order. Without ids episodes begin
    again at the lowest step. Steps may start anywhere, and rise by one, or throughout by another number (`unit`, where that was
    found already); those that are no whole numbers, as times, put in order and tell nothing of what is missing.
    """
    n = len(next(iter(flag.values()))) if flag else len(ids.code if ids is not None else [])
    closing = flag.get("closing", np.zeros(n, bool))
    flagged = flag.get("terminated", np.zeros(n, bool)) | flag.get("truncated", np.zeros(n, bool))
    code = np.zeros(n, np.int64) if ids is None else ids.code
    rows = None
    if ids is not None and step is not None:
        rows = _sorted(code, step, closing, together=ids.together)
    elif ids is not None and not ids.together:
        raise _comes_back(source, ids.names, code)
    if rows is not None:
        code, closing, flagged = code[rows], closing[rows], flagged[rows]
    changed = code[1:] != code[:-1]
    ends = np.r_[changed | closing[:-1] | (flagged[:-1] & ~closing[1:]), True]
    gaps = 0
    if step is not None:
        step = step if rows is None else step[rows]
        if ids is None:
            ends[:-1] |= (step[1:] == step.min()) & (step[1:] <= step[:-1])
        within = ~ends[:-1] & ~closing[1:]
        rise = step[1:].astype(np.float64) - step[:-1]
        # of an id no step may come twice, though a flag stands between
        again = (~changed if ids is not None else ~ends[:-1]) & ~closing[1:] & (rise <= 0)
        if (wrong := np.flatnonzero(again)).size:
            raise _falls(source, called["step"], step, int(wrong[0]), None if ids is None else ids.names[int(code[wrong[0]])])
        unit = _unit(source, called["step"], step, rise[within]) if unit is None else unit
        gap = within & (rise != unit) if unit else np.zeros(max(n - 1, 0), bool)
        ends[:-1] |= gap
        gaps = int(gap.sum())
    if (alone := np.flatnonzero(closing & np.r_[True, ends[:-1]])).size:
        row = int((np.arange(n) if rows is None else rows)[alone[0]])
        raise DataError(f"{source}: row {row} is marked {called['closing']!r} and follows no step of its episode.")
    return Order(rows, ends, unit, gaps)


def order_notes(order: Order, called: Mapping[str, str]) -> list[str]:
    notes = ["Rows were put in order, by their episodes and steps."] if order.rows is not None else []
    if order.unit not in (None, 0.0, 1.0):
        notes.append(f"{called['step']!r} rises by {order.unit:g} from row to row.")
    if order.gaps:
        said = "before a step that is missing; where its rows are in another file, import the files' folder"
        notes.append(f"{order.gaps} episodes were cut {said}.")
    return notes


def _sorted(code: Array, step: Array, closing: Array, *, together: bool) -> Array | None:
    """Order by episode and step, closing rows last; None: as rows lie. Episodes that lie together stay where they are."""
    if together:
        code = np.cumsum(np.r_[False, code[1:] != code[:-1]])
    late = np.where(closing, np.inf, step)  # of an episode one at the most
    same = code[1:] == code[:-1]
    if ((code[1:] > code[:-1]) | (same & (late[1:] >= late[:-1]))).all():
        return None
    return np.lexsort((late, code))


def _unit(source: str, name: str, step: Array, rises: Array) -> float:
    """Find by how much steps rise: 1, or what they rise by throughout; 0 for numbers that are not whole."""
    if not len(rises) or (step.dtype.kind == "f" and (step != np.rint(step)).any()):
        return 0.0 if len(rises) else 1.0
    if (rises == rises[0]).all():
        return float(rises[0])
    if not (rises == 1).any():
        raise DataError(
            f"{source}: no row follows another: {name!r} rises by {rises[0]:g}, by {rises[rises != rises[0]][0]:g} and so on, "
            "never by 1; import the folder of all files, or leave the column out where it does not count steps."
        )
    return 1.0


def _falls(source: str, name: str, step: Array, row: int, episode: Any) -> DataError:
    if episode is not None:  # rows are in order, so it cannot fall
        return DataError(
            f"{source}: {name!r} {step[row]:g} of episode {episode!r} comes twice; an episode has a number of its own, and "
            "so has each of its steps."
        )
    return DataError(
        f"{source}: {name!r} goes from {step[row]:g} to {step[row + 1]:g} in row {row + 1} and no episode ended there; a column of "
        "numbers of episodes would tell which rows belong together (rename.episode=NAME)."
    )


def _comes_back(source: str, names: Sequence[Any], code: Array) -> DataError:
    first = np.flatnonzero(np.r_[True, code[1:] != code[:-1]])
    _, begins = np.unique(code[first], return_index=True)
    row = int(first[np.setdiff1d(np.arange(len(first)), begins)[0]])
    return DataError(
        f"{source}: episode {names[int(code[row])]!r} comes back in row {row}, after another; rows of an episode lie together, or "
        "a column 'step' says their order (rename.step=NAME)."
    )


def go_over_files(files: Sequence[Path], episodes: Callable[[Path], Ids | None], steps: Callable[[Path], Array]) -> bool:
    """Return whether files are one table because an episode's rows span several: its steps continue from file to file.

    Files that each number their own, whole episodes anew are separate tables. `episodes` gives a file's ids, None if it lacks ids
    or steps; `steps` [N] are read only where an id is in several files.
    """
    numbers: dict[Any, int] = {}
    n_names = 0
    for file in files:
        if (ids := episodes(file)) is None:
            return False
        n_names += len(ids.names)
        for name in ids.names:
            numbers.setdefault(name, len(numbers))
    if n_names == len(numbers):
        return False
    found = [(ids, steps(file)) for file in files if (ids := episodes(file)) is not None]
    code = np.concatenate([np.array([numbers[name] for name in ids.names], np.int64)[ids.code] for ids, _ in found])
    step = np.concatenate([step for _, step in found])
    order = np.lexsort((step, code))
    twice = (np.diff(code[order]) == 0) & (np.diff(step[order]) == 0)
    return not twice.any() or not all(_is_whole(ids, step) for ids, step in found)


def _is_whole(ids: Ids, step: Array) -> bool:
    """Tell whether no episode lacks a step between its first and its last."""
    order = np.lexsort((step, ids.code))
    code, step = ids.code[order], step[order]
    return bool(((code[1:] != code[:-1]) | (step[1:] - step[:-1] <= 1)).all())


def flags_of(source: str, called: Mapping[str, str], columns: Mapping[str, Array]) -> dict[str, Array]:
    """Read those of `terminated`, `truncated` and `closing` that are there, [N] bool each."""
    return {word: flags(source, called[word], columns[word]) for word in ("terminated", "truncated", "closing") if word in columns}


class TableFormat(StepFormat):
    """Where an episode ends, and in what order rows are read, is as of every table: see `order_of`."""

    rename: Mapping[str, str] = RENAME
    ends: Literal["truncated", "terminated"] = setting(
        "truncated", "what the end of an episode is where the file has no column terminated"
    )

    def on_task(self, there: Collection[str]) -> list[str]:
        """Say so where none of the columns tells which episodes the task ended."""
        other = "terminated" if self.ends == "truncated" else "truncated"
        said = f"all were taken as {self.ends} (options.ends={other} changes that)"
        return [] if "terminated" in there else [f"The file does not say which episodes the task ended: {said}."]

    def steps_of(
        self, source: str, called: Mapping[str, str], columns: Mapping[str, Array], order: Order
    ) -> tuple[StepTable, list[str]]:
        """The steps of a table, and notes.

        A row with `closing` is no step: it holds the final observation of the episode before it. Without such rows the final
        observation is the `next_observation` of the last step, where there is one (and `next_recorded` does not say otherwise).

        `columns` [N, ...] have usual names, and `called` is what the file calls them; further ones become columns of the dataset,
        `action_prob` its logarithm, `log_prob`, where that is not there.
        """
        given = flags_of(source, called, columns)
        found = {name: column for name, column in columns.items() if name not in given}
        for word in ("reward", COST, "log_prob", "action_prob", RECORDED):
            if word in found:
                found[word] = one_column(source, called[word], found[word])
        if order.rows is not None:
            source = f"{source}, its rows in order"
            found, given = ({name: column[order.rows] for name, column in part.items()} for part in (found, given))
        n = len(order.ends)
        closing = given.get("closing", np.zeros(n, bool))
        notes: list[str] = []
        if (chances := found.pop("action_prob", None)) is not None and "log_prob" in found:
            notes.append(f"The column {called['action_prob']!r} was not read: {called['log_prob']!r} is read in its place.")
        elif chances is not None:
            found["log_prob"] = np.zeros(n, np.float32)
            found["log_prob"][~closing] = log_probability(source, called["action_prob"], chances[~closing], found["action"])
        step, last = ~closing, (order.ends | np.r_[closing[1:], False])[~closing]
        truncated = given.get("truncated", np.zeros(n, bool))[step]
        terminated = given["terminated"][step] if "terminated" in given else last & ~truncated & (self.ends == "terminated")
        following = [name for name in found if name.startswith("next_observation")]
        if following and not closing.any():
            truncated = (truncated | last) & ~terminated
            terminated, truncated = self.limited(source, terminated, truncated, notes)
            table = steps_in_order(found | {"terminated": terminated, "truncated": truncated}, last, source=source)
            return table, notes
        if following:
            notes.append(f"Left out, as closing rows hold final observations: {', '.join(following)}.")
        found = {name: column for name, column in found.items() if not name.startswith("next_")}
        seen = {name.partition("/")[2]: found.pop(name) for name in list(found) if name.partition("/")[0] == "observation"}
        shown = masked(seen.get("", seen), found.pop(ACTION_MASK, None))
        action, reward = (found.pop(name)[step] for name in ("action", "reward"))
        extra = {name: column[step] for name, column in found.items()}
        steps, said = Runs(shown, closing, last, action, reward, terminated, truncated, extra).steps(source, self.timeout_at)
        return steps, [*notes, *said]
