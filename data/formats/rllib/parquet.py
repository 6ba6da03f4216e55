"""RLlib's Parquet files: a row a step, as old and new API stacks record them, or a row an episode packed with msgpack."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgpack
import numpy as np
import pyarrow as pa

from ...errors import DataError, reason
from ..arrays import Array, finite, one_column, visible_files
from ..format import RENAME, Imported, StepFormat
from ..runs import Batch, batch_of, imported, joined, part
from ..tabular.arrow_columns import array_of
from ..tabular.parquet_table import is_parquet, open_parquet, raw_column, read_table
from ..untrusted.unpacking import OBJECTS, needs
from ..untrusted.values import Leaves, info_columns, leaves, names_in, numbers, plain
from .batches import NAMES, REQUIRED, action_notes, together, unpack

KINDS = re.compile(r"[<>|=]?[?biufSU]\d*")  # NumPy's names of types of plain numbers and text
LOG_PROB = "action_logp"


class Objects:
    """Stands for an array of Python objects or records, which is never unpickled."""


class Piece:
    """One packed state: T steps of an episode, with T + 1 observations."""

    def __init__(self, where: str, packed: bytes) -> None:
        """Raise DataError where it is no msgpack, holds objects, or lacks a part of an episode."""
        self.where, state = where, _unpacked(where, packed)
        id_, first = state.get("id_"), state.get("t_started")
        if not isinstance(id_, str) or not isinstance(first, int):
            raise DataError(f"{where} has no id_ and t_started, so it is no packed episode of RLlib.")
        self.id, self.first, self.agent = id_, first, str(state.get("agent_id"))
        self.rewards = one_column(where, "rewards", numbers(where, "rewards", _data(where, state, "rewards")))
        self.actions = numbers(where, "actions", _data(where, state, "actions"))
        self.observations = _stacked(where, _data(where, state, "observations"))
        self.terminated, self.truncated = state.get("is_terminated") is True, state.get("is_truncated") is True
        infos = (
            _after(state["infos"].get("data"), state["infos"].get("lookback", 0)) if isinstance(state.get("infos"), dict) else None
        )
        self.infos = info_columns(infos[1:]) if isinstance(infos, list) else {}  # the first came with the reset
        outputs = state.get("extra_model_outputs")
        self.log_prob: Array | None = None
        if isinstance(outputs, dict) and isinstance(outputs.get(LOG_PROB), dict):
            self.log_prob = one_column(where, LOG_PROB, numbers(where, LOG_PROB, _data(where, outputs, LOG_PROB)))
        counts = {"actions": len(self.actions)} | ({} if self.log_prob is None else {LOG_PROB: len(self.log_prob)})
        counts |= {f"observations {key}".strip(): len(column) - 1 for key, column in self.observations.items()}
        for name, count in counts.items():
            if count != len(self):
                raise DataError(f"{where} has {len(self)} rewards, but {name} for {count} steps.")
        finite(where, rewards=self.rewards, actions=self.actions, **{f"observations {k}": c for k, c in self.observations.items()})

    def __len__(self) -> int:
        return len(self.rewards)

    def batch(self, episode: int, is_last: bool) -> Batch:
        """Return its steps; `is_last`: no other piece goes on where it ends."""
        n = len(self)
        ends = {"terminated": self.terminated, "truncated": is_last and not self.terminated}
        columns = {"rewards": self.rewards, "actions": self.actions, "step": self.first + np.arange(n)}
        columns |= {"episode": np.full(n, episode)} | {name: end & (np.arange(n) == n - 1) for name, end in ends.items()}
        columns |= {} if self.log_prob is None else {"log_prob": self.log_prob}
        for key, seen in self.observations.items():
            columns |= {part("observations", key): seen[:-1], part("next_observations", key): seen[1:]}
        return Batch(self.where, columns, {name: column for name, column in self.infos.items() if len(column) == n})

    def goes_on_in(self, other: Piece) -> bool:
        ended = self.terminated or self.truncated
        return not ended and (self.id, self.agent) == (other.id, other.agent) and self.first + len(self) == other.first


def read_episodes(format: StepFormat, source: str, packed: Iterable[tuple[str, bytes]]) -> Imported:
    """Steps of packed episodes, in order of first appearance, pieces of one put together; see `RLlibParquet`.

    `packed` has of each piece what an error calls it, and its bytes.
    """
    pieces = [piece for piece in (Piece(where, data) for where, data in packed) if len(piece)]
    if not pieces:
        raise DataError(f"{source} has no steps.")
    place: dict[tuple[str, str], int] = {}
    for piece in pieces:
        place.setdefault((piece.id, piece.agent), len(place))
    pieces.sort(key=lambda piece: (place[piece.id, piece.agent], piece.first))
    lasts = [not a.goes_on_in(b) for a, b in pairwise(pieces)] + [True]
    parts = [piece.batch(place[piece.id, piece.agent], is_last) for piece, is_last in zip(pieces, lasts, strict=True)]
    batch = joined(parts, source)
    found = imported(format, batch, {name.partition("/")[0]: name for name in batch.columns}, on_actions=action_notes)
    return replace(found, provenance={"layout": "episodes"})


def episode_id(packed: bytes) -> str | None:
    """Read the id of a packed episode from its first bytes."""
    try:
        unpacker = msgpack.Unpacker(max_buffer_size=0)
        unpacker.feed(packed[:256])
        if unpacker.read_map_header() and unpacker.unpack() == "id_":
            return str(unpacker.unpack())
    except (ValueError, msgpack.exceptions.UnpackException):
        pass
    return None


def _unpacked(where: str, packed: bytes) -> dict[str, Any]:
    needs(where, OBJECTS * len(packed))
    try:
        state: Any = msgpack.unpackb(packed, object_hook=_arrays)
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError, msgpack.exceptions.UnpackException) as error:
        raise DataError(f"{where} is no packed episode of RLlib that can be read ({reason(error)}).") from None
    if not isinstance(state, dict):
        raise DataError(f"{where} is no packed episode of RLlib, it holds {type(state).__name__}.")
    return state


def _arrays(value: dict[Any, Any]) -> Any:
    """Replace what msgpack-numpy writes by arrays, and arrays of objects, which it pickles, by a mark."""
    if b"nd" not in value and "nd" not in value:
        return value
    parts = {(k.decode() if isinstance(k, bytes) else k): v for k, v in value.items()}
    kind, data = parts.get("type"), parts.get("data")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    if parts.get("kind") or not isinstance(kind, str) or not KINDS.fullmatch(kind):
        return Objects()
    shape = tuple(parts.get("shape", ())) if parts["nd"] else ()
    dtype = np.dtype(kind)
    whole = isinstance(data, bytes) and all(type(k) is int and k >= 0 for k in shape) and dtype.itemsize > 0
    if not whole or math.prod(shape) * dtype.itemsize != len(cast("bytes", data)):
        raise ValueError(f"it holds an array of shape {shape} and {dtype} without the bytes for it")
    array = np.frombuffer(cast("bytes", data), dtype).reshape(shape)
    return array if parts["nd"] else array[()]


def _data(where: str, state: dict[str, Any], name: str) -> Any:
    """Return a buffer's entries without its lookback, which repeats the piece before."""
    buffer: Any = state.get(name)
    if not isinstance(buffer, dict) or "data" not in buffer:
        raise DataError(f"{where} has no {name}.")
    lookback = buffer.get("lookback", 0)
    if not isinstance(lookback, int) or lookback < 0:
        raise DataError(f"{where} has a lookback of {lookback!r}.")
    if isinstance(data := _after(buffer["data"], lookback), Objects):
        raise DataError(f"{where}: {name} is an array of Python objects, which would have to be unpickled.")
    return data


def _after(data: Any, lookback: int) -> Any:
    if isinstance(data, dict):
        return {key: _after(value, lookback) for key, value in data.items()}
    return data[lookback:] if isinstance(data, list | np.ndarray) else data


def _stacked(where: str, data: Any) -> Leaves:
    """Stack observations, a list of one a step or an array of all, into arrays by key."""
    if isinstance(data, list) and data and isinstance(data[0], dict):
        if not all(isinstance(one, dict) and one.keys() == data[0].keys() for one in data):
            raise DataError(f"{where} has observations with different keys.")
        inside = {key: _stacked(where, [one[key] for one in data]) for key in data[0]}
        return {"/".join(filter(None, (str(key), k))): column for key, part in inside.items() for k, column in part.items()}
    return leaves(where, "observations", data)


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
