"""CSV with a column for each number, as MINERVA takes it: `episode, observation:0, …, action:0, …, reward`, one row a step."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ConfigError, DataError, did_you_mean
from ...masks import ACTION_MASK
from ...storage.steps import steps_from_arrays
from ..imported import Array, Imported, Plan, apply_time_limit, count_notes, flags, one_column, typed_actions
from ..stretches import row_stretches, where
from ..untrusted.archives import GZIP, head, is_zip
from .csv_cells import HEAD, as_array, header, read_cells
from .csv_lines import line_spans, scan
from .images import ENDINGS, read_images

NAMES = {  # d3ray's word: what files call it, the first found is taken
    "episode": ("episode", "episode_id", "episode_ids", "episode_index"),
    "reward": ("reward", "rewards", "rew"),
    "terminated": ("terminated", "terminal", "terminals", "done", "dones"),
    "truncated": ("truncated", "timeout", "timeouts"),
    "log_prob": ("log_prob", "action_log_prob"),
}
_ENDS = ("episode", "terminated", "truncated")  # one of these tells where episodes end
_SPELLED = re.compile(r"(obs|observations?|states?|act|actions?)(?:[_.](\d+)|\[(\d+)\])?")  # as `obs_0`, `state[0]`
_ENTRY = re.compile(r"(observation(?:/[^:]+)?|action|action_mask)(?::(\d+))?")


def is_csv(path: Path) -> bool:
    """Whether the first line names reward, an observation, an action, and an episode or what ends one."""
    names = {_usual(name, {}) for name in header(path)[0]}
    told = "reward" in names and not names.isdisjoint(_ENDS)
    return told and all(any(_entry(name, word) for name in names) for word in ("observation", "action"))


def is_table(path: Path) -> bool:
    """Whether the first line names several columns, whatever they are called."""
    names, _ = header(path)
    named = [name for name in names if name]  # pandas writes its index under no name
    return (
        len(names) > 2 and len(named) >= len(names) - 1 and all(re.fullmatch(r"[^\W\d][\w .:/()\[\]%°-]*", name) for name in named)
    )


def csv_parts(folder: Path) -> list[Path]:
    """The CSV files of a folder that also holds images, or archives or folders of them."""
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if not any(path.is_dir() or path.suffix.lower() in ENDINGS or is_zip(path) for path in inside):
        return []
    return [path for path in inside if path.is_file() and path.suffix.lower() not in ENDINGS and is_csv(path)]


def read_csv(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
    ends: Literal["truncated", "terminated"] = "truncated",
    images: Path | str | None = None,
) -> Imported:
    """Steps of a CSV file, in file order; none is dropped.

    Columns, in any order: `episode` (a number or a name), `observation:0` … (dicts: `observation/KEY:0` …), `action:0` …, `reward`
    (`episode_id`, `obs_0`, `state_0`, `act_0` and the like are understood); where present `terminated` (done), `truncated`
    (timeout), `action_mask:0` …, `log_prob` and `info/NAME`. Others are left out, which a note says. Numbers may be padded with
    spaces; commas, semicolons or tabs separate columns. gzip is read too.

    An episode ends where its id changes, at a flag, and at the last row; without ids at flags alone. There are no final
    observations. Where `observation:0` is the only one and holds names, these are images: members of a zip archive or files of a
    folder, uint8 [H, W, C].

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: whether there is one action column, and it holds whole numbers only.
        rename: what this file calls a column, by its usual name: `{"observation:0": "x", "action": "u"}` (the latter for `u:0` …).
        ends: what the end of an episode is where the file has no `terminated`.
        images: zip archive or folder of the images. None: beside the file: an archive or folder called as the file is, or
            `images`, then the file's own folder.

    Raises:
        DataError: not UTF-8, a column missing or twice, a row of another length, an empty cell, text or NaN in a number's place, an
            episode that comes back after another, an image that is missing or unlike the others; file, column and line are named.

    Source: MINERVA (takuseno/minerva), README and `minerva/dataset.py`; images as in its "image dataset".
    """
    path = Path(path)
    layout = _layout(path, rename, ends)
    table = read_cells(path, layout.names, layout.separator, text=layout.text, numbers=layout.numbers)
    imported = _imported(path, layout, table, str(path), timeout_at, discrete_action, ends, images)
    limits_known = "truncated" in layout.names or timeout_at is not None
    notes = [*layout.notes, *imported.notes, *count_notes(imported.steps, limits_known=limits_known)]
    return replace(imported, notes=notes)


def plan_csv(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
    ends: Literal["truncated", "terminated"] = "truncated",
    images: Path | str | None = None,
    n_bytes: int | None = None,
) -> Plan:
    """How the file is read in stretches of lines, of whole episodes. Raises as `read_csv`.

    It is looked through once, for the columns that tell where episodes end and what kind of actions there are. gzip, a file with
    blank lines and one with images are read whole.

    Args:
        path: as `read_csv`, and so are the following ones but for the last.
        timeout_at: steps.
        discrete_action: whether actions are discrete.
        rename: columns by their usual names.
        ends: what the end of an episode is.
        images: archive or folder of images.
        n_bytes: of a stretch, where no episode has more; None: all of the file.
    """
    path, options = Path(path), {"timeout_at": timeout_at, "discrete_action": discrete_action, "ends": ends}
    size = path.stat().st_size
    whole = Plan((partial(read_csv, path, rename=rename, images=images, **options),), (size,))
    layout = _layout(path, rename, ends)
    if n_bytes is None or layout.are_images or head(path, 2) == GZIP:
        return whole
    flagged = [name for name in ("terminated", "truncated") if name in layout.names]
    asked = ["episode"] if "episode" in layout.text else flagged
    single = layout.groups["action"] if len(layout.groups["action"]) == 1 else []
    found = scan(path, layout.names, layout.separator, asked, [*single, *flagged])
    if found is None:
        return whole
    if found.twice is not None:
        raise _comes_back(str(path), *found.twice)
    rows = row_stretches(found.ends, max(1, n_bytes * len(found.ends) // size))
    spans = line_spans(path, [one.stop for one in rows], len(found.ends))
    if spans is None:
        return whole
    exact = replace(layout, numbers={**layout.numbers, **found.kinds})
    return Plan(
        tuple(partial(_read_lines, path, exact, span, one.start, **options) for span, one in zip(spans, rows, strict=True)),
        tuple(stop - start for start, stop in spans),
        {"format": "csv", "file": path.name},
        tuple(layout.notes),
        partial(count_notes, limits_known="truncated" in layout.names or timeout_at is not None),
    )


def _read_lines(
    path: Path,
    layout: _Layout,
    span: tuple[int, int],
    row: int,
    timeout_at: int | None,
    discrete_action: bool | None,
    ends: Literal["truncated", "terminated"],
) -> Imported:
    """The steps of some lines, which are whole episodes, the first of them in that row."""
    table = read_cells(path, layout.names, layout.separator, text=layout.text, numbers=layout.numbers, span=span)
    return _imported(path, layout, table, where(path, row), timeout_at, discrete_action, ends, None)


@dataclass(frozen=True)
class _Layout:
    """What the header says.

    Attributes:
        names: of all columns, usual ones where they are known.
        separator: of cells.
        groups: the columns of each array.
        are_images: whether observations are names of images.
        text: columns of text.
        numbers: columns of numbers, and what they are read as; None: as they are written, which tells the kind of actions.
        notes: sentences on the file.
    """

    names: list[str]
    separator: str
    groups: dict[str, list[str]]
    are_images: bool
    text: frozenset[str]
    numbers: dict[str, Any]
    notes: list[str]


def _layout(path: Path, rename: Mapping[str, str] | None, ends: str) -> _Layout:
    source = str(path)
    if ends not in ("truncated", "terminated"):
        raise ConfigError(f"ends is {ends!r}; choose from 'truncated', 'terminated'.")
    found, separator = header(path)
    if not found:
        raise DataError(f"{source} does not begin with a line of UTF-8 text; save it as UTF-8.")
    names = [_usual(name, _checked(rename, found, source)) for name in found]
    groups = _grouped(names, source, found)
    are_images = groups.get("observation") == ["observation:0"] and _first_is_text(path, names.index("observation:0"), separator)
    text = frozenset([*(["episode"] if "episode" in names else ()), *(["observation:0"] if are_images else ())])
    numbers = [name for name in names if _known(name) and name not in text]
    written = {name for name in numbers if name.startswith("action:") or _flag(name)}
    notes = _left_out(names)
    if "episode" not in names:
        flagged = " or ".join(name for name in ("terminated", "truncated") if name in names)
        notes.append(
            f"No column numbers the episodes: one ends where {flagged} says so (a column of numbers, rename.episode=NAME)."
        )
    if "terminated" not in names:
        other = "terminated" if ends == "truncated" else "truncated"
        notes.append(
            f"The file does not say which episodes the task ended: all were taken as {ends} (options.ends={other} changes that)."
        )
    kinds = {name: None if name in written else pa.float64() for name in numbers}
    return _Layout(names, separator, groups, are_images, text, kinds, notes)


def _imported(
    path: Path,
    layout: _Layout,
    table: Any,
    source: str,
    timeout_at: int | None,
    discrete_action: bool | None,
    ends: Literal["truncated", "terminated"],
    images: Path | str | None,
) -> Imported:
    """The steps in a table of all of the file's rows, or of some that are whole episodes."""
    n, names, are_images = len(table), layout.names, layout.are_images
    columns = {
        group: _stacked(table, entries) for group, entries in layout.groups.items() if not (are_images and group == "observation")
    }
    called: list[str] = []
    if are_images:
        called = pc.utf8_trim_whitespace(table["observation:0"]).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]
        columns["observation"] = read_images(called, _places(path, images), source)
    nested = {name.partition("/")[2]: column for name, column in columns.items() if name.startswith("observation/")}
    given = {word: flags(source, word, as_array(table[word])) for word in ("terminated", "truncated") if word in names}
    end = np.zeros(n, bool)
    if "episode" in names:
        episode = _episodes(table, source)
        end[:-1] = episode[1:] != episode[:-1]
    else:
        end |= np.logical_or.reduce([*given.values()])
    end[-1] = True
    terminated = given.get("terminated", end if ends == "terminated" else np.zeros(n, bool))
    truncated = (given.get("truncated", np.zeros(n, bool)) | end) & ~terminated
    notes: list[str] = []
    if timeout_at is not None:
        terminated, truncated, notes = apply_time_limit(source, terminated, truncated, timeout_at, may_cut=True)
    extra = {name: as_array(table[name]) for name in names if name == "log_prob" or name.startswith("info/")}
    extra |= {ACTION_MASK: columns[ACTION_MASK]} if ACTION_MASK in columns else {}
    steps = steps_from_arrays(
        nested or columns["observation"],
        typed_actions(source, columns["action"], discrete_action),
        one_column(source, "reward", as_array(table["reward"])),
        terminated,
        truncated,
        extra=extra,
        source=source,
    )
    provenance = {"format": "csv", "file": path.name} | ({"images": len(set(called))} if are_images else {})
    return Imported(steps, notes=notes, provenance=provenance)


# ---- the header


def _checked(rename: Mapping[str, str] | None, header: Iterable[str], source: str) -> dict[str, str]:
    """What the file calls a column to its usual name."""
    there = set(header) | {name.partition(":")[0] for name in header}
    for usual, actual in (rename or {}).items():
        if usual not in NAMES and not _ENTRY.fullmatch(usual):
            raise ConfigError(f"rename: csv has no column {usual!r}{did_you_mean(usual, [*NAMES, 'observation', 'action'])}")
        if actual not in there:
            raise DataError(f"{source} has no column {actual!r} for {usual!r}, only {_some(header)}.")
    return {actual: usual for usual, actual in (rename or {}).items()}


def _usual(name: str, rename: Mapping[str, str]) -> str:
    """A column's usual name: renamed, by a synonym, or with the number that a single entry may leave out."""
    start, colon, entry = name.partition(":")
    name = rename.get(name) or (f"{rename[start]}:{entry}" if colon and start in rename else name)
    name = next((word for word, others in NAMES.items() if name in others), name)
    if spelled := _SPELLED.fullmatch(name):
        word = "action" if spelled[1].startswith("act") else "observation"
        return f"{word}:{int(spelled[2] or spelled[3] or 0)}"
    found = _ENTRY.fullmatch(name)
    return f"{name}:0" if found and found[2] is None else name


def _entry(name: str, word: str) -> bool:
    found = _ENTRY.fullmatch(name)
    return bool(found and found[1].partition("/")[0] == word)


def _grouped(names: list[str], source: str, header: list[str]) -> dict[str, list[str]]:
    """The columns of each array, `observation`, `observation/KEY` and `action`, in the order of their numbers.

    Of a file that lacks some, the error names all of them, what the file has under its own names, and how to say which is which.
    """
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise DataError(f"{source} has the column {twice[0]!r} twice.")
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        if found := _ENTRY.fullmatch(name):
            groups.setdefault(found[1], {})[int(found[2])] = name
    observed = [group for group in groups if group.startswith("observation")]
    needed = {"episode": not set(names).isdisjoint(_ENDS), "observation:0": bool(observed)}
    needed |= {"action:0": "action" in groups, "reward": "reward" in names}
    if lacking := [word for word, there in needed.items() if not there]:
        which, say = "which is which" if len(lacking) > 1 else "which it is", " ".join(f"rename.{word}=NAME" for word in lacking)
        ends = ", or rename.terminated=NAME where a flag ends an episode" if lacking == ["episode"] else ""
        vectors = [word for word in lacking if word.endswith(":0")]
        more = f" (further entries: {', '.join(word[:-1] + '1' for word in vectors)}, …)" if vectors else ""
        told = f"only {_some(header)}; say {which}: {say}{more}{ends}."
        raise DataError(f"{source} has no column {', '.join(map(repr, lacking))}, {told}")
    if "observation" in groups and len(observed) > 1:
        raise DataError(f"{source} has both 'observation:0' and {groups[observed[1]]!r}; observations are one vector, or a dict.")
    for group, entries in groups.items():
        if gap := sorted(set(range(max(entries))) - entries.keys()):
            raise DataError(f"{source} has the column '{group}:{max(entries)}' but no '{group}:{gap[0]}'.")
    return {group: [entries[k] for k in sorted(entries)] for group, entries in groups.items()}


def _known(name: str) -> bool:
    return name in NAMES or name.startswith("info/") or _ENTRY.fullmatch(name) is not None


def _left_out(names: list[str]) -> list[str]:
    return [f"The column {name!r} was not read: it is none that d3ray knows." for name in names if not _known(name)]


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return (", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")) or "nothing"


# ---- the cells


def _flag(name: str) -> bool:
    return name in ("terminated", "truncated")


def _first_is_text(path: Path, column: int, separator: str) -> bool:
    """Whether the first cell below the header is no number."""
    lines = head(path, HEAD, unpacked=True).decode("utf-8", "replace").splitlines()[1:]
    row = next(csv.reader([line for line in lines if line.strip()][:1], delimiter=separator), [])
    cell = row[column].strip() if column < len(row) else ""
    return bool(cell) and not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf|infinity)", cell, re.IGNORECASE)


def _stacked(table: Any, entries: list[str]) -> Array:
    """[N, K] of the columns: integers where all are."""
    columns = [as_array(table[name]) for name in entries]
    return np.stack(columns, 1)


def _episodes(table: Any, source: str) -> Array:
    """[N] numbers of episodes. Raises DataError where an id is empty or comes back."""
    trimmed = pc.utf8_trim_whitespace(table["episode"]).combine_chunks()  # pyright: ignore[reportAttributeAccessIssue]
    ids = trimmed.dictionary_encode()
    code = ids.indices.to_numpy(zero_copy_only=False)
    start = np.flatnonzero(np.r_[True, code[1:] != code[:-1]])
    if len(start) != len(ids.dictionary):
        again = next(k for k in range(len(start)) if code[start[k]] in code[start[:k]])
        raise _comes_back(source, ids.dictionary[int(code[start[again]])].as_py(), int(start[again]))
    return code


def _comes_back(source: str, name: str, row: int) -> DataError:
    return DataError(f"{source}: episode {name!r} comes back in row {row}, after another; rows of an episode lie together.")


def _places(path: Path, images: Path | str | None) -> list[Path]:
    """Where images are looked for."""
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
