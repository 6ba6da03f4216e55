"""Runs out of MLflow: d3ray's parent with its seeds, a registered model's, and anyone's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import run_command
from d3ray.platform.tracking.measured import read_run
from d3ray.platform.tracking.runs import Tracking

RETURN = "evaluation/return"
PARAMS = {"algorithm": "DQN", "algorithm.gamma": "0.9", "n_steps": "200", "evaluation.environment": "CartPole-v1"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A storage whose database has a parent of two seeds, whose best is registered, and a run that d3ray did not make."""
    storage = str(tmp_path_factory.mktemp("storage"))
    client: Any = Tracking.open(storage).client
    found: dict[str, str] = {}

    def log(name: str, tags: dict[str, str], params: dict[str, str], metrics: dict[str, list[float]]) -> None:
        found[name] = client.create_run("0", run_name=name, tags=tags).info.run_id
        for key, value in params.items():
            client.log_param(found[name], key, value)
        for key, values in metrics.items():
            for k, value in enumerate(values, 1):
                client.log_metric(found[name], key, value, step=100 * k)
        client.set_terminated(found[name])

    log("parent", {"d3ray.kind": "experiment", "d3ray.experiment": "tiny"}, {}, {RETURN: [3.5]})
    for seed, values in enumerate(([1.0, 3.0], [2.0, float("inf")])):
        tags = {"mlflow.parentRunId": found["parent"], "d3ray.seed": str(seed), "d3ray.algorithm": "DQN", "d3ray.dataset": "data"}
        log(f"seed {seed}", tags, {**PARAMS, "seed": str(seed)}, {RETURN: values, "train/td_loss": [5.0, 4.0]})
    log("theirs", {}, {"lr": "0.1", "model": "big"}, {"score": [7.0]})
    client.create_registered_model("tiny")
    version = client.create_model_version("tiny", f"{storage}/nothing", run_id=found["seed 0"])
    client.set_registered_model_alias("tiny", "candidate", version.version)
    return storage, found


def test_the_seeds_of_a_parent_are_one_configuration(runs: tuple[str, dict[str, str]]) -> None:
    storage, ids = runs
    found = read_run(f"runs:/{ids['parent']}", storage=storage)
    (one,) = found.configurations
    assert (found.name, one.algorithm, one.environment, one.n_steps) == ("tiny", "DQN", "CartPole-v1", 200)
    assert one.settings == {
        "algorithm.name": "DQN",
        "algorithm.gamma": 0.9,
        "n_steps": 200,
        "evaluation.environment": "CartPole-v1",
    }
    assert [(run.seed, run.status, run.step) for run in one.seeds] == [(0, "FINISHED", 200), (1, "FINISHED", 200)]
    assert one.seeds[0].curves["train/td_loss"].values.tolist() == [5.0, 4.0]
    score = one.score(RETURN)
    assert (score.values, score.left_out) == ({0: 3.0}, {1: "measured inf at step 200"})


def test_a_registered_model_is_the_run_that_made_it(runs: tuple[str, dict[str, str]]) -> None:
    for source in ("models:/tiny@candidate", "models:/tiny/1"):
        (one,) = read_run(source, storage=runs[0]).configurations
        assert [run.run_id for run in one.seeds] == [runs[1]["seed 0"]]


def test_anyones_run_can_be_plotted(runs: tuple[str, dict[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    storage, ids = runs
    assert run_command("plot", [f"runs:/{ids['theirs']}", f"tracking=sqlite:///{storage}/mlflow.db"]) == 0
    assert "  ━━ theirs  (1 seed, 7 at step 100)" in capsys.readouterr().out


def test_what_is_not_there_is_said(runs: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    for source in ("runs:/abc", "models:/tiny@champion", "models:/tiny/7", "models:/other@champion"):
        with pytest.raises(ConfigError, match=f"There is no {source} in sqlite:///"):
            read_run(source, storage=runs[0])
    with pytest.raises(ConfigError, match="name the tracking server"):
        read_run("runs:/abc", storage=str(tmp_path))
