"""NumPy archives: flat ones, those of `imitation`, PFRL and Dreamer, and what must not be opened."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, read
from d3ray.data.spec import Box, Discrete
from d3ray.platform.datasets.ingest import ingest

from .bombs import Calls

REAL = os.environ.get("D3RAY_TEST_DATA")


def write(path: Path, **arrays: Any) -> Path:
    with path.open("wb") as file:  # given a name, NumPy would add `.npz`
        np.savez(file, **arrays)
    return path


def flat(n: int = 6) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    terminated = np.arange(n) == 2
    return {
        "observations": rng.normal(size=(n, 3)).astype(np.float32),
        "actions": rng.normal(size=(n, 2)).astype(np.float32),
        "rewards": np.arange(n, dtype=np.float64),
        "terminated": terminated,
        "truncated": np.arange(n) == n - 1,
    }


@pytest.mark.parametrize(
    "names",
    [
        ("observations", "actions", "rewards", "terminated", "truncated"),
        ("obs", "acts", "rews", "terminals", "timeouts"),
        ("observations", "actions", "rewards", "dones", "truncations"),
        ("observation", "action", "reward", "terminations", "timeout"),
    ],
)
def test_flat_arrays_under_the_names_people_give_them(tmp_path: Path, names: tuple[str, ...]) -> None:
    raw = flat()
    imported = read(write(tmp_path / "file", **dict(zip(names, raw.values(), strict=True))), "npz")
    table = imported.steps
    assert table.steps.tolist() == [3, 3]
    assert table.terminated.tolist() == [True, False]
    assert table.columns["reward"].tolist() == [0, 1, 2, 0, 3, 4, 5, 0]
    np.testing.assert_array_equal(table.columns["observation"][[0, 1, 2, 4, 5, 6]], raw["observations"])
    np.testing.assert_array_equal(table.columns["action"][[0, 1, 2, 4, 5, 6]], raw["actions"])
    assert table.final_recorded.tolist() == [False, False]
    assert imported.provenance == {"format": "npz", "layout": "flat", "file": "file"}


def test_next_and_final_observations(tmp_path: Path) -> None:
    raw = flat()
    final = np.full((2, 3), [[7], [8]], np.float32)
    table = read(write(tmp_path / "final", **raw, final_observations=final), "npz").steps
    assert table.columns["observation"][[3, 7]].tolist() == final.tolist()
    assert table.final_recorded.all()
    following = np.r_[raw["observations"][1:], final[1:]]
    following[0], following[2] = 9, 7  # a jump after row 0
    imported = read(write(tmp_path / "next", **raw, next_observations=following), "npz")
    assert imported.steps.steps.tolist() == [1, 2, 3]
    assert imported.notes == ["1 episodes were cut where next_observations is not the next row."]
    assert imported.steps.columns["observation"][[1, 4, 8]].tolist() == [[9] * 3, [7] * 3, [8] * 3]


def test_further_columns_and_what_is_left_out(tmp_path: Path) -> None:
    raw = flat() | {"log_prob": -np.ones(6), "info/height": np.arange(6.0), "flavour": np.arange(6)}
    imported = read(write(tmp_path / "file", **raw), "npz")
    assert imported.steps.columns["log_prob"].tolist() == [-1, -1, -1, 0, -1, -1, -1, 0]
    assert imported.steps.columns["info/height"].tolist() == [0, 1, 2, 0, 3, 4, 5, 0]
    assert imported.notes[0] == "'flavour' was not read: it is none of the arrays that d3ray knows."


def test_discrete_by_dtype_by_flag_and_by_word(tmp_path: Path) -> None:
    raw = flat() | {"actions": np.arange(6).reshape(6, 1)}
    assert read(write(tmp_path / "a", **raw), "npz").steps.columns["action"].tolist() == [0, 1, 2, 0, 3, 4, 5, 0]
    assert read(write(tmp_path / "b", **raw, discrete_action=False), "npz").steps.columns["action"].shape == (8, 1)
    raw["actions"] = np.arange(6.0)
    assert read(write(tmp_path / "c", **raw), "npz").steps.columns["action"].dtype == np.float32
    assert read(write(tmp_path / "d", **raw, discrete_action=True), "npz").steps.columns["action"].dtype == np.int64
    assert read(tmp_path / "d", "npz", discrete_action=False).steps.columns["action"].dtype == np.float32


def trajectories(terminal: list[bool]) -> dict[str, Any]:
    """`imitation`'s layout by hand: trajectories of 2, 1 and 3 steps; observation e.t is 10 e + t."""
    return {
        "obs": np.array([[0], [1], [2], [10], [11], [20], [21], [22], [23]], np.float32),
        "acts": np.array([0, 1, 1, 0, 0, 1]),
        "rews": np.array([1.0, 2, 3, 4, 5, 6]),
        "indices": np.array([2, 3]),
        "terminal": np.array(terminal),
    }


def test_trajectories_of_imitation(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}] * 6, dtype=object)
    imported = read(write(tmp_path / "file", **trajectories([True, False, True]), infos=objects), "npz")
    table = imported.steps
    assert table.columns["observation"][:, 0].tolist() == [0, 1, 2, 10, 11, 20, 21, 22, 23]
    assert table.columns["closing"].tolist() == [False, False, True, False, True, False, False, False, True]
    assert table.columns["reward"].tolist() == [1, 2, 0, 3, 0, 4, 5, 6, 0]
    assert table.terminated.tolist() == [True, False, True]
    assert table.final_recorded.all()
    assert imported.notes == ["'infos' holds Python objects and was not read."]
    assert imported.provenance["layout"] == "imitation"
    limited = read(tmp_path / "file", "npz", timeout_at=3)
    assert limited.steps.terminated.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([3, 2])}, "'indices' must rise"),
        ({"indices": np.array([2, 6])}, "'indices' must rise"),
        ({"terminal": np.array([True, False])}, "'terminal' has 2 rows, but 'indices' makes 3 trajectories"),
        ({"obs": np.zeros((8, 1))}, "'observations' has 8 rows, but 'actions' has 6"),
    ],
)
def test_trajectories_that_do_not_add_up(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "file", **trajectories([True, True, True]) | change), "npz")


@pytest.mark.skipif(REAL is None, reason="D3RAY_TEST_DATA does not name the folder with real data")
def test_real_cartpole_expert() -> None:
    path = Path(str(REAL)) / "imitation" / "cartpole_0_final.npz"
    imported = read(path, "npz")
    assert (imported.steps.n_transitions, imported.steps.n_episodes) == (26_964, 57)
    assert imported.steps.returns.mean() == pytest.approx(473.05, abs=0.01)
    assert "15 of 57 episodes end terminated after exactly 500 steps, the most of any: " in imported.notes[-1]
    table = read(path, "npz", timeout_at=500).steps
    assert int(table.terminated.sum()) == 42
    # CartPole ends by itself where the cart is beyond 2.4 or the pole beyond 12 degrees: the final observations say the same.
    final = table.columns["observation"][table.first_row + table.steps]
    fell = (np.abs(final[:, 0]) > 2.4) | (np.abs(final[:, 2]) > np.deg2rad(12))
    np.testing.assert_array_equal(fell, table.terminated)


def test_python_objects_are_refused_and_never_run(tmp_path: Path) -> None:
    bomb = np.array([Calls(Path.touch, tmp_path / "ran")] * 6, dtype=object)
    with pytest.raises(DataError, match="'actions' holds Python objects, which are never loaded; save it as an array of numbers"):
        read(write(tmp_path / "a", **flat() | {"actions": bomb}), "npz")
    imported = read(write(tmp_path / "b", **flat(), thing=bomb), "npz")
    assert "'thing' holds Python objects and was not read." in imported.notes
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": None}, r"has no 'rewards' \(or 'rewards', 'rews', 'reward'\), only 'observations', 'actions'"),
        ({"rewards": np.zeros(5)}, "'observations' has 6 rows, but 'rewards' has 5"),
        ({"rewards": np.array([0, 0, 0, np.inf, 0, 0])}, "rewards has an infinite number in row 3"),
        ({"observations": np.full((6, 3), np.nan)}, "observations has NaN in row 0"),
        ({"actions": np.array(["left"] * 6)}, "'actions' holds <U4, not numbers"),
        ({"terminated": np.arange(6)}, "'terminated' is 2 in row 2; flags are 0 or 1"),
        ({name: np.zeros((0, 3)) for name in flat()}, "has no steps"),
        ({"actions": np.array(3.0)}, "'actions' is a single value"),
    ],
)
def test_bad_arrays_are_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    raw = {name: value for name, value in (flat() | change).items() if value is not None}
    with pytest.raises(DataError, match=message) as caught:
        read(write(tmp_path / "bad.npz", **raw), "npz")
    assert "bad.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", **flat(500)).read_bytes()
    flipped = bytearray(whole)
    flipped[whole.find(flat(500)["observations"].tobytes()[:32]) + 3] ^= 255
    for name, content, message in [
        ("half", whole[: len(whole) // 2], "is an archive that is cut short or damaged"),
        ("flipped", bytes(flipped), "is an archive that is cut short or damaged"),
        ("text", b"a,b,c\n", "is not an .npz archive"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            read(tmp_path / name, "npz")


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file", "w") as file:
        for name in ("observations", "actions", "rewards", "terminated"):
            with file.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array_header_1_0(entry, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50, 4)})
    with pytest.raises(DataError, match=r"'observations' is said to be float32 of shape .*, and has 128\.$"):
        read(tmp_path / "file", "npz")


@pytest.mark.parametrize("name", ["episode", "episode_ids"])
@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_episodes_end_where_their_number_changes(tmp_path: Path, kind: str, name: str) -> None:
    n, rng = 50, np.random.default_rng(0)
    ids = np.repeat(np.arange(n), 7)
    arrays = {
        "observations": rng.normal(size=(7 * n, 2)),
        "actions": rng.normal(size=(7 * n, 1)),
        "rewards": rng.normal(size=7 * n),
    }
    arrays |= {"terminals": np.arange(7 * n) % 14 == 6, name: ids}
    path = tmp_path / f"steps.{kind}"

    def save() -> None:
        if kind == "npz":
            np.savez(path, **arrays)
        else:
            with h5py.File(path, "w") as file:
                file.update(arrays)

    save()
    steps = read(path).steps
    assert steps.steps.tolist() == [7] * n
    assert steps.terminated.tolist() == [True, False] * (n // 2)
    assert steps.columns["truncated"].sum() == n // 2
    arrays[name] = np.r_[ids[:-7], np.full(7, 3)]
    save()
    with pytest.raises(DataError, match=f"'{name}' 3 comes back in row 343, after another; rows of an episode lie together"):
        read(path)


def buffer(starts: tuple[float, ...] = (0, 10, 20), length: int = 3) -> dict[str, np.ndarray]:
    """Episodes that count up from `starts`, stored as PFRL's items are: the first is terminal, the others are interrupted."""
    state = np.concatenate([start + np.arange(length, dtype=float) for start in starts])[:, None]
    return {
        "state": state,
        "action": np.zeros(len(state), int),
        "reward": np.ones(len(state)),
        "next_state": state + 1,
        "is_state_terminal": np.arange(len(state)) == length - 1,
    }


def test_pfrl_interrupted_episodes_are_cut_where_the_state_jumps(tmp_path: Path) -> None:
    path = write(tmp_path / "file", **buffer())
    assert detect(path) == "pfrl"
    imported = read(path)
    assert imported.steps.steps.tolist() == [3, 3, 3]
    assert imported.steps.terminated.tolist() == [True, False, False]
    assert imported.steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    assert imported.steps.cuts == 1  # the last row ends anyway
    assert imported.steps.final_recorded.all()
    assert imported.steps.columns["action"].dtype == np.int64


def test_pfrl_a_shuffled_buffer_is_a_bag_of_transitions(tmp_path: Path) -> None:
    order = np.array([4, 0, 8, 2, 6, 1, 3, 7, 5])
    steps = read(write(tmp_path / "file", **{key: array[order] for key, array in buffer().items()})).steps
    assert steps.steps.tolist() == [1] * 9
    assert steps.terminated.tolist() == [k == 2 for k in order]


def test_pfrl_environments_that_take_turns(tmp_path: Path) -> None:
    raw = buffer()
    raw["env_id"] = np.repeat([2, 0, 1], 3)
    order = np.arange(9).reshape(3, 3).T.reshape(-1)  # 0, 3, 6, 1, …
    steps = read(write(tmp_path / "file", **{key: array[order] for key, array in raw.items()})).steps
    assert steps.steps.tolist() == [3, 3, 3]
    assert steps.columns["observation"][::4, 0].tolist() == [10, 20, 0]  # environments 0, 1, 2
    assert steps.terminated.tolist() == [False, False, True]
    # One environment's first state may be what another one saw last: that is an end too.
    raw["next_state"][5] = raw["state"][6]
    raw["env_id"] = np.repeat([0, 1, 2], 3)
    assert read(write(tmp_path / "file", **raw)).steps.steps.tolist() == [3, 3, 3]


def test_pfrl_a_terminal_without_a_next_state(tmp_path: Path) -> None:
    raw = buffer()
    raw["next_state"][2] = np.nan
    steps = read(write(tmp_path / "file", **raw), "pfrl").steps
    assert steps.final_recorded.tolist() == [False, True, True]
    assert steps.columns["observation"][3].tolist() == [2]
    raw["next_state"][5] = np.nan  # not terminal, so it is needed
    with pytest.raises(DataError, match=r"next_observations has NaN in row 5\.$"):
        read(write(tmp_path / "file", **raw), "pfrl")


def test_numbers_too_large_to_be_kinds_of_actions(tmp_path: Path) -> None:
    """To count kinds of actions takes memory for each number up to the largest."""
    raw = buffer()
    raw["action"][4] = 1 << 40
    path = write(tmp_path / "file", **raw)
    with pytest.raises(DataError, match=r"file: 'action' goes up to 1099511627776, and 1048576 kinds are the most"):
        read(path)
    assert read(path, discrete_action=False).steps.columns["action"].dtype == np.float32
    with pytest.raises(DataError, match="'action' goes up to 1048576"):
        Dataset.from_arrays(np.ones((2, 1)), np.array([0, 1 << 20]), np.ones(2), np.array([0, 1]))


def test_pfrl_windows_of_several_steps_and_missing_arrays(tmp_path: Path) -> None:
    raw = buffer()
    with pytest.raises(DataError, match=r"'reward' has windows of 3 steps; export single transitions \(num_steps=1\)\.$"):
        read(write(tmp_path / "file", **raw | {"reward": np.ones((9, 3))}), "pfrl")
    del raw["next_state"]
    with pytest.raises(DataError, match=r"file has no 'next_state', only 'state', 'action', 'reward', 'is_state_terminal'\.$"):
        read(write(tmp_path / "file", **raw), "pfrl")
    with pytest.raises(DataError, match=r"'state' has 9 rows, but 'reward' has 8\.$"):
        read(write(tmp_path / "file", **buffer() | {"reward": np.ones(8)}), "pfrl")
    with pytest.raises(ConfigError, match="rename: pfrl has no column 'reward'; did you mean 'rewards'"):
        read(write(tmp_path / "file", **buffer()), "pfrl", rename={"reward": "r"})


T = 5


def dreamt(seed: int = 0, n: int = T) -> dict[str, np.ndarray]:
    """What happened: n + 1 images, and n actions and rewards between them."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 255, (n + 1, 8, 8, 3), dtype=np.uint8)
    return {"image": images, "action": rng.uniform(-1, 1, (n, 2)).astype(np.float32), "reward": rng.random(n).astype(np.float32)}


def episode_file(
    path: Path, made: dict[str, np.ndarray], *, terminal: bool = False, keys: tuple[str, ...] = (), **more: Any
) -> Path:
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
    made = dreamt()
    path = episode_file(tmp_path / "20260101T000000-ab-5.npz", made, terminal=terminal, keys=keys)
    assert detect(path) == "dreamer"
    table = read(path).steps
    for name, array in (("observation", made["image"]), ("action", made["action"]), ("reward", made["reward"])):
        np.testing.assert_array_equal(table.columns[name][:T], array[:T])
    np.testing.assert_array_equal(table.columns["observation"][T], made["image"][T])
    assert (table.steps.tolist(), table.terminated.tolist(), table.final_recorded.tolist()) == ([T], [terminal], [True])


def test_a_folder_of_episodes_is_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "64px").mkdir()
    for k in range(3):
        episode_file(tmp_path / "64px" / f"{k}.npz", dreamt(k, 3 + k), terminal=k == 1, physics=np.full((4 + k, 2), k, np.float32))
    found = ingest(tmp_path / "64px", tmp_path / "set").dataset
    assert (found.episodes.steps.tolist(), found.episodes.terminated.tolist()) == ([3, 4, 5], [False, True, False])
    assert found.spec.observation == Box(shape=(8, 8, 3), dtype="uint8")
    assert found.columns["info/physics"][~found.columns["closing"], 0].tolist() == [0] * 3 + [1] * 4 + [2] * 5


def test_actions_of_ones_among_zeros_are_discrete(tmp_path: Path) -> None:
    made = dreamt() | {"action": np.eye(4, dtype=np.float32)[[2, 0, 1, 2, 0]]}
    imported = read(episode_file(tmp_path / "one.npz", made))
    assert imported.steps.columns["action"][:T].tolist() == [2, 0, 1, 2, 0]
    assert imported.spec is not None
    assert imported.spec.action == Discrete(n=4)
    assert "Actions are ones among 4 zeros, taken as discrete by number; discrete_action=false leaves" in imported.notes[-1]
    assert read(tmp_path / "one.npz", discrete_action=False).steps.columns["action"].shape == (T + 1, 4)


def test_vectors_and_parts_of_observations(tmp_path: Path) -> None:
    made = dreamt()
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
    a, b = dreamt(0, 2), dreamt(1, 3)
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
    episode_file(tmp_path / "reset.npz", dreamt(0, 0))
    with pytest.raises(DataError, match="has no step: each of its 1 rows is the first of an episode"):
        read(tmp_path / "reset.npz")
    made = dreamt()
    np.savez(
        tmp_path / "short.npz", image=made["image"], action=made["action"], reward=made["reward"], is_first=np.zeros(T + 1, bool)
    )
    with pytest.raises(DataError, match="'image' has 6 rows, but 'action' has 5"):
        read(tmp_path / "short.npz")
