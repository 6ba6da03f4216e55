"""RLlib's Parquet files: a row a step, as old and new API stacks record them, or a row an episode packed with msgpack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..arrays import visible_files
from ..batches import Batch, batch_of, imported, joined
from ..format import RENAME, Imported, StepFormat
from ..tabular.arrow_columns import array_of
from ..tabular.parquet_table import is_parquet, open_parquet, raw_column, read_table
from ..untrusted.values import leaves, names_in, plain
from .batches import NAMES, REQUIRED, action_notes, together, unpack
from .episodes import episode_id, read_episodes

PACKED = "item"  # the one column of a file of packed episodes


class RLlibParquet(StepFormat):
    """Steps of RLlib's Parquet files, by episode.

    A file of flat columns has a row a step: obs, actions, rewards, terminateds (or dones) and, where present, truncateds,
    new_obs, eps_id, agent_index (agent_id), t, action_logp and infos, read as `RLlibJSON` reads them. Vectors are lists,
    Arrow's or Ray's tensors; a column may also be RLlib's packed text, a value a row.

    A file with the one column `item` has a row an episode, or a piece of one: the state of a SingleAgentEpisode, written
    with msgpack. Arrays of Python objects in it are refused; nothing is unpickled.

    Traps, and what is done:
    - Ray writes many small files, and episodes go over them: given the folder, they are one dataset, in order of names. Given one
      by one, an episode is cut at the end of a file, as truncated with its final observation.
    - Pieces of an episode may repeat steps of the piece before (a lookback); these are left out. Pieces that follow each other
      (same id, `t_started` where the last one ended) become one episode.
    - Terminals and actions: as in `RLlibJSON`.

    Source: Ray RLlib, `rllib/offline/dataset_writer.py` and `offline_env_runner.py`, `rllib/env/single_agent_episode.py`.
    """

    name = "rllib_parquet"
    description = "RLlib's Parquet: a row a step, or packed episodes"
    rename: Mapping[str, str] = RENAME

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_dir():
            return bool(cls.parts(path))
        if not is_parquet(path):
            return False
        with open_parquet(path) as file:
            schema = file.schema_arrow
        if schema.names == [PACKED]:
            return pa.types.is_binary(schema.field(0).type) or pa.types.is_large_binary(schema.field(0).type)
        return all(set(NAMES[word]) & set(schema.names) for word in ("observations", "actions", "rewards"))

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        files = visible_files(folder)
        if not files or not all(file.suffix == ".parquet" or is_parquet(file) for file in files):
            return []
        return together(files, folder, _episode_ids) if all(map(cls.detect, files)) else []

    def read(self, path: Path) -> Imported:
        files = visible_files(path) if path.is_dir() else [path]
        packed, found, parts = list[tuple[str, bytes]](), dict[str, str](), list[Batch]()
        for file in files:
            source = str(file)
            with open_parquet(file) as opened:
                names = opened.schema_arrow.names
                if names == [PACKED]:
                    items = read_table(opened, source).column(0).to_pylist()
                    packed += [(f"{file}: episode {k}", item) for k, item in enumerate(items)]
                    continue
                found = found or names_in(names, NAMES, REQUIRED, source, self.rename, self.name)
                if lacking := [name for name in found.values() if name not in names]:
                    raise DataError(f"{file} has no {lacking[0]!r}, which {files[0]} has.")
                table = read_table(opened, source, list(found.values()))
            columns = {name: _column(source, word, table.column(name), table.schema.field(name)) for word, name in found.items()}
            parts.append(batch_of(source, columns, found, unpack))
        if packed and parts:
            raise DataError(f"{path} has files of packed episodes and of flat columns; import them one kind at a time.")
        if packed:
            return read_episodes(self, str(path), packed)
        return imported(self, joined(parts, str(path)), found, on_actions=action_notes)


def _column(source: str, word: str, column: Any, field: Any) -> Any:
    if word == "infos":
        return array_of(source, field.name, column, field) if pa.types.is_struct(field.type) else None
    if not pa.types.is_string(field.type) and not pa.types.is_large_string(field.type):
        return array_of(source, field.name, column, field)
    texts: list[Any] = column.to_pylist()
    if None in texts:
        raise DataError(f"{source}: column {field.name!r} has no value in row {texts.index(None)}.")
    if word in ("episode", "agent"):
        return np.array(texts)
    rows = [unpack(f"{source}: column {field.name!r} in row {k}", text) for k, text in enumerate(texts)]
    trees = [leaves(source, field.name, row) for row in rows]
    try:
        return plain({key: np.stack([tree[key] for tree in trees]) for key in trees[0]})
    except (KeyError, ValueError, IndexError):
        raise DataError(f"{source}: column {field.name!r} has entries of different shapes.") from None


def _episode_ids(path: Path) -> set[Any] | None:
    """Read the ids of the episodes alone; None where a packed one does not show its id."""
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        name = next((n for n in (PACKED, *NAMES["episode"]) if n in names), None)
        if name is None:
            return set()
        ids = raw_column(file, name, str(path))
    if name != PACKED:
        return set(ids.unique().to_pylist())
    found = {episode_id(item or b"") for item in ids.to_pylist()}
    return None if None in found else found
