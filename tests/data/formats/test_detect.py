"""A file's format is seen in what it holds, whatever its name; what no format knows is refused with the choices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.format import Format, Imported
from d3ray.data.formats.registry import FORMATS, detect, read, register_format
from d3ray.data.storage.steps import steps_from_arrays

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
