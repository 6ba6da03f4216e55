"""NumPy archives: flat ones under many names, `imitation`'s layout, and what must not be opened."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.registry import read

REAL = os.environ.get("D3RAY_TEST_DATA")


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


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
    bomb = np.array([Bomb(tmp_path / "ran")] * 6, dtype=object)
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
