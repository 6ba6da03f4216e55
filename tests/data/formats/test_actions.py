"""Actions that are scaled and held to their space while they are imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def test_actions_that_are_no_kinds_are_named() -> None:
    with pytest.raises(DataError, match=r"'actions' is 0\.5 in row 1"):
        typed_actions("it", np.array([[0.0, 1.0], [2.0, 0.5]]), True)
    with pytest.raises(DataError, match=r"but 'actions' is -1 in row 1 \(for numbers that are no kinds say discrete_action=false"):
        typed_actions("it", np.array([[0, 1], [-1, 0]]), True)
