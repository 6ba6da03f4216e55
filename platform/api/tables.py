"""Tables that are to become datasets: what their columns are called, hold and may be."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

from ...data.formats.tabular import guess
from ...data.formats.tabular.csv_table import is_table
from ...data.formats.tabular.table_names import usual_names
from ..record.datasets import Table, TableColumn


def table(file: str | Path, rename: Mapping[str, str] | None = None) -> Table | None:
    """The columns of a CSV file with their first values, and what each may be; None: it is no table.

    `rename` is what `ingest` was told of columns; then nothing is guessed.
    """
    try:
        now = Path(file).stat()
        found = _columns(Path(file), now.st_mtime_ns, now.st_size, now.st_ino)
    except (csv.Error, OSError):  # whoever imports it says what is wrong
        return None
    if found is None:
        return None
    said = {name: usual for usual, name in (rename or {}).items()}
    usual = usual_names([one.name for one in found], said, whole=False)
    roles = [said.get(one.name, "").partition(":")[0] if rename else one.guess for one in found]
    columns = [
        TableColumn(name=one.name, usual=one.usual, role=role, values=[*one.values]) for one, role in zip(found, roles, strict=True)
    ]
    return Table(columns=columns, roles=[*guess.ROLES], lacking=guess.lacking(usual))


@functools.lru_cache(1000)
def _columns(file: Path, changed: int, size: int, number: int) -> list[guess.Column] | None:
    """Guess a table's columns from its head, cached until the file changes; None: not a table."""
    return guess.look(file) if is_table(file) else None


def renames(roles: Mapping[str, str]) -> dict[str, str]:
    """The setting `rename` of `ingest`, of the role of each column of a table in their order; empty: what its name says."""
    return guess.renames(roles)
