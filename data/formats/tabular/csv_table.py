"""CSV with a column for each number, as MINERVA takes it: `episode, observation:0, …, action:0, …, reward`, one row a step."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...config import setting
from ...errors import DataError
from ..arrays import Array, visible_files
from ..format import Imported, Plan, row_stretches, where
from ..untrusted.archives import GZIP, head, is_zip
from .csv_cells import HEAD, as_array, header, line_spans, read_cells
from .images import ENDINGS, read_images
from .table_names import FLAGS, NAMES, check_renames, entry_names, grouped, is_known, is_told, not_read, usual_names
from .table_rows import Ids, Order, TableFormat, episode_ids, flags_of, go_over_files, order_notes, order_of

CALLED = {name: name for name in NAMES}  # what errors call columns


@dataclass(frozen=True)
class _Layout:
    """Layout given by the header."""

    names: list[str]  # of all columns, usual ones where they are known
    separator: str
    groups: dict[str, list[str]]  # the columns of each array
    called: dict[str, tuple[str, ...]]  # what the file calls the entries of each array, where that says more than their numbers
    are_images: bool  # whether observations are names of images
    text: frozenset[str]  # columns of text
    numbers: dict[str, Any]  # columns of numbers, and what they are read as; None: as they are written, which tells their kind
    notes: list[str]


class CSV(TableFormat):
    """Steps of a CSV file, or of a folder of files over which episodes go, episode after episode.

    Columns, in any order: `episode` (a number or a name), `observation:0` … (dicts: `observation/KEY:0` …), `action:0` …, `reward`
    (`episode_id`, `obs_0`, `state_0`, `act_0` and the like are understood); where present `step`, `terminated` (done), `truncated`
    (timeout), `next_observation:0` …, `action_mask:0` …, `cost` (costs), `log_prob` (or `action_prob`, `propensity`, of which it is
    the logarithm) and `info/NAME`. Others are left out, which a note says. Numbers may be padded with spaces; commas, semicolons or
    tabs separate columns. gzip is read too. Renamed are `{"observation:0": "x", "action": "u"}` (the latter for `u:0` …).

    Without `next_observation` there are no final observations. Where `observation:0` is the only one and holds names, these are
    images: members of a zip archive or files of a folder, uint8 [H, W, C]. One action column of whole numbers is discrete.

    Source: MINERVA (takuseno/minerva), README and `minerva/dataset.py`; images as in its "image dataset".
    """

    name = "csv"
    description = "CSV with episode, observation:0, …, action:0, …, reward, also beside images"
    images: Path | str | None = setting(
        None,
        "zip archive or folder of the images; null: beside the file, an archive or folder called as the file is, or images, then "
        "the file's own folder",
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        return cls.parts(path) == [path] if path.is_dir() else is_told(usual_names(header(path)[0], {}, whole=False))

    @classmethod
    def nearly(cls, path: Path, *, renamed: bool) -> bool:
        del renamed
        return is_table(path)

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        """The CSV files of a folder that also holds images, or archives or folders of them.

        Of one that holds CSV files alone it is the folder, where rows of an episode lie in several of them, as their steps say.
        """
        inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        if not any(path.is_dir() or path.suffix.lower() in ENDINGS or is_zip(path) for path in inside):
            files = visible_files(folder)
            is_one = len(files) > 1 and all(map(cls.detect, files)) and go_over_files(files, _episodes, _steps)
            return [folder] if is_one else []
        return [path for path in inside if path.is_file() and path.suffix.lower() not in ENDINGS and cls.detect(path)]

    def read(self, path: Path) -> Imported:
        files = visible_files(path) if path.is_dir() else [path]
        layouts = [self._layout(file) for file in files]
        layout, tables = layouts[0], list[Any]()
        for file, one in zip(files, layouts, strict=True):
            if odd := sorted(set(one.names) ^ set(layout.names)):
                raise DataError(f"{path}: its files have different columns; {odd[0]!r} is in some of them.")
            tables.append(read_cells(file, one.names, one.separator, text=one.text, numbers=one.numbers))
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
        imported, order = self._imported(path, layout, table, str(path))
        ends = self.on_ends(imported.steps, limits_known="truncated" in layout.names)
        return replace(imported, notes=[*layout.notes, *order_notes(order, CALLED), *imported.notes, *ends])

    def plan(self, path: Path, n_bytes: int | None) -> Plan:
        """Stretches of lines, of whole episodes.

        The columns that tell where episodes end, and what kind of actions there are, are read for it. gzip, a file with blank
        lines and one with images are read whole.
        """
        whole, size = super().plan(path, n_bytes), path.stat().st_size
        if path.is_dir() or n_bytes is None or size <= n_bytes or head(path, 2) == GZIP:
            return whole
        layout = self._layout(path)
        if layout.are_images or "closing" in layout.names:
            return whole
        asked = [name for name in ("step", "terminated", "truncated") if name in layout.names]
        asked += layout.groups["action"] if len(layout.groups["action"]) == 1 else []
        text = {"episode"} & set(layout.names)
        table = read_cells(path, layout.names, layout.separator, text=text, numbers={name: layout.numbers[name] for name in asked})
        order = self._order(str(path), table)
        rows = row_stretches(order.ends, max(1, n_bytes * len(order.ends) // size))
        spans = line_spans(path, [one.stop for one in rows], len(order.ends))
        if order.rows is not None or spans is None:
            return whole
        exact = replace(layout, numbers={**layout.numbers, **{name: table.schema.field(name).type for name in asked}})
        return Plan(
            tuple(partial(self._lines, path, exact, span, one.start, order.unit) for span, one in zip(spans, rows, strict=True)),
            tuple(stop - start for start, stop in spans),
            notes=(*layout.notes, *order_notes(order, CALLED)),
            said=partial(self.on_ends, limits_known="truncated" in layout.names),
        )

    def _lines(self, path: Path, layout: _Layout, span: tuple[int, int], row: int, unit: float | None) -> Imported:
        """Read some lines, which are whole episodes, the first of them in that row."""
        table = read_cells(path, layout.names, layout.separator, text=layout.text, numbers=layout.numbers, span=span)
        return self._imported(path, layout, table, where(path, row), unit)[0]

    def _order(self, source: str, table: Any, unit: float | None = None) -> Order:
        there = set(table.column_names)
        ids = episode_ids(source, "episode", table["episode"]) if "episode" in there else None
        step = as_array(table["step"]) if "step" in there else None
        flag = {name: as_array(table[name]) for name in ("terminated", "truncated", "closing") if name in there}
        return order_of(source, CALLED, ids, step, flags_of(source, CALLED, flag), unit)

    def _layout(self, path: Path) -> _Layout:
        source = str(path)
        found, separator = header(path)
        if not found:
            raise DataError(f"{source} does not begin with a line of UTF-8 text; save it as UTF-8.")
        names = usual_names(found, check_renames(self.rename, found, source, self.name), whole=False)
        groups = grouped(names, source, found, whole=False)
        are_images = groups.get("observation") == ["observation:0"] and _first_is_text(
            path, names.index("observation:0"), separator
        )
        text = frozenset([*(["episode"] if "episode" in names else ()), *(["observation:0"] if are_images else ())])
        kinds = {name: pa.float64() for name in names if is_known(name) and name not in text}
        kinds |= {name: None for name in kinds if name.startswith("action:") or name in FLAGS}
        notes = not_read(names)
        if "episode" not in names:
            flagged = " or ".join(name for name in ("terminated", "truncated") if name in names)
            notes.append(
                f"No column numbers the episodes: one ends where {flagged} says so (a column of numbers, rename.episode=NAME)."
            )
        called = entry_names(groups, dict(zip(names, found, strict=True)))
        return _Layout(names, separator, groups, called, are_images, text, kinds, notes + self.on_task(names))

    def _imported(self, path: Path, layout: _Layout, table: Any, source: str, unit: float | None = None) -> tuple[Imported, Order]:
        names = layout.names
        columns = {
            group: np.stack([as_array(table[name]) for name in entries], 1)
            for group, entries in layout.groups.items()
            if not (layout.are_images and group == "observation")
        }
        seen: list[str] = []
        if layout.are_images:
            seen = pc.utf8_trim_whitespace(table["observation:0"]).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]
            columns["observation"] = read_images(seen, _places(path, self.images), source)
        columns["action"] = self.actions(source, columns["action"])
        own = {name for name in names if name in NAMES and name not in ("episode", "step")}
        columns |= {name: as_array(table[name]) for name in names if name in own or name.startswith("info/")}
        order = self._order(source, table, unit)
        steps, notes = self.steps_of(source, CALLED, columns, order)
        about = {"images": len(set(seen))} if layout.are_images else {}
        return Imported(steps, names=layout.called, notes=notes, provenance=about), order


def is_table(path: Path) -> bool:
    """Tell whether the first line names several columns, whatever they are called."""
    names, _ = header(path)
    named = [name for name in names if name]  # pandas writes its index under no name
    return (
        len(names) > 2 and len(named) >= len(names) - 1 and all(re.fullmatch(r"[^\W\d][\w .:/()\[\]%°-]*", name) for name in named)
    )


def _episodes(path: Path) -> Ids | None:
    found, separator = header(path)
    names = usual_names(found, {}, whole=False)
    if not {"episode", "step"} <= set(names):
        return None
    return episode_ids(str(path), "episode", read_cells(path, names, separator, text={"episode"}, numbers={})["episode"])


def _steps(path: Path) -> Array:
    found, separator = header(path)
    names = usual_names(found, {}, whole=False)
    return as_array(read_cells(path, names, separator, text=(), numbers={"step": pa.float64()})["step"])


def _first_is_text(path: Path, column: int, separator: str) -> bool:
    lines = head(path, HEAD, unpacked=True).decode("utf-8", "replace").splitlines()[1:]
    row = next(csv.reader([line for line in lines if line.strip()][:1], delimiter=separator), [])
    cell = row[column].strip() if column < len(row) else ""
    return bool(cell) and not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf|infinity)", cell, re.IGNORECASE)


def _places(path: Path, images: Path | str | None) -> list[Path]:
    if images is not None:
        place = Path(images).expanduser()
        if not place.exists():
            raise DataError(f"There is no folder or archive {place}.")
        return [place]
    stem = path.name.removesuffix(".gz").removesuffix(".csv")
    beside = [path.parent / name for name in (f"{stem}.zip", stem, "images.zip", "images")]
    return [
        *(place for place in beside if place != path and (place.is_dir() or (place.is_file() and is_zip(place)))),
        path.parent,
    ]
