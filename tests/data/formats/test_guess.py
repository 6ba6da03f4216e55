"""What columns of other names may be: a guess, which the importer takes once somebody says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from d3ray.data.formats.registry import read
from d3ray.data.formats.tabular.guess import Column, lacking, look, renames


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
    assert said == {"a": "observation", "cost": "observation", "done": "", "text": "", "force": "action"}
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
