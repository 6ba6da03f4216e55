"""Episodes as rows of an Arrow table, so that nothing that is done to rows can cut one.

What merges, slices, sorts, shuffles or filters rows knows nothing of episodes, and steps as rows would be cut in the midst of them.
Here each column is a list of the T + 1 steps of its episode, closing row included; a vector or an image is fixed-size lists in it.
The lists lie over the columns of a `StepTable`: packing copies nothing but flags. A row also says where it comes from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import DataError
from .shards import to_arrow, to_numpy
from .steps import StepTable, steps_from_rows

PART, NUMBER, FINAL, TOLD = "episode/part", "episode/number", "episode/final_recorded", "episode/told"


def pack(table: StepTable, *, part: int = 0, first: int = 0, told: str = "") -> Any:
    """Make an Arrow table with a row for each episode.

    Columns: `episode/part` and `episode/number` (int64), by which rows are put in order again, `episode/final_recorded` (bool),
    `episode/told` (string, in the first row alone), and those of the table as lists. `part` is of what was read, `first` the number
    of the first episode in it.
    """
    n = table.n_episodes
    ends = to_arrow(np.concatenate([[0], np.cumsum(table.steps + 1)]))
    numbers = np.arange(first, first + n, dtype=np.int64)
    columns = {PART: to_arrow(np.full(n, part, np.int64)), NUMBER: to_arrow(numbers), FINAL: to_arrow(table.final_recorded)}
    columns[TOLD] = pa.array([told, *[""] * (n - 1)], pa.string())
    columns |= {name: pa.LargeListArray.from_arrays(ends, _nested(column)) for name, column in table.columns.items()}
    return pa.table(columns)


def unpack(rows: Any) -> StepTable:
    """Return the steps of all rows, in order; views where they lie in one chunk. Raises DataError of other rows."""
    if missing := {FINAL, "closing", "reward"} - set(rows.column_names):
        raise DataError(f"These rows are no episodes: they have no column {min(missing)!r}.")
    columns = {name: _steps(rows, name) for name in rows.column_names if not name.startswith("episode/")}
    return steps_from_rows(columns, numbers(rows, FINAL))


def numbers(rows: Any, name: str) -> np.ndarray:
    return np.concatenate([to_numpy(chunk) for chunk in rows.column(name).chunks])


def _nested(column: np.ndarray) -> Any:
    """Nest [R, …] as fixed-size lists, one in another for each axis: the shape is in the type."""
    values = to_arrow(np.ascontiguousarray(column).reshape(-1))
    for size in reversed(column.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def _steps(rows: Any, name: str) -> np.ndarray:
    parts: list[np.ndarray] = []
    for chunk in rows.column(name).chunks:
        if not pa.types.is_large_list(chunk.type):
            raise DataError(f"The column {name!r} is no list of steps any more: change rows of episodes as Arrow tables (pyarrow).")
        values, shape = chunk.flatten(), []
        while pa.types.is_fixed_size_list(values.type):
            shape.append(values.type.list_size)
            values = values.flatten()
        parts.append(to_numpy(values).reshape(-1, *shape))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
