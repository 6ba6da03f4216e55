"""`d3ray resume`: what began an experiment is what goes on with it, whatever it was and wherever one stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.jobs.training.resume import ResumeConfig
from d3ray.platform.storage.experiments import Experiment

DQN = {"name": "DQN", "gamma": 0.9}
JOBS: dict[str, dict[str, Any]] = {
    "train": {"dataset": "data/tiny", "algorithm": DQN},
    "sweep": {"dataset": "data/tiny", "algorithm": DQN, "search": {"algorithm.gamma": {"choice": [0.9, 0.99]}}},
    "benchmark": {"suite": "mine.yaml"},
    "judge": {"policies": "policy", "dataset": "data/tiny"},
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which experiments were begun; tests stand in another one."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "mine.yaml").write_text("datasets: [d3ray/cartpole-replay]\nalgorithms: [DQN]\nn_steps: 7\n")
    monkeypatch.chdir(tmp_path / "lab")
    for job, settings in JOBS.items():
        experiment = Experiment.begin("d3ray_results", f"my-{job}", {}, {"name": "tiny"})
        experiment.keep_settings({"job": job, "config": {**settings, "seeds": [3, 4]}})
        experiment.lock.release()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "lab"


@pytest.mark.parametrize("job", JOBS)
def test_the_command_that_began_it_is_run_again(job: str, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = lab / "d3ray_results"
    assert run_command("resume", [f"my-{job}", f"storage={storage}", "resources.cpu=2", "--print-config"]) == 0
    said = capsys.readouterr().out
    assert f"name: my-{job} " in said
    assert f"storage: {storage} " in said
    assert "  cpu: 2.0  # command line" in said
    assert "resume: true  # command line" in said
    assert "seeds: [3, 4]" in said or "seeds:\n" in said
    assert {"train": "  gamma: 0.9 ", "sweep": "search:", "benchmark": "n_steps: 7 ", "judge": "policies: policy "}[job] in said


def test_what_is_wrong_is_said(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = f"storage={lab / 'd3ray_results'}"
    assert run_command("resume", ["my-trian", storage]) == BAD_INPUT
    assert "did you mean 'my-train'?" in capsys.readouterr().err
    assert run_command("resume", [storage, "my-train", "resources.cpus=2"]) == BAD_INPUT
    assert "did you mean 'cpu'?" in capsys.readouterr().err
    old = Experiment.begin(str(lab / "d3ray_results"), "old", {}, {"name": "tiny"})
    old.lock.release()
    assert run_command("resume", ["old", storage]) == BAD_INPUT
    assert "old was begun by an earlier d3ray, which kept no settings: say its command again." in capsys.readouterr().err


def test_a_submitted_resume_takes_along_what_the_experiment_needs(lab: Path) -> None:
    experiment = Experiment.begin(str(lab / "d3ray_results"), "own", {}, {"name": "tiny"})
    experiment.keep_settings({"job": "train", "config": {"plugins": ["/lab/own.py"]}})
    experiment.lock.release()
    found = ResumeConfig(experiment="own", changes=(f"storage={lab / 'd3ray_results'}",))
    assert found.plugins == ("/lab/own.py",)
    assert ResumeConfig(experiment="own", storage=str(lab / "not_seen")).plugins == ()
