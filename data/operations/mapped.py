"""Steps whose columns a function of batches changes: an encoder of images, rewards of a model, columns of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError, DataError
from ..recording import Derivation, Recording, say_function
from ..spec import Spec, is_shown
from ..storage.checks import as_array, finite
from ..storage.schema import Kinds, Largest, check_alike, infer_spec, kinds_of, largest_numbers
from ..storage.steps import StepTable, concat_steps

Batch = Any  # a dict of arrays [n, …] by column, or an Arrow table
BatchFormat = Literal["numpy", "pyarrow"]
_FIXED = ("closing", "terminated", "truncated")
_NEEDED = ("observation", "action", "reward")


class Change:
    """A function of batches as one of tables. A batch is whole episodes of about so many rows, closing rows included.

    Args:
        function: see `map_batches`; of a class the objects are called, and one is made where the first batch comes.
        batch_size: rows of a batch; an episode may be longer.
        batch_format: what it takes and gives.
        arguments: for the class.

    Raises:
        ConfigError: it cannot be called, or one of the others is no such value.
    """

    def __init__(
        self, function: Callable[..., Any], batch_size: int, batch_format: BatchFormat, arguments: Mapping[str, Any] | None = None
    ) -> None:
        if not callable(function):
            raise ConfigError(f"map_batches takes a function or a class of callable objects, not {function!r}.")
        if batch_format not in ("numpy", "pyarrow"):
            raise ConfigError(f"batch_format is {batch_format!r}; choose 'numpy' or 'pyarrow'.")
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it is 1 or more.")
        if arguments and not isinstance(function, type):
            raise ConfigError("arguments are for the constructor of a class, and this is a function.")
        self.given, self.batch_size, self.batch_format, self.arguments = function, batch_size, batch_format, dict(arguments or {})
        self._made: Callable[..., Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Change, (self.given, self.batch_size, self.batch_format, self.arguments)

    @property
    def function(self) -> Callable[[Batch], Batch]:
        if self._made is None:
            made: Any = self.given(**self.arguments) if isinstance(self.given, type) else self.given
            self._made = made
            return made
        return self._made

    def __call__(self, table: StepTable) -> StepTable:
        """Change the columns. Raises DataError where what the function gives cannot be used."""
        found = [self._changed(table.slice(*part)) for part in _by_rows(table.steps, self.batch_size)]
        check_alike([kinds_of(part.columns) for part in found])
        return replace(found[0] if len(found) == 1 else concat_steps(found), cuts=table.cuts)

    def _changed(self, table: StepTable) -> StepTable:
        given = table.columns if self.batch_format == "numpy" else _to_arrow(table.columns)
        found = self.function(dict(given) if isinstance(given, dict) else given)
        if self.batch_format == "pyarrow":
            found = _from_arrow(found)
        if not isinstance(found, Mapping):
            raise DataError(f"{say_function(self.given)} gave {type(found).__name__}; columns by name are needed.")
        new: dict[str, Any] = dict(found)
        roots = {name.partition("/")[0] for name in new}
        kept = {n: c for n, c in table.columns.items() if n not in new and not (_is_part(n) and n.partition("/")[0] in roots)}
        closing = table.columns["closing"]
        changed = {n: _column(n, values, table.columns.get(n), closing) for n, values in new.items() if values is not None}
        columns = {name: (kept | changed)[name] for name in (*table.columns, *new) if name in kept or name in changed}
        for name in _FIXED:
            if not np.array_equal(columns.get(name, []), table.columns[name]):
                raise DataError(f"{say_function(self.given)} changed {name!r}; how episodes end stays as it is.")
        for name in _NEEDED:
            if not any(column.partition("/")[0] == name for column in columns):
                raise DataError(f"{say_function(self.given)} left nothing of {name!r}.")
        return replace(table, columns=columns)


def map_batches(
    dataset: Recording,
    function: Callable[..., Any],
    *,
    batch_size: int = 4096,
    batch_format: BatchFormat = "numpy",
    arguments: Mapping[str, Any] | None = None,
) -> Recording:
    """Return the same episodes with columns that a function made, computed now, in this process's memory.

    Args:
        dataset: whose steps.
        function: of a batch, a dict of arrays [n, …] by column (or an Arrow table), to a dict (or table) of the columns that change
            or are new, [n, …] each; others stay, and None takes one away. `observation` takes the place of all `observation/KEY`.
            A batch is whole episodes, their closing rows (`closing`) included: these hold final observations, which an encoder
            is to encode too, and zeros in all that is not observed, whatever is given for them. float64 becomes float32.
            Or a class whose objects are such functions. What comes of an episode may depend on nothing but that episode.
        batch_size: rows of a batch, about; an episode is never cut.
        batch_format: "numpy" or "pyarrow".
        arguments: for the constructor of a class.

    Raises:
        ConfigError: the function cannot be used.
        DataError: what it gives are no columns of n numbers, is not finite, changes how episodes end, or differs between batches.
    """
    change = Change(function, batch_size, batch_format, arguments)
    snapshot, tables = dataset.snapshot(), dataset.tables()
    table = concat_steps([change(tables.read(start, stop)) for start, stop in _by_rows(dataset.episodes.steps, 1 << 16)])
    kinds = kinds_of(table.columns)
    return Recording.from_steps(
        replace(table, cuts=dataset.cuts),
        name=f"{dataset.name} (mapped)",
        spec=kept_spaces(dataset, kinds, largest_numbers(table.columns)),
        environment=dataset.environment,
        provenance=said(change, snapshot).provenance(),
    )


def kept_spaces(dataset: Recording, kinds: Kinds, largest: Largest) -> Spec:
    """Keep the dataset's spaces where columns have the same types and shapes; others are inferred, without bounds."""
    spec, before = infer_spec(kinds, largest), dataset.kinds

    def stays(root: str) -> bool:
        new, old = ({n: kind for n, kind in of.items() if n.partition("/")[0] == root} for of in (kinds, before))
        return new == old

    return spec.model_copy(update={root: getattr(dataset.spec, root) for root in ("observation", "action") if stays(root)})


def said(change: Change, dataset: Recording) -> Derivation:
    parameters = {"function": say_function(change.given), "batch_size": change.batch_size, "batch_format": change.batch_format}
    arguments = {"arguments": {name: str(value) for name, value in change.arguments.items()}} if change.arguments else {}
    return Derivation("map_batches", parameters | arguments, (dataset,))


def _by_rows(steps: np.ndarray, rows: int) -> Iterator[tuple[int, int]]:
    """Range over episodes of at most `rows` rows together, or one episode."""
    ends, start = np.concatenate([[0], np.cumsum(steps + 1)]), 0
    cuts: list[int] = [0]
    while start < len(steps):
        start = max(start + 1, int(np.searchsorted(ends, ends[start] + rows, side="right")) - 1)
        cuts.append(start)
    return pairwise(cuts)


def _is_part(name: str) -> bool:
    return name.partition("/")[0] == "observation"


def _column(name: str, values: Any, before: np.ndarray | None, closing: np.ndarray) -> np.ndarray:
    column = as_array(f"The new column {name!r}", values)
    if column.dtype.kind not in "biuf" or column.ndim == 0 or len(column) != len(closing):
        seen = f"{column.dtype} {list(column.shape)}"
        raise DataError(f"The new column {name!r} is {seen}; numbers are needed, one entry for each of the {len(closing)} rows.")
    if name in _FIXED:
        return column
    if column.dtype == np.float64 and (before is None or before.dtype != np.float64):
        column = column.astype(np.float32)
    if column.dtype == np.bool_ and (column.ndim > 1 or is_shown(name)):
        column = column.astype(np.uint8)
    if column.ndim == 1 and column.dtype.kind == "f" and (name == "action" or is_shown(name)):
        column = column[:, None]
    if name == "action" and column.dtype.kind in "iu" and column.dtype != np.uint8:
        column = column.astype(np.int64)
    if name == "reward":
        column = column.reshape(-1).astype(np.float32)
    finite(f"The new column {name!r}", column)
    if not is_shown(name) and column[closing].any():
        column = column.copy()
        column[closing] = 0
    return column


def _to_arrow(columns: Mapping[str, np.ndarray]) -> Any:
    import pyarrow as pa

    from ..storage.shards import to_arrow

    return pa.table({name: to_arrow(column) for name, column in columns.items()})


def _from_arrow(found: Any) -> Mapping[str, np.ndarray]:
    import pyarrow as pa

    from ..storage.shards import to_numpy

    if not isinstance(found, pa.Table):
        raise DataError(f"map_batches with batch_format='pyarrow' gave {type(found).__name__}; an Arrow table is needed.")
    chunks: Sequence[Any] = [column.chunks for column in found.columns]
    return {n: np.concatenate([to_numpy(chunk) for chunk in c]) for n, c in zip(found.column_names, chunks, strict=True)}
