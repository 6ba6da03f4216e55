"""Formats: told apart by what a file holds, asked for by name, and what all importers do to actions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.actions import adjust_actions
from d3ray.data.formats.arrays import typed_actions
from d3ray.data.formats.format import Format, Imported
from d3ray.data.formats.registry import FORMATS, detect, parts_of, read, register_format
from d3ray.data.spec import Box, Discrete, Spec
from d3ray.data.storage.steps import steps_from_arrays

SPACE = Spec(observation=Box(shape=(1,)), action=Box(shape=(2,), low=(-1.0, -2.0), high=(1.0, 2.0)))
ACTIONS = np.array([[0.5, 1.0], [-1.5, 0.0], [0.0, 2.5], [1.0, -2.0], [9.0, -9.0]], np.float32)


def imported(spec: Spec | None = None) -> Imported:
    end = np.array([0, 1, 0, 0, 1], bool)
    return Imported(steps_from_arrays(np.arange(5.0), ACTIONS, np.zeros(5), end, source="it"), spec=spec)


def rows(found: Imported) -> np.ndarray:
    return found.steps.columns["action"][~found.steps.columns["closing"]]


def test_clipping_changes_what_is_outside_and_says_how_many() -> None:
    found = adjust_actions(imported(), "it", actions="clip", spec=SPACE)
    assert rows(found).tolist() == [[0.5, 1.0], [-1.0, 0.0], [0.0, 2.0], [1.0, -2.0], [1.0, -2.0]]
    assert found.provenance == {"actions_clipped": 3}
    assert found.notes == ["3 of 5 actions were clipped to the action space's bounds (actions=clip)."]
    assert not found.steps.columns["action"][found.steps.columns["closing"]].any()


def test_closing_rows_stay_zero_where_the_bounds_leave_zero_out() -> None:
    away = Spec(observation=Box(shape=(1,)), action=Box(shape=(2,), low=3.0, high=4.0))
    found = adjust_actions(imported(), "it", actions="clip", spec=away)
    assert not found.steps.columns["action"][found.steps.columns["closing"]].any()
    assert rows(found).min() == 3.0


def test_refusing_names_the_first_row_outside() -> None:
    with pytest.raises(DataError, match=r"it: the action in row 1 is \[-1.5, 0.0\], out of the action space"):
        adjust_actions(imported(), "it", actions="refuse", spec=SPACE)
    wide = Spec(observation=Box(shape=(1,)), action=Box(shape=(2,), low=-3.0, high=3.0))
    with pytest.raises(DataError, match=r"it: the action in row 4 is \[9.0, -9.0\]"):  # row 4 of steps, though it is row 5 of rows
        adjust_actions(imported(), "it", actions="refuse", spec=wide)
    fits = Spec(observation=Box(shape=(1,)), action=Box(shape=(2,), low=-9.0, high=9.0))
    assert adjust_actions(imported(), "it", actions="refuse", spec=fits).notes == []


def test_scaling_comes_before_bounds_and_moves_the_files_own_bounds() -> None:
    found = adjust_actions(imported(SPACE), "it", scale=(2.0, -0.5), actions="clip")
    assert found.spec is not None
    assert isinstance(found.spec.action, Box)
    low, high = found.spec.action.bounds() or (None, None)
    assert np.array([low, high]).tolist() == [[-2.0, -1.0], [2.0, 1.0]]
    assert rows(found).tolist() == [[1.0, -0.5], [-2.0, 0.0], [0.0, -1.0], [2.0, 1.0], [2.0, 1.0]]
    assert found.provenance == {"actions_clipped": 3}
    named = adjust_actions(imported(), "it", scale=2.0, actions="clip", spec=SPACE)  # the environment's bounds are its own
    assert rows(named)[0].tolist() == [1.0, 2.0]
    assert named.notes[0] == "Actions were multiplied by 2 (action_scale)."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actions": "clip"}, "actions=clip needs the bounds of the action space; name the environment"),
        ({"scale": (1.0, 2.0, 3.0)}, r"action_scale has 3 numbers and an action has the shape \[2\]"),
        ({"scale": 0.0}, "it takes numbers that are finite and not 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adjust_actions(imported(), "it", **settings)


def test_a_setting_of_every_format_is_checked_before_the_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="actions is 'clp'; input should be 'keep', 'clip' or 'refuse'"):
        read(tmp_path / "none", "npz", actions="clp")


def test_discrete_actions_are_neither_scaled_nor_clipped() -> None:
    kinds = Imported(steps_from_arrays(np.arange(2.0), [0, 1], np.zeros(2), [0, 1], source="it"))
    with pytest.raises(ConfigError, match="actions are not continuous, so action_scale means nothing"):
        adjust_actions(kinds, "it", scale=2.0)
    with pytest.raises(ConfigError, match="so actions=clip means nothing"):
        adjust_actions(kinds, "it", actions="clip", spec=Spec(observation=Box(shape=(1,)), action=Discrete(n=2)))


def test_float64_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    third = np.full((4, 2), 1 / 3)
    np.savez(tmp_path / "a.npz", observations=third, actions=third, rewards=np.zeros(4), terminals=np.ones(4))
    narrow, exact = read(tmp_path / "a.npz").steps.columns, read(tmp_path / "a.npz", keep_float64=True).steps.columns
    for name in ("observation", "action"):
        assert narrow[name].dtype == np.float32
        assert exact[name].dtype == np.float64
        assert (exact[name][0] == 1 / 3).all()
    assert exact["reward"].dtype == np.float32
    assert read(tmp_path / "a.npz").steps.columns["action"].dtype == np.float32  # what was asked for once is not kept


def test_a_format_may_be_a_folder(tmp_path: Path) -> None:
    """Its parts are read one by one, a folder without its mark is none of its datasets, and other formats are not asked."""

    @register_format
    class Marked(Format):
        name = "marked"
        description = "a folder with a mark"

        @classmethod
        def detect(cls, path: Path) -> bool:
            return path.is_dir() or path.name.startswith("part-")

        @classmethod
        def parts(cls, folder: Path) -> list[Path]:
            return sorted(folder.glob("part-*")) if (folder / "mark").exists() else []

        def read(self, path: Path) -> Imported:
            number = float(path.name.removeprefix("part-"))
            return Imported(steps_from_arrays([[number]], [[0.0]], [1.0], [True], source=str(path)))

    try:
        folder = tmp_path / "it"
        folder.mkdir()
        for name in ("mark", "part-2", "part-1"):
            (folder / name).write_bytes(b"x")
        assert parts_of(folder) == [folder / "part-1", folder / "part-2"]
        assert parts_of(folder, "d4rl") == []
        assert parts_of(tmp_path) == []
        assert detect(folder) == "marked"
        assert read(folder / "part-2").steps.columns["observation"][0, 0] == 2.0
        with pytest.raises(ConfigError, match="'marked' has no option 'timeout_at'"):
            read(folder / "part-2", timeout_at=3)
    finally:
        del FORMATS["marked"]
    with pytest.raises(DataError, match="is a folder in no known format"):
        detect(tmp_path / "it")


@pytest.mark.parametrize(
    ("actions", "discrete", "dtype"),
    [
        (np.array([[0, 1], [2, 0]]), True, np.int64),  # multi-discrete
        (np.array([[0, 1], [2, 0]]), None, np.float64),
        (np.array([[0.0, 1.0], [2.0, 0.0]]), True, np.int64),
        (np.array([[False, True], [True, False]]), None, np.bool_),  # binary
        (np.array([[False, True], [True, False]]), False, np.float32),
        (np.array([1, 0], np.uint8), None, np.int64),
        (np.array([[1], [0]]), None, np.int64),
        (np.array([1, 0]), False, np.float64),
    ],
)
def test_the_kind_of_actions_follows_from_their_type_or_is_said(actions: np.ndarray, discrete: bool | None, dtype: Any) -> None:
    typed = typed_actions("it", actions, discrete)
    assert typed.dtype == dtype
    np.testing.assert_array_equal(typed.reshape(-1), actions.reshape(-1))


REAL = os.environ.get("D3RAY_TEST_DATA")
STEPS = {"observations": np.ones((3, 2)), "actions": np.ones((3, 1)), "rewards": np.ones(3), "terminals": np.array([0, 0, 1])}
EPISODE = {"observations_0": np.ones((3, 2)), "actions_0": np.ones((3, 1)), "rewards_0": np.ones((3, 1)), "terminated_0": True}
HDF5 = {
    "d4rl": STEPS,
    "d3rlpy 2020": STEPS
    | {"rewards": np.array([0, 1, 1]), "episode_terminals": np.array([0, 0, 1]), "discrete_action": False, "create_mask": False},
    "d3rlpy 1.x": STEPS | {"discrete_action": False, "version": "1.0"},
    "d3rlpy 2.x": EPISODE | {"columns": ["observations"], "num_episodes": 1, "version": "2.1"},
}


@pytest.fixture
def own_format() -> Iterator[type[Format]]:
    @register_format
    class Own(Format):
        name = "own"
        description = "one word and rewards"

        @classmethod
        def detect(cls, path: Path) -> bool:
            return path.read_bytes()[:3] == b"own"

        def read(self, path: Path) -> Imported:
            rewards = np.array([float(word) for word in path.read_text().split()[1:]])
            return Imported(steps_from_arrays(rewards, rewards, rewards, np.ones(len(rewards), bool)))

    yield Own
    del FORMATS["own"]


@pytest.mark.parametrize("kind", HDF5)
@pytest.mark.parametrize("name", ["data", "data.npz", "data.pkl"])
def test_hdf5_layouts_are_told_apart_by_their_arrays(tmp_path: Path, kind: str, name: str) -> None:
    with h5py.File(tmp_path / name, "w") as file:
        for key, array in HDF5[kind].items():
            file.create_dataset(key, data=array)
    assert detect(tmp_path / name) == kind.split(maxsplit=1)[0]
    assert read(tmp_path / name).steps.n_transitions == (2 if "2020" in kind else 3)


def test_an_archive_is_known_by_its_arrays(tmp_path: Path) -> None:
    for name, arrays in (("steps.h5", STEPS), ("other.h5", {"weights": np.ones(3)})):
        with (tmp_path / name).open("wb") as file:
            np.savez(file, **arrays)
    assert detect(tmp_path / "steps.h5") == "npz"
    with pytest.raises(
        DataError, match=r"is a zip archive, but none with arrays of steps; the formats are: d4rl .* d3rlpy .* npz "
    ):
        detect(tmp_path / "other.h5")


def test_an_hdf5_file_with_a_user_block_is_known(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file", "w", userblock_size=512) as file:
        for key, array in STEPS.items():
            file.create_dataset(key, data=array)
    assert detect(tmp_path / "file") == "d4rl"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "is in no known format; the formats are: d4rl"),
        (b"\x93NUMPY\x01\x00", "is a single NumPy array"),
        (b"", "is empty"),
        (b"\x89HDF\r\n\x1a\n and no more", "cut short or damaged"),
        (b"PK\x03\x04 and no more", "cut short or damaged"),
    ],
)
def test_what_no_format_knows_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "file.npz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        detect(tmp_path / "file.npz")


def test_hdf5_of_another_kind_says_what_it_has(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file", "w") as file:
        file["weights"], file["biases"] = 1, 2
    with pytest.raises(DataError, match=r"is HDF5 but in no known layout \(it has 'biases', 'weights'\); the formats are"):
        detect(tmp_path / "file")


def test_a_format_of_ones_own(tmp_path: Path, own_format: type[Format]) -> None:
    (tmp_path / "file").write_text("own 1 2 4")
    assert detect(tmp_path / "file") == "own"
    assert read(tmp_path / "file").steps.returns.tolist() == [1, 2, 4]
    with pytest.raises(ConfigError, match="There is a format 'own' already"):
        register_format(own_format)


def test_what_an_importer_did_not_foresee_is_a_sentence_with_its_cause(tmp_path: Path, own_format: type[Format]) -> None:
    del own_format
    (tmp_path / "file").write_text("own 1 two 4")
    with pytest.raises(DataError, match=r"cannot be read as own: it is damaged, or unlike others \(could not") as caught:
        read(tmp_path / "file")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_format_is_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(ConfigError, match="There is no format 'd4rll'; did you mean 'd4rl'"):
        read(tmp_path / "file", "d4rll")
    with pytest.raises(DataError, match="is not an HDF5 file"):
        read(tmp_path / "file", "d4rl")


@pytest.mark.skipif(REAL is None, reason="D3RAY_TEST_DATA does not name the folder with real data")
def test_real_files() -> None:
    folder = Path(str(REAL))
    assert [detect(folder / "d3rlpy" / f"{name}_replay.h5") for name in ("cartpole", "pendulum")] == ["d3rlpy", "d3rlpy"]
    assert detect(folder / "imitation" / "cartpole_0_final.npz") == "npz"
    assert detect(folder / "cs285" / "expert_data_Hopper-v4.pkl") == "pickled_paths"


def test_what_is_missing_is_said_and_not_what_all_formats_need(tmp_path: Path) -> None:
    arrays = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "rewards": np.zeros(4)}
    np.savez(tmp_path / "a.npz", **arrays)
    with h5py.File(tmp_path / "b.hdf5", "w") as file:
        file.update(arrays)
    (tmp_path / "c.csv").write_text("run,obs_0,act_0,reward\n1,0.5,1,2\n")
    for name, lacks in (("a.npz", "'terminated'"), ("b.hdf5", "'terminals'"), ("c.csv", "'episode'")):
        with pytest.raises(DataError) as error:
            detect(tmp_path / name)
        assert re.match(rf"\S*{name} .*has no (column )?{lacks}", str(error.value)), str(error.value)
        assert ("rename.episode=NAME" if name == "c.csv" else "rename.USUAL=NAME") in str(error.value)
        assert len(str(error.value)) < 400


def test_usual_spellings_of_csv(tmp_path: Path) -> None:
    rows = "\n".join(f"{k // 3},{k},{k / 2},{k % 2},1,{int(k % 3 == 2)}" for k in range(6))
    (tmp_path / "a.csv").write_text(f"episode_id,obs_0,obs_1,act,rew,dones\n{rows}\n")
    steps = read(tmp_path / "a.csv").steps
    assert steps.terminated.tolist() == [True, True]
    assert steps.columns["observation"][:3].tolist() == [[0, 0], [1, 0.5], [2, 1]]
    assert steps.columns["action"].tolist() == [0, 1, 0, 0, 1, 0, 1, 0]


def test_experts_of_stable_baselines(tmp_path: Path) -> None:
    starts = np.array([True, False, False, True, False])
    arrays = {"obs": np.arange(5.0)[:, None], "actions": np.zeros((5, 1)), "rewards": np.ones((5, 1))}
    np.savez(tmp_path / "expert.npz", **arrays, episode_starts=starts, episode_returns=np.array([3.0, 2.0]))
    found = read(tmp_path / "expert.npz")
    assert found.steps.steps.tolist() == [3, 2]
    assert found.steps.terminated.all()
    assert any(note.startswith("'episode_starts' was taken as terminated") for note in found.notes)
    assert read(tmp_path / "expert.npz", timeout_at=3).steps.terminated.tolist() == [False, True]
