"""`d3ray datasets [PATTERN]`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import DataError
from ..command.base import JobConfig, Result, option
from ..command.console import say
from ..views.columns import aligned

if TYPE_CHECKING:
    from ...data.catalog import Catalog, Entry

_HERE = {"dataset": "yes", "downloaded": "downloaded", "in part": "in part", "": ""}


class DatasetsConfig(JobConfig):
    """Which of them, and how they are listed."""

    pattern: str | None = option(
        None, "a name, a part of one, or a pattern such as 'd4rl/hopper-*'; null: all, families in one line", operand=True
    )
    local: bool = option(False, "only what is on this machine")
    format: Literal["text", "json"] = option("text", "json: one JSON array, with URLs and hashes")


@dataclass(frozen=True, kw_only=True)
class DatasetsResult(Result):
    """Listed datasets, as plain values."""

    datasets: list[dict[str, Any]]


def run(config: DatasetsConfig) -> DatasetsResult:
    """Prints the catalog. Raises DataError: nothing fits; ConfigError: `D3RAY_CATALOG` names what is no catalog."""
    from ...data.catalog import catalog
    from ...data.catalog.local import nearest, with_files

    known = catalog()
    collapsed = config.pattern is None and not config.local and config.format == "text"
    names = known.single_names() if collapsed else list(known.names())
    if config.pattern is not None:
        names = [name for name in names if _fits(name, config.pattern)]
        if not names:
            raise DataError(f"No dataset's name fits {config.pattern!r}{nearest(config.pattern, known)}")
    if config.local:  # to make each of 16,000 entries takes seconds
        names = list(with_files(names, known))
    found = [row for row in _rows(names, known) if row["local"] or not config.local]
    if config.format == "json":
        say(json.dumps(found))
        return DatasetsResult(made="", datasets=found)
    for line in _lines(found, known, collapsed):
        say(line)
    made = f"{len(found):,} dataset{'s' * (len(found) != 1)}, {sum(row['local'] == 'dataset' for row in found):,} of them here."
    made_here = any(row["recipe"] or row["script"] for row in found)
    look = {"have one": "d3ray inspect NAME"} | ({"make one": "d3ray make NAME"} if made_here else {})
    return DatasetsResult(made=made, look=look, datasets=found)


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if set("*?[") & set(pattern) else pattern in name


def _rows(names: Iterable[str], known: Catalog) -> Iterator[dict[str, Any]]:
    for name in names:
        entry = known.find(name)
        if entry is not None:
            yield describe(name, entry)


def describe(name: str, entry: Entry) -> dict[str, Any]:
    """All that is known of a dataset, as JSON values; `local` is what of it is on this machine."""
    from ...data.catalog.local import download_folder, state
    from ...data.catalog.references import measured, references

    made = measured(name)
    reference = made["returns"] if made else references()["datasets"].get(name.removeprefix("d4rl/"))
    return {
        "name": name,
        "local": state(name, entry),
        "bytes": entry.bytes,
        **entry.model_dump(mode="json"),
        "downloads": str(download_folder(name, entry)) if entry.files else None,
        "reference": {"min": reference[0], "max": reference[1]} if reference else None,
    }


def _lines(rows: list[dict[str, Any]], known: Catalog, collapsed: bool) -> Iterator[str]:
    table = [["name", "here", "size", "licence", "environment", "0 and 100"]]
    table += [
        [
            row["name"],
            _HERE[row["local"]],
            _size(row["bytes"]),
            row["licence"] or "",
            row["environment"]["id"] if row["environment"] else "",
            f"{row['reference']['min']:g}, {row['reference']['max']:g}" if row["reference"] else "",
        ]
        for row in rows
    ]
    if collapsed:
        table += [[family.name, f"{len(family):,} datasets", "", "", "", ""] for family in known.families]
    yield from aligned(table, right=[2])
    yield ""


def _size(n: int | None) -> str:
    return "" if n is None else f"{n / 1e6:,.1f} MB"
