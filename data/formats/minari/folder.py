"""Minari's datasets: a folder with `data/metadata.json` beside HDF5 or Arrow files, or the HDF5 file alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...config import setting
from ...errors import DataError
from ...masks import ACTION_MASK
from ...spec import Environment, Spec
from ...storage.costs import COST
from ...storage.json_text import parse_json
from ...storage.schema import check_spec, infer_spec, kinds_of, largest_numbers
from ...storage.steps import StepTable, counting_from
from ..arrays import Array, finite, flags, one_column, typed_actions
from ..format import Imported, Plan, StepFormat, stretches, where
from ..hdf5.arrays import find_group, is_hdf5, open_hdf5
from ..runs import Runs, ends_of, join, join_actions
from ..untrusted.values import json_file
from .spaces import Json, leaves, parse_space, starts_of, to_spec
from .storage import PARTS, Stored, folder_episodes, hdf5_episodes, hdf5_metadata, hdf5_outline

Short = Literal["leave out", "keep"]
MOST = 12  # numbers of episodes that a note names


@dataclass(frozen=True)
class Fault:
    """Why an episode cannot be read.

    Attributes:
        kind: it is "empty", it is "short" of its final observation alone, or its arrays are "unequal".
        detail: what is wrong with it, to be put behind its name.
    """

    kind: Literal["empty", "short", "unequal"]
    detail: str


def fault_of(rows: Mapping[str, int], short: Short) -> Fault | None:
    """Say what is wrong with the `rows` of an episode's arrays, by place ("rewards", "actions/arm"); None: nothing."""
    if not (n := rows["rewards"]):
        return Fault("empty", "there are no steps")
    seen = {place: length for place, length in rows.items() if place.partition("/")[0] == "observations"}
    for place, length in rows.items():
        if place not in seen and length != n:
            return Fault("unequal", f"{place!r} has {length} rows, 'rewards' has {n}")
    is_short = all(length == n for length in seen.values())
    for place, length in seen.items():
        if length != n + 1 and not (is_short and short == "keep"):
            return Fault("short" if is_short else "unequal", f"{place!r} has {length} rows; {n + 1} are due for {n} steps")
    return None


def left_out(faults: Mapping[str, Fault], n: int) -> list[str]:
    """Say how many of the `n` episodes are not read, which, and the way round."""
    notes: list[str] = []
    for kind, why in (
        ("empty", "have no steps"),
        ("short", "have as many observations as steps, where one more is due,"),
        ("unequal", "have arrays of unequal lengths"),
    ):
        which = [number for number, fault in faults.items() if fault.kind == kind]
        if not which:
            continue
        first = f"{faults[which[0]].detail}" if kind == "unequal" else ""
        cure = " options.short=keep reads them, without their final observations." if kind == "short" else ""
        cure = f" In the first {first}; mend them in the file." if first else cure
        notes.append(f"{len(which)} of {n} episodes {why} and were left out: {_some(which)}.{cure}")
    return notes


def none_left(source: str, faults: Mapping[str, Fault]) -> DataError:
    number, fault = next(iter(faults.items()))
    cure = "; options.short=keep reads such episodes, without their final observations" if fault.kind == "short" else ""
    return DataError(f"{source} has no episode that can be read, of {len(faults)}: in episode {number}: {fault.detail}{cure}.")


def _some(numbers: Sequence[str]) -> str:
    more = f" and {len(numbers) - MOST} more" if len(numbers) > MOST else ""
    return ", ".join(numbers[:MOST]) + more


MAIN, METADATA = "main_data.hdf5", "metadata.json"
STORAGES = ("hdf5", "arrow", "parquet")
LOG_PROB = "action_log_probs"  # the name of an info that holds log-probabilities under the behaviour policy
UNLIKE = " (not alike in all episodes)"
KEPT = ("dataset_id", "minari_version", "algorithm_name", "author", "code_permalink", "ref_min_score", "ref_max_score")


class Minari(StepFormat):
    """Steps of a Minari dataset, by the numbers of its episodes.

    An episode without steps, and one whose arrays have not the rows that its steps need, is left out, and a note names it.

    An episode of T steps has T + 1 observations, so the final ones are recorded. It ends where `terminations` or `truncations` say
    so, and at its last step: one that ends with neither flag was cut while it was recorded, and is truncated. A flag within an
    episode ends one there. Where both are set it is terminated.

    Dict and tuple observations become columns `observation/KEY` and `observation/0`; text among them is left out, and a note names
    it. Actions that are a Dict or Tuple of floats are put side by side.
    Images are stored as JPEG unless the dataset says otherwise: what is read is what JPEG left of them.

    Infos of numbers become `info/NAME`, a group within one `info/NAME/PART`. Of T + 1 infos row t holds the one that came with
    o_t, and the last is left out: a closing row has no infos. An info `action_log_probs` becomes `log_prob`, and `action_mask` of
    discrete actions is the mask of legal ones, the last one too. An info `cost` of one number is what the step to o_t cost: it
    becomes the column `cost`, in the row of that step.

    Spaces, environment id and its keyword arguments come from `metadata.json`, or from the file's attributes (Minari before 0.5);
    an HDF5 file without either says nothing of them.

    Source: Minari 0.5.4, `minari/dataset/_storages` and `minari/serialization.py`.
    """

    name = "minari"
    description = "Minari's folder (HDF5 or Arrow storage), or its HDF5 file"
    short: Short = setting(
        "leave out",
        "episodes with as many observations as steps, as in published antmaze files: leave out, or keep, where row t is what was "
        "seen before action t and the final observation is missing",
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        """Knows a dataset's folder, its `data` folder, and an HDF5 file with groups `episode_0`, `episode_1` and so on."""
        if path.is_dir():
            return _data_folder(path) is not None
        if not is_hdf5(path):
            return False
        with open_hdf5(path) as file:
            first = find_group(file, "episode_0")
            return first is not None and set(PARTS) <= set(first)

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        return [folder] if _data_folder(folder) else []

    def plan(self, path: Path, n_bytes: int | None) -> Plan:
        place = _find(path)
        if n_bytes is None or place.storage != "hdf5":
            return super().plan(path, n_bytes)
        outline = hdf5_outline(place.data)
        steps = np.array([one.rows["rewards"] for one in outline])
        place.check(path, len(steps), int(steps.sum()))
        faults = {str(k): fault for k, one in enumerate(outline) if (fault := fault_of(one.rows, self.short))}
        readable = np.array([str(k) not in faults for k in range(len(outline))])
        if not readable.any():
            raise none_left(str(path), faults)
        at, infos = int(readable.argmax()), [one.infos for one, kept in zip(outline, readable, strict=True) if kept]
        unlike = frozenset(name for name in {n for one in infos for n in one} if len({one.get(name) for one in infos}) > 1)
        first = next(place.episodes(place.leaves(), slice(at, at + 1)))
        arrays = (first.observations, first.actions, first.infos, first.flat)
        sizes = steps * readable * (sum(array.nbytes for part in arrays for array in part.values()) // int(steps[at]) + 1)
        found = _with_any(stretches(sizes, n_bytes), readable)
        return Plan(
            tuple(partial(self._read, path, some, unlike) for some in found),
            tuple(int(sizes[some].sum()) for some in found),
            place.about(),
            tuple(left_out(faults, len(outline))),
            partial(self.on_ends, limits_known=True),
        )

    def read(self, path: Path) -> Imported:
        return self._read(path)

    def _read(self, path: Path, some: slice | None = None, unlike: frozenset[str] = frozenset()) -> Imported:
        """Read all episodes, or some without the infos `unlike` others; of some nothing is said on their ends and lengths."""
        place = _find(path)
        spaces, inner = place.spaces(), place.leaves()
        found = _Found(inner, unlike, self.short)
        for stored in place.episodes(inner, some or slice(None)):
            found.add(stored)
        n = len(found.names) + len(found.faults)
        if some is None:
            place.check(path, n, found.n_steps)
        if not found.names:
            raise none_left(str(path), found.faults)
        source = str(path) if some is None else where(path, some.start, "episode")
        with counting_from(starts_of(spaces)):
            runs, notes = found.runs(source, self.discrete_action)
            steps, said = runs.steps(source, self.timeout_at)
        spec = None
        if len(spaces) == len(SPACES):
            spec = _spec(spaces, steps, source, place.said_in, own_action=self.discrete_action is not None)
        environment, env_notes = _environment(place)
        notes = [*notes, *env_notes, *said]
        if some is None:
            notes = [*left_out(found.faults, n), *notes, *self.on_ends(steps, limits_known=True)]
        return Imported(steps, spec, environment, notes=notes, provenance=place.about())


SPACES = {"observations": "observation_space", "actions": "action_space"}


@dataclass(frozen=True)
class _Place:
    data: Path  # the HDF5 file, or the folder of subfolders
    metadata: Json
    storage: str
    said_in: str

    def episodes(self, leaves: dict[str, Json], some: slice) -> Iterator[Stored]:
        return (hdf5_episodes if self.storage == "hdf5" else folder_episodes)(self.data, leaves, some)

    def spaces(self) -> dict[str, Json]:
        known = {part: key for part, key in SPACES.items() if key in self.metadata}
        return {part: parse_space(self.metadata[key], f"{key} of {self.said_in}") for part, key in known.items()}

    def leaves(self) -> dict[str, Json]:
        return {f"{part}/{name}" if name else part: one for part, s in self.spaces().items() for name, one in leaves(s).items()}

    def check(self, path: Path, n: int, n_steps: int) -> None:
        """Raise DataError where there are other numbers of episodes or steps than are said."""
        for what, there in (("episodes", n), ("steps", n_steps)):
            total = self.metadata.get(f"total_{what}")
            if isinstance(total, int) and total != there:
                raise DataError(f"{path} has {there} {what}; {self.said_in} says {total}.")

    def about(self) -> dict[str, Any]:
        kept = {key: self.metadata[key] for key in KEPT if self.metadata.get(key)}
        return {"storage": self.storage} | ({"metadata": kept} if kept else {})


def _data_folder(path: Path) -> Path | None:
    """Find the folder that holds the data, of one that a person would name; None where it is no dataset."""
    for folder in (path / "data", path):
        if (folder / MAIN).is_file() or _read_metadata(folder / METADATA).get("data_format") in STORAGES:
            return folder
    return None


def _find(path: Path) -> _Place:
    folder = _data_folder(path) if path.is_dir() else path.parent
    if folder is None:
        raise DataError(f"{path} is no Minari dataset: there is neither data/{METADATA} nor data/{MAIN}.")
    metadata = _read_metadata(folder / METADATA)
    storage = metadata.get("data_format", "hdf5") if path.is_dir() else "hdf5"
    if storage not in STORAGES:
        raise DataError(f"{folder / METADATA} names the storage {storage!r}; {', '.join(STORAGES)} are read.")
    data = folder if storage != "hdf5" else folder / MAIN if path.is_dir() else path
    if metadata:
        return _Place(data, metadata, storage, str(folder / METADATA))
    return _Place(data, hdf5_metadata(data), storage, f"the attributes of {data}")


def _read_metadata(path: Path) -> Json:
    """Read the metadata; nothing where there is no such file, or it is some other program's."""
    try:
        content: Any = json_file(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and ("data_format" in content or "total_episodes" in content) else {}


class _Found:
    """Contents of the episodes read so far."""

    def __init__(self, spaces: dict[str, Json], unlike: frozenset[str], short: Short) -> None:
        self.spaces, self.unlike = spaces, unlike
        self.short: Short = short
        self.faults: dict[str, Fault] = {}  # of episodes that are left out, by number
        self.n_steps = 0  # of all episodes, those that are left out too
        self.names: list[str] = []
        self.observations: list[dict[str, Array]] = []
        self.steps: list[dict[str, Array]] = []
        self.left_out: set[str] = set()

    def add(self, stored: Stored) -> None:
        parts = {**{f"actions/{k}": a for k, a in stored.actions.items()}, **stored.flat}
        for name in PARTS[2:]:
            if name not in parts:
                raise DataError(f"{stored.name} has no {name!r}.")
        if not stored.observations or not stored.actions:
            raise DataError(f"{stored.name} has no {'actions' if stored.observations else 'observations'} of numbers.")
        seen = {f"observations/{name}".rstrip("/"): array for name, array in stored.observations.items()}
        rows = {name.rstrip("/"): array.shape[0] if array.ndim else 0 for name, array in (parts | seen).items()}
        n = rows["rewards"]
        self.n_steps += n
        if fault := fault_of(rows, self.short):
            self.faults[stored.name.rpartition(" ")[2]] = fault
            return
        finite(stored.name, **seen, **parts)
        for name, array in stored.infos.items():
            if name not in self.unlike and array.shape[:1] in ((n,), (n + 1,)):
                if name == COST and array.shape[1:] in ((), (1,)):
                    parts[COST] = array[len(array) - n :]
                else:
                    parts["log_prob" if name == LOG_PROB else f"info/{name}"] = array[:n]
                if name == ACTION_MASK and array.ndim == 2 and len(array) == n + 1:
                    parts[f"info/next_{name}"] = array[1:]
            else:
                stored.left_out.add(f"infos/{name}" + UNLIKE * (name in self.unlike))
        self.left_out |= stored.left_out
        self.names.append(stored.name)
        kept = n if stored.final_missing else n + 1
        self.observations.append({name: array[:kept] for name, array in stored.observations.items()})
        self.steps.append(parts)

    def runs(self, source: str, discrete_action: bool | None) -> tuple[Runs, list[str]]:
        notes: list[str] = []
        self._same_infos()
        if self.left_out:
            notes.append(f"Left out, being no numbers of each step: {', '.join(sorted(self.left_out))}.")
        columns, observations = join(self.steps, self.names), join(self.observations, self.names)
        lengths = np.array([len(part["rewards"]) for part in self.steps])
        rows = np.array([len(next(iter(part.values()))) for part in self.observations])
        final, last = ends_of(rows, lengths)
        terminated, truncated = (flags(source, name, columns.pop(name)) for name in PARTS[3:])
        open_ended = int((last & ~terminated & ~truncated).sum())
        if open_ended:
            notes.append(f"{open_ended} episodes end neither terminated nor truncated; they were taken as truncated.")
        if within := int(((terminated | truncated) & ~last).sum()):
            notes.append(f"{within} steps within episodes are marked terminated or truncated; an episode ends at each.")
        actions, said = self._actions(source, columns, discrete_action)
        rewards = one_column(source, "rewards", columns.pop("rewards"))
        seen = {name: self._entries(f"observations/{name}".rstrip("/"), array) for name, array in observations.items()}
        runs = Runs(seen.get("", seen), final, last, actions, rewards, terminated, truncated, columns)
        return runs, [*notes, *said]

    def _actions(self, source: str, columns: dict[str, Array], discrete: bool | None) -> tuple[Array, list[str]]:
        names = [name for name in columns if name.startswith("actions/")]
        parts = {n.removeprefix("actions/"): self._entries(n.rstrip("/"), columns.pop(n)) for n in names}
        kind = self.spaces["actions"]["type"] if "actions" in self.spaces else None
        actions, notes = join_actions(source, parts)
        if kind in ("MultiDiscrete", "MultiBinary") and discrete is None:
            return actions.reshape(len(actions), -1).astype(np.int64 if kind == "MultiDiscrete" else np.uint8), notes
        return typed_actions(source, actions, kind == "Discrete" if kind and discrete is None else discrete), notes

    def _entries(self, place: str, values: Array) -> Array:
        # A box of no axes is a vector of one; [N] would be the numbers of a discrete space.
        return values[:, None] if values.ndim == 1 and self.spaces.get(place, {}).get("type") == "Box" else values

    def _same_infos(self) -> None:
        """Leave out infos that some episodes lack, or that have other entries there."""
        names = {name for part in self.steps for name in part if name.startswith("info/") or name in ("log_prob", COST)}
        for name in names:
            kinds = {part[name].shape[1:] if name in part else None for part in self.steps}
            if len(kinds) > 1:
                self.left_out.add(f"infos/{name.removeprefix('info/')}{UNLIKE}")
                for part in self.steps:
                    part.pop(name, None)


def _with_any(found: list[slice], readable: Array) -> list[slice]:
    """Merge stretches so that an episode can be read in each."""
    kept = [some for some in found if readable[some].any()]
    starts = [0, *(some.stop for some in kept[:-1])]
    stops = [*(some.stop for some in kept[:-1]), len(readable)]
    return list(map(slice, starts, stops))


def _spec(spaces: dict[str, Json], steps: StepTable, source: str, said_in: str, *, own_action: bool) -> Spec | None:
    """Return the spaces, once they suit the arrays; joined actions, and those taken as asked (`own_action`), are inferred."""
    observation, action = to_spec(spaces["observations"]), to_spec(spaces["actions"])
    kinds, largest = kinds_of(steps.columns), largest_numbers(steps.columns)
    if observation is None:
        return None
    try:
        if own_action or spaces["actions"]["type"] in ("Dict", "Tuple"):
            action = infer_spec(kinds, largest).action
        spec = Spec(observation=observation, action=action)
        check_spec(kinds, largest, spec)
    except DataError as error:
        sentence = str(error).replace("The spec has", "they have", 1)
        raise DataError(f"{source}: the spaces in {said_in} are not those of its arrays: {sentence}") from None
    return spec


def _environment(place: _Place) -> tuple[Environment | None, list[str]]:
    text = place.metadata.get("env_spec")
    if not text:
        return None, []
    try:
        spec: Any = parse_json(text) if isinstance(text, str) else text
        return Environment(id=spec["id"], kwargs=spec.get("kwargs") or {}), []
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, [f"env_spec of {place.said_in} names no environment; say environment=ID."]
