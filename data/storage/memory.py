"""Columns that are in memory, as a source of datasets."""

from __future__ import annotations

import numpy as np

from .rows import ArrayRows, Columns, Table
from .schema import Kinds, kinds_of


class Memory:
    """Columns that are there; nobody writes to them any more."""

    folders = ()
    in_memory = True

    def __init__(self, columns: Columns) -> None:
        self._columns = {key: read_only(column) for key, column in columns.items()}

    @property
    def kinds(self) -> Kinds:
        """The columns' types and entry shapes."""
        return kinds_of(self._columns)

    def columns(self) -> Columns:
        """The same arrays, read-only."""
        return self._columns

    def table(self, *, in_order: bool) -> Table:
        """Their rows."""
        del in_order
        return self.in_place()

    def in_place(self) -> Table:
        """Their rows."""
        return ArrayRows(self._columns)


def read_only(column: np.ndarray) -> np.ndarray:
    """A view that cannot be written through."""
    view = column.view()
    view.flags.writeable = False
    return view
