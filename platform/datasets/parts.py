"""What one call reads of a dataset in the making: whole episodes, of which no more than some 128 MiB are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...data.errors import DataError
from ...data.storage.schema import Kinds, as_amounts, say_kind
from ...data.storage.shards import plan_shards
from ...data.storage.steps import StepTable

PART_BYTES = 1 << 27  # of a part, and of those that one task reads: it holds about three times as much


@dataclass(frozen=True)
class Part:
    """Input of one call: a file, a stretch of one, a range of a dataset's episodes. Picklable.

    Attributes:
        name: for messages.
        read: returns the episodes, and what else there is to say of them.
        bytes: approximate size, by which tasks are sized.
    """

    name: str
    read: Callable[[], tuple[StepTable, str]]
    bytes: int


class AmountsError(DataError):
    """Integers that are numbers of kinds in one part and amounts, some of them negative, in another."""

    columns: frozenset[str] = frozenset()


def check_same_columns(names: Sequence[str], kinds: Sequence[Kinds]) -> None:
    """Raises DataError, naming two parts whose columns differ; `AmountsError` where they would not if some were amounts."""
    for part, other in zip(names, kinds, strict=True):
        differ = {name for name in kinds[0].keys() & other.keys() if kinds[0][name] != other[name]}
        if differ and all(as_amounts(kinds[0], [name])[name] == as_amounts(other, [name])[name] for name in differ):
            error = AmountsError(f"{part} is not like {names[0]}: {min(differ)!r} is of kinds in one only.")
            error.columns = frozenset(differ)
            raise error
        for name in sorted(kinds[0].keys() | other.keys()):
            if kinds[0].get(name) != other.get(name):
                raise DataError(
                    f"{part} is not like {names[0]}: its column {name!r} is {say_kind(other.get(name))}, "
                    f"there it is {say_kind(kinds[0].get(name))}."
                )


def parts_of(dataset: Dataset) -> list[Part]:
    """Ranges of a dataset's episodes of about 128 MiB. Those in memory travel with them."""
    tables, kinds = dataset.tables(), dataset.kinds
    row_bytes = sum(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize for dtype, shape in kinds.values())
    ends = np.cumsum(dataset.episodes.steps + 1)
    ranges = plan_shards(dataset.episodes.steps + 1, kinds, max_rows=max(1, PART_BYTES // row_bytes))
    rows = np.diff(ends[[stop - 1 for _, stop in ranges]], prepend=0)
    return [Part(dataset.name, partial(_range, tables, *pair), int(n) * row_bytes) for pair, n in zip(ranges, rows, strict=True)]


def _range(tables: Any, start: int, stop: int) -> tuple[StepTable, str]:
    return tables.read(start, stop), ""
