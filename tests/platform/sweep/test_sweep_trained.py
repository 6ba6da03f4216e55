"""A sweep that really trains, under Ray and with MLflow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.record.results import Results
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import run_sweep

from .small_sweep import sweep, write_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def trained(local_ray: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepConfig, Results, list[int]]:
    """A sweep over two datasets and two algorithms, three configurations of two seeds each."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    search = {
        "dataset": {"grid": [str(data / "tiny"), str(data / "other")]},
        "algorithm.name": {"choice": ["DQN", "DiscreteBC"]},
        "algorithm.learning_rate": {"loguniform": [1e-4, 1e-2]},
        "DQN.gamma": {"uniform": [0.9, 0.99]},
    }
    config = sweep(
        data, tmp_path_factory.mktemp("results"), search=search, searcher={"name": "optuna", "start": ["config"]},
        objective="holdout/action_match", budget={"configurations": 3},
    )  # fmt: skip
    seen: list[int] = []
    result = run_sweep(config, on_progress=lambda progress: seen.append(progress.done))
    return config, result, seen


def test_a_real_sweep(data: Path, trained: tuple[SweepConfig, Results, list[int]]) -> None:
    config, result, seen = trained
    assert result.state == "FINISHED"
    assert [one.number for one in result.configurations] == [0, 1, 2]
    assert [one.dataset for one in result.configurations] == [str(data / name) for name in ("tiny", "other", "tiny")]
    assert seen[-1] == 3 * 2 * 40  # gradient steps of all seeds
    for one in result.configurations:
        trial = Trial(Experiment.look(config.storage_place, "first").folder / "trials" / one.seeds[0].trial)
        decided = trial.configuration["algorithm"]
        assert decided["name"] == one.choice["algorithm.name"]
        assert decided["learning_rate"] == one.choice["algorithm.learning_rate"]
        assert trial.dataset["source"] == one.dataset
        assert one.value == pytest.approx(sum(one.scores.values()) / 2)
        assert {seed: about["metrics"]["holdout/action_match"] for seed, about in trial.status.items()} == one.scores
    best = {dataset: result.configurations[place] for dataset, place in result.best.items()}
    assert set(best) == {str(data / "tiny"), str(data / "other")}
    tiny = [one for one in result.configurations if one.dataset.endswith("tiny")]
    assert best[str(data / "tiny")] == max(tiny, key=lambda one: one.value or 0)
    assert best[str(data / "tiny")].interval is not None


def test_mlflow_has_a_parent_and_a_child_for_each_seed(trained: tuple[SweepConfig, Results, list[int]]) -> None:
    from mlflow import MlflowClient

    _, result, _ = trained
    client = MlflowClient(tracking_uri=result.tracking_uri)
    parent = client.get_run(str(result.run_id))
    assert parent.data.params["search.DQN.gamma.uniform"] == "[0.9, 0.99]"
    children = [client.get_run(str(seed.run_id)) for seed in result.seeds]
    assert len({child.info.run_id for child in children}) == 6
    for child, seed in zip(children, result.seeds, strict=True):
        assert child.data.tags["mlflow.parentRunId"] == result.run_id
        assert child.data.params["dataset"] == ("other" if seed.number == 1 else "tiny")
        history = client.get_metric_history(child.info.run_id, "holdout/action_match")
        assert [metric.step for metric in history] == [20, 40]


@pytest.mark.long
def test_a_finished_sweep_goes_on_where_its_budget_is_raised(trained: tuple[SweepConfig, Results, list[int]]) -> None:
    config, before, _ = trained
    with pytest.raises(ConfigError, match="say --resume to go on with it"):
        run_sweep(config)
    again = run_sweep(config, resume=True)
    assert again.configurations == before.configurations
    more = run_sweep(config.model_copy(update={"budget": config.budget.model_copy(update={"configurations": 4})}), resume=True)
    assert more.configurations[:3] == before.configurations
    assert (more.configurations[3].number, more.configurations[3].dataset[-5:]) == (3, "other")
    assert [seed.run_id for seed in more.seeds][:6] == [seed.run_id for seed in before.seeds]
