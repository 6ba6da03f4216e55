"""Datasets with goals beside observations: the whole, entries, a key of a dict; in memory and in folders; what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import DataError
from d3ray.data.operations.goals import check_goals, has_goals
from d3ray.data.sampling import TransitionSampler
from d3ray.data.scalers.observation import KeywiseScaler, StandardScaler
from d3ray.data.spec import Box, Dict

from .derived import Row, check, listed, walk


def aimed(episodes: list[Row], part: Any) -> list[Row]:
    """The same episodes with a goal column, slowly."""
    found: list[Row] = []
    for one in episodes:
        seen = {name: column for name, column in one.items() if name.startswith("observation")}
        rest = {name: column for name, column in one.items() if name not in ("observation", "observation/desired_goal")}
        if isinstance(part, str):
            rest["observation/goal"] = seen[f"observation/{part}"]
        else:
            rest["observation/observation"] = seen["observation"]
            rest["observation/goal"] = seen["observation"] if part is None else seen["observation"][:, list(part)]
        found.append(rest)
    return found


@pytest.mark.parametrize(("part", "named"), [(None, False), ((2, 0), False), ("joint", True)])
def test_goals_are_what_steps_show_themselves(part: Any, named: bool, place: Callable[[Dataset], Dataset], tmp_path: Path) -> None:
    data = place(walk(named=named))
    found = data.with_goals(part)
    check(found, aimed(listed(walk(named=named)), part), tmp_path / "written")
    assert has_goals(found.spec)
    assert not has_goals(data.spec)
    assert found.name == data.name
    assert found.provenance["derived"]["operation"] == "with_goals"
    assert found.provenance["derived"]["parameters"] == {"part": list(part) if isinstance(part, tuple) else part}
    assert found.provenance["derived"]["parents"][0]["fingerprint"] == data.fingerprint
    opened = Dataset.open(tmp_path / "written")
    assert opened.spec == found.spec
    assert data.with_goals(part) is found  # once


def test_goals_differ_from_data_without_them_and_from_one_another() -> None:
    data = walk()
    fingerprints = {data.fingerprint, *(data.with_goals(part).fingerprint for part in (None, (0,), (1,), (1, 0)))}
    assert len(fingerprints) == 5


def test_names_and_bounds_of_entries_go_along() -> None:
    seen = walk().columns["observation"][:10]
    space = Box(shape=(3,), dtype="float32", names=("x", "y", "speed"), low=(-9.0, -8.0, -7.0), high=(9.0, 8.0, 7.0))
    spec = walk().spec.model_copy(update={"observation": space})
    data = Dataset.from_arrays(seen, np.zeros((10, 2), np.float32), np.zeros(10), np.arange(10) == 9, spec=spec)
    found = data.with_goals((2, 0)).spec.observation
    assert isinstance(found, Dict)
    goal = found.spaces["goal"]
    assert isinstance(goal, Box)
    assert (goal.names, goal.low, goal.high, goal.shape) == (("speed", "x"), (-7.0, -9.0), (7.0, 9.0), (2,))
    assert found.spaces["observation"] == space


def test_views_and_filters_lie_on_goals(place: Callable[[Dataset], Dataset], tmp_path: Path) -> None:
    data, episodes = place(walk()).with_goals((1,)), aimed(listed(walk()), (1,))
    check(data.take([5, 0, 9]), [episodes[k] for k in (5, 0, 9)], tmp_path / "take")
    kept = [one for one in episodes if len(one["reward"]) - 1 >= 8]
    check(data.filter("steps >= 8"), kept, tmp_path / "filter")
    before = place(walk()).filter("steps >= 8").with_goals((1,))
    assert before.fingerprint == data.filter("steps >= 8").fingerprint


def test_batches_have_both(place: Callable[[Dataset], Dataset]) -> None:
    batch = TransitionSampler(place(walk()).with_goals((2, 0)), 30, 1).sample(0)
    for seen in (batch.observation, batch.next_observation):
        np.testing.assert_array_equal(seen["goal"], seen["observation"][:, [2, 0]])


def robots(n: int = 60) -> Dataset:
    """What gymnasium-robotics logs."""
    rng, ends = np.random.default_rng(0), np.arange(n) % 10 == 9
    keys = {"observation": 5, "achieved_goal": 2, "desired_goal": 2}
    seen = {key: rng.normal(size=(n, size)).astype(np.float32) for key, size in keys.items()}
    return Dataset.from_arrays(seen, rng.uniform(-1, 1, (n, 3)), np.zeros(n), ~ends & ends, ends, name="robots")


def test_what_was_asked_for_is_left_out(tmp_path: Path) -> None:
    """It would tell a policy what the data do next, whatever goal it is given."""
    found = robots().with_goals("achieved_goal")
    assert isinstance(found.spec.observation, Dict)
    assert set(found.spec.observation.spaces) == {"observation", "achieved_goal", "goal"}
    check(found, aimed(listed(robots()), "achieved_goal"), tmp_path / "robots")


@pytest.mark.parametrize(
    ("named", "part", "said"),
    [
        (False, "joint", "are no dict, so a goal is the whole or entries by number, not 'joint'"),
        (False, (0, 3), r"have the shape \[3\], and a goal was to be its entries \[0, 3\]"),
        (False, (), r"have the shape \[3\], and a goal was to be its entries \[\]"),
        (False, (-1,), r"have the shape \[3\], and a goal was to be its entries \[-1\]"),
        (True, "join", "are a dict, and a goal is one of its keys, not 'join'.*joint"),
        (True, None, "are a dict, and a goal is one of its keys, not None"),
        (True, (0,), r"are a dict, and a goal is one of its keys, not \(0,\)"),
    ],
)
def test_parts_that_are_not_there_are_refused(named: bool, part: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        walk(named=named).with_goals(part)


def test_goals_of_goals_are_refused() -> None:
    with pytest.raises(DataError, match="have the key 'goal' already"):
        walk().with_goals().with_goals("observation")


def logged(goal: np.ndarray) -> Dataset:
    """Data that say themselves which goal a step was meant for."""
    data = walk(50)
    rows = data.columns
    n = data.n_transitions
    shown = {"observation": np.random.default_rng(1).normal(size=(n, 3)).astype(np.float32), "goal": goal[:n].astype(np.float32)}
    return Dataset.from_arrays(shown, rows["action"][:n], np.zeros(n), np.arange(n) % 10 == 9, name="logged")


def test_logged_goals_are_compared_with_what_is_reached() -> None:
    data = logged(np.random.default_rng(0).normal(5, 1, (50, 3)))
    check_goals(data, None)
    with pytest.raises(DataError, match=r"Goals of 'logged' have the shape \[3\], and what is reached by goal_part has \[2\]"):
        check_goals(data, (0, 1))
    with pytest.raises(DataError, match="have goals and no 'state' beside them: goal_part is one of observation"):
        check_goals(data, "state")
    with pytest.raises(DataError, match="scales the goals of 'logged' otherwise than what is reached, 'observation'"):
        check_goals(data, None, StandardScaler())
    same = StandardScaler(mean=(0.0,) * 3, std=(1.0,) * 3)
    check_goals(data, None, KeywiseScaler(scalers={"observation": same, "goal": same}))
    with pytest.raises(DataError, match="scales the goals"):
        check_goals(data, None, KeywiseScaler(scalers={"observation": same}))


@pytest.mark.parametrize("part", [None, (2, 0)])
def test_goals_that_are_what_is_reached_are_scaled_alike(part: Any) -> None:
    check_goals(walk().with_goals(part), part, StandardScaler())


def test_what_is_remembered_of_goals_is_not_sent_along() -> None:
    data = walk()
    alone = len(pickle.dumps(data))
    assert data.with_goals() is data.with_goals()
    sent = pickle.dumps(data)
    assert len(sent) == alone
    assert pickle.loads(sent).with_goals().fingerprint == data.with_goals().fingerprint
