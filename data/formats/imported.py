"""What an importer gives back, and what several importers do in the same way to the arrays they find."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import ConfigError, D3rayError, DataError, did_you_mean, reason
from ..spec import Environment, Spec
from ..storage import checks
from ..storage.steps import StepTable, counted_from

Array = np.ndarray[Any, np.dtype[Any]]

STEP_NAMES = {  # d3ray's word: what people call it, the first found is taken
    "observations": ("observations", "obs", "observation"),
    "actions": ("actions", "acts", "action"),
    "rewards": ("rewards", "rews", "reward"),
    "terminated": ("terminated", "terminals", "terminations", "dones", "terminal", "done"),
    "truncated": ("truncated", "timeouts", "truncations", "timeout"),
    "next_observations": ("next_observations", "next_obs", "next_observation"),
    "log_prob": ("log_prob", "log_probs", "action_log_probs"),
    "episode": ("episode", "episode_ids", "episode_id", "episode_index"),
}


@dataclass(frozen=True)
class Imported:
    """Steps from a foreign file, and what the importer decided on the way."""

    steps: StepTable
    spec: Spec | None = None  # None: the file says nothing of its spaces, so they are inferred from the arrays
    environment: Environment | None = None
    notes: list[str] = field(default_factory=list[str])  # sentences: what was decided, and what was left out
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])  # JSON values: format, file and the file's own metadata
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # of columns' entries, where it says


class Ends(Protocol):
    """How episodes end: those of a table, or of all parts of a file."""

    @property
    def steps(self) -> Array: ...
    @property
    def terminated(self) -> Array: ...
    @property
    def final_recorded(self) -> Array: ...
    @property
    def cuts(self) -> int: ...


@dataclass(frozen=True)
class Plan:
    """How a file is read in parts of whole episodes, and what was decided about all of it.

    Attributes:
        parts: each reads its part, in the file's order; picklable.
        bytes: of each part, about.
        provenance: of the file.
        notes: sentences on the file that no part says.
        said: what else is said, once all parts are read, of how their episodes end.
    """

    parts: tuple[Callable[[], Imported], ...]
    bytes: tuple[int, ...]
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()
    said: Callable[[Ends], list[str]] = lambda ends: []


def existing_file(path: Path | str) -> Path:
    """`path`, once it is a file that holds something.

    Raises:
        DataError: it is not there, a folder, or empty.
    """
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
    """All files below a folder that are not hidden (or a program's notes to itself), sorted by name."""
    found = [p for p in folder.rglob("*") if p.is_file() and not any(q[0] in "._" for q in p.relative_to(folder).parts)]
    return sorted(found)


def check_rename(rename: Mapping[str, str] | None, known: Iterable[str], format: str) -> Mapping[str, str]:
    """The renames, none where there are none.

    Raises:
        ConfigError: a format has no column of that usual name; the nearest is said.
    """
    known = tuple(known)
    for name in rename or {}:
        if name not in known:
            raise ConfigError(f"rename: {format} has no column {name!r}{did_you_mean(name, known)}")
    return rename or {}


@contextmanager
def damaged(source: str, what: str, raised: tuple[type[Exception], ...]) -> Generator[None]:
    """What a library raises of a damaged file, as a `DataError` that names `source` and says what that is, as "an archive"."""
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
    """The number of rows that all of `arrays` have, at least 1.

    Raises:
        DataError: two lengths differ (both arrays are named), an array is a single number, or there are no rows.
    """
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
    """The same numbers in this machine's byte order, no wider than float64."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def finite(source: str, **arrays: Array) -> None:
    """Refuses NaN and infinity, by the row of the file that holds the first.

    Importers whose rows are steps leave this to `steps_from_arrays`; here it is for those that move rows.
    """
    for name, array in arrays.items():
        checks.finite(f"{source}: {name!r}", array)


def one_column(source: str, name: str, array: Array) -> Array:
    """See `checks.one_column`."""
    return checks.one_column(f"{source}: {name!r}", array)


def flags(source: str, name: str, array: Array) -> Array:
    """See `checks.flags`."""
    return checks.flags(f"{source}: {name!r}", array)


def episode_ends(source: str, name: str, ids: Array) -> Array:
    """[N] bool: the last row of each episode, by the numbers of episodes. Raises DataError where one comes back."""
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
    """Actions as `steps_from_arrays` takes them: integers [N] (or [N, K], bool [N, K]) for discrete ones, else floats [N, A].

    Args:
        source: what an error names.
        actions: [N], [N, 1] or [N, A].
        discrete: what the file or the user says. None: integers (and booleans) in one column are discrete, booleans in several are
            binary, all else is continuous. True: integers in several columns are multi-discrete.
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
    """[N] float32: logarithms of the probabilities (of continuous actions: densities) with which the behaviour took its actions.

    Raises:
        DataError: one is not above 0, or of a discrete action above 1; the first is named with its row.
    """
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
    """Ends that are a time limit's, told apart from ends of the task.

    A step that is the `limit`-th of its episode is truncated there, whatever the file says of it: many programs record a time
    limit as a terminal. Where `may_cut`, an episode that the file lets run longer is cut after every `limit` steps, and
    otherwise refused.

    Args:
        source: what an error names.
        terminated: [N] bool.
        truncated: [N] bool.
        limit: steps, at least 1.
        may_cut: whether the file may leave out ends at the limit.

    Returns:
        terminated, truncated (new arrays) and notes.
    """
    if limit < 1:
        raise DataError(f"timeout_at is {limit}; it is a number of steps, at least 1.")
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
    """Whether next observations are only the rows moved up by one, over the ends of episodes: then a note that says so.

    Made so after the recording, they hold the first observation of the next episode in place of the final one, and a learner that
    bootstraps at a time limit would take its value for that of where the episode was cut.

    Args:
        observations: [N, ...], an array, or one in a file.
        following: [N, ...], what the file says came next.
        end: [N] bool, where episodes end.
        at_once: rows that are read at a time; None: all.
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


def count_notes(steps: Ends, *, limits_known: bool) -> list[str]:
    """Sentences on the ends of episodes that a reader of any format should hear of."""
    notes: list[str] = []
    if steps.cuts:
        notes.append(f"{steps.cuts} episodes were cut where next_observations is not the next row.")
    missing = int((~steps.final_recorded & ~steps.terminated).sum())
    if missing:
        notes.append(
            f"{missing} of {len(steps.steps)} episodes are truncated without a final observation: "
            "their last step is kept, but nothing is bootstrapped from it."
        )
    longest = int(steps.steps.max())
    suspects = int(((steps.steps == longest) & steps.terminated).sum())
    if not limits_known and longest > 1 and suspects > 1:
        notes.append(
            f"{suspects} of {len(steps.steps)} episodes end terminated after exactly {longest} steps, the most of any: "
            f"if that is a time limit, import with timeout_at={longest}."
        )
    return notes
