"""OGBench's single tasks as they are shipped, beside what the package itself says."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from d3ray.data.formats.npz.ogbench_tasks import environments, find_task


def package_environment(name: str) -> Any:
    pytest.importorskip("ogbench")
    import gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = gymnasium.make(name, disable_env_checker=True)
        made.reset(seed=0)
    return made


def test_every_task_is_there() -> None:
    known = environments()
    assert len(known) == 23
    for name, said in known.items():
        assert len(said["tasks"]) == 5
        assert find_task(f"{name}-singletask-v0") == find_task(f"{name}-singletask-task{said['default']}-v0")
        for k in range(1, 6):
            task = find_task(f"visual-{name}-play-singletask-task{k}-v0-val")
            assert task.places or task.buttons
    assert find_task("cube-quadruple-play-singletask-v0").name == "cube-quadruple-singletask-task2-v0"


@pytest.mark.parametrize(
    "name",
    [
        "pointmaze-teleport-singletask-task5-v0",
        "antmaze-giant-singletask-v0",
        "antsoccer-medium-singletask-v0",
        "cube-single-singletask-task4-v0",
        "cube-triple-singletask-task3-v0",
        "scene-singletask-task4-v0",
        "scene-singletask-v0",
        "puzzle-4x6-singletask-v0",
    ],
)
def test_rewards_and_ends_are_the_packages(name: str) -> None:
    """Of states of which each part is at its goal, near enough, just too far, or elsewhere."""
    environment = package_environment(name)
    from ogbench.relabel_utils import relabel_dataset

    task, rng, n = find_task(name), np.random.default_rng(0), 400
    qpos = rng.normal(size=(n, 60)).astype(np.float32)
    for place in task.places:
        away = rng.normal(size=(n, len(place.goal)))
        away *= rng.choice([0, 0.5, 0.98, 1.02, 9], (n, 1)) * place.within / np.linalg.norm(away, axis=1, keepdims=True)
        qpos[:, place.at : place.at + len(place.goal)] = np.array(place.goal) + away
    buttons = None
    if task.buttons:
        wrong = rng.random((n, len(task.buttons))) < rng.choice([0, 0.1, 0.5], (n, 1))
        buttons = np.array(task.buttons) ^ wrong
    expected: dict[str, Any] = {"qpos": qpos, **({} if buttons is None else {"button_states": buttons})}
    relabel_dataset(name, environment, expected)
    rewards, solved = task.judge(qpos, buttons, "data")
    np.testing.assert_array_equal(rewards, expected["rewards"])
    np.testing.assert_array_equal(solved, expected["masks"] == 0)
    assert 0 < solved.sum() < n
