"""d3rlpy's three layouts, on files written here in each of them, and on two real files of the first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import read

REAL = os.environ.get("D3RAY_TEST_DATA")
real_data = pytest.mark.skipif(REAL is None, reason="D3RAY_TEST_DATA does not name the folder with real data")


class Played:
    """Episodes as they were played: o_0 a_0 r_0 o_1 a_1 r_1 … o_T. Files in each layout are written from these."""

    def __init__(self, lengths: list[int], terminated: list[bool], seed: int = 0, discrete: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.terminated = terminated
        self.observations = [rng.normal(size=(t + 1, 3)).astype(np.float32) for t in lengths]
        self.actions = [rng.integers(0, 4, t) if discrete else rng.normal(size=(t, 2)).astype(np.float32) for t in lengths]
        self.rewards = [rng.normal(size=t).astype(np.float32) for t in lengths]

    def write_2020(self, path: Path) -> Path:
        """One row an observation; the reward beside the observation that it came with; a made-up action at the end."""
        rows: dict[str, list[Any]] = {k: [] for k in ("observations", "actions", "rewards", "terminals", "episode_terminals")}
        for o, a, r, terminated in zip(self.observations, self.actions, self.rewards, self.terminated, strict=True):
            for t in range(len(o)):
                last = t == len(o) - 1
                rows["observations"].append(o[t])
                rows["actions"].append(a[0] * 0 + 3 if last else a[t])
                rows["rewards"].append(0 if t == 0 else r[t - 1])
                rows["terminals"].append(float(last and terminated))
                rows["episode_terminals"].append(float(last))
        discrete = self.actions[0].ndim == 1
        return self._save(path, **rows, discrete_action=discrete, create_mask=False, mask_size=1)

    def write_1x(self, path: Path) -> Path:
        """One row a step, its reward beside it; no final observation."""
        end = np.concatenate([np.arange(len(r)) == len(r) - 1 for r in self.rewards])
        terminals = np.concatenate(
            [(np.arange(len(r)) == len(r) - 1) & t for r, t in zip(self.rewards, self.terminated, strict=True)]
        )
        return self._save(
            path,
            observations=np.concatenate([o[:-1] for o in self.observations]),
            actions=np.concatenate(self.actions),
            rewards=np.concatenate(self.rewards),
            terminals=terminals.astype(np.float32),
            episode_terminals=end.astype(np.float32),
            discrete_action=self.actions[0].ndim == 1,
            version="1.0",
        )

    def write_2x(self, path: Path) -> Path:
        """A handful of arrays an episode."""
        arrays: dict[str, Any] = {
            "columns": ["observations", "actions", "rewards", "terminated"],
            "num_episodes": len(self.rewards),
        }
        for i, (o, a, r, t) in enumerate(zip(self.observations, self.actions, self.rewards, self.terminated, strict=True)):
            arrays |= {f"observations_{i}": o[:-1], f"actions_{i}": a.reshape(len(a), -1)}
            arrays |= {f"rewards_{i}": r.reshape(-1, 1), f"terminated_{i}": t}
        return self._save(path, **arrays, version="2.1")

    @staticmethod
    def _save(path: Path, **arrays: Any) -> Path:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
        return path


LENGTHS, TERMINATED = [3, 1, 5, 2, 12], [True, True, False, False, True]


@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
@pytest.mark.parametrize("layout", ["2020", "1x", "2x"])
def test_what_was_played_is_read(tmp_path: Path, layout: str, discrete: bool) -> None:
    played = Played(LENGTHS, TERMINATED, discrete=discrete)
    path = getattr(played, f"write_{layout}")(tmp_path / "file")
    imported = read(path, "d3rlpy")
    table = imported.steps
    assert imported.provenance["layout"] == {"2020": "2020", "1x": "1.x", "2x": "2.x"}[layout]
    assert table.steps.tolist() == LENGTHS
    assert table.terminated.tolist() == TERMINATED
    assert table.final_recorded.tolist() == [layout == "2020"] * 5
    for e, first in enumerate(table.first_row.tolist()):
        stop = first + LENGTHS[e]
        final = played.observations[e][-1 if layout == "2020" else -2]  # the later layouts repeat the last one seen
        np.testing.assert_array_equal(table.columns["observation"][first:stop], played.observations[e][:-1])
        np.testing.assert_array_equal(table.columns["observation"][stop], final)
        np.testing.assert_array_equal(table.columns["action"][first:stop], played.actions[e])
        np.testing.assert_array_equal(table.columns["reward"][first:stop], played.rewards[e])
        assert table.columns["truncated"][stop - 1] == (not TERMINATED[e])
    assert table.columns["action"].dtype == (np.int64 if discrete else np.float32)


@real_data
@pytest.mark.parametrize(
    ("name", "transitions", "episodes", "terminated", "mean_return"),
    [("cartpole_replay", 98_760, 1_240, 1_045, 79.6), ("pendulum_replay", 99_502, 498, 0, -183.3)],
)
def test_real_replay_data(name: str, transitions: int, episodes: int, terminated: int, mean_return: float) -> None:
    table = read(Path(str(REAL)) / "d3rlpy" / f"{name}.h5", "d3rlpy").steps
    assert (table.n_transitions, table.n_episodes, int(table.terminated.sum())) == (transitions, episodes, terminated)
    assert table.returns.mean() == pytest.approx(mean_return, abs=0.05)
    assert table.final_recorded.all()


@real_data
def test_real_pendulum_rewards_belong_to_their_row() -> None:
    """Pendulum's reward is a function of state and action, -(angle² + 0.1 speed² + 0.001 torque²): it says which row is whose."""
    columns = read(Path(str(REAL)) / "d3rlpy" / "pendulum_replay.h5", "d3rlpy").steps.columns
    steps = ~columns["closing"]
    (cosine, sine, speed), torque = columns["observation"][steps].T, columns["action"][steps, 0]
    by_hand = -(np.arctan2(sine, cosine) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
    np.testing.assert_allclose(columns["reward"][steps], by_hand, atol=2e-4)


def test_a_reward_in_a_first_row_shows_that_rewards_are_beside_their_action(tmp_path: Path) -> None:
    path = Played([2, 3], [True, True]).write_1x(tmp_path / "file")
    with h5py.File(path, "a") as file:
        del file["version"]
    imported = read(path, "d3rlpy")
    assert imported.provenance["layout"] == "1.x"
    assert (
        imported.notes[0] == "Rewards were read in the row of the action (since 2 of 2 episodes have a reward in their first row)."
    )
    with pytest.raises(DataError, match="cannot be 'arriving'"):
        read(path, "d3rlpy", rewards="arriving")


def test_a_version_says_so_even_where_first_rewards_are_zero(tmp_path: Path) -> None:
    played = Played([2, 3], [True, True])
    played.rewards = [np.array([0, 1], np.float32), np.array([0, 0, 5], np.float32)]
    assert read(played.write_1x(tmp_path / "file"), "d3rlpy").steps.columns["reward"].tolist() == [0, 1, 0, 0, 0, 5, 0]


def test_the_user_may_say_where_rewards_are(tmp_path: Path) -> None:
    path = Played([2, 3], [True, False]).write_2020(tmp_path / "file")
    table = read(path, "d3rlpy", rewards="same row").steps
    assert table.steps.tolist() == [3, 4]
    with pytest.raises(ConfigError, match="rewards is 'leaving'; input should be 'auto', 'arriving' or 'same row'"):
        read(path, "d3rlpy", rewards="leaving")


def test_2020_files_of_rough_ends(tmp_path: Path) -> None:
    path = Played([2, 1, 3], [True, True, False]).write_2020(tmp_path / "file")
    with h5py.File(path, "a") as file:
        ends = file["episode_terminals"][:]
        assert ends.tolist() == [0, 0, 1, 0, 1, 0, 0, 0, 1]
        ends[[3, 8]] = 1, 0  # row 3 is now an episode of one row, and so is row 4; the last row ends nothing
        file["episode_terminals"][:] = ends
        file["rewards"][4] = 0  # nothing arrives with the first row of an episode
    imported = read(path, "d3rlpy")
    assert imported.steps.steps.tolist() == [2, 3]
    assert imported.steps.terminated.tolist() == [True, False]
    assert "2 episodes of a single row hold no transition." in imported.notes
    assert "The last row ends no episode; it was taken as the final observation of a truncated one." in imported.notes


def test_a_time_limit_that_was_stored_as_a_terminal(tmp_path: Path) -> None:
    for layout in ("2020", "2x"):
        path = getattr(Played([4, 2, 4], [True, True, True]), f"write_{layout}")(tmp_path / layout)
        assert read(path, "d3rlpy", timeout_at=4).steps.terminated.tolist() == [False, True, False]
    with pytest.raises(DataError, match="episode 0 has 4 steps, more than timeout_at=3"):
        read(tmp_path / "2020", "d3rlpy", timeout_at=3)


def test_observations_that_are_tuples_become_a_column_each(tmp_path: Path) -> None:
    arrays = {"columns": ["observations", "actions", "rewards", "terminated"], "num_episodes": 1, "version": "2.1"}
    arrays |= {"observations_0_0": np.arange(6.0).reshape(3, 2), "observations_0_1": np.zeros((3, 2, 2), np.uint8)}
    arrays |= {"actions_0": np.array([[1], [0], [1]]), "rewards_0": np.ones((3, 1)), "terminated_0": True}
    columns = read(Played._save(tmp_path / "file", **arrays), "d3rlpy").steps.columns
    assert columns["observation/0"].tolist() == [[0, 1], [2, 3], [4, 5], [4, 5]]
    assert (columns["observation/1"].shape, columns["observation/1"].dtype) == ((4, 2, 2), np.uint8)
    assert columns["action"].tolist() == [1, 0, 1, 0]


def test_whole_float_actions_raise_a_question(tmp_path: Path) -> None:
    played = Played([3], [True], discrete=True)
    played.actions = [np.array([[0.0], [2.0], [1.0]], np.float32)]
    path = played.write_2x(tmp_path / "file")
    assert any("discrete_action=True" in note for note in read(path, "d3rlpy").notes)
    assert read(path, "d3rlpy", discrete_action=True).steps.columns["action"].tolist() == [0, 2, 1, 0]
    played.actions = [np.array([[0.0], [2.5], [1.0]], np.float32)]
    with pytest.raises(DataError, match=r"discrete actions are whole numbers, but 'actions' is 2\.5 in row 1"):
        read(played.write_2x(tmp_path / "other"), "d3rlpy", discrete_action=True)


def test_observations_after_which_nothing_was_done_are_no_steps(tmp_path: Path) -> None:
    arrays = {"observations": np.ones((3, 2)), "actions": np.zeros(3, int), "rewards": np.zeros(3), "discrete_action": True}
    with pytest.raises(DataError, match="has no steps: each episode is a single row"):
        read(Played._save(tmp_path / "file", **arrays, terminals=np.ones(3)), "d3rlpy")


@pytest.mark.parametrize(
    ("layout", "name", "value", "message"),
    [
        ("2020", "rewards", None, "is not a d3rlpy file: it has no 'rewards'"),
        ("2020", "actions", np.zeros((3, 2)), "'observations' has 6 rows, but 'actions' has 3"),
        ("2020", "rewards", np.array([0, 0, np.nan, 0, 0, 0]), "'rewards' has NaN in row 2"),
        ("2020", "terminals", np.full(6, np.nan), "'terminals' is nan in row 0"),
        ("2x", "num_episodes", 0, "has no steps: num_episodes is 0"),
        ("2x", "num_episodes", 3, "it has no 'observations_2'"),
        ("2x", "rewards_1", None, "it has no 'rewards_1'"),
        ("2x", "rewards_1", np.zeros((4, 1)), "episode 1: 'observations' has 2 rows, but 'rewards' has 4"),
        ("2x", "actions_1", np.array([[0, 1], [np.inf, 1]]), "episode 1: 'actions' has an infinite number in row 1"),
        ("2x", "observations_1", np.zeros((2, 9)), r"episode 1: 'observations' has entries of shape \[9\]"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(tmp_path: Path, layout: str, name: str, value: Any, message: str) -> None:
    path = getattr(Played([2, 2], [True, True]), f"write_{layout}")(tmp_path / "bad.h5")
    with h5py.File(path, "a") as file:
        del file[name]
        if value is not None:
            file.create_dataset(name, data=value)
    with pytest.raises(DataError, match=message) as caught:
        read(path, "d3rlpy")
    assert "bad.h5" in str(caught.value)
    assert "\n" not in str(caught.value)
