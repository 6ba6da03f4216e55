"""Rows of tables as episodes: the same rules whether they came in CSV or in Parquet, and guesses at other names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, parts_of, plan, read
from d3ray.data.formats.tabular import csv_table, flat_parquet
from d3ray.data.formats.tabular.guess import Column, lacking, look, renames
from d3ray.data.storage.flat import put_in_order, steps_from_flat, transitions
from d3ray.data.storage.steps import StepTable, concat_steps
from d3ray.platform.datasets.sources import find_sources

FORMATS = ("csv", "parquet")


def columns(lengths: list[int], **change: Any) -> dict[str, Any]:
    """Episodes back to back, whose observations count rows; None leaves a column out."""
    n = sum(lengths)
    last = np.isin(np.arange(n), np.cumsum(lengths) - 1)
    found = {
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "step": np.concatenate([np.arange(k) for k in lengths]),
        "observation": np.arange(n) + 0.5,
        "action": np.arange(n) % 2,
        "reward": np.arange(n) / 2,
        "terminated": last,
    }
    return {name: column for name, column in (found | change).items() if column is not None}


def write(path: Path, table: dict[str, Any], format: str, rows: Any = None) -> Path:
    path.parent.mkdir(exist_ok=True)
    table = {name: np.asarray(column)[slice(None) if rows is None else rows] for name, column in table.items()}
    if format == "csv":
        lines = [list(table), *zip(*(column.tolist() for column in table.values()), strict=True)]
        path.write_text("\n".join(",".join(map(str, line)) for line in lines))
    else:
        vectors = ("observation", "next_observation")
        arrays = {k: pa.array(v[:, None].tolist() if k in vectors else v.tolist()) for k, v in table.items()}
        pq.write_table(pa.table(arrays), path)
    return path


def seen(steps: StepTable) -> list[list[float]]:
    """Observations of the steps of each episode, in half numbers less a half."""
    kept = zip(steps.first_row, steps.steps, strict=True)
    return [(steps.columns["observation"][a : a + n, 0] - 0.5).tolist() for a, n in kept]


@pytest.mark.parametrize("format", FORMATS)
def test_steps_put_rows_in_order(tmp_path: Path, format: str) -> None:
    whole = read(write(tmp_path / "whole", columns([3, 1, 4]), format))
    assert (seen(whole.steps), whole.notes) == ([[0, 1, 2], [3], [4, 5, 6, 7]], whole.notes)
    shuffled = np.random.default_rng(0).permutation(8)
    imported = read(write(tmp_path / "file", columns([3, 1, 4]), format, shuffled))
    for name, column in whole.steps.columns.items():
        np.testing.assert_array_equal(imported.steps.columns[name], column)
    assert imported.notes == ["Rows were put in order, by their episodes and steps.", *whole.notes]
    backwards = read(write(tmp_path / "b", columns([3, 1, 4]), format, [2, 1, 0, 3, 7, 6, 5, 4])).steps
    assert seen(backwards) == seen(whole.steps)
    later = write(tmp_path / "l", columns([2, 2], episode=[7, 7, 3, 3]), format, [1, 0, 3, 2])
    assert seen(read(later).steps) == [[0, 1], [2, 3]]  # episodes that lie together stay where they are


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "ids", [["b", "b", "a", "a"], ["--5", "--5", "--4", "--4"], ["10", "10", "9", "9"], [10, 10, 9, 9], [" x", "x ", "y", "y"]]
)
def test_episodes_are_numbers_or_text(tmp_path: Path, format: str, ids: list[Any]) -> None:
    table = columns([2, 2], episode=ids)
    assert seen(read(write(tmp_path / "file", table, format)).steps) == [[0, 1], [2, 3]]
    by_id = [[0, 1], [2, 3]] if ids[0] == " x" else [[2, 3], [0, 1]]
    assert seen(read(write(tmp_path / "file", table, format, [0, 2, 1, 3])).steps) == by_id


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("change", "rows", "message"),
    [
        ({"step": None}, [0, 3, 1, 4, 2], r"episode '?0'? comes back in row 2, after another; .* \(rename.step=NAME\)"),
        ({"step": [0, 1, 1, 0, 1]}, None, r"'step' 1 of episode '?0'? comes twice; an episode has a number of its own"),
        (
            {"episode": None, "step": [5, 7, 6, 0, 1]},
            None,
            "'step' goes from 7 to 6 in row 2 .*rename.episode=NAME",
        ),
        (
            {"step": [0, 5, 7, 0, 9]},
            None,
            "no row follows another: 'step' rises by 5, by 2 and so on, never by 1; import",
        ),
        ({"episode": None, "terminated": None}, None, "no column 'episode', only 'step', .*rename.terminated=NAME"),
        ({"action": None}, None, "has no column 'action"),
    ],
)
def test_what_tells_no_order_is_refused(tmp_path: Path, format: str, change: Any, rows: Any, message: str) -> None:
    path = write(tmp_path / "file", columns([3, 2], **change), format, rows)
    with pytest.raises(DataError, match=message) as refused:
        read(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("format", FORMATS)
def test_a_step_that_is_missing_ends_an_episode_and_is_said(tmp_path: Path, format: str) -> None:
    imported = read(write(tmp_path / "file", columns([5, 2]), format, [0, 1, 3, 4, 5, 6]))
    assert seen(imported.steps) == [[0, 1], [3, 4], [5, 6]]
    assert imported.steps.terminated.tolist() == [False, True, True]
    assert not imported.steps.final_recorded.any()
    assert any(note.startswith("1 episodes were cut before a step that is missing") for note in imported.notes)
    skipped = read(write(tmp_path / "four", columns([3, 2], step=[0, 4, 8, 4, 8]), format))
    assert seen(skipped.steps) == [[0, 1, 2], [3, 4]]
    assert "'step' rises by 4 from row to row." in skipped.notes
    times = read(write(tmp_path / "times", columns([3, 2], step=[0.1, 0.25, 0.3, 0.0, 0.7]), format, [1, 0, 2, 4, 3])).steps
    assert seen(times) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("format", FORMATS)
def test_without_ids_episodes_begin_at_the_lowest_step_and_end_at_flags(tmp_path: Path, format: str) -> None:
    table = columns([3, 2, 2], episode=None, terminated=np.arange(7) == 4)
    imported = read(write(tmp_path / "file", table, format))
    assert seen(imported.steps) == [[0, 1, 2], [3, 4], [5, 6]]
    assert imported.steps.terminated.tolist() == [False, True, False]
    assert not imported.steps.final_recorded.any()  # the next row is of another episode


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_that_says_terminated_is_said_and_chosen(tmp_path: Path, format: str) -> None:
    path = write(tmp_path / "file", columns([2, 2], terminated=None, truncated=np.arange(4) == 3), format)
    assert detect(path) == format
    imported = read(path)
    assert not imported.steps.terminated.any()
    said = "all were taken as truncated (options.ends=terminated changes that)."
    assert f"The file does not say which episodes the task ended: {said}" in imported.notes
    assert read(path, ends="terminated").steps.terminated.tolist() == [True, False]  # the other one is said to be truncated
    with pytest.raises(ConfigError, match="ends is 'no'"):
        read(path, ends="no")


@pytest.mark.parametrize("format", FORMATS)
def test_synonyms_and_words_that_stand_before_them(tmp_path: Path, format: str) -> None:
    table = columns([2, 2])
    words = {"episode": "episode_id", "step": "frame_index", "reward": "rew", "terminated": "done"}
    renamed = {words.get(name, name): column for name, column in table.items()} | {"dones": np.zeros(4, bool)}
    imported = read(write(tmp_path / "file", renamed, format))
    assert (seen(imported.steps), imported.steps.terminated.tolist()) == ([[0, 1], [2, 3]], [True, True])
    assert "The column 'dones' was not read: another one is read in its place." in imported.notes
    other = table | {"r": np.ones(4)}
    steps = read(write(tmp_path / "other", other, format), format, rename={"reward": "r"}).steps
    assert steps.columns["reward"].tolist() == [1, 1, 0] * 2


def test_a_column_a_number_is_a_vector_in_parquet_too(tmp_path: Path) -> None:
    table = columns([2, 2], observation=None) | {"obs_0": np.arange(4.0), "obs_1": np.arange(4.0) + 4}
    steps = read(write(tmp_path / "file", table, "parquet")).steps
    assert steps.columns["observation"].tolist() == [[0, 4], [1, 5], [1, 5], [2, 6], [3, 7], [3, 7]]
    odd = {name: column for name, column in table.items() if name != "reward"} | {"gain": np.ones(4)}
    path = write(tmp_path / "odd", odd, "parquet")
    with pytest.raises(DataError, match=r"no column 'reward', only .*; say which it is: rename.reward=NAME\."):
        read(path)
    assert read(path, rename={"reward": "gain"}).steps.columns["reward"].sum() == 4


def logged(seed: int = 0) -> Dataset:
    rng, ends = np.random.default_rng(seed), np.isin(np.arange(12), [2, 3, 11])
    about = {"next_observations": None, "final_observations": rng.normal(size=(3, 1))}
    return Dataset.from_arrays(rng.normal(size=(12, 1)), np.arange(12) % 3, np.ones(12), ends & (np.arange(12) != 3), ends, **about)


def rows_of(data: Dataset) -> dict[str, np.ndarray]:
    """Its transitions as `to_ray` gives them."""
    found = transitions(data.columns, data.kinds, data.episodes.transition_rows())
    steps = data.episodes.steps
    index = {"episode": np.repeat(np.arange(len(steps)), steps), "step": np.concatenate([np.arange(n) for n in steps])}
    return index | found | {"next_recorded": np.arange(12) != 3}


@pytest.mark.parametrize("format", FORMATS)
def test_transitions_of_ray_come_back_in_any_order_as_from_ray_reads_them(tmp_path: Path, format: str) -> None:
    rows = rows_of(logged())
    flat = {name: column.reshape(len(column)) for name, column in rows.items()}
    shuffled = np.random.default_rng(1).permutation(12)
    steps = read(write(tmp_path / "file", flat, format, shuffled)).steps
    expected = steps_from_flat(put_in_order(rows))
    assert steps.steps.tolist() == [3, 1, 8]
    assert steps.final_recorded.tolist() == expected.final_recorded.tolist() == [True, False, True]
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(steps.columns[name], column)


@pytest.mark.parametrize("format", FORMATS)
def test_steps_are_looked_at_only_where_files_share_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    table, looked_at = columns([4, 3]), list[Path]()
    for k, (start, stop) in enumerate(((0, 4), (4, 7))):
        write(tmp_path / "apart" / str(k), table, format, slice(start, stop))
    module = flat_parquet if format == "parquet" else csv_table
    monkeypatch.setattr(module, "_steps", looked_at.append)
    assert len(find_sources([tmp_path / "apart"])) == 2
    assert not looked_at


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_an_episode_in_several_files_are_one_table(tmp_path: Path, format: str) -> None:
    table, shuffled = columns([4, 3, 5]), np.random.default_rng(2).permutation(12)
    for k in range(3):
        write(tmp_path / "over" / str(k), table, format, shuffled[4 * k : 4 * k + 4])
    (tmp_path / "over" / "_SUCCESS").touch()
    if format == "parquet":  # as Ray writes empty blocks
        empty = pq.read_table(tmp_path / "over" / "0").slice(0, 0)
        pq.write_table(empty, tmp_path / "over" / "9")
    assert (parts_of(tmp_path / "over"), detect(tmp_path / "over")) == ([tmp_path / "over"], format)
    assert seen(read(tmp_path / "over").steps) == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10, 11]]
    for k, (start, stop) in enumerate(((0, 4), (4, 7))):
        write(tmp_path / "apart" / str(k), table, format, slice(start, stop))
        write(tmp_path / "anew" / str(k), columns([4, 3]), format)  # each file numbers its episodes from 0
    for name in ("apart", "anew"):
        assert [Path(path).name for path in find_sources([tmp_path / name])] == ["0", "1"]
    write(tmp_path / "over" / "4", table | {"more": np.zeros(12)}, format, shuffled[:4])
    with pytest.raises(DataError, match="its files have different columns; 'more' is in some of them"):
        read(tmp_path / "over", format)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("change", [{}, {"step": None}, {"episode": None}, {"step": np.arange(60) * 2}])
def test_stretches_hold_the_same_episodes(tmp_path: Path, format: str, change: dict[str, Any]) -> None:
    lengths = [20, 1, 9, 30]
    rows = np.delete(np.arange(60), 7) if "step" not in change else np.arange(60)
    path = write(tmp_path / "file", columns(lengths, **change), format, rows)
    whole, found = read(path), plan(path, n_bytes=path.stat().st_size // 5)
    assert len(found.parts) > 1
    parts = [part() for part in found.parts]
    assert seen(concat_steps([part.steps for part in parts])) == seen(whole.steps)
    assert sorted([*found.notes, *found.said(whole.steps), *(n for part in parts for n in part.notes)]) == sorted(whole.notes)
    backwards = write(tmp_path / "back", columns(lengths, **change), format, rows[::-1])
    if change == {}:
        assert len(plan(backwards, n_bytes=100).parts) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_propensities_become_their_logarithms(tmp_path: Path, format: str) -> None:
    table = columns([2, 2], propensity=[0.5, 0.25, 1.0, 0.125])
    steps = read(write(tmp_path / "file", table, format, [1, 0, 3, 2])).steps
    np.testing.assert_allclose(steps.columns["log_prob"], np.log([0.5, 0.25, 1, 1, 0.125, 1]), rtol=1e-6)
    both = read(write(tmp_path / "both", table | {"log_prob": [-1.0, -2.0, -3.0, -4.0]}, format))
    assert both.steps.columns["log_prob"].tolist() == [-1, -2, 0, -3, -4, 0]
    assert any("'log_prob' is read in its place" in note for note in both.notes)
    with pytest.raises(DataError, match=r"is 1.5 in row 2; of an action that was taken a probability is above 0 and at most 1"):
        read(write(tmp_path / "above", columns([2, 2], propensity=[0.5, 0.25, 1.5, 0.125]), format))
    densities = columns([2, 2], propensity=[0.5, 0.25, 1.5, 0.125], action=np.arange(4) / 4)
    assert read(write(tmp_path / "density", densities, format)).steps.columns["log_prob"][3] == np.float32(np.log(1.5))


def guesses(tmp_path: Path, *lines: str) -> dict[str, str]:
    file = tmp_path / "log.csv"
    file.write_text("\n".join(lines) + "\n")
    return {one.name: one.guess for one in look(file)}


def test_names_and_values_tell(tmp_path: Path) -> None:
    said = guesses(
        tmp_path,
        "patient_id;heartRate;note;dose;payoff;died",
        "anna;61.5;calm;0.5;1;false",
        "anna;70;calm;0.25;0;true",
        "bert;66;-;0;0.5;true",
    )
    expected = {"patient_id": "episode", "heartRate": "observation", "note": "", "dose": "action", "payoff": "reward"}
    assert said == {**expected, "died": "terminated"}
    imported = read(tmp_path / "log.csv", "csv", rename=renames(said))
    assert imported.steps.steps.tolist() == [2, 1]


def test_own_names_are_left_as_they_are(tmp_path: Path) -> None:
    assert set(guesses(tmp_path, "episode,obs_0,action:0,reward,speed", "0,1,1,1,1", "0,2,1,1,3").values()) == {""}
    file = tmp_path / "part.csv"
    file.write_text("episode,speed,u,reward,more\n0,1.5,0.1,1,x\n")
    assert look(file) == [
        Column("episode", "episode", "", ("0",)),
        Column("speed", "", "observation", ("1.5",)),
        Column("u", "", "action", ("0.1",)),
        Column("reward", "reward", "", ("1",)),
        Column("more", "", "", ("x",)),
    ]


def test_what_nobody_can_tell_is_not_guessed(tmp_path: Path) -> None:
    """A cost is no reward, values that are no flags end nothing, and text is no observation."""
    said = guesses(tmp_path, "a,cost,done,text,force", "1,2,7,x,1", "1,2,8,y,2")
    assert said == {"a": "observation", "cost": "", "done": "", "text": "", "force": "action"}
    assert lacking(["observation:0", "action:0", "terminated"]) == ["reward"]
    assert guesses(tmp_path, "a,b,c") == {"a": "", "b": "", "c": ""}


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        (
            {"run": "episode", "x": "observation", "y": "observation"},
            {"episode": "run", "observation:0": "x", "observation:1": "y"},
        ),
        ({"observation:0": "", "y": "observation", "z": ""}, {"observation:1": "y"}),
        ({"x": "", "reward": ""}, {}),
    ],
)
def test_roles_as_the_setting_rename(roles: dict[str, str], said: dict[str, str]) -> None:
    assert renames(roles) == said
