"""One pass over blocks of rows that gives their digests and statistics together, by as many workers as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..spec import Spec
from .episode_table import EpisodeTable
from .fingerprint import column_digest, digest_blocks, fingerprint
from .rows import Rows, n_blocks
from .schema import Kinds
from .statistics import BlockStatistics, Statistics, measure_block, summarise


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
    """What a manifest says of the rows: each column's digest, the fingerprint, and the statistics."""

    digests: dict[str, str]
    fingerprint: str
    statistics: Statistics


def summarise_scans(scans: Sequence[BlockScan], episodes: EpisodeTable, kinds: Kinds) -> Summary:
    """Summarise a dataset from the scans of all its blocks, in order."""
    digests = {name: column_digest(scan.digests[name] for scan in scans) for name in kinds}
    n_rows = episodes.n_transitions + len(episodes)
    text = fingerprint(n_rows, kinds, digests, episodes.final_recorded)
    return Summary(digests, text, summarise([scan.statistics for scan in scans], episodes))
