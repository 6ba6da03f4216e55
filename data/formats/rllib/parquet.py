"""RLlib's Parquet files: a row a step, as old and new API stacks record them, or a row an episode packed with msgpack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..imported import Imported, visible_files
from ..tabular.arrow_columns import array_of
from ..tabular.parquet_table import is_parquet, open_parquet, raw_column, read_table
from ..untrusted.values import leaves, names_in, plain
from .batches import NAMES, REQUIRED, Steps, imported, joined, steps_of, together, unpack
from .episodes import episode_id, read_episodes

PACKED = "item"  # the one column of a file of packed episodes


def is_rllib_parquet(path: Path) -> bool:
    """Whether the file (or every file of a folder) is Parquet with RLlib's columns, or of packed episodes."""
    if path.is_dir():
        return bool(rllib_parquet_parts(path))
    if not is_parquet(path):
        return False
    with open_parquet(path) as file:
        schema = file.schema_arrow
    if schema.names == [PACKED]:
        return pa.types.is_binary(schema.field(0).type) or pa.types.is_large_binary(schema.field(0).type)
    return all(set(NAMES[word]) & set(schema.names) for word in ("observations", "actions", "rewards"))


def rllib_parquet_parts(folder: Path) -> list[Path]:
    """The files of a folder of RLlib's Parquet files, or the folder where an episode goes over two of them."""
    files = visible_files(folder)
    if not files or not all(file.suffix == ".parquet" or is_parquet(file) for file in files):
        return []
    return together(files, folder, _episode_ids) if all(map(is_rllib_parquet, files)) else []


def read_rllib_parquet(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
) -> Imported:
    """Steps of RLlib's Parquet files, by episode; none is dropped.

    A file of flat columns has a row a step: obs, actions, rewards, terminateds (or dones) and, where present, truncateds,
    new_obs, eps_id, agent_index (agent_id), t, action_logp and infos, read as `read_rllib_json` reads them. Vectors are lists,
    Arrow's or Ray's tensors; a column may also be RLlib's packed text, a value a row.

    A file with the one column `item` has a row an episode, or a piece of one: the state of a SingleAgentEpisode, written
    with msgpack. Arrays of Python objects in it are refused; nothing is unpickled.

    Traps, and what is done:
    - Ray writes many small files, and episodes go over them: given the folder, they are one dataset, in order of names. Given one
      by one, an episode is cut at the end of a file, as truncated with its final observation.
    - Pieces of an episode may repeat steps of the piece before (a lookback); these are left out. Pieces that follow each other
      (same id, `t_started` where the last one ended) become one episode.
    - Terminals and actions: as in `read_rllib_json`.

    Args:
        path: the file or folder.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integer actions in one column are discrete.
        rename: what this file calls a column, by d3ray's word; of flat files.

    Raises:
        DataError: not Parquet, damaged, a column missing, of another type, with empty values, of unequal entries or not finite
            (file, column and row are named), an episode without its parts, or files of both kinds.

    Source: Ray RLlib, `rllib/offline/dataset_writer.py` and `offline_env_runner.py`, `rllib/env/single_agent_episode.py`.
    """
    path = Path(path)
    files = visible_files(path) if path.is_dir() else [path]
    packed, found, parts = list[tuple[str, bytes]](), dict[str, str](), list[Steps]()
    for file in files:
        with open_parquet(file) as opened:
            names = opened.schema_arrow.names
            if names == [PACKED]:
                packed += [
                    (f"{file}: episode {k}", item) for k, item in enumerate(read_table(opened, str(file)).column(0).to_pylist())
                ]
                continue
            found = found or names_in(names, NAMES, REQUIRED, str(file), rename, "rllib_parquet")
            if lacking := [name for name in found.values() if name not in names]:
                raise DataError(f"{file} has no {lacking[0]!r}, which {files[0]} has.")
            table = read_table(opened, str(file), list(found.values()))
        columns = {name: _column(str(file), word, table.column(name), table.schema.field(name)) for word, name in found.items()}
        parts.append(steps_of(str(file), columns, found))
    if packed and parts:
        raise DataError(f"{path} has files of packed episodes and of flat columns; import them one kind at a time.")
    if packed:
        return read_episodes(str(path), packed, timeout_at=timeout_at, discrete_action=discrete_action)
    return imported(joined(parts, str(path)), found, "rllib_parquet", timeout_at, discrete_action)


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
    """The ids of the episodes in a file, without the rest of it; None where a packed one does not show its id."""
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
