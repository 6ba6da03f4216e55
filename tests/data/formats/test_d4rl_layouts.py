"""D4RL's layouts of each kind of task, written here from episodes whose truth is known, as the generation scripts lay them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.format import Imported
from d3ray.data.formats.registry import detect, read


@dataclass
class Truth:
    """One episode as it happened: T + 1 observations, T actions and rewards, and whether the task ended it."""

    seen: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    ended: bool
    infos: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])


def played(lengths: list[tuple[int, bool]], entries: int, actions: int, seed: int = 0, dtype: Any = np.float32) -> list[Truth]:
    rng = np.random.default_rng(seed)
    return [
        Truth(
            rng.normal(size=(n + 1, entries)).astype(dtype),
            rng.uniform(-1, 1, (n, actions)).astype(dtype),
            rng.normal(size=n).astype(dtype),
            ended,
            {
                "action_log_probs": rng.normal(size=n).astype(dtype),
                "qpos": rng.normal(size=(n, 4)),
                "qvel": rng.normal(size=(n, 3)),
                "goal": np.repeat(rng.normal(size=(1, 2)), n, 0),
            },
        )
        for n, ended in lengths
    ]


def lay_out(path: Path, episodes: list[Truth], *arrays: str, infos: tuple[str, ...] = (), **more: Any) -> Path:
    """One array after the other, row by row, gzip-compressed as D4RL's files are."""
    rows: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards", "terminals", *arrays)}
    rows |= {f"infos/{name}": [] for name in infos}
    for truth in episodes:
        for t in range(len(truth.rewards)):
            last = t == len(truth.rewards) - 1
            row = {
                "observations": truth.seen[t],
                "next_observations": truth.seen[t + 1],
                "actions": truth.actions[t],
                "rewards": truth.rewards[t],
                "terminals": last and truth.ended,
                "timeouts": last and not truth.ended,
                **{f"infos/{name}": truth.infos[name][t] for name in infos},
            }
            for name, values in rows.items():
                values.append(row[name])
    with h5py.File(path, "w") as file:
        for name, values in (rows | more).items():
            array = np.array(values)
            file.create_dataset(name, data=array, **({"compression": "gzip"} if array.ndim else {}))
    return path


def agree(imported: Imported, episodes: list[Truth], *, final: bool) -> None:
    """Every episode, number by number."""
    table = imported.steps
    assert table.steps.tolist() == [len(truth.rewards) for truth in episodes]
    assert table.terminated.tolist() == [truth.ended for truth in episodes]
    assert table.final_recorded.tolist() == [final] * len(episodes)
    for first, truth in zip(table.first_row.tolist(), episodes, strict=True):
        n = len(truth.rewards)
        seen = table.columns["observation"][first : first + n + 1]
        np.testing.assert_array_equal(seen[: n + final], truth.seen[: n + final].astype(np.float32))
        np.testing.assert_array_equal(seen[n], (truth.seen[n] if final else truth.seen[n - 1]).astype(np.float32))
        np.testing.assert_array_equal(table.columns["action"][first : first + n], truth.actions.astype(np.float32))
        np.testing.assert_array_equal(table.columns["reward"][first : first + n], truth.rewards.astype(np.float32))


HOPPER = [(7, True), (10, False), (1, True), (10, False), (3, False)]  # a time limit of 10, and where the recording stopped


def test_version_0_has_no_timeouts_and_takes_the_limit_from_the_user(tmp_path: Path) -> None:
    truth = played(HOPPER, 11, 3)
    path = lay_out(tmp_path / "hopper-medium-v0", truth)
    assert detect(path) == "d4rl"
    agree(read(path, "d4rl", timeout_at=10), truth, final=False)
    unaware = read(path, "d4rl")
    assert unaware.steps.steps.tolist() == [7, 11, 13]  # ends at limits are not there to be seen
    assert "Where the environment has a time limit, import with timeout_at=N." in unaware.notes[0]


def test_version_1_has_timeouts_and_log_probabilities(tmp_path: Path) -> None:
    truth = played(HOPPER, 11, 3)
    path = lay_out(tmp_path / "a", truth, "timeouts", infos=("action_log_probs", "qpos", "qvel"))
    imported = read(path, "d4rl")
    agree(imported, truth, final=False)
    rows = ~imported.steps.columns["closing"]
    for name, column in (("action_log_probs", "log_prob"), ("qpos", "info/qpos"), ("qvel", "info/qvel")):
        expected = np.concatenate([t.infos[name] for t in truth]).astype(np.float32)
        np.testing.assert_array_equal(imported.steps.columns[column][rows], expected)


def test_version_2_has_final_observations(tmp_path: Path) -> None:
    truth = played(HOPPER, 11, 3)
    metadata = {"metadata/algorithm": b"SAC", "metadata/iteration": 5, "metadata/policy/fc0/weight": np.zeros((4, 4))}
    path = lay_out(tmp_path / "a", truth, "timeouts", "next_observations", infos=("action_log_probs",), **metadata)
    imported = read(path, "d4rl")
    agree(imported, truth, final=True)
    assert imported.provenance["metadata"] == {"algorithm": "SAC", "iteration": 5, "policy/fc0/weight": "array of shape (4, 4)"}
    assert imported.steps.cuts == 0


@pytest.mark.parametrize("format", ["d4rl", "npz"])
def test_next_observations_that_are_rows_moved_up_are_not_final_ones(tmp_path: Path, format: str) -> None:
    truth = played(HOPPER, 11, 3)
    path = lay_out(tmp_path / "a", truth, "timeouts")
    with h5py.File(path, "a") as file:
        file["next_observations"] = np.roll(file["observations"][:], -1, 0)
        if format == "npz":
            np.savez(tmp_path / "b.npz", **{name: file[name][:] for name in file})
    imported = read(tmp_path / "b.npz" if format == "npz" else path, format)
    agree(imported, truth, final=False)
    assert any("at all 4 ends between episodes are the first observations of the next" in note for note in imported.notes)


def test_maze2d_is_one_trajectory_whose_timeouts_are_goals_that_were_reached(tmp_path: Path) -> None:
    truth = played([(91, False), (53, False), (200, False)], 4, 2)
    path = lay_out(tmp_path / "a", truth, "timeouts", infos=("goal", "qpos", "qvel"))
    imported = read(path, "d4rl")
    agree(imported, truth, final=False)
    assert not any("infos/goal" in note for note in imported.notes)  # it changes at ends only
    assert imported.steps.columns["info/goal"].shape == (347, 2)


def test_antmaze_goes_on_at_the_goal_and_its_first_timeouts_are_late(tmp_path: Path) -> None:
    """Terminals come in clusters while the ant is near; the timeout stands two rows after the goal has changed."""
    truth = played([(12, False), (12, False)], 29, 8)
    path = lay_out(tmp_path / "a", truth, "timeouts", infos=("goal", "qpos", "qvel"))
    with h5py.File(path, "a") as file:
        file["rewards"][:] = 0
        file["terminals"][4:7], file["rewards"][4:7] = True, 1
        file["timeouts"][11], file["timeouts"][13] = False, True
    imported = read(path, "d4rl")
    assert imported.steps.steps.tolist() == [5, 1, 1, 7, 10]
    assert imported.steps.terminated.tolist() == [True, True, True, False, False]
    assert (
        "2 terminals follow a terminal at once, each as an episode of one step: the recording went on at the goal."
        in imported.notes
    )
    assert (
        "infos/goal changes 1 times inside an episode: if a new trajectory begins there, import with cut_at_goal=true."
        in imported.notes
    )
    cut = read(path, "d4rl", cut_at_goal=True)
    assert cut.steps.steps.tolist() == [5, 1, 1, 5, 2, 10]
    assert "1 ends were added where infos/goal changes (cut_at_goal)." in cut.notes
    with pytest.raises(DataError, match="has no infos/goal"):
        read(lay_out(tmp_path / "b", truth), "d4rl", cut_at_goal=True)


def test_kitchen_holds_float64_and_flags_as_numbers(tmp_path: Path) -> None:
    truth = played([(20, True), (35, False)], 60, 9, dtype=np.float64)
    path = lay_out(tmp_path / "a", truth, "timeouts")
    with h5py.File(path, "a") as file:
        for name in ("terminals", "timeouts"):
            values = file[name][:].astype(np.float32)
            del file[name]
            file[name] = values[:, None]
        rewards = file["rewards"][:]
        del file["rewards"]
        file["rewards"] = rewards[:, None]
    agree(read(path, "d4rl"), truth, final=False)


def test_adroit_has_more_infos_than_steps_and_text_among_them(tmp_path: Path) -> None:
    truth = played([(20, False), (20, False)], 45, 24)
    more = {
        "infos/action_mean": np.ones((40, 24)),
        "infos/action_logstd": np.zeros((24,)),  # one for the policy, not one a step
        "infos/env_state/door_body_pos": np.ones((40, 3)),
        "infos/names": np.array([b"door"] * 40),
    }
    imported = read(lay_out(tmp_path / "a", truth, "timeouts", infos=("qpos", "qvel"), **more), "d4rl")
    agree(imported, truth, final=False)
    assert {"info/action_mean", "info/env_state/door_body_pos", "info/qpos", "info/qvel"} <= imported.steps.columns.keys()
    assert "infos/action_logstd has shape (24,), not one row for each of the 40 steps, and was left out." in imported.notes
    assert "infos/names does not hold numbers and was left out." in imported.notes
