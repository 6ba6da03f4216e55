"""With which settings algorithms were trained: the preset that they had, where its values are from, and what was otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...algos.registry import algorithm_class, algorithm_names
from ..storage.resuming import flatten
from .results import Benchmark, Cell
from .suite import DatasetChoice, fits

NOT_SAID = "–"
_FOLD = 8  # rows of the table; more are folded
_MOST = 3  # presets that are named where the runs have the settings of several


@dataclass(frozen=True)
class Preset:
    """The preset nearest a cell's settings."""

    name: str  # "defaults" without a preset; empty where the algorithm does not come with d3ray
    source: str
    changed: tuple[tuple[str, str, str], ...]  # dotted name of each setting that differs, its value, and the preset's


@dataclass(frozen=True)
class Row:
    """Cells of one algorithm with the same settings."""

    label: str
    algorithm: str
    datasets: tuple[str, ...]  # without their groups; empty: all on which it was trained
    preset: Preset

    @property
    def changes(self) -> list[str]:
        return [f"{name} {value} ({before})" for name, value, before in self.preset.changed]

    def __str__(self) -> str:
        where = f" on {', '.join(self.datasets)}" if self.datasets else ""
        who = self.label if self.label == self.algorithm else f"{self.label}, which is {self.algorithm}"
        if not self.preset.name:
            return f"{who}{where}: no algorithm of d3ray’s own; its settings are parameters of its runs."
        otherwise = f"; otherwise: {', '.join(self.changes)}" if self.changes else ""
        return f"{who}{where}: {self.preset.name} ({self.preset.source}){otherwise}."


@dataclass(frozen=True)
class Settings:
    rows: tuple[Row, ...]
    is_told: bool  # whether the suite's definition names the presets; else they are those nearest to the runs' parameters

    @property
    def is_long(self) -> bool:
        return len(self.rows) > _FOLD or sum(len(row.changes) for row in self.rows) > 2 * _FOLD


def settings_of(benchmark: Benchmark) -> Settings:
    """A row for each algorithm, or several where its settings depend on the dataset."""
    entries = {one["label"]: one for one in benchmark.about.get("algorithms", ()) if isinstance(one, Mapping) and "name" in one}
    found: dict[str, dict[Preset, list[Cell]]] = {}
    for label in benchmark.labels:
        for cell in (cell for cell in benchmark.cells if cell.label == label):
            preset = preset_of(cell, _told(entries[label], cell.dataset) if label in entries else None)
            found.setdefault(label, {}).setdefault(preset, []).append(cell)
    rows = [
        Row(
            label,
            cells[0].runs.algorithm,
            tuple(cell.dataset.rpartition("/")[2] for cell in cells) if len(by_preset) > 1 else (),
            preset,
        )
        for label, by_preset in found.items()
        for preset, cells in by_preset.items()
    ]
    return Settings(tuple(rows), all(label in entries for label in found))


def preset_of(cell: Cell, told: str | None) -> Preset:
    """A cell's preset, with what differs from it: the one `told` by the suite (empty: none), else the one it differs least from.

    Of several that differ equally little the one that is called after the dataset, else the first few.
    """
    known = _known(cell.runs.algorithm)
    has = {name.removeprefix("algorithm."): text for name, text in cell.settings.items() if name.startswith("algorithm.")}
    chosen = {told: known[told]} if told in known else known
    changed = {name: _differences(has, settings) for name, (_, settings) in chosen.items()}
    if not changed:
        return Preset("", "", ())
    fewest = min(map(len, changed.values()))
    near = [name for name in changed if len(changed[name]) == fewest]
    task = DatasetChoice(name=cell.dataset).task
    named = [name for name in near if name.endswith(task)] or [name for name in near if name] or near
    shown = named if len(named) <= _MOST else named[: _MOST - 1]
    more = [f"{len(named) - len(shown)} others"] if len(named) > len(shown) else []
    name = f"preset {' or '.join([*shown, *more])}" if named[0] else "defaults"
    return Preset(name, "; or ".join(dict.fromkeys(chosen[one][0] for one in shown)), changed[named[0]])


def _differences(has: Mapping[str, str], preset: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """List the differing settings: name and both values. An object of another kind counts as one difference."""
    found: list[tuple[str, str, str]] = []
    for field in dict.fromkeys(name.partition(".")[0] for name in (*preset, *has)):
        ours, theirs = _of_field(has, field), _of_field(preset, field)
        if ours.keys() == theirs.keys() and ours.get(f"{field}.name") == theirs.get(f"{field}.name"):
            found += [(name, ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]]
        else:
            found.append((field, _in_short(ours, field), _in_short(theirs, field)))
    return tuple(found)


def _of_field(settings: Mapping[str, str], field: str) -> dict[str, str]:
    return {name: text for name, text in settings.items() if name == field or name.startswith(f"{field}.")}


def _in_short(settings: Mapping[str, str], field: str) -> str:
    """An object by its name, with what of it is set: min_max, or return_based with multiplier 1000.0."""
    if not settings:
        return NOT_SAID
    parts = {name.removeprefix(f"{field}."): text for name, text in settings.items() if text != "null"}
    name = parts.pop("name", "") or parts.pop(field, "")
    more = ", ".join(f"{part} {text}" for part, text in parts.items())
    return f"{name} with {more}" if name and more else name or more or "null"


def _told(entry: Mapping[str, Any], dataset: str) -> str:
    """The preset that an entry of a suite's definition names for a dataset, empty for none."""
    preset = entry.get("preset")
    for pattern, more in (entry.get("on") or {}).items():
        preset = more["preset"] if fits(dataset, pattern) and "preset" in more else preset
    return str(preset or "").replace("{task}", DatasetChoice(name=dataset).task)


@cache
def _known(algorithm: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Source and settings of an algorithm's presets by name, and at last of its defaults, as parameters are written."""
    if algorithm not in algorithm_names():
        return {}
    cls = algorithm_class(algorithm)
    made = {name: (preset.source, cls.from_preset(name)) for name, preset in cls.presets.items()}
    made[""] = "d3ray’s own, each with its source in the code", cls()
    return {
        name: (source, _written({**one.check_settings().model_dump(mode="json"), "dtype": one.dtype}))
        for name, (source, one) in made.items()
    }


def _written(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: (value if isinstance(value, str) else json.dumps(value))[:5900] for name, value in flatten(settings)}
