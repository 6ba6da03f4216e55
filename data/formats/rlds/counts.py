"""How many files and records a dataset of TensorFlow Datasets says that it has, held against those that are there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ...errors import DataError
from ..untrusted.values import json_file

INFO = "dataset_info.json"
_NAME = re.compile(r"-([^-]+)\.tfrecord(?:-(\d+)-of-(\d+))?")


@dataclass(frozen=True)
class Shard:
    """What a file's name says: its split, and that it is the k-th file (from 0) of n; None where it says no more than the split."""

    split: str
    k: int | None
    n: int | None


def shard_of(path: Path) -> Shard | None:
    found = _NAME.search(path.name)
    return found and Shard(found[1], *(int(part) if part else None for part in (found[2], found[3])))


def read_info(folder: Path) -> Mapping[str, Any]:
    """Read `dataset_info.json`; nothing where it is not there or no object."""
    try:
        content: Any = json_file(folder / INFO)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def check_shards(folder: Path, files: Sequence[Path]) -> None:
    """Raise DataError where a split that has files has fewer than their names or `dataset_info.json` say."""
    there: dict[str, set[int]] = {}
    said: dict[str, tuple[int, str]] = {}
    for shard in filter(None, map(shard_of, files)):
        if shard.k is not None and shard.n is not None:
            there.setdefault(shard.split, set()).add(shard.k)
            said.setdefault(shard.split, (shard.n, "their names say"))
    said |= {split: (len(lengths), f"{INFO} says") for split, lengths in _lengths(folder).items() if split in there}
    for split, found in there.items():
        n, who = said[split]
        if len(found) != n:
            lacking = next(k for k in count() if k not in found)
            which = f" (number {lacking} is not there)" if lacking < n else ""
            raise DataError(
                f"{folder} has {len(found)} files of the split {split!r}, and {who} {n}{which}: fetch what is missing, or name the "
                "files that are to be read."
            )


def check_records(path: Path, n: int) -> list[str]:
    """Compare the number of records with what is said, and say which splits have no file beside this one."""
    shard, lengths = shard_of(path), _lengths(path.parent)
    if shard is None:
        return []
    said = lengths.get(shard.split, [])
    k = shard.k if shard.k is not None else 0 if len(said) == 1 else len(said)
    if k < len(said) and said[k] != n:
        raise DataError(f"{path} has {n} records, and {INFO} says {said[k]}.")
    there = {found.split for found in map(shard_of, path.parent.iterdir()) if found}
    absent = [split for split, of_files in lengths.items() if split not in there and sum(of_files)]
    return [f"{INFO} names the split {split!r}, of which no file is there." for split in absent]


def _lengths(folder: Path) -> dict[str, list[int]]:
    splits = read_info(folder).get("splits")
    found: dict[str, list[int]] = {}
    for split in splits if isinstance(splits, list) else []:
        lengths = split.get("shardLengths") if isinstance(split, dict) else None
        if isinstance(lengths, list) and lengths and all(str(length).isdecimal() for length in lengths):
            found[str(split.get("name"))] = [int(length) for length in lengths]
    return found
