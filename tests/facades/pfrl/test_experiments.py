"""PFRL's drivers: what they train, evaluate and keep; hooks; and folders of runs without secrets."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from d3ray import DQN, load
from d3ray.data.errors import ConfigError
from d3ray.pfrl import Agent, experiments

SMALL = {"hidden_units": [8]}


class Short(gymnasium.Env[Any, Any]):
    """Pays 1 a step for action 1, and ends after five."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), "float32")
        self.action_space = gymnasium.spaces.Discrete(2)
        self.resets = 0

    def reset(self, **_: Any) -> Any:
        self.made, self.resets = 0, self.resets + 1
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.made += 1
        return self.observation_space.sample(), float(action), self.made == 5, False, {}


def agent(n_envs: int = 1, **settings: Any) -> Agent:
    dqn = DQN(batch_size=8, learning_rate=0.01, encoder=SMALL, device="cpu")
    return Agent(dqn, Short(), n_envs, explorer={"name": "constant_epsilon_greedy", "epsilon": 0.5}, **settings)


def trained(folder: Path, n_envs: int = 1, **told: Any) -> tuple[Agent, list[Any]]:
    env = Short() if n_envs == 1 else [Short() for _ in range(n_envs)]
    return experiments.train_agent_with_evaluation(agent(n_envs), env, 300, None, 4, 100, folder, **told)


def test_it_learns_and_tells(tmp_path: Path) -> None:
    seen: list[int] = []
    told: list[tuple[int, float]] = []

    def heard(*, env: Any, agent: Agent, step: int, eval_stats: Any, agent_stats: Any) -> None:
        told.append((step, eval_stats["mean"]))

    made, history = trained(
        tmp_path,
        eval_env=Short(),
        checkpoint_freq=120,
        step_hooks=[lambda _, __, step: seen.append(step)],
        evaluation_hooks=[heard],
        use_tensorboard=True,
    )
    assert seen == list(range(1, 301))
    assert [one["steps"] for one in history] == [step for step, _ in told] == [100, 200, 300]
    assert history[-1]["mean"] == history[-1]["max"] == 5.0  # the best that there is
    header, *rows = [line.split("\t") for line in (tmp_path / "scores.txt").read_text().splitlines()]
    assert header[:8] == ["steps", "episodes", "elapsed", "mean", "median", "stdev", "max", "min"]
    assert [(int(row[0]), int(row[1]), float(row[3])) for row in rows] == [(s, s // 5, m) for s, m in told]
    assert {one.name for one in tmp_path.iterdir() if one.is_dir()} == {"best", "120_checkpoint", "240_checkpoint", "300_finish"}
    assert load(tmp_path / "300_finish", "cpu").step == made.algorithm.step > 200
    assert list(tmp_path.glob("events.*"))


def test_environments_side_by_side_and_an_end_at_a_score(tmp_path: Path) -> None:
    made, history = trained(tmp_path, 3, successful_score=-1.0)
    assert len(history) == 1  # whatever it is
    assert made.t == 34  # 102 steps of all together
    assert (tmp_path / "102_finish").is_dir()


def test_what_is_raised_keeps_the_agent(tmp_path: Path) -> None:
    def broken(_: Any, __: Any, step: int) -> None:
        if step == 50:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        trained(tmp_path, step_hooks=[broken])
    assert load(tmp_path / "50_except", "cpu").step > 0


def test_episodes_that_are_too_long_are_cut(tmp_path: Path) -> None:
    made = agent()
    experiments.train_agent(made, Short(), 30, tmp_path, max_episode_len=3)
    columns = made._run.buffer.columns
    assert columns["truncated"].sum() == 10
    assert columns["terminated"].sum() == 0


def test_a_line_changes_the_learning_rate(tmp_path: Path) -> None:
    made = agent()
    hook = experiments.LinearInterpolationHook(100, 0.01, 0.0, lambda _, agent, value: agent.set(learning_rate=value))
    rates: list[float] = []

    def look(_: Any, agent: Agent, step: int) -> None:
        rates.append(float(agent.algorithm.fit_.learner.hyper["learning_rate"]))

    experiments.train_agent(made, Short(), 60, tmp_path, step_hooks=[hook, look])
    assert rates == pytest.approx([0.01 * (1 - step / 100) for step in range(1, 61)])
    experiments.train_agent(made, Short(), 101, tmp_path, step_offset=60, step_hooks=[hook])
    before = {name: tensor.clone() for name, tensor in made.algorithm.fit_.learner.live["critic"].items()}
    experiments.train_agent(made, Short(), 140, tmp_path, step_offset=101, step_hooks=[hook])  # at a rate of 0
    assert all(tensor.equal(before[name]) for name, tensor in made.algorithm.fit_.learner.live["critic"].items())


def test_an_evaluation_is_of_steps_or_of_episodes() -> None:
    made = agent()
    stats = experiments.eval_performance(Short(), made, 12, None)
    assert stats["episodes"] == 2.0  # the third was not played to its end
    assert experiments.eval_performance(Short(), made, None, 3, max_episode_len=2)["max"] <= 2
    with pytest.raises(ConfigError, match="no coefficient 'learning_rat'; did you mean 'learning_rate'"):
        made.set(learning_rat=0.1)
    with pytest.raises(ConfigError, match="either n_steps or n_episodes"):
        experiments.eval_performance(Short(), made, None, None)
    with pytest.raises(ConfigError, match="The agent acts in 1 environments, and here are 2"):
        experiments.train_agent(made, [Short(), Short()], 10, "nowhere")


def test_a_folder_has_what_was_run_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    assert not experiments.is_under_git_control()
    for command in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=b@c", "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *command], check=True)
    argv = ["train.py", "--lr", "a b"]
    folder = Path(experiments.prepare_output_dir({"lr": 0.1}, "runs", argv=argv))
    assert folder.name == experiments.generate_exp_id(argv=argv) != experiments.generate_exp_id(argv=["other.py"])
    assert json.loads((folder / "args.txt").read_text()) == {"lr": 0.1}
    assert (folder / "command.txt").read_text() == "train.py --lr 'a b'\n"
    assert (folder / "git-log.txt").read_text().strip().endswith("first")
    assert json.loads((folder / "environ.txt").read_text())["OMP_NUM_THREADS"] == "1"
    assert not [file for file in folder.iterdir() if "very secret" in file.read_text()]
    again = Path(experiments.prepare_output_dir({}, "runs", argv=argv))
    assert again == folder
    assert len(list(Path("runs").iterdir())) == 2  # the earlier one has a name with the time
