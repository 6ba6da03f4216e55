"""RLDS datasets as TensorFlow Datasets writes them: one TFRecord an episode, and `features.json` beside the files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...config import setting
from ...errors import DataError
from ..arrays import Array, check_rename, existing_file, one_column
from ..format import RENAME, Imported, StepFormat
from ..runs import Runs, ends_of, join, join_actions
from ..untrusted.values import json_file
from .features import FEATURES, Features, Leaf, read_features
from .tfrecord import is_tfrecord, parse_example, records

INFO = "dataset_info.json"
_NAME = re.compile(r"-([^-]+)\.tfrecord(?:-(\d+)-of-(\d+))?")


@dataclass(frozen=True)
class Shard:
    """Split of a file by its name, and that it is the k-th file (from 0) of n; both None where the name has only the split."""

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


NAMES = ("observation", "action", "reward")  # what can be renamed
FLAGS = ("is_first", "is_last", "is_terminal")


class RLDS(StepFormat):
    """Steps of one TFRecord file, its episodes in order; `features.json` lies beside it.

    Row t of an episode holds o_t, a_t and the reward of that action. In the step with `is_last` only the observation means
    anything: it becomes the final observation, and its action and reward are left out. `is_terminal` of that step says whether the
    MDP ended; otherwise the episode was truncated. An episode whose last step is not `is_last` was cut while it was recorded: all
    its steps are kept, and it has no final observation.

    The trap: some programs put a last action and its reward into the step with `is_last`. Where rewards stand there a note says
    so, and `last_step="step"` takes those rows for steps, without final observations.

    Features of numbers other than observation, action and reward become `info/NAME`, `discount` too. Images are PNG or JPEG, and
    become [height, width, channels]. Text, video and sequences within a step are left out, and so is what belongs to a whole
    episode; notes name them. Actions of several parts are put side by side. Without a reward rewards are zeros.

    Source: RLDS (Ramos et al. 2021, arXiv:2111.02767) and TensorFlow Datasets, `example_serializer.py` and `feature.proto`.
    """

    name = "rlds"
    description = "RLDS: TFRecord files of TensorFlow Datasets beside features.json"
    rename: Mapping[str, str] = RENAME
    last_step: Literal["closing", "step"] = setting(
        "closing", "the row with is_last: closing, with the final observation only, or a step of its own"
    )
    invalid: Literal["keep", "leave out"] = setting("keep", "episodes whose feature invalid is true")

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_dir():
            return bool(cls.parts(path))
        return is_tfrecord(path) and read_features(path.parent) is not None

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        if not (folder / FEATURES).is_file() or read_features(folder) is None:
            return []
        files = sorted(file for file in folder.iterdir() if ".tfrecord" in file.name and file.is_file())
        check_shards(folder, files)
        return files

    def read(self, path: Path) -> Imported:
        path, rename = existing_file(path), check_rename(self.rename, NAMES, self.name)
        features = read_features(path.parent)
        if features is None:
            raise DataError(f"{path} needs {FEATURES} beside it, with the shapes and types of its steps; there is none.")
        plan, found = _plan(features, rename, str(path)), _Found()
        for k, record in enumerate(records(path)):
            where = f"{path}, record {k}"
            _episode(parse_example(record, where), plan, where, found, self.last_step, self.invalid)
        notes = check_records(path, found.n_records)
        if not found.observations:
            raise DataError(f"{path} has no steps: {found.n_records} records, none with a step and what followed it.")
        runs, said = self._runs(found, plan, str(path))
        steps, limits = runs.steps(str(path), self.timeout_at)
        ends = self.on_ends(steps, limits_known="steps/is_terminal" in features.leaves)
        shard = shard_of(path)
        about = _info(path.parent) | ({"split": shard.split} if shard else {})
        return Imported(steps, notes=[*plan.notes, *found.notes(), *notes, *said, *limits, *ends], provenance=about)

    def _runs(self, found: _Found, plan: _Plan, source: str) -> tuple[Runs, list[str]]:
        columns, observations = join(found.steps, found.names), join(found.observations, found.names)
        lengths = np.array([len(next(iter(part.values()))) for part in found.steps])
        final, last = ends_of(lengths + np.array(found.final), lengths)
        terminated = last.copy()
        terminated[last] = found.terminal
        actions, notes = join_actions(source, {name: columns.pop(f"action/{name}") for name in plan.action})
        rewards = one_column(source, "reward", columns.pop("reward")) if "reward" in columns else np.zeros(len(last), np.float32)
        runs = Runs(
            observations.get("", observations),
            final,
            last,
            self.actions(source, actions),
            rewards,
            terminated,
            last & ~terminated,
            columns,
        )
        return runs, notes


@dataclass(frozen=True)
class _Plan:
    """Which leaves become what."""

    observation: dict[str, Leaf]
    action: dict[str, Leaf]
    reward: Leaf | None
    flags: dict[str, Leaf]
    info: dict[str, Leaf]
    notes: list[str]


@dataclass
class _Found:
    """Arrays of each episode, and counts for notes."""

    observations: list[dict[str, Array]] = field(default_factory=list[dict[str, Array]])  # T + 1 rows, or T
    steps: list[dict[str, Array]] = field(default_factory=list[dict[str, Array]])  # T rows: actions, rewards, infos
    terminal: list[bool] = field(default_factory=list[bool])
    final: list[bool] = field(default_factory=list[bool])
    names: list[str] = field(default_factory=list[str])
    n_records: int = 0
    alone: int = 0
    late: int = 0
    early: int = 0
    rewarded: int = 0
    invalid: int = 0
    left_out: int = 0

    def notes(self) -> list[str]:
        n = len(self.final)
        said = {
            f"{self.alone} episodes of a single observation hold no step.": self.alone,
            f"{self.late} of {n} episodes do not begin with is_first: how they began was not recorded.": self.late,
            f"{self.early} steps within episodes are marked is_terminal; only that of an episode's last step counts.": self.early,
            f"{self.rewarded} of {n} episodes have a reward in the row with is_last, which holds only the final observation; if it "
            "is a step of its own, import with last_step='step'.": self.rewarded,
            f"{self.invalid} episodes are marked invalid and were kept; invalid='leave out' drops them.": self.invalid,
            f"{self.left_out} episodes that are marked invalid were left out.": self.left_out,
        }
        return [sentence for sentence, count in said.items() if count]


def _plan(features: Features, rename: Mapping[str, str], source: str) -> _Plan:
    for said in rename.values():
        if not features.steps(said):
            names = ", ".join(sorted(leaf.removeprefix("steps/") for leaf in features.leaves if leaf.startswith("steps/")))
            raise DataError(f"{source}: {FEATURES} has no feature 'steps/{said}', only {names}.")
    observation, action, rewards = (features.steps(rename.get(name, name)) for name in NAMES)
    if len(rewards) > 1:
        raise DataError(
            f"{source}: the feature 'reward' has several parts; name one with rename.reward, such as {next(iter(rewards))!r}."
        )
    reward = next(iter(rewards.values()), None)
    if not observation or not action:
        missing = "action" if observation else "observation"
        raise DataError(f"{source}: {FEATURES} has no numbers or images in the step feature {missing!r}.")
    flags = {name: leaf for name in FLAGS if (leaf := features.leaves.get(f"steps/{name}"))}
    if "is_last" not in flags and "is_first" not in flags:
        raise DataError(f"{source}: {FEATURES} has neither 'steps/is_first' nor 'steps/is_last', so it is no RLDS dataset.")
    taken = {leaf.name for part in (observation, action, rewards, flags) for leaf in part.values()}
    info = {k.removeprefix("steps/"): leaf for k, leaf in features.leaves.items() if k.startswith("steps/") and k not in taken}
    episode = [name for name in features.leaves if not name.startswith("steps/") and name.rpartition("/")[2] != "invalid"]
    notes: list[str] = []
    if reward is None:
        notes.append("There is no feature 'reward'; rewards are zeros.")
    if "is_terminal" not in flags:
        notes.append("There is no feature 'is_terminal'; every episode was taken as truncated.")
    if left := sorted([*(name for name in features.others if name.startswith("steps/")), *episode, *_of_episodes(features)]):
        notes.append(f"Left out, being no numbers of a step: {', '.join(left)}.")
    return _Plan(observation, action, reward, flags, info, notes)


def _of_episodes(features: Features) -> list[str]:
    return [name for name in features.others if not name.startswith("steps/")]


def _episode(raw: Mapping[str, Any], plan: _Plan, where: str, found: _Found, last_step: str, invalid: str) -> None:
    found.n_records += 1
    marked = any(name.rpartition("/")[2] == "invalid" and len(values) and values[0] for name, values in raw.items())
    found.left_out += marked and invalid != "keep"
    if marked and invalid != "keep":
        return
    n = len(raw.get("steps/is_last", raw.get("steps/is_first", ())))
    flags = {name: leaf.array(raw.get(leaf.name), n, where).reshape(n).astype(bool) for name, leaf in plan.flags.items()}
    if n and (middle := np.flatnonzero(flags["is_last"][:-1] if "is_last" in flags else flags["is_first"][1:])).size:
        flag = "is_last" if "is_last" in flags else "is_first"
        raise DataError(f"{where} holds more than one episode: {flag} is true in step {int(middle[0])} of {n}.")
    ends = bool(n) and (bool(flags["is_last"][-1]) if "is_last" in flags else True)
    closing = ends and last_step == "closing"
    steps = n - closing
    if steps < 1:
        found.alone += 1
        return
    reward = None if plan.reward is None else plan.reward.array(raw.get(plan.reward.name), n, where)
    terminal = flags.get("is_terminal", np.zeros(n, bool))
    found.late += "is_first" in flags and not flags["is_first"][0]
    found.early += int(terminal[:-1].sum())
    found.rewarded += closing and reward is not None and bool(reward[-1].any())
    found.invalid += marked
    found.observations.append({name: leaf.array(raw.get(leaf.name), n, where) for name, leaf in plan.observation.items()})
    columns = {f"action/{name}": leaf.array(raw.get(leaf.name), n, where) for name, leaf in plan.action.items()}
    columns |= {f"info/{name}": leaf.array(raw.get(leaf.name), n, where) for name, leaf in plan.info.items()}
    columns |= {} if reward is None else {"reward": reward}
    found.steps.append({name: array[:steps] for name, array in columns.items()})
    found.terminal.append(bool(terminal[-1]))
    found.final.append(closing)
    found.names.append(where)


def _info(folder: Path) -> dict[str, str]:
    content = read_info(folder)
    return {key: str(content[key]) for key in ("name", "version") if key in content}
