"""LeRobot's datasets (2.0, 2.1 and 3.0): a folder with `meta/info.json` and Parquet files of frames below `data/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...config import setting
from ...errors import DataError
from ...storage.json_text import parse_json
from ..arrays import Array, check_rename, existing_file, flags, one_column
from ..format import RENAME, Imported, StepFormat
from ..runs import Runs
from ..untrusted.unpacking import OBJECTS, needs, stored
from ..untrusted.values import json_file
from .images import decode_images
from .lerobot_video import Videos
from .parquet_table import Parquet, is_parquet, open_parquet, read_column, read_table

INFO = Path("meta", "info.json")
NAMES = {  # what can be renamed, and the usual name
    "observation": "observation",
    "action": "action",
    "reward": "next.reward",
    "done": "next.done",
    "truncated": "next.truncated",
    "episode": "episode_index",
    "step": "frame_index",
}
DERIVED = ("timestamp", "index", "episode_index", "frame_index")  # positions, which a dataset of d3ray has anyway
VERSIONS = ("v2.0", "v2.1", "v3.0")


class LeRobot(StepFormat):
    """Steps of one Parquet file of a LeRobot dataset, which holds one episode (2.x) or many (3.0).

    Row t holds o_t, a_t and, where the dataset has them, `next.reward` and `next.done` of that action. There is no observation
    after the last action of an episode, so final ones are missing. Demonstrations have no rewards: then they are zeros, and a note
    says so. An episode ends where `episode_index` changes. `next.done` does not say why an episode ended: it is taken as
    terminated unless `next.truncated` or `done="truncated"` says otherwise; without it every episode is truncated.

    Features `observation.…` become the observation, several of them a dict of `state`, `images/top` and so on. Images in the
    Parquet files (PNG or JPEG) become [height, width, 3] uint8, and so do the frames of cameras that are stored as video, of each
    row that of its `timestamp`; without PyAV, or without the videos, these are left out, which a note says. Other features of
    numbers become `info/NAME`; `timestamp`, `index` and `frame_index` are left out. What features call their entries (`names`) is
    kept. Tasks (texts by `task_index`), frames a second and the robot go into the provenance.

    `rename` has `observation` (of which others are parts), `action`, `reward`, `done`, `truncated`, `episode` and `step`.

    Source: LeRobot, `docs/source/lerobot-dataset-v3.mdx`, `datasets/feature_utils.py` and the script that converts 2.1 to 3.0.
    """

    name = "lerobot"
    description = "LeRobot 2.x and 3.0: meta/info.json and Parquet files"
    rename: Mapping[str, str] = RENAME
    done: Literal["terminated", "truncated"] = setting("terminated", "what next.done means")

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_dir():
            return _read_info(path) is not None
        return is_parquet(path) and _root(path) is not None

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        if (info := _read_info(folder)) is None:
            return []
        files = sorted(folder.glob("data/*/*.parquet"))
        if files:
            _check_counts(folder, files, info)
        return files or [folder]

    def read(self, path: Path) -> Imported:
        folder = path.is_dir()
        root = path if folder else _root(existing_file(path))
        if root is None or (info := _read_info(root)) is None:
            raise DataError(f"{path} is not below the data folder of a LeRobot dataset: there is no {INFO}.")
        if folder:
            raise DataError(f"{path} has no Parquet file below data/.")
        version = str(info.get("codebase_version"))
        if version not in VERSIONS:
            raise DataError(f"{root / INFO} is of version {version}; {', '.join(VERSIONS)} are read.")
        names, source = NAMES | dict(check_rename(self.rename, NAMES, self.name)), str(path)
        with open_parquet(path) as file:
            table = _Table(file, info["features"], names, source, Videos(root, info))
            observations, called, notes = table.observations()
            called["action"] = table.entry_names(names["action"])
            actions = self.actions(source, table.numbers(names["action"]))
            terminated, truncated, last, said = table.ends(self.done)
            rewards, no_rewards = table.rewards(len(last))
            infos = table.infos()
            runs = Runs(observations, np.zeros(len(last), bool), last, actions, rewards, terminated, truncated, infos)
        steps, cut = runs.steps(source, self.timeout_at)
        notes = [*notes, *table.notes(), *no_rewards, *said, *cut, *self.on_ends(steps, limits_known=False)]
        about = {key: info[key] for key in ("fps", "robot_type") if info.get(key)} | _tasks(root, infos.get("info/task_index"))
        return Imported(steps, names=called, notes=notes, provenance={"version": version, **about})


@dataclass(frozen=True)
class _Table:
    """One Parquet file, by what `info.json` says of its features."""

    file: Parquet
    features: Mapping[str, Any]
    names: Mapping[str, str]
    source: str
    videos: Videos

    def kind(self, name: str) -> str:
        return str(self.features[name].get("dtype"))

    def numbers(self, name: str) -> Array:
        if name not in self.file.schema_arrow.names:
            raise DataError(f"{self.source} has no column {name!r}, only {', '.join(map(repr, self.file.schema_arrow.names))}.")
        values = read_column(self.file, name, self.source)
        shape = tuple(self.features.get(name, {}).get("shape", values.shape[1:]))
        if len(values) and values[0].size != np.prod(shape, dtype=np.int64):
            raise DataError(f"{self.source}: column {name!r} has entries of {values[0].size} numbers; {INFO} says {list(shape)}.")
        return values.reshape(len(values), *shape)

    def entry_names(self, name: str) -> tuple[str, ...]:
        """Read a list, the one list of a mapping (`{"motors": […]}`), or its keys (`{"x": 0, "y": 1}`); else nothing."""
        said: Any = self.features.get(name, {}).get("names")
        if isinstance(said, dict):
            values: list[Any] = list(said.values())
            said = values[0] if len(values) == 1 and isinstance(values[0], list) else list(said)
        return tuple(map(str, said)) if isinstance(said, list) else ()

    def observations(self) -> tuple[Array | dict[str, Array], dict[str, tuple[str, ...]], list[str]]:
        root = self.names["observation"]
        parts = [name for name in self.features if name == root or name.startswith(f"{root}.")]
        why = self._why_not([name for name in parts if self.kind(name) == "video"])
        videos = [name for name, said in why.items() if said]
        texts = [name for name in parts if self.kind(name) in ("string", "language")]
        notes: list[str] = []
        if videos:
            notes.append(f"Left out, being videos: {', '.join(videos)}; {why[videos[0]]}.")
        if texts:
            notes.append(f"Left out, being text: {', '.join(texts)}.")
        kept = {
            name.removeprefix(root).removeprefix(".").replace(".", "/"): name for name in parts if name not in (*videos, *texts)
        }
        seen = {part: self._seen(name) for part, name in kept.items()}
        called = {f"observation/{part}" if len(kept) > 1 else "observation": self.entry_names(name) for part, name in kept.items()}
        if not seen:
            raise DataError(
                f"{self.source}: "
                + (f"all observations are videos, and {why[videos[0]]}." if videos else f"there is no feature {root!r}.")
            )
        return next(iter(seen.values())) if len(seen) == 1 else seen, called, notes

    def _why_not(self, cameras: list[str]) -> dict[str, str]:
        """Say why each camera that is stored as video is left out; empty where it is not."""
        if not cameras or not self.file.metadata.num_rows:
            return dict.fromkeys(cameras, "there are no frames")
        episode = self.numbers(self.names["episode"])
        return {camera: self.videos.why_not(camera, int(episode.reshape(-1)[0])) for camera in cameras}

    def _seen(self, name: str) -> Array:
        kind = self.kind(name)
        if kind == "video":
            episode, time = (self.numbers(word).reshape(-1) for word in (self.names["episode"], "timestamp"))
            return self.videos.frames(name, episode, time)
        return self._images(name) if kind == "image" else self.numbers(name)

    def _images(self, name: str) -> Array:
        column = read_table(self.file, self.source, [name]).column(name)
        rows: list[Any] = column.to_pylist()
        images: list[Any] = [row.get("bytes") if isinstance(row, dict) else row for row in rows]
        if None in images:
            row = images.index(None)
            there = rows[row].get("path") if isinstance(rows[row], dict) else None
            raise DataError(
                f"{self.source}: column {name!r} has no image in row {row}" + (f" but the path {there!r}." if there else ".")
            )
        shape, axes = tuple(self.features[name].get("shape", ())), self.features[name].get("names")
        if axes and str(axes[0]).startswith("channel"):  # said of images that are stored the other way round
            shape = (*shape[1:], shape[0])
        return decode_images(images, f"{self.source}: {name!r}", shape or None)

    def ends(self, done: str) -> tuple[Array, Array, Array, list[str]]:
        """Return `terminated`, `truncated` and `last`, [N] bool each, and notes."""
        episode = one_column(self.source, self.names["episode"], self.numbers(self.names["episode"]))
        last = np.r_[episode[1:] != episode[:-1], True]
        self._in_order(episode, last)
        given = {
            word: flags(self.source, name, self.numbers(name))
            for word in ("done", "truncated")
            if (name := self.names[word]) in self.file.schema_arrow.names
        }
        none = np.zeros(len(last), bool)
        if "done" not in given:
            return none, given.get("truncated", none), last, []
        if done == "truncated":
            return none, given["done"], last, []
        truncated = given.get("truncated", none)
        said = (
            []
            if "truncated" in given
            else [f"{self.names['done']!r} was taken as terminated; done='truncated' takes it otherwise."]
        )
        return given["done"] & ~truncated, truncated, last, said

    def _in_order(self, episode: Array, last: Array) -> None:
        """Raise DataError where an episode comes twice, or its frames are not counted from 0."""
        runs = episode[last]
        if len(np.unique(runs)) < len(runs):
            values, counts = np.unique(runs, return_counts=True)
            raise DataError(f"{self.source}: episode {int(values[counts.argmax()])} lies in several places.")
        if (name := self.names["step"]) not in self.file.schema_arrow.names:
            return
        step = one_column(self.source, name, self.numbers(name))
        first = np.r_[0, np.flatnonzero(last)[:-1] + 1]
        due = np.arange(len(step)) - np.repeat(first, np.diff(np.r_[first, len(step)]))
        if (wrong := np.flatnonzero(step != due)).size:
            row = int(wrong[0])
            raise DataError(f"{self.source}: {name!r} is {step[row]} in row {row}, where frame {due[row]} of its episode is due.")

    def rewards(self, n: int) -> tuple[Array, list[str]]:
        name = self.names["reward"]
        if name not in self.file.schema_arrow.names:
            return np.zeros(n, np.float32), [f"There is no {name!r}; rewards are zeros."]
        return one_column(self.source, name, self.numbers(name)), []

    def infos(self) -> dict[str, Array]:
        return {f"info/{name}": self._flat(name) for name in self._others() if self._is_numbers(name)}

    def notes(self) -> list[str]:
        left = [name for name in self._others() if not self._is_numbers(name)]
        return [f"Left out, being no numbers: {', '.join(left)}."] if left else []

    def _flat(self, name: str) -> Array:
        values = self.numbers(name)
        return values[:, 0] if values.shape[1:] == (1,) else values

    def _others(self) -> list[str]:
        taken = {*DERIVED, *(name for word, name in self.names.items() if word != "observation")}
        root = self.names["observation"]
        return [
            n for n in self.file.schema_arrow.names if n in self.features and n not in taken and not f"{n}.".startswith(f"{root}.")
        ]

    def _is_numbers(self, name: str) -> bool:
        return self.kind(name).startswith(("float", "int", "uint", "bool"))


def _root(file: Path) -> Path | None:
    """Find the dataset's folder, of a file at `data/chunk-000/NAME.parquet`."""
    return next((folder for folder in file.absolute().parents[1:3] if _read_info(folder) is not None), None)


def _read_info(root: Path) -> dict[str, Any] | None:
    """Read `meta/info.json`; None where there is none, or it is no LeRobot dataset's."""
    try:
        content: Any = json_file(root / INFO)
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and "codebase_version" in content and isinstance(content.get("features"), dict)
    return content if known else None


def _check_counts(folder: Path, files: list[Path], info: Mapping[str, Any]) -> None:
    said = {word: n for word in ("episodes", "frames") if isinstance(n := info.get(f"total_{word}"), int)}
    if not said:
        return
    frames, episodes = 0, set[int]()
    for path in files:
        with open_parquet(path) as file:
            frames += file.metadata.num_rows
            if NAMES["episode"] in file.schema_arrow.names:
                episodes |= set(np.unique(read_column(file, NAMES["episode"], str(path))).tolist())
    there = {"frames": frames} | ({"episodes": len(episodes)} if episodes else {})
    for word, n in said.items():
        if there.get(word, n) != n:
            lacking = next(k for k in count() if k not in episodes)
            which = f" (episode {lacking} is not there)" if lacking < said.get("episodes", 0) and episodes else ""
            raise DataError(
                f"{folder} has {there[word]} {word} in {len(files)} files below data/, and {INFO} says {n}{which}: fetch what is "
                "missing, or name the files that are to be read."
            )


def _tasks(root: Path, seen: Array | None) -> dict[str, Any]:
    """Read the texts of the tasks that frames of the file belong to, by index, where they can be read."""
    try:
        if (parquet := root / "meta" / "tasks.parquet").is_file():
            with open_parquet(parquet) as file:
                rows: list[Any] = read_table(file, str(parquet)).to_pylist()
        else:
            stored(texts := root / "meta" / "tasks.jsonl")
            needs(str(texts), OBJECTS * texts.stat().st_size)
            lines = texts.read_text(encoding="utf-8").splitlines()
            rows = [parse_json(line) for line in lines if line]
        known = {int(row["task_index"]): str(row.get("task", row.get("__index_level_0__"))) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
        return {}
    found = {str(k): known[k] for k in np.unique(seen).tolist() if k in known} if seen is not None else {}
    return {"tasks": found} if found else {}
