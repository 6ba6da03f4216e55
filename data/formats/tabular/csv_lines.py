"""Large CSV files by stretches of lines: where episodes end in them, and where their lines lie."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from ..arrays import Array
from .csv_cells import conversion

BLOCK = 1 << 24  # bytes that are looked at together
_TRUE = r"^\s*(1|1\.0*|true)\s*$"
_KINDS = ((pa.int64(), r"^\s*[-+]?\d+\s*$"), (pa.bool_(), r"^(true|false)$"))


@dataclass(frozen=True)
class Scan:
    """What one look through a file found.

    Attributes:
        begins: [N] bool, the first row of each episode by its name; None: episodes have none.
        flagged: [N] bool, rows with a flag; None: flags were not looked at.
        steps: [N] numbers of steps; None: there are none.
        kinds: what columns are read as that are written in one way throughout.
        twice: an episode that comes back, and the row where it does; None: none does.
    """

    begins: Array | None
    flagged: Array | None
    steps: Array | None
    kinds: dict[str, Any]
    twice: tuple[str, int] | None


def scan(path: Path, names: list[str], separator: str, ends: list[str], kinds: list[str]) -> Scan | None:
    """One look at the columns that tell where episodes end, and at the kind of some others.

    Args:
        path: the file, no gzip.
        names: what its columns are called, in their order.
        separator: between cells.
        ends: of the columns `episode`, `step` and flags those that tell.
        kinds: columns that are read as what they are written in.

    Returns:
        None where the file is none that can be read: who reads all of it says why.
    """
    episodes, begins, flagged, steps = _Episodes(), list[Array](), list[Array](), list[Array]()
    flags = [name for name in ends if name not in ("episode", "step")]
    written: dict[str, set[Any]] = {name: {kind for kind, _ in _KINDS} for name in kinds}
    try:
        with arrow_csv.open_csv(
            path,
            read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=1, use_threads=False, block_size=BLOCK),
            parse_options=arrow_csv.ParseOptions(delimiter=separator),
            convert_options=conversion(dict.fromkeys([*ends, *kinds], pa.string())),
        ) as batches:
            for batch in batches:
                for name, left in written.items():
                    left -= {kind for kind, form in _KINDS if kind in left and not _matches(batch[name], form).all()}
                if "episode" in ends:
                    begins.append(episodes.begin(batch["episode"]))
                if flags:
                    flagged.append(np.logical_or.reduce([_matches(batch[name], _TRUE) for name in flags]))
                if "step" in ends:
                    trimmed = pc.utf8_trim_whitespace(batch["step"])  # pyright: ignore[reportAttributeAccessIssue]
                    steps.append(trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
        return None
    told, at, numbers = (np.concatenate(parts) if parts else None for parts in (begins, flagged, steps))
    if not any(part is not None and len(part) for part in (told, at)) or (numbers is not None and not np.isfinite(numbers).all()):
        return None
    found = {name: next((kind for kind, _ in _KINDS if kind in left), pa.float64()) for name, left in written.items()}
    return Scan(told, at, numbers, found, episodes.twice)


class _Episodes:
    """Where episodes begin by the column that names them, batch after batch."""

    def __init__(self) -> None:
        self.twice: tuple[str, int] | None = None
        self._seen: set[str] = set()
        self._now: str | None = None
        self._n = 0  # rows so far

    def begin(self, column: Any) -> Array:
        """[rows] bool, of the next batch."""
        ids = pc.utf8_trim_whitespace(column).dictionary_encode()  # pyright: ignore[reportAttributeAccessIssue]
        code = ids.indices.to_numpy(zero_copy_only=False)
        begins = np.append(True, code[1:] != code[:-1])[: len(code)]
        for row in np.flatnonzero(begins).tolist():
            name = ids.dictionary[int(code[row])].as_py()
            begins[row] = name != self._now  # which may have begun in the batch before
            if begins[row] and name in self._seen and self.twice is None:
                self.twice = name, self._n + row
            self._seen.add(name)
            self._now = name
        self._n += len(code)
        return begins


def _matches(column: Any, form: str) -> Array:
    found = pc.match_substring_regex(column, form, ignore_case=True)  # pyright: ignore[reportAttributeAccessIssue]
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def line_spans(path: Path, stops: list[int], n: int) -> list[tuple[int, int]] | None:
    """Where stretches of rows lie in a file with a header and a line a row: bytes, from the first to behind the last.

    Args:
        path: the file.
        stops: the row behind each stretch, in order.
        n: rows in all.

    Returns:
        None where the file has another number of lines, as where some are blank.
    """
    wanted, found, lines, size, byte = np.array([0, *stops]), list[Array](), 0, 0, b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            at = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            inside = wanted[(wanted >= lines) & (wanted < lines + len(at))] - lines  # row r begins behind line end r
            found.append(at[inside] + size + 1)
            lines, size, byte = lines + len(at), size + len(block), block[-1:]
    if byte != b"\n":
        lines += 1
        found.append(np.array([size]))  # the last row ends with the file
    if lines != n + 1:
        return None
    places = np.concatenate(found).tolist()
    return list(pairwise(places))
