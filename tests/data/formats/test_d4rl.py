"""D4RL's layout and those of its kinds of tasks, written here from episodes whose truth is known; bad files by their message."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.format import Imported
from d3ray.data.formats.registry import detect, plan, read


def write(path: Path, **arrays: Any) -> Path:
    """A file with these arrays; `infos/qpos` is written as the keyword `infos__qpos`."""
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name.replace("__", "/"), data=array)
    return path


def steps_of(n: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "observations": rng.normal(size=(n, 3)).astype(np.float32),
        "actions": rng.normal(size=(n, 2)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "terminals": np.zeros(n, bool),
        "timeouts": np.zeros(n, bool),
    }


def test_a_file_is_read_in_this_process_and_its_time_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "file.hdf5", **steps_of(20))
    monkeypatch.delattr("os.fork")
    monkeypatch.setattr("signal.setitimer", None)
    assert read(path, "d4rl").steps.n_transitions == 20


def episodes_of(imported: Imported) -> list[tuple[Any, ...]]:
    """(observations [T + 1], actions, rewards, terminated, final recorded) of each episode, read off the table row by row."""
    table = imported.steps
    found = []
    for e, (first, steps) in enumerate(zip(table.first_row.tolist(), table.steps.tolist(), strict=True)):
        rows = {name: column[first : first + steps + 1] for name, column in table.columns.items()}
        assert rows["closing"].tolist() == [False] * steps + [True]
        assert rows["truncated"].tolist() == [False] * (steps - 1) + [not table.terminated[e], False]
        found.append(
            (
                rows["observation"].tolist(),
                rows["action"][:-1].tolist(),
                rows["reward"][:-1].tolist(),
                bool(rows["terminated"][-2]),
                bool(table.final_recorded[e]),
            )
        )
    return found


def slow(raw: dict[str, Any]) -> list[tuple[Any, ...]]:
    """D4RL's meaning, one row at a time."""
    n, following = len(raw["rewards"]), raw.get("next_observations")
    found, start = [], 0
    for t in range(n):
        jump = following is not None and t + 1 < n and not np.array_equal(following[t], raw["observations"][t + 1])
        if raw["terminals"][t] or raw["timeouts"][t] or t == n - 1 or jump:
            seen = [raw["observations"][k].tolist() for k in range(start, t + 1)]
            seen.append((raw["observations"] if following is None else following)[t].tolist())
            rows = range(start, t + 1)
            actions, rewards = [raw["actions"][k].tolist() for k in rows], [float(raw["rewards"][k]) for k in rows]
            found.append((seen, actions, rewards, bool(raw["terminals"][t]), following is not None))
            start = t + 1
    return found


@pytest.mark.parametrize("given", [False, True], ids=["no_next_observations", "next_observations"])
@pytest.mark.parametrize("seed", range(8))
def test_steps_are_those_of_a_loop_over_rows(tmp_path: Path, seed: int, given: bool) -> None:
    raw, rng = steps_of(40, seed), np.random.default_rng(100 + seed)
    raw["terminals"], raw["timeouts"] = rng.random(40) < 0.15, rng.random(40) < 0.15
    if given:
        raw["next_observations"] = np.r_[raw["observations"][1:], raw["observations"][:1]]
        ends = raw["terminals"] | raw["timeouts"] | (rng.random(40) < 0.1)
        raw["next_observations"][ends] = rng.normal(size=(int(ends.sum()), 3))
    imported = read(write(tmp_path / "file", **raw), "d4rl")
    assert episodes_of(imported) == slow(raw)
    assert imported.steps.n_transitions == 40


def test_a_terminal_that_is_also_a_timeout_is_a_terminal(tmp_path: Path) -> None:
    raw = steps_of(4)
    raw["terminals"][1] = raw["timeouts"][1] = raw["timeouts"][3] = True
    imported = read(write(tmp_path / "file", **raw), "d4rl")
    assert imported.steps.terminated.tolist() == [True, False]
    assert imported.notes == [
        "1 rows are terminal and timeout at once; they were taken as terminal.",
        "1 of 2 episodes are truncated without a final observation: their last step is kept, but nothing is bootstrapped from it.",
    ]


def test_a_jump_in_next_observations_cuts_and_is_counted(tmp_path: Path) -> None:
    raw = steps_of(6)
    raw["next_observations"] = np.r_[raw["observations"][1:], raw["observations"][5:]]
    raw["next_observations"][2] += 1
    imported = read(write(tmp_path / "file", **raw), "d4rl")
    assert imported.steps.steps.tolist() == [3, 3]
    assert "1 episodes were cut where next_observations is not the next row." in imported.notes
    first_closing = imported.steps.columns["observation"][3]
    np.testing.assert_array_equal(first_closing, raw["next_observations"][2])


def test_infos_become_columns_and_metadata_provenance(tmp_path: Path) -> None:
    raw = steps_of(5)
    qpos, log_probs = np.arange(10.0).reshape(5, 2), -np.arange(5.0)
    path = write(
        tmp_path / "file",
        **raw,
        infos__qpos=qpos,
        infos__action_log_probs=log_probs,
        infos__goal=np.zeros(3),
        infos__words=[b"a"] * 5,
        metadata__algorithm="SAC",
        metadata__iteration=600,
        metadata__policy__fc0__weight=np.zeros((3, 7)),
    )
    imported = read(path, "d4rl")
    assert imported.steps.columns["info/qpos"].tolist() == [*qpos.tolist(), [0, 0]]  # zeros in the closing row
    assert imported.steps.columns["log_prob"].tolist() == [*log_probs.tolist(), 0]
    assert not {"info/goal", "info/words", "info/action_log_probs"} & set(imported.steps.columns)
    assert imported.notes[:2] == [
        "infos/goal has shape (3,), not one row for each of the 5 steps, and was left out.",
        "infos/words does not hold numbers and was left out.",
    ]
    metadata = {"algorithm": "SAC", "iteration": 600, "policy/fc0/weight": "array of shape (3, 7)"}
    assert imported.provenance == {"format": "d4rl", "file": "file", "metadata": metadata}


def test_a_time_limit_ends_episodes_where_a_file_has_no_timeouts(tmp_path: Path) -> None:
    raw = steps_of(11)
    del raw["timeouts"]
    raw["terminals"][[1, 5, 6]] = True  # episodes of 2, 4, 1 and 4 steps: the second ends at the limit, the last is cut there
    path = write(tmp_path / "file", **raw)
    imported = read(path, "d4rl", timeout_at=4)
    assert imported.steps.steps.tolist() == [2, 4, 1, 4]
    assert imported.steps.terminated.tolist() == [True, False, True, False]
    longer = read(path, "d4rl", timeout_at=3)
    assert longer.steps.steps.tolist() == [2, 3, 1, 1, 3, 1]
    assert longer.steps.terminated.tolist() == [True, False, True, True, False, False]
    assert "2 ends were added where 3 steps had passed without one (timeout_at)." in longer.notes
    assert "The file has no timeouts" in read(path, "d4rl").notes[0]


def test_equal_longest_episodes_that_all_end_terminated_raise_a_suspicion(tmp_path: Path) -> None:
    raw = steps_of(7)
    del raw["timeouts"]
    raw["terminals"][[2, 3, 6]] = True
    notes = read(write(tmp_path / "file", **raw), "d4rl").notes
    assert notes[-1].startswith("2 of 3 episodes end terminated after exactly 3 steps, the most of any")


def test_integer_actions_are_discrete_and_bytes_stay_bytes(tmp_path: Path) -> None:
    raw = steps_of(3)
    raw["actions"], raw["observations"] = np.array([[2], [0], [1]], ">i4"), np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    columns = read(write(tmp_path / "file", **raw), "d4rl").steps.columns
    assert columns["action"].tolist() == [2, 0, 1, 0]
    assert (columns["action"].dtype, columns["observation"].dtype) == (np.int64, np.uint8)
    columns = read(tmp_path / "file", "d4rl", discrete_action=False).steps.columns
    assert (columns["action"].dtype, columns["action"].shape) == (np.float32, (4, 1))


def test_numbers_of_the_other_byte_order_are_turned(tmp_path: Path) -> None:
    raw = steps_of(2)
    raw["observations"], raw["rewards"] = np.array([[1], [258]], ">u2"), np.array([1, 2], ">f8")
    columns = read(write(tmp_path / "file", **raw), "d4rl").steps.columns
    assert columns["observation"].tolist() == [[1], [258], [258]]
    assert columns["observation"].dtype.isnative
    assert columns["reward"].tolist() == [1, 2, 0]


def broken(**change: Any) -> dict[str, Any]:
    raw = steps_of(4)
    for name, value in change.items():
        raw.pop(name) if value is None else raw.update({name: value})
    return raw


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terminals": None}, "is not a D4RL file: it has no 'terminals', only 'actions', 'observations', 'rewards', 'timeouts'"),
        ({"rewards": np.zeros(3)}, "'observations' has 4 rows, but 'rewards' has 3"),
        ({"timeouts": np.zeros(5)}, "'observations' has 4 rows, but 'timeouts' has 5"),
        ({"rewards": np.array([0, np.nan, 0, 0])}, "rewards has NaN in row 1"),
        ({"observations": np.full((4, 2), np.inf)}, "observations has an infinite number in row 0"),
        ({"terminals": np.array([0, 2, 0, 0])}, "'terminals' is 2 in row 1; flags are 0 or 1"),
        ({"actions": np.array([0, -1, 0, 0])}, "discrete actions count from 0, but 'actions' is -1 in row 1"),
        ({"actions": [b"left"] * 4}, "'actions' holds .*, not numbers"),
        ({"rewards": np.float32(1)}, "'rewards' is a single value"),
        ({name: np.zeros((0, 2)) for name in steps_of(1)}, "has no steps: 'observations' has no rows"),
        ({"next_observations": np.zeros((4, 5))}, "next_observations has entries of shape"),
    ],
)
def test_bad_arrays_are_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "bad.hdf5", **broken(**change))
    with pytest.raises(DataError, match=message) as caught:
        read(path, "d4rl")
    assert "bad.hdf5" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_whole_hdf5_are_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", **steps_of(2000))
    for name, content, message in [
        ("text", b"observations,actions\n1,2\n", "is not an HDF5 file"),
        ("empty", b"", "is empty"),
        ("half", whole.read_bytes()[: whole.stat().st_size // 2], "is an HDF5 file that is cut short or damaged"),
        ("head", whole.read_bytes()[:8], "cut short or damaged"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            read(tmp_path / name, "d4rl")
    with pytest.raises(DataError, match="There is no file"):
        read(tmp_path / "absent", "d4rl")
    with pytest.raises(DataError, match="is a folder"):
        read(tmp_path, "d4rl")


def test_damage_in_the_middle_is_found_by_the_files_own_checksums(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with h5py.File(path, "w") as file:
        for name, array in steps_of(500).items():
            file.create_dataset(name, data=array, fletcher32=True, chunks=(500, *array.shape[1:]))
    content, offset = bytearray(path.read_bytes()), path.read_bytes().find(steps_of(500)["observations"].tobytes()[:64])
    assert offset > 0
    content[offset + 5] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match="cut short or damaged"):
        read(path, "d4rl")


def test_a_chunk_that_lies_is_found_before_next_observations_are_compared(tmp_path: Path) -> None:
    path = write(tmp_path / "it.hdf5", **{**steps_of(20), "timeouts": np.arange(20) % 5 == 4})
    deflate = zlib.compressobj(1)
    packed = b"".join(deflate.compress(bytes(1 << 24)) for _ in range(20)) + deflate.flush()
    with h5py.File(path, "a") as file:
        file.create_dataset("next_observations", (20, 3), "f4", chunks=(20, 3), compression="gzip")
        file["next_observations"].id.write_direct_chunk((0, 0), packed)
    with pytest.raises(DataError, match="'next_observations' has a chunk that unpacks to more"):
        plan(path, "d4rl")


def test_an_array_larger_than_memory_is_refused(tmp_path: Path) -> None:
    path, n = tmp_path / "file", 1 << 50  # no chunk is written: the file stays small
    with h5py.File(path, "w") as file:
        for name, array in steps_of(1).items():
            file.create_dataset(name, (n, *array.shape[1:]), array.dtype, chunks=(1 << 10, *array.shape[1:]))
    with pytest.raises(DataError, match=r"'terminals' unpacks to 19,140 TB or more"):
        read(path, "d4rl")


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
