"""One Parquet file with a row a step, under d3ray's names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..dataset import Dataset
from ..storage.shards import to_arrow
from .aside import file_aside
from .blocks import Advance, Block, blocks, left_out, others, silent

BYTES = 1 << 25  # of a row group, before compression


def write_parquet(dataset: Dataset, target: str | Path, *, overwrite: bool = False, advance: Advance = silent) -> list[str]:
    """One Parquet file, zstd-compressed: episode, step, observation (or observation/KEY), action, reward, flags, info/*.

    After an episode's steps comes a row with `closing` true where its final observation is known: that, and zeros. Vectors are
    lists of one length. Entries with more axes, and all of uint8, are stored flat, uint8 as bytes (a list of it takes some 30 times
    as long); the field's metadata has their `shape`, as "84,84". What entries are called is there too (`names`, a JSON list). Where
    the data have them, columns `log_prob`, `cost` and `action_mask`, of legal actions. Cannot carry: further columns.

    Args, returns and raises as for `write_d4rl`; observations may have parts.
    """
    skipped = set(others(dataset))
    names = [name for name in dataset.kinds if name not in skipped]
    called = {name: leaf.names for name, leaf in dataset.spec.leaves().items() if leaf.names is not None}
    with file_aside(target, overwrite=overwrite) as path:
        writer: pq.ParquetWriter | None = None
        try:
            for block in blocks(dataset, bytes_at_once=BYTES):
                batch = _batch(block, names, called)
                writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
                writer.write_batch(batch)
                advance(block.n_steps)
        finally:
            if writer is not None:
                writer.close()
    return left_out(skipped)


def _batch(block: Block, names: list[str], called: Mapping[str, tuple[str, ...]]) -> Any:
    kept = block.is_step.copy()
    kept[block.closing[block.final_recorded]] = True
    episode = np.repeat(np.arange(block.first, block.first + len(block.steps)), block.steps + 1)
    step = np.arange(len(kept)) - np.repeat(block.closing - block.steps, block.steps + 1)
    columns = {"episode": episode, "step": step} | {name: block.column(name) for name in names}
    arrays, fields = zip(*(_array(name, column[kept], called.get(name)) for name, column in columns.items()), strict=True)
    return pa.record_batch(list(arrays), schema=pa.schema(fields))


def _array(name: str, column: np.ndarray, called: tuple[str, ...] | None) -> tuple[Any, Any]:
    shape, stored = column.shape[1:], {"names": json.dumps(called)} if called else {}
    if not shape:
        array = to_arrow(column)
        return array, pa.field(name, array.type, nullable=False, metadata=stored or None)
    size, flat = int(np.prod(shape)), np.ascontiguousarray(column).reshape(-1)
    if column.dtype == np.uint8:
        array = pa.Array.from_buffers(pa.binary(size), len(column), [None, pa.py_buffer(flat)])
    else:
        array = pa.FixedSizeListArray.from_arrays(to_arrow(flat), size)
    if column.dtype == np.uint8 or len(shape) > 1:
        stored |= {"shape": ",".join(map(str, shape))}
    return array, pa.field(name, array.type, nullable=False, metadata=stored or None)
