"""Dreamer's, V-D4RL's and DrQ-v2's episodes, written here as their authors' programs do: a row for the reset, and one a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, read
from d3ray.data.spec import Box, Discrete
from d3ray.platform.datasets.ingest import ingest

T = 5


def steps(seed: int = 0, n: int = T) -> dict[str, np.ndarray]:
    """What happened: n + 1 images, and n actions and rewards between them."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 255, (n + 1, 8, 8, 3), dtype=np.uint8)
    return {"image": images, "action": rng.uniform(-1, 1, (n, 2)).astype(np.float32), "reward": rng.random(n).astype(np.float32)}


def saved(path: Path, made: dict[str, np.ndarray], *, terminal: bool = False, keys: tuple[str, ...] = (), **more: Any) -> Path:
    """As Dreamer's driver puts them: what the reset gave, zeros, then each step's action and reward with what came of them."""
    n = len(made["reward"])
    flags = {"is_first": np.arange(n + 1) == 0, "is_last": np.arange(n + 1) == n}
    flags |= {
        "is_terminal": flags["is_last"] & terminal,
        "discount": np.where(flags["is_last"] & terminal, 0, 1).astype(np.float32),
    }
    before = {name: np.concatenate([np.zeros((1, *made[name].shape[1:]), np.float32), made[name]]) for name in ("action", "reward")}
    np.savez_compressed(path, image=made["image"], **before, **{key: flags[key] for key in keys or flags}, **more)
    return path


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("keys", [(), ("discount",), ("is_terminal",)])
def test_each_step_has_the_action_and_the_reward_that_came_of_what_was_seen(
    tmp_path: Path, keys: tuple[str, ...], terminal: bool
) -> None:
    made = steps()
    path = saved(tmp_path / "20260101T000000-ab-5.npz", made, terminal=terminal, keys=keys)
    assert detect(path) == "dreamer"
    table = read(path).steps
    for name, array in (("observation", made["image"]), ("action", made["action"]), ("reward", made["reward"])):
        np.testing.assert_array_equal(table.columns[name][:T], array[:T])
    np.testing.assert_array_equal(table.columns["observation"][T], made["image"][T])
    assert (table.steps.tolist(), table.terminated.tolist(), table.final_recorded.tolist()) == ([T], [terminal], [True])


def test_a_folder_of_episodes_is_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "64px").mkdir()
    for k in range(3):
        saved(tmp_path / "64px" / f"{k}.npz", steps(k, 3 + k), terminal=k == 1, physics=np.full((4 + k, 2), k, np.float32))
    found = ingest(tmp_path / "64px", tmp_path / "set").dataset
    assert (found.episodes.steps.tolist(), found.episodes.terminated.tolist()) == ([3, 4, 5], [False, True, False])
    assert found.spec.observation == Box(shape=(8, 8, 3), dtype="uint8")
    assert found.columns["info/physics"][~found.columns["closing"], 0].tolist() == [0] * 3 + [1] * 4 + [2] * 5


def test_actions_of_ones_among_zeros_are_discrete(tmp_path: Path) -> None:
    made = steps() | {"action": np.eye(4, dtype=np.float32)[[2, 0, 1, 2, 0]]}
    imported = read(saved(tmp_path / "one.npz", made))
    assert imported.steps.columns["action"][:T].tolist() == [2, 0, 1, 2, 0]
    assert imported.spec is not None
    assert imported.spec.action == Discrete(n=4)
    assert "Actions are ones among 4 zeros, taken as discrete by number; discrete_action=false leaves" in imported.notes[-1]
    assert read(tmp_path / "one.npz", discrete_action=False).steps.columns["action"].shape == (T + 1, 4)


def test_vectors_and_parts_of_observations(tmp_path: Path) -> None:
    made = steps()
    row = {
        "action": np.r_[np.zeros((1, 2)), made["action"]],
        "reward": np.r_[0, made["reward"]][:, None],
        "discount": np.ones((T + 1, 1)),
    }
    seen = np.random.default_rng(0).normal(size=(T + 1, 3))
    np.savez(tmp_path / "drq.npz", observation=seen, physics=seen, **row)
    np.savez(tmp_path / "parts.npz", position=seen, speed=seen[:, :1], log_return=seen[:, 0], **row)
    assert detect(tmp_path / "drq.npz") == detect(tmp_path / "parts.npz") == "dreamer"
    assert {"observation", "info/physics"} <= read(tmp_path / "drq.npz").steps.columns.keys()
    parts = read(tmp_path / "parts.npz")
    assert [name for name in parts.steps.columns if name.startswith(("observation", "info"))] == [
        "observation/position",
        "observation/speed",
    ]
    assert any("'log_return' was not read" in note for note in parts.notes)
    one = read(tmp_path / "parts.npz", format="dreamer", rename={"observations": "speed"}).steps
    assert one.columns["observation"].shape == (T + 1, 1)


def test_actions_that_stand_where_they_were_chosen_have_to_be_said(tmp_path: Path) -> None:
    """Dreamer V3's pieces: two episodes in a file, the second of them cut, each action beside what it was chosen by."""
    a, b = steps(0, 2), steps(1, 3)
    rows = {name: np.concatenate([a[name], np.ones_like(a[name][:1]), b[name], np.ones_like(b[name][:1])]) for name in ("action",)}
    rows |= {"reward": np.r_[0, a["reward"], 0, b["reward"]], "image": np.concatenate([a["image"], b["image"]])}
    first, last = np.isin(np.arange(7), [0, 3]), np.arange(7) == 2
    np.savez(tmp_path / "piece.npz", is_first=first, is_last=last, is_terminal=last, **rows)
    with pytest.raises(DataError, match=r"'action' is not zeros in row 0, where an episode begins; say whether.*action_row=taken"):
        read(tmp_path / "piece.npz")
    table = read(tmp_path / "piece.npz", action_row="taken").steps
    assert (table.steps.tolist(), table.terminated.tolist()) == ([2, 3], [True, False])
    np.testing.assert_array_equal(table.columns["action"][3:6], b["action"])
    np.testing.assert_array_equal(table.columns["reward"][3:6], b["reward"])
    np.testing.assert_array_equal(table.columns["observation"], np.concatenate([a["image"], b["image"]]))
    with pytest.raises(ConfigError, match="action_row is 'late'"):
        read(tmp_path / "piece.npz", "dreamer", action_row="late")


def test_what_is_no_episode_is_refused_in_a_sentence(tmp_path: Path) -> None:
    saved(tmp_path / "reset.npz", steps(0, 0))
    with pytest.raises(DataError, match="has no step: each of its 1 rows is the first of an episode"):
        read(tmp_path / "reset.npz")
    made = steps()
    np.savez(
        tmp_path / "short.npz", image=made["image"], action=made["action"], reward=made["reward"], is_first=np.zeros(T + 1, bool)
    )
    with pytest.raises(DataError, match="'image' has 6 rows, but 'action' has 5"):
        read(tmp_path / "short.npz")
