"""What differs between two datasets: spaces, columns, counts, statistics, rows, where each came from. Reads block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..recording import Recording
from ..storage.checks import chunks
from ..storage.rows import BLOCK

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class ColumnDifference:
    """Where one column of two datasets differs, over the rows that both have."""

    column: str
    rows: int  # that differ
    of: int  # that were compared
    largest: float  # absolute difference; NaN against a number counts as infinite
    row: int  # the first that differs, counted over the logical rows, closing rows included
    episode: tuple[int, int]  # it is in, by dataset
    step: tuple[int, int]  # of that episode; the closing row's is the number of its steps
    values: tuple[Any, Any]  # there, as plain Python


@dataclass(frozen=True)
class Difference:
    """Differences of two datasets. `same` compares content: names and provenance are given, but do not count.

    Each of `spec`, `counts`, `kinds`, `statistics` and `provenance` maps what differs to the two values (None: missing).
    """

    fingerprints: tuple[str, str]
    names: tuple[str, str]
    spec: dict[str, Pair]
    environment: Pair | None
    counts: dict[str, Pair]
    kinds: dict[str, Pair]
    statistics: dict[str, Pair]
    columns: tuple[ColumnDifference, ...]
    provenance: dict[str, Pair]

    @property
    def same(self) -> bool:
        """True where rows, spaces and environment are the same."""
        return self.fingerprints[0] == self.fingerprints[1] and not self.spec and self.environment is None


def diff(a: Recording, b: Recording) -> Difference:
    """Compare two datasets. Columns whose digests are equal are not read again.

    If they have different numbers of rows, the rows that both have are compared, from the first on.
    """
    return Difference(
        fingerprints=(a.fingerprint, b.fingerprint),
        names=(a.name, b.name),
        spec=_unlike(a.spec.model_dump(mode="json"), b.spec.model_dump(mode="json")),
        environment=None if a.environment == b.environment else (_environment(a), _environment(b)),
        counts=_unlike(_counts(a), _counts(b)),
        kinds=_unlike(_kinds(a), _kinds(b)),
        statistics=_unlike(_statistics(a), _statistics(b)),
        columns=tuple(_columns(a, b)),
        provenance=_unlike(a.provenance, b.provenance),
    )


def _counts(dataset: Recording) -> dict[str, int]:
    return {
        "transitions": dataset.n_transitions,
        "episodes": dataset.n_episodes,
        "terminated": int(np.count_nonzero(dataset.episodes.terminated)),
        "final observations missing": int(np.count_nonzero(~np.asarray(dataset.episodes.final_recorded, bool))),
        "cuts": dataset.cuts,
    }


def _kinds(dataset: Recording) -> dict[str, str]:
    return {name: f"{dtype} {list(shape)}" for name, (dtype, shape) in dataset.kinds.items()}


def _statistics(dataset: Recording) -> dict[str, Any]:
    return dataset.statistics.model_dump(mode="json", by_alias=True)


def _environment(dataset: Recording) -> Any:
    return dataset.environment.model_dump(mode="json") if dataset.environment else None


def _unlike(a: dict[str, Any], b: dict[str, Any], above: str = "") -> dict[str, Pair]:
    """Collect what differs between two nested mappings, by dotted name."""
    found: dict[str, Pair] = {}
    for name in [*a, *(name for name in b if name not in a)]:
        left, right, label = a.get(name), b.get(name), f"{above}{name}"
        if isinstance(left, dict) and isinstance(right, dict):
            found |= _unlike(left, right, f"{label}.")
        elif left != right:
            found[label] = (left, right)
    return found


def _columns(a: Recording, b: Recording) -> list[ColumnDifference]:
    n = min(a.n_rows, b.n_rows)
    names = [name for name, kind in a.kinds.items() if b.kinds.get(name) == kind]
    if a.n_rows == b.n_rows:
        names = [name for name in names if a.summary.digests[name] != b.summary.digests[name]]
    seen = {name: _Seen() for name in names}
    left, right = a.rows(), b.rows()
    for start in range(0, n, BLOCK) if names else ():
        stop = min(start + BLOCK, n)
        for name in names:
            one, other = left.read(name, start, stop), right.read(name, start, stop)
            for part in chunks(stop - start):
                seen[name].add(one[part], other[part], start + part.start)
    return [_described(name, found, (a, b), n) for name, found in seen.items() if found.first is not None]


@dataclass
class _Seen:
    """Of one column so far."""

    rows: int = 0
    largest: float = 0.0
    first: tuple[int, Any, Any] | None = None

    def add(self, one: np.ndarray, other: np.ndarray, start: int) -> None:
        """Compare rows from number `start` on. NaN is like NaN, as it is for a digest."""
        equal = one == other
        if one.dtype.kind == "f":
            equal |= np.isnan(one) & np.isnan(other)
        differ = ~equal.reshape(len(one), -1).all(1)
        if differ.any():
            k = int(differ.argmax())
            self.first = self.first or (start + k, one[k].tolist(), other[k].tolist())
            self.rows += int(np.count_nonzero(differ))
            gap = np.abs(one[differ].astype(np.float64) - other[differ].astype(np.float64))
            self.largest = max(self.largest, float(np.nan_to_num(gap, nan=np.inf).max()))


def _described(name: str, found: _Seen, both: tuple[Recording, Recording], n: int) -> ColumnDifference:
    assert found.first is not None
    row, *values = found.first
    (e, s), (f, t) = (_place(dataset, row) for dataset in both)
    return ColumnDifference(name, found.rows, n, found.largest, row, (e, f), (s, t), (values[0], values[1]))


def _place(dataset: Recording, row: int) -> tuple[int, int]:
    """Return episode and step of a logical row."""
    ends = np.cumsum(dataset.episodes.steps + 1)
    episode = int(np.searchsorted(ends, row, side="right"))
    return episode, row - (int(ends[episode - 1]) if episode else 0)
