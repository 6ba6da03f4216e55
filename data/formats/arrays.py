"""What importers do in the same way to the files that they open and the arrays that they find."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import ConfigError, D3rayError, DataError, did_you_mean, reason
from ..storage import checks
from ..storage.costs import SAID
from ..storage.steps import counted_from

Array = np.ndarray[Any, np.dtype[Any]]

STEP_NAMES = {  # d3ray's word: what people call it, the first found is taken
    "observations": ("observations", "obs", "observation"),
    "actions": ("actions", "acts", "action"),
    "rewards": ("rewards", "rews", "reward"),
    "terminated": ("terminated", "terminals", "terminations", "dones", "terminal", "done"),
    "truncated": ("truncated", "timeouts", "truncations", "timeout"),
    "next_observations": ("next_observations", "next_obs", "next_observation"),
    "log_prob": ("log_prob", "log_probs", "action_log_probs"),
    "cost": SAID,
    "episode": ("episode", "episode_ids", "episode_id", "episode_index"),
}


def existing_file(path: Path | str) -> Path:
    """Return `path` once it is a file that holds something; else raise DataError."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; give one file.")
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(
            f"There is no file {path}." if isinstance(error, FileNotFoundError) else f"{path}: {error.strerror}."
        ) from None
    if not size:
        raise DataError(f"{path} is empty.")
    return path


def visible_files(folder: Path) -> list[Path]:
    """List the files below a folder that are not hidden (or a program's notes to itself), by name."""
    found = [p for p in folder.rglob("*") if p.is_file() and not any(q[0] in "._" for q in p.relative_to(folder).parts)]
    return sorted(found)


def check_rename(rename: Mapping[str, str], known: Iterable[str], format: str) -> Mapping[str, str]:
    """Return the renames. Raises ConfigError for a column that the format does not know."""
    known = tuple(known)
    for name in rename:
        if name not in known:
            raise ConfigError(f"rename: {format} has no column {name!r}{did_you_mean(name, known)}")
    return rename


@contextmanager
def damaged(source: str, what: str, raised: tuple[type[Exception], ...]) -> Generator[None]:
    """Raise what a library raises of a damaged file as a DataError; `what` is such as "an archive"."""
    try:
        yield
    except D3rayError:
        raise
    except MemoryError:
        raise DataError(f"{source} does not fit into memory.") from None
    except raised as error:
        raise DataError(f"{source} is {what} that is cut short or damaged ({reason(error)}).") from None


class Rows(Protocol):
    """An array, or the header of one in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, rows: slice, /) -> Any: ...


def same_rows(source: str, **arrays: Rows) -> int:
    """Count the rows that all arrays have, at least 1; else raise DataError."""
    for name, array in arrays.items():
        if not array.shape:
            raise DataError(f"{source}: {name!r} is a single value, not one row a step.")
    first, *others = arrays
    n = arrays[first].shape[0]
    for name in others:
        if arrays[name].shape[0] != n:
            raise DataError(f"{source}: {first!r} has {n} rows, but {name!r} has {arrays[name].shape[0]}.")
    if not n:
        raise DataError(f"{source} has no steps: {first!r} has no rows.")
    return n


def native(array: Array) -> Array:
    """Convert to this machine's byte order, no wider than float64."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def finite(source: str, **arrays: Array) -> None:
    """Refuse NaN and infinity by the file's row, for importers that move rows before `steps_from_arrays` looks."""
    for name, array in arrays.items():
        checks.finite(f"{source}: {name!r}", array)


def one_column(source: str, name: str, array: Array) -> Array:
    return checks.one_column(f"{source}: {name!r}", array)


def flags(source: str, name: str, array: Array) -> Array:
    return checks.flags(f"{source}: {name!r}", array)


def episode_ends(source: str, name: str, ids: Array) -> Array:
    """Mark the last row of each episode, [N] bool, by the numbers of episodes. Raises DataError where one comes back."""
    ids = one_column(source, name, ids)
    first = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    kept, again = np.unique(ids[first], return_index=True)
    if len(kept) < len(first):
        row = int(first[np.setdiff1d(np.arange(len(first)), again)[0]])
        raise DataError(f"{source}: {name!r} {ids[row]} comes back in row {row}, after another; rows of an episode lie together.")
    end = np.zeros(len(ids), bool)
    end[np.r_[first[1:] - 1, len(ids) - 1]] = True
    return end


def typed_actions(source: str, actions: Array, discrete: bool | None) -> Array:
    """Actions [N], [N, 1] or [N, A] as `steps_from_arrays` takes them: integers (or bool [N, K]) for discrete ones, else floats.

    Where `discrete` is None integers (and booleans) in one column are discrete, booleans in several are binary, and all else is
    continuous. Where it is true integers in several columns are multi-discrete.
    """
    integers, column = actions.dtype.kind in "biu", actions.ndim == 1 or actions.shape[1:] == (1,)
    if discrete is None:
        discrete = integers and (column or actions.dtype.kind == "b")
    if not discrete:
        # float64 only where an integer would not survive float32
        floats = actions.astype(np.float32 if actions.dtype.itemsize <= 2 else np.float64) if integers else actions
        return floats.reshape(-1, 1) if actions.ndim == 1 else floats
    if actions.ndim == 2 and not column and actions.dtype.kind == "b":
        return actions
    whole = actions if actions.ndim == 2 and not column else one_column(source, "actions", actions)
    if not integers:
        if len(bad := np.argwhere(whole != np.rint(whole))):
            value = whole[tuple(bad[0])]
            raise DataError(f"{source}: discrete actions are whole numbers, but 'actions' is {value} in row {bad[0][0]}.")
        finite(source, actions=whole)
    if "action" not in counted_from() and len(negative := np.argwhere(whole < 0)):
        raise DataError(
            f"{source}: discrete actions count from 0, but 'actions' is {whole[tuple(negative[0])]} in row {negative[0][0]} "
            "(for numbers that are no kinds say discrete_action=false)."
        )
    return whole.astype(np.int64)


def log_probability(source: str, name: str, probability: Array, actions: Array) -> Array:
    """Take logarithms of the behaviour's probabilities (of continuous actions: densities), [N] float32."""
    probability = one_column(source, name, probability)
    most = np.inf if actions.dtype.kind == "f" else 1
    if len(wrong := np.flatnonzero(~((probability > 0) & (probability <= most)))):
        row = int(wrong[0])
        said = "a density is above 0" if most > 1 else "a probability is above 0 and at most 1"
        raise DataError(f"{source}: {name!r} is {probability[row]} in row {row}; of an action that was taken {said}.")
    return np.log(probability, dtype=np.float64).astype(np.float32)


def apply_time_limit(
    source: str, terminated: Array, truncated: Array, limit: int, *, may_cut: bool
) -> tuple[Array, Array, list[str]]:
    """Ends that are a time limit's, told apart from ends of the task: `terminated`, `truncated` [N] (new arrays), and notes.

    A step that is the `limit`-th of its episode is truncated there, whatever the file says of it: many programs record a time
    limit as a terminal. Where `may_cut`, as the file may leave out ends at the limit, an episode that runs longer is cut after
    every `limit` steps; otherwise it is refused.
    """
    end = terminated | truncated
    end[-1] = True
    first = np.r_[0, np.flatnonzero(end)[:-1] + 1]
    lengths = np.diff(np.r_[first, len(end)])
    position = np.arange(len(end)) - np.repeat(first, lengths)
    if not may_cut and (long := np.flatnonzero(lengths > limit)).size:
        raise DataError(f"{source}: episode {long[0]} has {lengths[long[0]]} steps, more than timeout_at={limit}.")
    at_limit = (position + 1) % limit == 0
    # Past the limit the count begins again, so a terminal inside the second stretch stays one.
    changed, cut = int((terminated & at_limit).sum()), int((at_limit & ~end).sum())
    notes: list[str] = []
    if changed:
        notes.append(f"{changed} episodes that ended terminated after exactly {limit} steps were taken as truncated (timeout_at).")
    if cut:
        notes.append(f"{cut} ends were added where {limit} steps had passed without one (timeout_at).")
    return terminated & ~at_limit, truncated | at_limit, notes


def moved_up(observations: Rows, following: Rows, end: Array, at_once: int | None = None) -> list[str]:
    """A note where next observations are only the rows moved up by one, over the `end`s of episodes [N].

    Made so after the recording, they hold the first observation of the next episode in place of the final one, and a learner that
    bootstraps at a time limit would take its value for that of where the episode was cut. Rows are read `at_once`; None: all.
    """
    ends, step = np.flatnonzero(end[:-1]), at_once or len(end)
    if len(ends) < 2 or following.shape != observations.shape:
        return []
    for start in range(0, len(end) - 1, step):
        here = ends[(ends >= start) & (ends < start + step)] - start
        if len(here) and not np.array_equal(
            following[start : start + step][here], observations[start + 1 : start + 1 + step][here]
        ):
            return []
    said = "the first observations of the next episodes, so final observations were taken as missing"
    return [f"next_observations at all {len(ends)} ends between episodes are {said}."]
