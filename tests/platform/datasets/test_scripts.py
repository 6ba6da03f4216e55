"""Datasets that OGBench's scripted policies make: what their rows are, that they follow from a seed, and what cannot be made."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.catalog import catalog
from d3ray.data.catalog.recipe import Script
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.npz.ogbench_tasks import find_task
from d3ray.platform.datasets import scripted_run
from d3ray.platform.datasets.recipes import find, make, runs_of

MAZE = {"kind": "navigate", "environment": "pointmaze-medium-v0", "noise": 0.5, "episode": 40, "steps": 240}
CUBE = {"kind": "play", "environment": "cube-single-v0", "episode": 150, "steps": 300}
SCRIPTS = {
    "points": MAZE,
    "stitched": {**MAZE, "kind": "stitch", "environment": "pointmaze-giant-v0"},
    "cube": CUBE,
    "noisy": {**CUBE, "kind": "noisy", "environment": "cube-double-v0", "random": 0.1, "episode": 30, "steps": 60},
    "scene": {**CUBE, "environment": "scene-v0", "episode": 30, "steps": 60},
    "puzzle": {**CUBE, "environment": "puzzle-3x3-v0", "episode": 30, "steps": 60},
}


@pytest.fixture(autouse=True)
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tiny/NAME` without rewards, and `tiny/NAME-taskK`; six episodes of the maze are three pieces."""
    entries: dict[str, Any] = {}
    for name, script in SCRIPTS.items():
        environment = str(script["environment"]).removesuffix("-v0")
        entries[f"tiny/{name}"] = {"environment": {"id": f"{environment}-v0"}, "script": script}
        for k in range(1, 6):
            task = f"{environment}-singletask-task{k}-v0"
            entries[f"tiny/{name}-task{k}"] = {"environment": {"id": task}, "script": {**script, "task": task}}
    (tmp_path / "catalog.json").write_text(json.dumps({"entries": entries}))
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "catalog.json"))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scripted_run, "_PIECE", 80)
    monkeypatch.chdir(tmp_path)  # MuJoCo may leave its log there


def made(*names: str, at_once: int = 1) -> list[Dataset]:
    pytest.importorskip("ogbench")
    done = make([f"tiny/{name}" for name in names], at_once=at_once)
    assert done.failed == {}
    return list(done.datasets.values())


def steps(dataset: Dataset) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of all steps without closing rows, and the observation after each."""
    columns = dataset.columns
    rows = np.flatnonzero(~columns["closing"])
    return {name: column[rows] for name, column in columns.items()}, columns["observation"][rows + 1]


def test_a_row_is_what_the_simulator_showed_did_and_shows_next() -> None:
    (dataset,) = made("points")
    assert (dataset.n_transitions, dataset.n_episodes) == (240, 6)
    columns, following = steps(dataset)
    np.testing.assert_array_equal(columns["observation"], columns["info/qpos"])
    assert not columns["reward"].any()
    assert columns["truncated"].reshape(6, 40)[:, -1].all()
    assert not columns["terminated"].any()
    assert dataset.environment is not None
    assert dataset.environment.id == "pointmaze-medium-v0"
    action = dataset.spec.action.bounds()  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_array_equal(action, [[-1, -1], [1, 1]])
    import gymnasium

    maze: Any = gymnasium.make("pointmaze-medium-v0").unwrapped
    for k in range(0, 240, 7):
        maze.set_state(columns["info/qpos"][k].astype(float), columns["info/qvel"][k].astype(float))
        maze.data.qacc_warmstart[:] = 0
        shown = maze.step(columns["action"][k].astype(float))[0]
        np.testing.assert_allclose(following[k], shown, atol=1e-4)


def test_points_reach_goals_again_and_again_and_stop_where_they_stitch() -> None:
    navigating, stitched = made("points", "stitched")
    for dataset in (navigating, stitched):
        columns, following = steps(dataset)
        assert 0.05 < np.linalg.norm(following - columns["observation"], axis=1).mean() < 0.5
        assert (np.abs(columns["action"]) <= 1).all()
    assert len(np.unique(navigating.columns["observation"][0] - stitched.columns["observation"][0])) == 2


def test_the_arm_plays_with_the_cube() -> None:
    """It comes to the cube, closes its fingers, and carries it: 150 steps are six seconds, in which a target takes three."""
    (dataset,) = made("cube")
    columns, _ = steps(dataset)
    height = columns["info/qpos"][:, 16].reshape(2, 150)
    assert (height.max(1) > 0.06).all(), "the cube was lifted in no episode"
    moved = np.linalg.norm(np.diff(columns["info/qpos"][:, 14:16].reshape(2, 150, 2), axis=1), axis=2).sum(1)
    assert (moved > 0.05).all()
    assert columns["observation"].shape == (300, 28)


@pytest.mark.parametrize("name", ["noisy", "scene", "puzzle"])
def test_other_manipulators_are_played_with_too(name: str) -> None:
    (dataset,) = made(name)
    assert dataset.n_transitions == 60
    assert ("info/button_states" in dataset.columns) == (name != "noisy")


def test_single_tasks_are_paid_for_the_same_steps() -> None:
    plain, first, third = made("points", "points-task1", "points-task3")
    assert len(list(Path("cache/recipes").glob("*/pieces"))) == 1
    columns, following = steps(plain)
    for k, dataset in ((1, first), (3, third)):
        paid, after = steps(dataset)
        task = find_task(f"pointmaze-medium-singletask-task{k}-v0")
        rewards, solved = task.judge(columns["info/qpos"], None, "")
        np.testing.assert_array_equal(paid["reward"], rewards)
        np.testing.assert_array_equal(paid["terminated"], solved)
        np.testing.assert_array_equal(paid["truncated"], columns["truncated"] & ~solved)
        np.testing.assert_array_equal(after, following)
        for name in ("observation", "action", "info/qvel"):
            np.testing.assert_array_equal(paid[name], columns[name])
        assert dataset.environment is not None
        assert dataset.environment.id == task.name
        assert dataset.provenance["made"]["script"]["task"] == task.name
        assert dataset.name == f"tiny/points-task{k}"
        dataset.verify()
    assert first.columns["terminated"].any() or third.columns["terminated"].any(), "no task was solved: compare more episodes"


def test_what_a_killed_run_left_is_kept_and_the_rest_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = made("points")
    monkeypatch.setenv("D3RAY_CACHE", "other")
    entry = catalog().find("tiny/points")
    assert entry is not None
    (run,) = runs_of({"tiny/points": entry})
    assert isinstance(run, scripted_run.ScriptedRun)
    list(run.missing[1].make())
    manifest = run.missing[1].folder / "dataset.json"
    before = manifest.stat().st_mtime_ns
    (resumed,) = made("points")
    assert manifest.stat().st_mtime_ns == before
    assert resumed.fingerprint == whole.fingerprint
    manifest.unlink()
    assert make("tiny/points").datasets["tiny/points"].fingerprint == whole.fingerprint  # what is made needs its pieces no more


def test_environments_without_a_script_and_tasks_of_others_are_refused() -> None:
    for wrong, said in (
        ({"environment": "antmaze-medium-v0"}, "OGBench has scripts for pointmaze-, cube-, scene-, puzzle- alone"),
        ({"task": "cube-single-singletask-task1-v0"}, "which is one of another environment than"),
    ):
        with pytest.raises(ConfigError, match=said):
            Script.checked({**MAZE, **wrong})


def test_another_seed_makes_other_steps(tmp_path: Path) -> None:
    script = Script.checked({**MAZE, "steps": 80})
    pytest.importorskip("ogbench")
    seen = []
    for seed in (0, 0, 1):
        folder = tmp_path / f"{len(seen)}"
        run = scripted_run.ScriptedRun(folder, script.model_copy(update={"seed": seed}), ())
        list(run.make())
        seen.append(Dataset.open(folder / "pieces" / "000000").fingerprint)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.long
def test_pieces_are_made_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    (alone,) = made("points")
    monkeypatch.setenv("D3RAY_CACHE", str(Path("other").absolute()))
    (together,) = made("points", at_once=2)
    assert together.fingerprint == alone.fingerprint


def test_where_ogbench_is_missing_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium

    monkeypatch.delitem(gymnasium.registry, "pointmaze-medium-v0", raising=False)
    monkeypatch.setitem(sys.modules, "ogbench", None)
    done = make("tiny/points", at_once=1)
    assert isinstance(done.failed["tiny/points"], ConfigError)
    assert "pip install 'd3ray[ogbench]' brings it" in str(done.failed["tiny/points"])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ogbench/cube-single-play-v0", "d3ray make d3ray-ogbench/cube-single-play-v0 makes its like by the same script"),
        ("ogbench/antmaze-large-navigate-v0", "It cannot be made here: that takes walkers that its authors trained"),
        ("ogbench/powderworld-easy-play-v0", "It has no recipe here; d3ray datasets d3ray-ogbench has those"),
    ],
)
def test_what_cannot_be_made_is_told(name: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        find([name])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"steps": 250}, "steps is 250, which is no multiple of episode, 40"),
        ({"kind": "play"}, "points navigate or stitch in mazes, and manipulators play or are noisy"),
        ({"task": "pointmaze-medium-singletask-task7-v0"}, "OGBench has the tasks 1 to 5 in pointmaze-medium"),
    ],
)
def test_a_script_that_is_none_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why), warnings.catch_warnings():
        Script.checked({**MAZE, **said})


def test_the_catalog_has_them_as_ogbench_made_them() -> None:
    known = catalog()
    small, giant = known.find("d3ray-ogbench/cube-single-play-100k-v0"), known.find("d3ray-ogbench/pointmaze-giant-navigate-v0")
    task = known.find("d3ray-ogbench/cube-single-play-singletask-task2-100k-v0")
    assert small is not None
    assert giant is not None
    assert task is not None
    assert small.script == Script(kind="play", environment="cube-single-v0", steps=100_000)
    assert giant.script == Script(kind="navigate", environment="pointmaze-giant-v0", noise=0.5, episode=2000)
    assert (task.run_key, task.key == small.key) == (small.run_key, False)
    assert task.environment is not None
    assert task.environment.id == "cube-single-singletask-task2-v0"
