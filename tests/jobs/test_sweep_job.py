"""`d3ray sweep`: its example, its provenance, its errors, its summary, its plan, and what it does after Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import StorageError
from d3ray.jobs.command.options import resolve
from d3ray.jobs.command.running import BAD_INPUT, INTERRUPTED, run_command
from d3ray.jobs.training.sweep import SweepConfig, describe, run
from d3ray.platform.record.results import ConfigurationResult, Results, SeedResult
from d3ray.platform.settings.objective import Objective
from d3ray.platform.statistics import summarise
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.sweep.run import sweep_work

YAML = """
name: tiny
dataset: d3ray/cartpole-replay
algorithm: {name: DQN, batch_size: 8}
n_steps: 40
n_steps_per_epoch: 20
seeds: [0, 1]
evaluation: {holdout: 0.05, episodes: 1}
search:
  algorithm.learning_rate: {loguniform: [1e-4, 1e-2]}
objective: holdout/td_error
searcher: {name: random, start: []}
budget: {configurations: 2}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(YAML)
    return path


def test_the_example_is_a_sweep(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command("sweep", ["--example"]) == 0
    (tmp_path / "example.yaml").write_text(said := capsys.readouterr().out)
    assert "algorithm.learning_rate:" in said
    config, _ = resolve(SweepConfig, tmp_path / "example.yaml")
    assert config.search == {"algorithm.learning_rate": {"loguniform": [1e-5, 1e-3]}}
    assert config.max_configurations(None) == 20


def test_every_value_says_where_it_comes_from(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--config", str(file), "--print-config", "search.algorithm.gamma={choice: [0.9, 0.99]}", "searcher=optuna"]
    assert run_command("sweep", arguments) == 0
    said = capsys.readouterr().out
    assert f"    loguniform: [0.0001, 0.01]  # {file}:10" in said
    assert "  algorithm.gamma:\n    choice: [0.9, 0.99]  # command line" in said
    assert "  name: optuna  # command line" in said
    assert f"  configurations: 2  # {file}:13" in said
    assert "seeds_per_trial: 2  # default" in said
    assert "# objective.mode: min  # metric" in said
    assert run_command("sweep", ["--config", str(file), "--print-config", "budget={}"]) == 0
    assert "# budget.configurations: 20  # searcher" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["search.algorithm.gama=0.9"], "d3ray sweep: search: algorithm.gama: DQN has no setting 'gama'; did you mean 'gamma'?"),
        (["search.algorithm.gamma={uniform: [1, 0]}"], "d3ray sweep: search: algorithm.gamma: uniform is [1, 0]; the first end"),
        (["searcher=optna"], "did you mean 'optuna'?"),
        (["objective=holdout/td_eror"], "measures no 'holdout/td_eror'; did you mean 'holdout/td_error'?"),
        (["dataset=d3ray/cartpole-repla"], "did you mean 'd3ray/cartpole-replay'?"),
        (["searcher=grid"], "searcher grid: algorithm.learning_rate has no end of values"),
        (["objectve=holdout/td_error"], "did you mean 'objective'?"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    file: Path, tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("sweep", ["--config", str(file), f"storage={tmp_path / 'results'}", *arguments]) == BAD_INPUT
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


def _results(*configurations: ConfigurationResult, seeds: str = "mean") -> Results:
    objective = Objective.checked({"metric": "evaluation/return", "seeds": seeds})
    place: dict[str, Any] = {"folder": "/results/tiny", "tracking_uri": "", "run_id": "run", "look": "mlflow ui"}
    return Results(
        name="tiny", state="FINISHED", objective=objective, configurations=list(configurations), models=["tiny"], **place
    )


def _configuration(number: int, ended: Any, value: float | None, *scores: float, dataset: str = "one") -> ConfigurationResult:
    seed = SeedResult(seed=0, number=number, trial=str(number), status="FINISHED", is_final=True, step=40, metrics={})
    return ConfigurationResult(
        number=number,
        label="",
        chosen={},
        choice={"algorithm.gamma": 0.9 + number / 100},
        algorithm="DQN",
        dataset=dataset,
        settings={},
        state="FINISHED",
        ended=ended,
        value=value,
        scores=dict(enumerate(scores)),
        interval=summarise(scores).interval if len(scores) > 1 else None,
        level=None,
        seeds=[seed],
    )


def test_the_summary_names_the_best_its_settings_and_where_to_look() -> None:
    finished = _configuration(0, "finished", 3.0, 2.0, 4.0)
    said = describe(_results(finished, _configuration(1, "stopped", 9.0, 9.0), _configuration(2, None, None)))
    assert said.made.splitlines() == [
        "tiny: 3 configurations: 1 finished, 1 stopped.",
        "                   gamma  evaluation/return  interval below 95 %  seeds",
        "  configuration 0    0.9                  3               2 to 4      2",
        "  configuration 1   0.91                  9                    –      1    stopped",
        "  configuration 2   0.92                  –                    –      0  not ended",
        "  best: configuration 0, evaluation/return 3, interval below 95 % 2 to 4, 2 seeds",
        "    algorithm.gamma: 0.9",
    ]
    assert said.look["best policies"] == "/results/tiny/trials/0/policy"
    assert said.look["runs"] == "mlflow ui"
    assert said.look["make it the champion"] == "d3ray promote tiny"
    assert said.failed == ""
    bound = describe(_results(_configuration(0, "finished", -3.3, 2.0, 4.0), seeds="lower_bound"))
    assert "evaluation/return -3.3 (lower bound; mean 3), interval below 95 % 2 to 4, 2 seeds" in bound.made
    two = describe(_results(_configuration(0, "finished", 3.0, 3.0), _configuration(1, "finished", 3.0, 3.0, dataset="two")))
    assert "  best on one: configuration 0" in two.made
    assert "  best on two: configuration 1, evaluation/return 3, 1 seed" in two.made
    nothing = describe(_results(_configuration(0, "failed", None)))
    assert "there is no best one" in nothing.made


def test_a_sweep_that_has_ended_ends_well_where_its_configurations_cannot_be_compared(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, _ = resolve(SweepConfig, file, [f"storage={tmp_path / 'results'}"])
    monkeypatch.setattr("d3ray.platform.sweep.run.run_sweep", lambda *_, **__: _results())
    work = sweep_work(config)
    Experiment.begin(config.storage_place, config.experiment, work.configuration, work.about).close()
    assert "there is no best one" in run(config).made  # it has no trials

    def away(*_: object) -> None:
        raise StorageError("The store does not answer.")

    monkeypatch.setattr("d3ray.platform.results.experiment.results_of", away)
    assert "cannot be told: The store does not answer." in run(config).made


@pytest.mark.timeout(900)
@pytest.mark.slow  # two sweeps of a process each
def test_after_ctrl_c_resume_does_the_rest(file: Path, tmp_path: Path) -> None:
    storage = tmp_path / "results"
    command = [sys.executable, "-m", "d3ray.jobs", "sweep", "--config", str(file), f"storage={storage}", "n_steps=1000"]
    command += ["evaluation.holdout=0.05", "evaluation.every=500", "n_steps_per_epoch=100", "resources.cpu=1"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")}
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    try:
        deadline = time.monotonic() + 280
        while not list(storage.glob("tiny/trials/*/checkpoints/step-*")):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == INTERRUPTED, error
    go_on = f"d3ray resume tiny storage={storage}"
    assert f"To go on: {go_on}" in error
    before = {trial.identity: trial.key for trial in Experiment.look(str(storage), "tiny").trials()}
    done = subprocess.run([*command[:3], *go_on.split()[1:]], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"tiny: 2 configurations: 2 finished\.", done.stdout)
    trials = Experiment.look(str(storage), "tiny").trials()
    assert len(trials) == 2
    assert before.items() <= {trial.identity: trial.key for trial in trials}.items()
    assert all(about["status"] == "FINISHED" and about["step"] == 1000 for trial in trials for about in trial.status.values())
