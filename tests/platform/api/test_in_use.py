"""An experiment from its beginning to its end by the API alone: real processes, MLflow on SQLite, episodes that are played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from d3ray import experiments
from d3ray.data.errors import ConfigError

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SMALL: dict[str, Any] = {"n_steps": 40, "n_steps_per_epoch": 20, "seeds": [0, 1]}
POLES: dict[str, Any] = {
    "dataset": "d3ray/cartpole-replay",
    "algorithm": "DiscreteBC",
    "evaluation": {"environment": "CartPole-v1"},
}


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_a_sweep_is_submitted_reported_promoted_judged_and_deleted(tmp_path: Path) -> None:
    storage = str(tmp_path / "results")
    search = {"algorithm.learning_rate": {"choice": [0.001, 0.01]}}
    sweep = experiments.submit({**POLES, **SMALL, "search": search, "name": "rates", "storage": storage}, job="sweep")
    found = sweep.wait(240)
    assert found.state == "FINISHED", sweep.logs()
    results = sweep.results()
    assert sorted(one.settings["algorithm"]["learning_rate"] for one in results.configurations) == [0.001, 0.01]
    assert sorted(next(iter(one.chosen.values())) for one in results.configurations) == [0.001, 0.01]
    assert [len(one.seeds) for one in results.configurations] == [2, 2]

    report = sweep.report(str(tmp_path / "page" / "report.html"))
    text = Path(report.page).read_text()
    assert "rates" in text
    assert "0.01" in text

    (model,) = results.models
    with pytest.raises(ConfigError, match="at least 20"):
        experiments.promote(model, episodes=5, storage=storage)
    promoted = sweep.promote(episodes=20)
    client = MlflowClient(results.tracking_uri)
    champions = dict(client.get_registered_model(model).aliases).get("champion")
    assert promoted.passed == (champions is not None), promoted.why
    assert promoted.candidate is not None
    back = experiments.rollback(model, storage=storage)
    assert back.version is None
    assert "champion" in back.why

    asked = {"policies": str(sweep.folder), "dataset": "d3ray/cartpole-replay", "n_steps": 0, "name": "said", "storage": storage}
    judged = experiments.submit(asked, job="judge")
    judged.wait(120)
    judgement = judged.judgement()
    assert judgement is not None, judged.logs()
    assert len(judgement.policies) == 4
    assert {"WIS", "PDIS"} <= judgement.policies[0].estimates.keys()

    experiment_id = client.get_run(str(results.run_id)).info.experiment_id
    assert len(client.search_runs([experiment_id])) == 5  # four seeds and the sweep
    sweep.delete()
    assert client.search_runs([experiment_id]) == []
    assert not Path(sweep.folder.name).exists()
    with pytest.raises(ConfigError, match="no experiment 'rates'"):
        experiments.open("rates", storage=storage)
    assert client.get_registered_model(model).name == model  # who took a policy away still has its model


def test_a_benchmark_is_submitted(tmp_path: Path) -> None:
    suite = tmp_path / "tiny.yaml"
    suite.write_text(
        "about: a test\nsource: its own\ndatasets: [{name: d3ray/cartpole-replay}]\nalgorithms: [{name: DiscreteBC}, {name: DQN}]\n"
        "n_steps: 20\nn_steps_per_epoch: 10\nseeds: [0]\nevaluation: {environment: CartPole-v1, episodes: 2}\n"
    )
    benchmark = experiments.submit({"suite": str(suite), "storage": str(tmp_path / "results")}, job="benchmark")
    found = benchmark.wait(240)
    assert found.state == "FINISHED", benchmark.logs()
    assert {one.algorithm for one in benchmark.results().configurations} == {"DiscreteBC", "DQN"}
