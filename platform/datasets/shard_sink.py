"""Episodes that come out of Ray Data as a dataset folder: workers write pieces, one process makes shards of them and commits."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from ray.data import Datasink

from ...data.errors import DataError
from ...data.spec import Environment, Spec
from ...data.storage.packed import NUMBER, PART, TOLD, numbers, unpack
from ...data.storage.pieces import PIECE_BYTES, Piece, Shape, workspace, write_piece
from ...data.storage.schema import check_alike
from ...data.storage.shards import Compression
from ...data.storage.writing import Draft
from .committing import called, commit_pieces
from .workers import in_tasks

_BLOCKS_AT_ONCE = 16  # blocks of 65,536 rows that one task measures


@dataclass(frozen=True)
class Written:
    """A piece, where it comes in the dataset, and what was told of the parts that begin in it."""

    key: tuple[int, int]  # part and number of its first episode
    piece: Piece
    told: dict[int, str]  # by part


class PieceSink(Datasink[list[Written]]):
    """Writes rows that are episodes into a workspace; afterwards `written` has what was written, in order."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.written: list[Written] = []

    def get_name(self) -> str:
        return "Shards"

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[Written]:
        """In a worker: pieces of about 256 MiB of what one task gets."""
        del ctx
        return [self._write(rows) for rows in _by_bytes(blocks)]

    def _write(self, rows: Any) -> Written:
        told = {int(part): text for part, text in zip(numbers(rows, PART), rows.column(TOLD).to_pylist(), strict=True) if text}
        key = (int(numbers(rows, PART)[0]), int(numbers(rows, NUMBER)[0]))
        return Written(key, write_piece(self.folder, unpack(rows)), told)

    def on_write_complete(self, write_result: Any) -> None:
        """Puts pieces in order: tasks end in any."""
        self.written = sorted((one for task in write_result.write_returns for one in task), key=lambda one: one.key)


def _by_bytes(blocks: Iterable[Any]) -> Iterator[Any]:
    held: list[Any] = []
    for block in blocks:
        if not isinstance(block, pa.Table):
            raise DataError("Rows of episodes are written as Arrow tables: change them with batch_format='pyarrow'.")
        if not len(block):
            continue
        held.append(block)
        if sum(one.nbytes for one in held) >= PIECE_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


class ShardSink(PieceSink):
    """Writes a Ray Data dataset whose rows are episodes, as `to_ray(dataset, rows="episodes")` gives them, as a dataset folder.

    `data.write_datasink(ShardSink("datasets/new"))` writes all of it, or nothing: `dataset.json` comes last, and a worker that dies
    on the way is replaced. Episodes keep their order where the pipeline did.

    Args:
        target: folder, new or empty, or a URI; all nodes must reach it.
        name: the dataset's; None: the target's last part.
        spec: the spaces; None: inferred, without bounds.
        environment: where the steps were taken.
        provenance: JSON-able notes on how it was made.
        n_shards: as many Arrow files; None: one for each piece of 256 MiB or less that a worker wrote.
        compression: "zstd", or None for files that are mapped as they are.
        overwrite: replace the dataset that is there.

    Raises:
        StorageError: there is a dataset already, or something that is not one.
    """

    def __init__(
        self,
        target: str | Path,
        *,
        name: str | None = None,
        spec: Spec | None = None,
        environment: Environment | None = None,
        provenance: Mapping[str, Any] | None = None,
        n_shards: int | None = None,
        compression: Compression = None,
        overwrite: bool = False,
    ) -> None:
        self._draft = Draft(target, overwrite=overwrite).__enter__()
        self._ended: list[str] = []
        weakref.finalize(self, _leave, self._draft, self._ended)  # a sink that nothing was written to leaves nothing either
        self._space = workspace(self._draft.folder)
        super().__init__(self._space.name)
        self._about: dict[str, Any] = {
            "spec": spec,
            "environment": environment,
            "provenance": provenance,
            "name": name or called(target),
        }
        self._shape = Shape(n_shards, None, compression)

    def on_write_complete(self, write_result: Any) -> None:
        """Makes shards of the pieces, measures them and commits. Raises DataError: nothing came, or columns differ."""
        super().on_write_complete(write_result)
        if not self.written:
            raise DataError(f"There is nothing to write to {self._draft.target}: no episode came.")
        check_alike([one.piece.kinds for one in self.written])
        pieces = [one.piece for one in self.written]
        commit_pieces(self._draft, self._space, pieces, self._shape, in_tasks(local=False), **self._about)
        _leave(self._draft, self._ended)

    def on_write_failed(self, error: Exception) -> None:
        del error
        self._space.delete_all()
        _leave(self._draft, self._ended)


def _leave(draft: Draft, ended: list[str]) -> None:
    """Deletes what was not committed, once."""
    if not ended:
        ended.append(draft.target.name)
        draft.__exit__(None, None, None)
