"""One pass over blocks of rows that gives their digests and statistics together, by as many workers as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .fingerprint import digest_blocks
from .rows import Rows, n_blocks
from .spec import Spec
from .statistics import BlockStatistics, measure_block


@dataclass(frozen=True)
class BlockScan:
    """Of one block: each column's SHA-256, and what it adds to the statistics."""

    digests: dict[str, bytes]
    statistics: BlockStatistics


def scan_blocks(rows: Rows, spec: Spec, start: int = 0, stop: int | None = None) -> list[BlockScan]:
    """Blocks `start` … `stop - 1` of 2^16 logical rows each (to the last one by default)."""
    last = n_blocks(rows.n) if stop is None else stop
    return [_scan(rows, spec, k) for k in range(start, last)]


def _scan(rows: Rows, spec: Spec, k: int) -> BlockScan:
    digests = {name: blocks[0] for name, blocks in digest_blocks(rows, k, k + 1).items()}
    return BlockScan(digests, measure_block(rows, k, spec))


def columns_of(scans: Sequence[BlockScan]) -> dict[str, list[bytes]]:
    """Each column's block digests, in order."""
    return {name: [scan.digests[name] for scan in scans] for name in scans[0].digests}
