"""`d3ray inspect`: the numbers of a dataset worked out by hand, as a table and as JSON."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box, Discrete, Environment, Spec
from d3ray.jobs.command.running import run_command
from d3ray.jobs.data import inspect as inspect_job


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Episodes of 2, 3 and 1 steps: terminated, cut without a final observation, and ended by the data's end."""
    spec = Spec(observation=Box(shape=(2,), low=-10, high=10), action=Box(shape=(1,), low=-1, high=1))
    dataset = Dataset.from_arrays(
        np.array([[0, 1], [2, 1], [4, 1], [6, 1], [8, 1], [10, 1]], np.float32),
        np.array([[0.0], [0.5], [-0.5], [2.0], [1.0], [-1.0]], np.float32),
        np.array([1, 2, 0, 0, 5, 7], np.float32),
        terminated=np.array([0, 1, 0, 0, 0, 0], bool),
        truncated=np.array([0, 0, 0, 0, 1, 0], bool),
        spec=spec,
        environment=Environment(id="Mine-v0"),
        name="mine",
    )
    dataset.write(tmp_path / "set")
    return str(tmp_path / "set")


def _index(lines: list[str], start: str) -> int:
    return next(k for k, line in enumerate(lines) if line.startswith(start))


def test_every_number_is_that_of_the_data(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("inspect", [folder, "verify=true"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = {re.split(r"\s{2,}", line.strip())[0]: line.split()[-4:] for line in lines[: _index(lines, "returns by")]}
    assert lines[0] == "mine: 6 transitions in 3 episodes"
    assert lines[1].split() == ["environment", "Mine-v0"]
    assert "2 float32 from -10 to 10" in lines[2]
    assert "1 float32 from -1 to 1" in lines[3]
    assert "1 terminated, 2 truncated, 2 truncated without a final observation" in lines[4]
    returns, rewards = np.array([3, 5, 7]), np.array([1, 2, 0, 0, 5, 7])
    assert table["return of an episode"] == ["5", f"{returns.std():.5g}", "3", "7"]
    assert table["steps of an episode"] == ["2", f"{np.std([2, 3, 1]):.5g}", "1", "3"]
    assert table["reward"] == ["2.5", f"{rewards.std():.5g}", "0", "7"]
    assert table["observation 0"] == ["5", f"{np.std([0, 2, 4, 6, 8, 10]):.5g}", "0", "10"]
    assert table["observation 1"] == ["1", "0", "1", "1"]
    assert table["action"] == ["0.33333", f"{np.std([0, 0.5, -0.5, 2, 1, -1]):.5g}", "-1", "2"]
    assert any(line.startswith("1 actions (16.67%) lie outside the action space") for line in lines)
    assert "returns by share of episodes: 0%: 3, 5%: 3.2, 25%: 4, 50%: 5, 75%: 6, 95%: 6.8, 100%: 7" in lines
    assert any("Every file is as it was written." in line for line in lines)


def test_json_is_one_object_alone(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("inspect", [folder, "format=json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (found["n_transitions"], found["n_episodes"], found["fingerprint"]) == (6, 3, Dataset.open(folder).fingerprint)
    assert found["ends"] == {
        "terminated": 1,
        "truncated": 2,
        "truncated without a final observation": 2,
        "cut where next observations did not fit": 0,
    }
    assert found["statistics"]["return"]["mean"] == 5
    assert found["spec"]["action"]["high"] == 1


def test_provenance_names_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in range(7):
        ends = np.arange(4) == 3
        np.savez(tmp_path / f"{k}.npz", observations=np.ones((4, 2)), actions=np.ones(4, int), rewards=np.ones(4), terminated=ends)
    assert run_command("ingest", [f"{tmp_path}/*.npz", str(tmp_path / "set")]) == 0
    assert run_command("inspect", [str(tmp_path / "set")]) == 0
    out = capsys.readouterr().out
    assert "provenance: 7 files read by d3ray" in out
    assert f"{tmp_path}/0.npz: 4 transitions in 1 episodes, npz format" in out
    assert "and 2 more" in out
    assert "actions taken: 0: 0 (0.0%), 1: 28 (100.0%)" in out


def test_actions_are_counted_from_where_they_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = Spec(observation=Box(shape=(2,)), action=Discrete(n=3, start=2))
    Dataset.from_arrays(np.ones((4, 2)), [2, 4, 4, 4], np.ones(4), [0, 0, 0, 1], spec=spec).write(tmp_path / "set")
    assert run_command("inspect", [str(tmp_path / "set")]) == 0
    out = capsys.readouterr().out
    assert "one of 3, from 2 on" in out
    assert "actions taken: 2: 1 (25.0%), 3: 0 (0.0%), 4: 3 (75.0%)" in out
    assert "1 of 3 actions were never taken: 3." in out


def test_what_cannot_be_read_is_refused(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("inspect", [str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.startswith("There is no dataset folder")
    (shard,) = Path(folder).glob("data-*.arrow")
    content = bytearray(shard.read_bytes())
    content[-900] ^= 1
    shard.write_bytes(content)
    assert run_command("inspect", [folder, "verify=true"]) == 2
    assert "is damaged: its content is not what was written (SHA-256 differs)." in capsys.readouterr().err


# ---- the doctor


@pytest.fixture
def ill(tmp_path: Path) -> str:
    """Rewards of 200 steps that stand one row late: the first of each episode is zero, and no other."""
    ends = np.arange(200) % 20 == 19
    rewards = np.where(np.arange(200) % 20 == 0, 0.0, 1.0)
    rng = np.random.default_rng(0)
    Dataset.from_arrays(rng.normal(size=(200, 2)), rng.uniform(-1, 1, (200, 1)), rewards, ends, name="ill").write(tmp_path / "ill")
    return str(tmp_path / "ill")


def test_findings_say_what_mends_them(ill: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("inspect", [ill]) == 0
    out = capsys.readouterr().out
    assert "the doctor: 1 error, 2 warnings and 1 note" in out
    at = out.index("error   Rewards stand one row late  [rewards_late]")
    assert out.index("→ Ingest with `options.rewards=arriving`", at) < out.index("warning", at)
    assert re.search(r"^steps of an episode +20 █+ 20$", out, re.MULTILINE)


def test_strict_exits_with_one_where_there_is_an_error(ill: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("inspect", [ill, "strict=true"]) == 1
    assert capsys.readouterr().err == f"{ill}: Rewards stand one row late (strict).\n"
    assert run_command("inspect", [ill, "strict=true", "format=json"]) == 1
    assert json.loads(capsys.readouterr().out)["doctor"]["findings"][0]["name"] == "rewards_late"
    assert run_command("inspect", [folder, "strict=true"]) == 0  # actions outside their space are a warning


def test_without_the_doctor_no_row_is_read(ill: str, capsys: pytest.CaptureFixture[str]) -> None:
    for shard in Path(ill).glob("data-*.arrow"):
        shard.write_bytes(bytes(shard.stat().st_size))
    assert run_command("inspect", [ill, "doctor=false"]) == 0
    assert "the doctor" not in capsys.readouterr().out
    assert run_command("inspect", [ill]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "data-00000-of-00001.arrow" in line
    for asked in ("html=x.html", "strict=true"):
        assert run_command("inspect", [ill, "doctor=false", asked]) == 2
        assert "doctor is false" in capsys.readouterr().err


def test_a_page_is_refused_before_any_work(ill: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("inspect", [ill, f"html={tmp_path}"]) == 2
    assert "that is a folder" in capsys.readouterr().err
    assert run_command("inspect", [ill, f"html={tmp_path}/none/x.html"]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_json_has_null_for_nan() -> None:
    assert inspect_job.plain({"a": [1.5, float("nan")], "b": (float("inf"), {"c": "x"})}) == {
        "a": [1.5, None],
        "b": [None, {"c": "x"}],
    }


def test_numbers_that_became_nan_on_disk_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = (np.full((4, 1), 1.25, np.float32), np.ones((4, 1)), np.ones(4), np.ones(4))
    Dataset.from_arrays(*arrays, name="damaged").write(tmp_path / "damaged")
    (shard,) = (tmp_path / "damaged").glob("data-*.arrow")
    content = shard.read_bytes()
    at = content.index(np.float32(1.25).tobytes() * 8)
    changed = content[: at + 4] + np.float32(np.nan).tobytes() + content[at + 8 :]
    shard.write_bytes(changed)
    assert run_command("inspect", [str(tmp_path / "damaged"), "format=json", "strict=true"]) == 2
    assert "SHA-256 differs" in capsys.readouterr().err
    manifest = tmp_path / "damaged/dataset.json"  # another program wrote it, and its SHA-256
    manifest.write_text(manifest.read_text().replace(*(hashlib.sha256(part).hexdigest() for part in (content, changed))))
    assert run_command("inspect", [str(tmp_path / "damaged"), "format=json", "strict=true"]) == 1
    (found, *_) = json.loads(capsys.readouterr().out)["doctor"]["findings"]
    assert (found["name"], found["numbers"]) == ("not_finite", {"column": "observation", "rows": 1, "first_row": 1})
    assert run_command("inspect", [str(tmp_path / "damaged"), "verify=true"]) == 2
    assert "'observation' has another digest than its rows" in capsys.readouterr().err


def test_the_environment_is_compared_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = (np.zeros((3, 4)), np.zeros(3, int), np.ones(3), np.zeros(3))
    Dataset.from_arrays(*arrays, environment=Environment(id="Pendulum-v1"), name="wrong").write(tmp_path / "wrong")
    assert run_command("inspect", [str(tmp_path / "wrong"), "strict=true"]) == 1
    assert "Pendulum-v1 has continuous actions and the data has discrete ones." in capsys.readouterr().out


def test_progress_is_shown_where_it_takes_a_while(
    ill: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspect_job, "_LARGE", 0)
    assert run_command("inspect", [ill]) == 0
    assert capsys.readouterr().err.splitlines() == ["looking through the rows: 1 of 1 (100%)"]


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("actions", ["continuous", "discrete"])
def test_the_command_that_trains_runs_as_it_is_printed(actions: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = np.array([[-3.0], [2.0], [0.5], [1.0]], np.float32) if actions == "continuous" else np.array([0, 1, 1, 0])
    Dataset.from_arrays(np.zeros((4, 2), np.float32), chosen, np.ones(4), np.array([0, 0, 0, 1], bool)).write(
        tmp_path / "of two words"
    )
    assert run_command("inspect", [str(tmp_path / "of two words")]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("  train on it: d3ray train ")
    words = shlex.split(line.partition(": ")[2])
    short = ["n_steps=2", "n_steps_per_epoch=1", f"storage={tmp_path / 'results'}"]
    assert run_command(words[1], [*words[2:], *short]) == 0


class Plane(gymnasium.Env[np.ndarray, np.ndarray]):
    """Two tasks, whose goals lie at (1, 1) and (9, 9)."""

    observation_space = action_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    num_tasks = 2

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(2, np.float32), {"goal": np.full(2, {1: 1, 2: 9}[(options or {}).get("task_id", 1)], np.float32)}


def test_goals_that_the_environment_sets_are_looked_for_in_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium.register("Plane-v7", Plane)
    try:
        rng = np.random.default_rng(0)
        places, end = rng.uniform(-2, 2, (300, 2)).astype(np.float32), np.arange(300) % 10 == 9
        data = Dataset.from_arrays(
            places, places, rng.normal(size=300), np.zeros(300, bool), end, environment=Environment(id="Plane-v7")
        )
        data.write(tmp_path / "plane")
        assert run_command("inspect", [str(tmp_path / "plane"), "format=json"]) == 0
        found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["doctor"]["findings"]}
        assert (found["goals_far"]["severity"], found["goals_far"]["numbers"]["far"]) == ("note", 1)
        assert "1 of 2 goals that the environment sets are far from all states" in found["goals_far"]["sentence"]
        aimed = data.with_goals()
        aimed.write(tmp_path / "aimed")
        assert run_command("inspect", [str(tmp_path / "aimed"), "format=json"]) == 0  # the environment is asked for goals, too
        found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["doctor"]["findings"]}
        assert "spaces_disagree" not in found
        assert found["goals_far"]["numbers"]["far"] == 1
    finally:
        del gymnasium.registry["Plane-v7"]
