"""The fingerprint of a dataset: a hash of its logical rows, whatever its name, shards, compression or place.

A column's digest is the SHA-256 of the SHA-256s of its blocks of 2^16 rows (little-endian, C order), so blocks may be hashed by
several workers; episodes are in it through the column `closing`. The fingerprint hashes the names, types, shapes and digests of
all columns and the digest of which final observations were recorded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..spec import Spec
from .episode_table import EpisodeTable
from .rows import Rows, block, n_blocks
from .schema import Kinds
from .statistics import BlockStatistics, Statistics, measure_block, summarise

VERSION = 1


def digest_blocks(rows: Rows, start: int = 0, stop: int | None = None) -> dict[str, list[bytes]]:
    """Hash blocks `start` … `stop - 1` (by default to the last) of every column."""
    last = n_blocks(rows.n) if stop is None else stop
    return {name: [digest(block(rows, name, k)) for k in range(start, last)] for name in rows.names()}


def digest(values: np.ndarray) -> bytes:
    """Hash an array's bytes, little-endian, in C order."""
    plain = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    return hashlib.sha256(plain.reshape(-1).view(np.uint8).data).digest()


def column_digest(blocks: Iterable[bytes]) -> str:
    """Combine the digests of all blocks of a column, in order."""
    return hashlib.sha256(b"".join(blocks)).hexdigest()


def fingerprint(
    n_rows: int,
    kinds: Mapping[str, tuple[str, Sequence[int]]],
    digests: Mapping[str, str],
    final_recorded: np.ndarray,
) -> str:
    """Compute the fingerprint, 64 hexadecimal digits; `kinds` are each column's dtype name and entry shape."""
    finals = digest(np.asarray(final_recorded, np.uint8)).hex()
    columns = [[name, kinds[name][0], list(kinds[name][1]), digests[name]] for name in sorted(kinds)]
    text = json.dumps({"version": VERSION, "rows": n_rows, "columns": columns, "final_recorded": finals}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class BlockScan:
    """Of one block: each column's SHA-256, and what it adds to the statistics."""

    digests: dict[str, bytes]
    statistics: BlockStatistics


def scan_blocks(rows: Rows, spec: Spec, start: int = 0, stop: int | None = None) -> list[BlockScan]:
    """Scan blocks `start` … `stop - 1` of 2^16 logical rows each (by default to the last)."""
    last = n_blocks(rows.n) if stop is None else stop
    return [_scan(rows, spec, k) for k in range(start, last)]


def _scan(rows: Rows, spec: Spec, k: int) -> BlockScan:
    digests = {name: blocks[0] for name, blocks in digest_blocks(rows, k, k + 1).items()}
    return BlockScan(digests, measure_block(rows, k, spec))


@dataclass(frozen=True)
class Summary:
    """Summary of the rows for a manifest: each column's digest, the fingerprint, and the statistics."""

    digests: dict[str, str]
    fingerprint: str
    statistics: Statistics


def summarise_scans(scans: Sequence[BlockScan], episodes: EpisodeTable, kinds: Kinds) -> Summary:
    """Summarise a dataset from the scans of all its blocks, in order."""
    digests = {name: column_digest(scan.digests[name] for scan in scans) for name in kinds}
    n_rows = episodes.n_transitions + len(episodes)
    text = fingerprint(n_rows, kinds, digests, episodes.final_recorded)
    return Summary(digests, text, summarise([scan.statistics for scan in scans], episodes))
