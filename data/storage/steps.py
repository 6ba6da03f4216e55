"""Steps in memory: from arrays as users and importers have them to rows with a closing row after every episode."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import DataError
from ..masks import ACTION_MASK, bare, mask_of, parted
from ..spec import is_shown, value_columns
from . import checks
from .checks import chunks
from .costs import COST
from .legal import FINAL_ACTION_MASK, NEXT_ACTION_MASK, IllegalActions, mask_columns
from .schema import check_alike, kinds_of

FLAGS = ("terminated", "truncated", "closing")
MASKS = (ACTION_MASK, FINAL_ACTION_MASK, NEXT_ACTION_MASK)
RESERVED = ("episode", "step", "observation", "action", "reward", *FLAGS)
SAME = 1e-6  # next observations that differ by more than this share of the row's largest value, or of 1, end an episode

_EXACT: ContextVar[bool] = ContextVar("exact floats", default=False)


@contextmanager
def exact_floats() -> Generator[None]:
    """Keep float64 inside, where nothing else is said: for importers, which do not ask."""
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)


_STARTS: ContextVar[Mapping[str, np.ndarray]] = ContextVar("what kinds are counted from", default=MappingProxyType({}))


@contextmanager
def counting_from(starts: Mapping[str, np.ndarray]) -> Generator[None]:
    """Count kinds from `starts` inside, by column, where nothing else is said: for importers, which do not ask."""
    token = _STARTS.set({**_STARTS.get(), **starts})
    try:
        yield
    finally:
        _STARTS.reset(token)


def counted_from() -> Mapping[str, np.ndarray]:
    return _STARTS.get()


@dataclass(frozen=True)
class StepTable:
    """Rows of E back-to-back episodes. One of T transitions is T + 1 rows, the last of which is its closing row.

    Columns: `observation` [R, ...] (or one `observation/KEY` each), `action` ([R, ...] floats, [R] or [R, K] int64, [R, n] uint8),
    `reward` [R] float32, `terminated`, `truncated` and `closing` [R] bool, and further ones such as `log_prob` and `cost`; where
    told which actions are legal `action_mask` [R, n] uint8. A closing row holds the final observation, its mask, and zeros. Where
    `final_recorded` is false it repeats the last observation instead.
    """

    columns: dict[str, np.ndarray]
    first_row: np.ndarray  # int64 [E]
    steps: np.ndarray  # int64 [E]: T
    terminated: np.ndarray  # bool [E]
    final_recorded: np.ndarray  # bool [E]
    cuts: int = 0  # episodes cut where a source's next observations were not the next row

    @cached_property
    def returns(self) -> np.ndarray:
        """Sums of rewards, [E] float64."""
        reward = self.columns["reward"]
        return np.add.reduceat(reward, self.first_row, dtype=np.float64) if len(reward) else np.zeros(0)

    @property
    def n_rows(self) -> int:
        return len(self.columns["reward"])

    @property
    def n_episodes(self) -> int:
        return len(self.steps)

    @property
    def n_transitions(self) -> int:
        """Every step, also those that no bootstrapping sampler may draw."""
        return self.n_rows - self.n_episodes

    def slice(self, start: int, stop: int) -> StepTable:
        """Return episodes `start` … `stop - 1`, as views. `cuts` stays with the whole."""
        first = int(self.first_row[start])
        last = int(self.first_row[stop - 1] + self.steps[stop - 1] + 1)
        return StepTable(
            columns={name: column[first:last] for name, column in self.columns.items()},
            first_row=self.first_row[start:stop] - first,
            steps=self.steps[start:stop],
            terminated=self.terminated[start:stop],
            final_recorded=self.final_recorded[start:stop],
        )


def steps_from_arrays(
    observations: Any,
    actions: Any,
    rewards: Any,
    terminated: Any,
    truncated: Any = None,
    *,
    final_observations: Any = None,
    next_observations: Any = None,
    extra: Mapping[str, Any] | None = None,
    keep_float64: bool | None = None,
    illegal_actions: IllegalActions | None = None,
    starts: Mapping[str, np.ndarray] | None = None,
    source: str = "the arrays",
) -> StepTable:
    """Steps of episodes that lie back to back. No step is dropped, and columns are copied once, to make room for closing rows.

    An episode ends where `terminated` or `truncated` says so, at the last row, and where `next_observations` is not the next
    row (by more than 1e-6 of that row's largest value, or of 1; `cuts` counts these).

    Args:
        observations: [N, ...], or dicts and tuples of such arrays, nested as they are. The dtype is kept (uint8 images stay uint8),
            but float64 becomes float32 unless `keep_float64`, and bool becomes uint8. [N] integers from 0 are discrete
            observations; other [N] become [N, 1]. A mapping with the key `action_mask`, or `Masked`, tells which actions are legal.
        actions: [N, ...] or [N] floats, which are kept as observations are; [N] or [N, 1] integers from 0 for discrete actions;
            [N, K] integers from 0 for multi-discrete ones; [N, n] bool (or int8 or uint8 zeros and ones) for binary ones.
        rewards: [N] or [N, 1], of the action in the same row.
        terminated: [N] bool (or zeros and ones); the MDP ended with this step.
        truncated: [N] bool; the recording was cut after this step. Where `terminated` is set too, that wins.
        final_observations: [E, ...] like `observations`, one an episode. None: an end repeats its last observation and its
            `final_recorded` is false.
        next_observations: [N, ...] like `observations`; its row at an end is the final observation.
        extra: further columns by name, [N, ...] each; `cost` [N] becomes float32; `action_mask` [N, n] among them, and
            `next_action_mask` [N, n] or `final_action_mask` [E, n], are the masks of legal actions: see `legal.mask_columns`.
            Called `info/action_mask` and so on they are too, of discrete actions.
        keep_float64: keep float64 observations, actions and further columns as they are. None: not, but inside `exact_floats`.
        illegal_actions: what becomes of a step whose action was illegal; see `legal.mask_columns`.
        starts: what kinds are counted from where that is not 0, by column, as `Spec.starts` gives it. None:
            as `counting_from` says, else all from 0.
        source: what a message calls these arrays.

    Raises:
        DataError: lengths differ (both are named), an array is empty or of a wrong kind, a number is NaN or infinite (column and
            row are named), or `final_observations` has not one row an episode.
    """
    where = f"In {source}, "
    keep_float64 = _EXACT.get() if keep_float64 is None else keep_float64
    if final_observations is not None and next_observations is not None:
        raise DataError(f"{where}final_observations and next_observations are both given: give one of them.")
    extra = dict(extra or {})
    shown = tuple(map(parted, (observations, final_observations, next_observations)))
    masks, (observations, final_observations, next_observations) = _masks(shown, extra, actions), map(bare, shown)
    counted = _STARTS.get() if starts is None else starts
    observation = _observation_columns(_one_array(observations, rewards), "observations", where, keep_float64, counted)
    n = len(next(iter(observation.values())))
    ended = checks.flags(f"{where}terminated", _array(terminated, "terminated", where))
    cut = None if truncated is None else checks.flags(f"{where}truncated", _array(truncated, "truncated", where))
    reward = checks.one_column(f"{where}rewards", _floats(rewards, "rewards", where))
    columns = {"action": _actions(actions, where, keep_float64, counted), "reward": reward} | _extra_columns(
        extra, where, keep_float64
    )
    lengths = {_label(name, "observations"): len(column) for name, column in observation.items()}
    lengths |= {"actions": len(columns["action"]), "rewards": len(reward), "terminated": len(ended)}
    lengths |= {} if cut is None else {"truncated": len(cut)}
    lengths |= {name: len(columns[name]) for name in extra}
    _same_lengths(lengths, where)

    end = ended.copy() if cut is None else ended | cut
    end[-1] = True
    following, cuts = None, 0
    if next_observations is not None:
        following = _one_array(next_observations, rewards)
        following = _observation_columns(following, "next_observations", where, keep_float64, counted, finite=False)
        _like(observation, following, "next_observations", where, (n, "one row a step"))
        jump = _jumps(observation, following) & ~end[:-1]
        end[:-1] |= jump
        cuts = int(jump.sum())
    last = np.flatnonzero(end)
    final = {name: column[last] for name, column in (following or observation).items()}
    if final_observations is not None:
        final = _observation_columns(final_observations, "final_observations", where, keep_float64, counted)
        _like(observation, final, "final_observations", where, (len(last), "one row an episode"))
    elif following is not None:
        for name, column in final.items():
            checks.finite(f"{where}{_label(name, 'next_observations')}", column, rows=last)

    closing = last + np.arange(1, len(last) + 1)
    out = {name: _with_closing(column, closing, final[name]) for name, column in observation.items()}
    if masks:
        first = int(counted.get("action", 0)) if columns["action"].ndim == 1 else 0
        mask, final_mask = mask_columns(masks, columns["action"], last, ended[last], illegal_actions, where, first)
        out[ACTION_MASK] = _with_closing(mask, closing, final_mask)
    out |= {name: _with_closing(column, closing) for name, column in columns.items()}
    out["terminated"] = _with_closing(ended, closing)
    out["truncated"] = _with_closing(end & ~ended, closing)
    out["closing"] = np.zeros(n + len(last), bool)
    out["closing"][closing] = True
    recorded = final_observations is not None or following is not None
    steps = np.diff(last, prepend=-1)
    return StepTable(
        columns=out,
        first_row=closing - steps,
        steps=steps,
        terminated=ended[last],
        final_recorded=np.full(len(last), recorded),
        cuts=cuts,
    )


def _masks(shown: tuple[Any, ...], extra: dict[str, Any], actions: Any) -> dict[str, Any]:
    """Collect masks of legal actions by name: those of observations, or what is taken out of the further columns."""
    given = dict(zip(MASKS, map(mask_of, shown), strict=True))
    masks = {name: mask for name in MASKS if (mask := extra.pop(name, given[name])) is not None}
    if masks or f"info/{ACTION_MASK}" not in extra:
        return masks
    mask, taken = extra[f"info/{ACTION_MASK}"], np.asarray(actions)  # environments have it there
    if np.ndim(mask) != 2 or taken.dtype.kind not in "iu" or taken.size != len(taken):
        return masks
    return {name: extra.pop(f"info/{name}") for name in MASKS if f"info/{name}" in extra}


def steps_from_rows(columns: Mapping[str, np.ndarray], final_recorded: np.ndarray, cuts: int = 0) -> StepTable:
    """Build the table of columns that have their closing rows already. Raises DataError where there are no such episodes."""
    _same_lengths({name: len(column) for name, column in columns.items()}, "")
    last = np.flatnonzero(columns["closing"])
    steps = np.diff(last, prepend=-1) - 1
    if len(last) == 0 or last[-1] != len(columns["closing"]) - 1 or steps.min() < 1 or len(final_recorded) != len(last):
        raise DataError("Rows need one closing row, marked in final_recorded, after every episode of one step or more.")
    return StepTable(
        columns=dict(columns),
        first_row=last - steps,
        steps=steps,
        terminated=np.asarray(columns["terminated"][last - 1], bool),
        final_recorded=np.asarray(final_recorded, bool),
        cuts=cuts,
    )


def concat_steps(tables: Sequence[StepTable]) -> StepTable:
    """Join tables one after the other. Raises DataError where there is none, or their columns differ in name, dtype or shape."""
    if not tables:
        raise DataError("Nothing to put together: there is no table of steps.")
    check_alike([kinds_of(table.columns) for table in tables])
    offset = np.cumsum([0, *(table.n_rows for table in tables[:-1])])
    return StepTable(
        columns={name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns},
        first_row=np.concatenate([table.first_row + o for table, o in zip(tables, offset, strict=True)]),
        steps=np.concatenate([table.steps for table in tables]),
        terminated=np.concatenate([table.terminated for table in tables]),
        final_recorded=np.concatenate([table.final_recorded for table in tables]),
        cuts=sum(table.cuts for table in tables),
    )


def first_steps(table: StepTable, n: int) -> StepTable:
    """Take the first `n` steps; an episode that they cut ends truncated, with the observation that followed."""
    last = int(np.flatnonzero(~table.columns["closing"])[n - 1])
    columns = {name: column[: last + 2].copy() for name, column in table.columns.items()}
    if cut := not columns["closing"][-1]:
        for name, column in columns.items():
            if not is_shown(name):
                column[-1] = 0
        columns["closing"][-1] = columns["truncated"][last] = True
    final = table.final_recorded[: int(columns["closing"].sum())].copy()
    final[-1] |= cut
    return steps_from_rows(columns, final)


def _label(column: str, argument: str) -> str:
    """Write `observations['KEY']` for the column `observation/KEY`."""
    _, slash, key = column.partition("/")
    return f"{argument}[{key!r}]" if slash else argument


def _array(values: Any, name: str, where: str) -> np.ndarray:
    array = checks.as_array(f"{where}{name}", values)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where}{name} is of type {array.dtype}; numbers are needed.")
    if array.ndim == 0:
        raise DataError(f"{where}{name} is a single number; one row a step is needed.")
    if array.size == 0:
        raise DataError(f"{where}{name} is empty.")
    return array


def _floats(values: Any, name: str, where: str, *, keep_float64: bool = False, finite: bool = True) -> np.ndarray:
    """Convert to float32 (or float64 where that is kept), every value finite; integers become floats too."""
    array = _array(values, name, where)
    dtype = np.dtype(np.float64 if keep_float64 and array.dtype == np.float64 else np.float32)
    with np.errstate(over="ignore"):  # what is too large is found below, by row
        narrow = array.astype(dtype, copy=False)
    if finite and array.dtype.kind == "f":
        checks.finite(f"{where}{name}", array)
        if array.dtype.itemsize > dtype.itemsize:
            checks.finite(f"{where}{name}", narrow, found="a number too large for float32")
    return narrow


def _actions(values: Any, where: str, keep_float64: bool, counted: Mapping[str, np.ndarray]) -> np.ndarray:
    array = _array(values, "actions", where)
    if array.dtype.kind == "f":
        column = _floats(array, "actions", where, keep_float64=keep_float64)
        return column[:, None] if column.ndim == 1 else column
    if array.ndim > 2:
        raise DataError(f"{where}actions are integers of shape {list(array.shape)}; give floats, or one row of integers a step.")
    known = "action" in counted
    if not known and array.ndim == 2 and array.shape[1] > 1 and array.dtype.itemsize == 1 and ((array == 0) | (array == 1)).all():
        return array.astype(np.uint8)
    column = (array[:, 0] if array.shape[1:] == (1,) else array).astype(np.int64)
    if not known and (column < 0).any():
        k, *entry = np.argwhere(column < 0)[0].tolist()
        raise DataError(f"{where}actions has {column[k, *entry]} in row {k}; discrete actions count from 0.")
    return column


def _one_array(values: Any, rewards: Any) -> Any:
    """Turn a tuple of N rows, as `zip` makes them, into an array; a tuple of arrays of N rows each stays as it is."""
    n = len(rewards) if hasattr(rewards, "__len__") else 0
    rows = isinstance(values, tuple) and len(values) == n and any(np.shape(part)[:1] != (n,) for part in values)
    return checks.as_array("An array of rows", values) if rows else values


def _observation_columns(
    values: Any, name: str, where: str, keep_float64: bool, counted: Mapping[str, np.ndarray], finite: bool = True
) -> dict[str, np.ndarray]:
    parts = value_columns(values)
    if not parts:
        raise DataError(f"{where}{name} is empty.")
    return {
        column: _column(part, _label(column, name), where, keep_float64, counted=column in counted, finite=finite)
        for column, part in parts.items()
    }


def _column(values: Any, name: str, where: str, keep_float64: bool, *, counted: bool, finite: bool = True) -> np.ndarray:
    array = _array(values, name, where)
    numbers = (
        array.dtype.kind in "iu" and array.ndim == 1 and (counted or not (array < 0).any())
    )  # of kinds, so they stay one a row
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    elif array.dtype == np.float16:
        checks.finite(f"{where}{name}", array)
    elif array.dtype.kind == "f":
        narrow = _floats(array, name, where, keep_float64=keep_float64, finite=finite)
        if array.dtype.itemsize > narrow.dtype.itemsize and name.startswith("observations"):  # few final ones tell no spread
            checks.resolved(f"{where}{name}", array)
        array = narrow
    return array[:, None] if array.ndim == 1 and not numbers else array


def _extra_columns(extra: Mapping[str, Any], where: str, keep_float64: bool) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for name, values in extra.items():
        if name in RESERVED or name.startswith("observation/"):
            raise DataError(f"{where}the extra column {name!r} has a name that d3ray uses itself.")
        array = _array(values, name, where)
        if name == COST:
            out[name] = checks.one_column(f"{where}{name}", _floats(array, name, where))
            continue
        out[name] = _floats(array, name, where, keep_float64=keep_float64) if array.dtype.kind == "f" else array
        if array.dtype == np.bool_ and array.ndim > 1:
            out[name] = array.astype(np.uint8)
    return out


def _same_lengths(lengths: Mapping[str, int], where: str) -> None:
    first, n = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != n:
            raise DataError(f"{where}{first} has {n} rows and {name} has {length}; they need one row a step each.")


def _like(observation: dict[str, np.ndarray], other: dict[str, np.ndarray], name: str, where: str, needed: tuple[int, str]) -> None:
    """Check that `other` has the keys and entries of `observation`, and the rows that are `needed`; its dtypes become the same."""
    n, rows = needed
    if other.keys() != observation.keys():
        raise DataError(f"{where}{name} has other keys than observations.")
    for key, column in observation.items():
        label = _label(key, name)
        if len(other[key]) != n:
            raise DataError(f"{where}{label} has {len(other[key])} rows; {n} are needed, {rows}.")
        if other[key].shape[1:] != column.shape[1:]:
            theirs, ours = list(other[key].shape[1:]), list(column.shape[1:])
            raise DataError(f"{where}{label} has entries of shape {theirs} and {_label(key, 'observations')} of {ours}.")
        if other[key].dtype != column.dtype:
            other[key] = other[key].astype(column.dtype)


def _jumps(observation: dict[str, np.ndarray], following: dict[str, np.ndarray]) -> np.ndarray:
    """Mark rows t whose next observation is not row t + 1, [N - 1] bool."""
    n = len(next(iter(observation.values())))
    jump = np.zeros(n - 1, bool)
    for name, column in observation.items():
        for part in chunks(n - 1):
            rows = part.stop - part.start
            given, seen = following[name][part].reshape(rows, -1), column[part.start + 1 : part.stop + 1].reshape(rows, -1)
            if column.dtype.kind == "f":
                largest = np.abs(seen).max(1, initial=1.0).astype(np.float64)
                difference = np.abs(given.astype(np.float64) - seen).max(1, initial=0.0)
                jump[part] |= ~(difference <= SAME * largest)  # so that NaN differs too
            else:
                jump[part] |= (given != seen).any(1)
    return jump


def _with_closing(column: np.ndarray, closing: np.ndarray, final: np.ndarray | None = None) -> np.ndarray:
    """Copy with closing rows at `closing`: `final`, or zeros."""
    out = np.zeros((len(column) + len(closing), *column.shape[1:]), column.dtype)
    start = 0
    if len(closing) * 64 < len(column):  # long episodes: copy each as a block
        for k, stop in enumerate(closing - np.arange(len(closing))):
            out[start + k : stop + k] = column[start:stop]
            start = int(stop)
    else:
        out[np.delete(np.arange(len(out)), closing)] = column
    if final is not None:
        out[closing] = final
    return out
