"""Whether a dataset folder is what was written: its files, and what its manifest and table of episodes say of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .errors import DataError
from .folder import Folder
from .storage.episode_table import EpisodeTable
from .storage.fingerprint import scan_blocks, summarise_scans
from .storage.manifest import MANIFEST
from .storage.rows import EpisodeRows, block, n_blocks

_ROUNDING = 1e-6  # share of a number's size by which sums that were added up elsewhere may differ


def verify_folder(folder: Folder) -> None:
    """Read every row once: files against their SHA-256, and digests, statistics and the table of episodes against the rows.

    So nothing that training reads can differ from what was written, but for bounds of spaces that are wider than the data, which
    nothing in the rows tells. Raises DataError, which names what differs.
    """
    table = folder.shards(verify=True)
    table.columns(0)  # before the episodes: a missing shard says more of what happened
    manifest, episodes = folder.manifest, folder.episodes()
    label = folder.place.address(MANIFEST)
    rows = EpisodeRows(table, episodes.first_row, episodes.steps)
    if rows.n != manifest.n_rows or not episodes.contiguous:
        raise DataError(f"{folder.place.address(manifest.episodes.file)} is damaged: its episodes are not all rows in their order.")
    scans, flags = [], dict[str, list[np.ndarray]](reward=[], terminated=[], closing=[])
    for k in range(n_blocks(rows.n)):
        scans += scan_blocks(rows, manifest.spec, k, k + 1)
        for name, parts in flags.items():
            parts.append(np.array(block(rows, name, k)))
    _check_episodes(folder, episodes, {name: np.concatenate(parts) for name, parts in flags.items()})
    found = summarise_scans(scans, episodes, folder.kinds)
    for column in manifest.columns:
        if found.digests[column.name] != column.digest:
            raise DataError(f"{label} is damaged: {column.name!r} has another digest than its rows.")
    told, measured = (one.model_dump(by_alias=True) for one in (manifest.statistics, found.statistics))
    if (wrong := next(_differences(told, measured), None)) is not None:
        raise DataError(f"{label} was changed: {wrong}. Write the dataset anew, or put the number back.")
    folder.note_verified()


def _check_episodes(folder: Folder, episodes: EpisodeTable, columns: Mapping[str, np.ndarray]) -> None:
    """Raise DataError where the table of episodes says something else than the rows."""
    first, steps = episodes.first_row, episodes.steps
    closing = np.zeros(len(columns["closing"]), bool)
    closing[first + steps] = True
    reward = np.where(closing, 0, columns["reward"].astype(np.float64))
    returns, sizes = np.add.reduceat(reward, first), np.add.reduceat(np.abs(reward), first)
    checks = {
        "steps": np.array_equal(closing, columns["closing"]),
        "terminated": np.array_equal(columns["terminated"][first + steps - 1], episodes.terminated),
        "return": bool((np.abs(returns - episodes.returns) <= _ROUNDING * (1 + sizes)).all()),
    }
    for name, same in checks.items():
        if not same:
            raise DataError(f"{folder.place.address(folder.manifest.episodes.file)} is damaged: {name!r} is not that of the rows.")


def _differences(told: Any, measured: Any, where: str = "statistics", size: float = 1.0) -> Iterator[str]:
    """Yield which numbers are not what the rows come to, beyond rounding; `size` is that of the numbers that were added up."""
    if isinstance(told, Mapping) and isinstance(measured, Mapping):
        size = max(1.0, *(_size(measured.get(end)) for end in ("min", "max")))
        for key in sorted({*told, *measured}):
            yield from _differences(told.get(key), measured.get(key), f"{where}.{key}", size)
    elif isinstance(told, tuple) and isinstance(measured, tuple) and len(told) == len(measured):
        for k, pair in enumerate(zip(told, measured, strict=True)):
            yield from _differences(*pair, f"{where}[{k}]", size)
    elif isinstance(told, int | float) and isinstance(measured, int | float):
        if not abs(told - measured) <= _ROUNDING * size:
            yield f"{where} is {told:.6g}, and the rows come to {measured:.6g}"
    elif told != measured:
        yield f"{where} is not what the rows come to"


def _size(bound: Any) -> float:
    # No bound, or the statistics of a part of observations that is called "min" or "max".
    found = np.abs(np.asarray(0.0 if bound is None or isinstance(bound, Mapping) else bound, np.float64))
    return float(found.max(initial=0.0))
