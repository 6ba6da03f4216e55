"""A policy that is told goals, from plain logs through every command: trained as a trial, played by tasks, exported, judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from d3ray.data.dataset import Dataset
from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.platform.results.experiment import results_of
from d3ray.platform.results.reading import find_experiment

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]

PLANE = """
import gymnasium, numpy as np
from gymnasium import spaces

class Plane(gymnasium.Env):
    observation_space, action_space = spaces.Box(-2, 2, (2,), np.float32), spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle = 2 * np.pi * options["task_id"] / 5 if options else self.np_random.uniform(0, 7)
        self.place, self.left = np.zeros(2, np.float32), 30
        self.goal = np.array([np.cos(angle), np.sin(angle)], np.float32)
        return self.place.copy(), {"goal": self.goal}

    def step(self, action):
        self.place, self.left = np.clip(self.place + np.float32(0.1) * action, -2, 2), self.left - 1
        near = bool(np.linalg.norm(self.place - self.goal) < 0.15)
        return self.place.copy(), float(near), near, self.left == 0, {"success": near}

gymnasium.register("GoalPlane-v0", Plane)
"""
NAME = "GoalPlane-v0"
SMALL = ["value_encoder", "critic_encoder", "actor_encoder"]


@pytest.fixture(scope="module")
def plane(local_ray: Path) -> str:
    (local_ray / "goal_plane.py").write_text(PLANE)
    return NAME


def logs(folder: Path) -> str:
    """Steps that keep to a direction for a while, without any goal."""
    rng, n = np.random.default_rng(0), 800
    angle = np.cumsum(rng.normal(0, 0.4, n))
    actions = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    places = np.clip(0.1 * actions.reshape(20, 40, 2).cumsum(1), -2, 2).reshape(n, 2).astype(np.float32)
    Dataset.from_arrays(places, actions, np.zeros(n), np.arange(n) % 40 == 39, name="wandering").write(folder / "wandering")
    return str(folder / "wandering")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "environment={id: GoalPlane-v0, goals: {part: [0]}}",
            "set goals.part of the environment and algorithm.goal_part to the same entries",
        ),
        (
            "environment={id: pointmaze-medium-v0, goals: {tasks: [1, 9]}}",
            "The task is 9; this environment of OGBench has the tasks 1",
        ),
    ],
)
def test_goals_that_do_not_fit_are_refused_before_any_work(
    said: str, sentence: str, plane: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "maze" in said:
        pytest.importorskip("ogbench")
    common = [
        logs(tmp_path),
        "algorithm=GCIQL",
        "plugins=[goal_plane]",
        "n_steps=2",
        "name=unfit",
        f"storage={tmp_path / 'results'}",
    ]
    assert run_command("train", [*common, f"evaluation.{said}"]) == BAD_INPUT
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "results" / "unfit").exists()


@pytest.mark.parametrize("playing", [f"evaluation.environment={{id: {NAME}, goals: {{tasks: [1, 2, 3]}}}}", f"evaluation={NAME}"])
def test_goals_go_through_every_command(
    playing: str, plane: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    where, data = f"storage={tmp_path / 'results'}", logs(tmp_path)
    learning = [
        "algorithm=GCIQL",
        *(f"algorithm.{name}.hidden_units=[16]" for name in SMALL),
        "algorithm.batch_size=64",
        "plugins=[goal_plane]",
    ]
    counts = ["n_steps=20", "n_steps_per_epoch=10", "seeds=[0, 1]", "evaluation.episodes=3"]
    assert run_command("train", [data, *learning, playing, *counts, "name=aimed", where]) == 0, capsys.readouterr()
    for seed in results_of(find_experiment(str(tmp_path / "results"), "aimed")).seeds:
        assert (seed.status, seed.step) == ("FINISHED", 20)
        assert 0 <= seed.metrics["evaluation/return"] <= 1
        shares = [seed.metrics[name] for name in seed.metrics if name.startswith("evaluation/success_task")]
        assert len(shares) == (3 if "tasks" in playing else 0)
        assert not shares or np.mean(shares) == pytest.approx(seed.metrics["evaluation/success"])
        assert np.isfinite(seed.metrics["train/critic_loss"])

    assert run_command("export", ["aimed", "package", "seed=0", where]) == 0
    session = onnxruntime.InferenceSession("package/policy.onnx", providers=["CPUExecutionProvider"])
    assert {port.name for port in session.get_inputs()} == {"observation/observation", "observation/goal"}
    capsys.readouterr()
    for named in (["aimed", "seed=0", where], ["package"], ["package", f"environment={plane}"]):
        assert run_command("evaluate", [*named, "episodes=3"]) == 0, capsys.readouterr()
        assert "over 3 episodes" in capsys.readouterr().out
    assert run_command("judge", ["policies=[package]", f"dataset={data}", "name=verdict", where]) == BAD_INPUT
    assert "'wandering' has observations of shape [2], and the policy was fitted on observations by keys" in capsys.readouterr().err


def test_what_is_held_out_does_not_say_which_goal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [logs(tmp_path), "algorithm=GCIQL", "evaluation.holdout=0.1", "n_steps=10", "name=held", f"storage={tmp_path}"]
    assert run_command("train", asked) == BAD_INPUT
    assert "evaluation.holdout: GCIQL acts for a goal, and what is held out does not say which" in capsys.readouterr().err


SUITE = """
plugins: [{plane}]
datasets: [{{name: {data}, environment: {environment}}}]
algorithms: [{{{algorithm}}}]
n_steps: 10
"""
AIMED = "{id: GoalPlane-v0, goals: {tasks: [1]}}"


@pytest.mark.parametrize(
    ("algorithm", "environment", "sentence"),
    [
        ("name: GCIQL, goal_part: [7]", AIMED, "'wandering' have the shape [2], and a goal was to be its entries [7]."),
        ("name: QC, td_steps: 50", NAME, "QC names 50 actions at once, and the longest episode of 'wandering' has 40 steps: lower"),
        ("name: BC", "Nowhere-v0", "gymnasium knows no environment 'Nowhere-v0'"),
        ("name: DQN", NAME, "DQN needs discrete actions, and 'wandering' has continuous ones; choose from "),
        (
            "name: GCBC",
            "{id: pointmaze-medium-v0, goals: {tasks: [1, 6]}}",
            "The task is 6; this environment of OGBench has the tasks",
        ),
    ],
)
def test_what_does_not_go_together_ends_in_a_sentence_in_suites_and_sweeps_too(
    algorithm: str, environment: str, sentence: str, plane: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "maze" in environment:
        pytest.importorskip("ogbench")
    data, where = logs(tmp_path), f"storage={tmp_path / 'results'}"
    said = SUITE.format(plane="goal_plane", data=data, environment=environment, algorithm=algorithm)
    (tmp_path / "own.yaml").write_text(said)
    assert run_command("benchmark", [str(tmp_path / "own.yaml"), where]) == BAD_INPUT
    assert sentence in capsys.readouterr().err
    name, *settings = algorithm.removeprefix("name: ").split(", ", 1)
    chosen = [f"algorithm.{setting.replace(': ', '=', 1)}" for setting in settings]
    asked = [data, f"algorithm={name}", *chosen, "plugins=[goal_plane]", f"evaluation.environment={environment}", "n_steps=10"]
    assert run_command("sweep", [*asked, "search={algorithm.batch_size: {choice: [4, 8]}}", where]) == BAD_INPUT
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_chosen_flows_of_discrete_actions_are_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["d3ray/cartpole-replay", "algorithm=FQL", "n_steps=10", "name=flow", f"storage={tmp_path / 'results'}"]
    assert run_command("train", asked) == BAD_INPUT
    assert "FQL needs continuous actions, and 'd3ray/cartpole-replay' has discrete ones; choose from" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
