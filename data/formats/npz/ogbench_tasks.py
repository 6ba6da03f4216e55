"""OGBench's single tasks: five fixed goals in each of its environments, and what a step of its data earns towards one.

`ogbench_tasks.json` beside this file has them as ogbench 1.2.2 does (`set_tasks` of its environments; which is the default one, its
`singletask-v0`); tests compare it with the package. So its files become data of a task without an environment.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, DataError, did_you_mean
from ...storage.steps import StepTable, steps_from_arrays

KINDS = ("play", "noisy", "navigate", "stitch", "explore")  # of data, which names have before "singletask" or the version
_NAME = re.compile(r"(?:visual-)?(?P<environment>.+)-singletask(?:-task(?P<task>\d+))?-v0(?:-val)?")


def without_kind(name: str) -> str:
    """Return the environment of data: `cube-single-singletask-v0` of `cube-single-play-singletask-v0`."""
    return "-".join(part for part in name.split("-") if part not in KINDS)


@dataclass(frozen=True)
class Place:
    """A goal of something: where in `qpos` it is, the coordinates that it is to have, and how near."""

    at: int
    goal: tuple[float, ...]
    within: float

    def solved(self, qpos: np.ndarray) -> np.ndarray:
        found = qpos[:, self.at : self.at + len(self.goal)]
        return np.linalg.norm(found - np.array(self.goal), axis=-1) <= self.within


@dataclass(frozen=True)
class Task:
    """One task: every place is to be reached and every button to be in its state.

    Attributes:
        name: `ENVIRONMENT-singletask-taskK-v0`.
        places: of what moves, in MuJoCo's positions.
        buttons: states, of those that have any.
    """

    name: str
    places: tuple[Place, ...]
    buttons: tuple[int, ...]

    def judge(self, qpos: np.ndarray, button_states: np.ndarray | None, source: str) -> tuple[np.ndarray, np.ndarray]:
        """Return rewards [N] and whether the task is solved [N], in the states before the steps, as OGBench relabels its data.

        A step costs 1 for each thing that is not as it is to be. Raises DataError where the states are of another environment.

        Args:
            qpos: MuJoCo's positions before the steps, [N, nq].
            button_states: [N, buttons], where there are some.
            source: what a message calls the data.
        """
        reach = max((place.at + len(place.goal) for place in self.places), default=0)
        if qpos.ndim != 2 or qpos.shape[1] < reach:
            raise DataError(f"{source} has {qpos.shape[-1]} positions in qpos, of which the task {self.name} needs {reach}.")
        parts = [place.solved(qpos)[:, None] for place in self.places]
        if self.buttons:
            if button_states is None or button_states.shape != (len(qpos), len(self.buttons)):
                has = "no button_states" if button_states is None else f"{button_states.shape[-1]} buttons"
                raise DataError(f"{source} has {has}, and the task {self.name} is about {len(self.buttons)} buttons.")
            parts.append(button_states == np.array(self.buttons))
        solved = np.concatenate(parts, axis=1)
        return (solved.sum(1) - solved.shape[1]).astype(np.float32), np.asarray(solved.all(1))

    def of(self, table: StepTable) -> StepTable:
        """Return the steps of OGBench's data, which have qpos, as steps of this task: with its rewards, and ended where it is."""
        columns, rows = table.columns, np.flatnonzero(~table.columns["closing"])
        extra = {name: columns[name][rows] for name in columns if name.startswith("info/")}
        rewards, solved = self.judge(extra["info/qpos"], extra.get("info/button_states"), "the data")
        cut = columns["truncated"][rows]
        return steps_from_arrays(
            columns["observation"][rows],
            columns["action"][rows],
            rewards,
            solved,
            cut,
            final_observations=columns["observation"][rows[solved | cut] + 1],
            extra=extra,
        )


def find_task(name: str) -> Task:
    """Return the task of a single-task name, with or without the data's kind. Raises ConfigError where there is none."""
    known, match = environments(), _NAME.fullmatch(without_kind(name))
    if match is None:
        raise ConfigError(f"{name!r} is no single task of OGBench, which is called as cube-single-play-singletask-task2-v0.")
    environment = match["environment"]
    if environment not in known:
        raise ConfigError(f"OGBench has no single tasks in {environment!r}{did_you_mean(environment, known)}")
    of_it = known[environment]
    number = int(match["task"] or of_it["default"])
    if not 1 <= number <= len(of_it["tasks"]):
        raise ConfigError(f"{name!r} is no task: OGBench has the tasks 1 to {len(of_it['tasks'])} in {environment}.")
    said = of_it["tasks"][number - 1]
    places = tuple(Place(one["at"], tuple(one["goal"]), one["within"]) for one in said.get("places", ()))
    return Task(f"{environment}-singletask-task{number}-v0", places, tuple(said.get("buttons", ())))


@functools.cache
def environments() -> Mapping[str, Any]:
    return json.loads(Path(__file__).with_name("ogbench_tasks.json").read_text("utf-8"))["environments"]
