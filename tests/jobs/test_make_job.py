"""`d3ray make`: what it says, its exit statuses, and that names that are made are names like others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from d3ray import Dataset
from d3ray.jobs.command.running import run_command

from ..platform.datasets.tiny_recipes import TINY, write_catalog


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {"environment": {"id": "Hoper-v4"}, "recipe": {**TINY, "kind": "random"}}
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(tmp_path / "catalog.json", tiny__bad=bad)))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_names_are_made_listed_and_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("inspect", ["tiny/pendulum-random"]) == 2
    assert "d3ray make tiny/pendulum-random makes it.\n" in capsys.readouterr().err
    assert run_command("ingest", ["tiny/pendulum-random", str(tmp_path / "set")]) == 2
    assert "needs no import: d3ray make tiny/pendulum-random" in capsys.readouterr().err
    assert run_command("make", ["tiny/pendulum-random", "tiny/pendulum-expert"]) == 0
    out, err = capsys.readouterr()
    assert "tiny/pendulum-random: 300 transitions in 2 episodes, mean return -" in out
    assert "making 2 datasets: 900 of 900 (100%)" in err
    random = Dataset.open("tiny/pendulum-random")
    assert random.columns["log_prob"][0] == pytest.approx(-1.3863, abs=1e-4)  # one number in [-2, 2]
    assert not {"info/qpos", "info/qvel"} & random.columns.keys()
    assert run_command("inspect", ["tiny/pendulum-random", "--verify"]) == 0
    capsys.readouterr()
    assert run_command("datasets", ["tiny/pendulum", "format=json"]) == 0
    found = {row["name"].rpartition("-")[2]: row["local"] for row in json.loads(capsys.readouterr().out)}
    assert found == {"random": "dataset", "expert": "dataset", "medium": "in part", "replay": "in part"}
    assert run_command("datasets", ["tiny/"]) == 0
    assert "\n  make one: d3ray make NAME\n" in capsys.readouterr().out
    assert run_command("datasets", []) == 0
    assert re.search(r"^d3ray-mujoco/\{task\}-\{kind\}\{size\}-v4 +36 datasets$", capsys.readouterr().out, re.MULTILINE)


def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("make", ["tiny/hoper-medium"]) == 2
    assert capsys.readouterr().err == "There is no dataset 'tiny/hoper-medium'; did you mean 'tiny/hopper-medium'?\n"
    assert run_command("make", ["tiny/bad"]) == 2
    assert "gymnasium knows no environment 'Hoper-v4'" in capsys.readouterr().err.splitlines()[-1]
    assert run_command("make", ["tiny/bad", "tiny/pendulum-random", "at_once=1"]) == 1
    out, err = capsys.readouterr()
    assert "tiny/pendulum-random: 300 transitions" in out
    assert err.splitlines()[-1].startswith("tiny/bad was not made: gymnasium knows no environment 'Hoper-v4'")
