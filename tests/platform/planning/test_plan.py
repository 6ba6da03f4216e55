"""Plans: trials run on paper beside cases worked by hand, numbers for people, and a plan of something tiny."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from d3ray.platform.planning.plan import disk, timetable, trial_seconds
from d3ray.platform.planning.probe import Measured
from d3ray.platform.words import rounded, size_text, time_text
from d3ray.platform.worker.trial_config import program

ONE = Measured(
    start=3, setup=1, update=0.01, row_bytes=200, n_metrics=5, gpu_memory=0, commit=0.5, checkpoint_bytes=1000, first_finish=6,
    finish=2, policy_bytes=300, evaluation=4, environments=0.25,
)  # fmt: skip


def told(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "dataset": "/data",
        "algorithm": {"name": "DQN", "gamma": 0.99, "batch_size": 32},
        "n_steps": 1000,
        "n_steps_per_epoch": 100,
        "seeds": [0],
        "evaluation": {"every": None},
        "checkpoint": {"every": None, "keep": 2, "best": None},
        "resources": {"cpu": 1, "gpu": 0},
        "folder": "/results/a",
    }
    return {**base, **changes}


def test_a_trial_takes_what_its_parts_take() -> None:
    assert trial_seconds(ONE, told()) == pytest.approx(1 + 0.25 + 2 + 1000 * 0.01 + 10 * 4 + 10 * 0.5)
    assert trial_seconds(ONE, told(evaluation=None)) == pytest.approx(1 + 2 + 10 + 5)
    rare = told(evaluation={"every": 500}, checkpoint={"every": 1000, "keep": 2, "best": None})
    assert trial_seconds(ONE, rare) == pytest.approx(1 + 0.25 + 2 + 10 + 2 * 4 + 1 * 0.5)
    assert trial_seconds(ONE, told(evaluation=None), left=250) == pytest.approx(1 + 2 + 2.5 + 3 * 0.5)  # three epochs, one short
    assert disk(ONE, told(), tracked=False) == {"checkpoints": 2000, "policies": 300, "metrics": 2000, "tracking": 0}
    assert disk(ONE, told(n_steps=100), tracked=True) == {
        "checkpoints": 1000,  # there is but one
        "policies": 300,
        "metrics": 200,
        "tracking": 5 * 250,
    }


def test_each_trial_begins_in_the_slot_that_is_free_first() -> None:
    three = timetable([10], 3, 2, first=5)
    assert (three.n, three.seconds, three.worked) == (3, 5 + 20, 30)
    assert timetable([30, 10, 10, 10], 4, 2).seconds == 30  # the short ones in turn beside the long one
    assert timetable([10, 20], 5, 1).seconds == 10 + 20 + 10 + 20 + 10  # what was seen comes again


def test_what_a_budget_lets_begin_goes_on_to_its_end() -> None:
    cut = timetable([10], 100, 2, until=25)  # two at 0, 10 and 20; none at 30
    assert (cut.n, cut.seconds, cut.worked) == (6, 30, 60)
    assert timetable([10], 2, 2, until=25).n == 2  # there are no more


def test_a_search_without_an_end_lasts_as_long_as_its_budget() -> None:
    day = timetable([5, 15], None, 4, until=86_400)
    assert (day.n, day.seconds, day.worked) == (4 * 8_640, 86_400, 4 * 86_400)  # 10 s a trial in the mean
    assert timetable([7], None, 1, first=3, until=20).seconds == 3 + 21  # the last one begins at 17


def test_coefficients_make_no_other_kind_of_trial() -> None:
    assert program(told()) == program(
        told(folder="/results/b", seeds=[7], algorithm={"name": "DQN", "gamma": 0.9, "batch_size": 32})
    )
    for other in ({"seeds": [0, 1]}, {"dataset": "/other"}, {"algorithm": {"name": "DQN", "gamma": 0.99, "batch_size": 64}}):
        assert program(told()) != program(told(**other))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "1 s"), (7.6, "8 s"), (42, "40 s"), (58, "1 min"), (1534, "26 min"),
        (3600, "1 h"), (11_500, "3 h 10 min"), (190_000, "2 days 5 h"),
    ],
)  # fmt: skip
def test_lengths_of_time_for_people(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_numbers_for_people() -> None:
    assert [rounded(value) for value in (0, 0.0781, 4.44, 87.3, 1234, 98_765)] == ["0", "0.078", "4.4", "87", "1,200", "99,000"]
    assert [size_text(size) for size in (12, 999, 1234, 8_700_000, 2.3e12)] == ["12 B", "999 B", "1.2 kB", "8.7 MB", "2.3 TB"]


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_plan_trains_a_little_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from d3ray.jobs.command.running import run_command

    arguments = [
        "d3ray/cartpole-replay",
        "--plan",
        f"storage={tmp_path / 'results'}",
        "algorithm=DQN",
        "n_steps=400",
        "seeds=[0, 1, 2]",
    ]
    arguments += ["n_steps_per_epoch=100", "evaluation.episodes=1", "evaluation.environment=CartPole-v1", "format=json"]
    assert run_command("train", arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["n_trials"], found["n_seeds"], found["n_nodes"]) == ("DQN-cartpole-replay", 3, 3, 1)
    assert 1 <= found["at_once"] <= 3
    assert found["updates_per_second"] > 10
    assert found["wall_seconds"] > 3 * 400 / found["updates_per_second"] / found["at_once"]  # there is more to it than updates
    assert found["ends"] == found["begins"] + found["wall_seconds"]
    assert found["gpu_hours"] == 0
    assert found["disk"]["checkpoints"] > 3 * 2 * 100_000
    assert found["at_most"] == ""
    assert not (tmp_path / "results").exists()
    assert run_command("train", [*arguments, "--replace"]) == 2
    assert "plan changes nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trial=DQN-0"], "trial names what --resume goes on with: say --resume too"),
        (["trial=DQN-0", "--resume", "--plan"], "plan is of all that is left: leave trial out"),
        (["trial=DQN-0", "--resume"], "has no trial 'DQN-0'"),
    ],
)
def test_one_trial_is_for_a_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    from d3ray.jobs.command.running import run_command

    storage = tmp_path / "results"
    assert run_command("train", ["d3ray/cartpole-replay", "algorithm=DQN", f"storage={storage}", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(storage.glob("*/experiment.json"))
