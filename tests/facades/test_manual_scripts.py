"""Scripts of d3rlpy's first manual, as written but for imports, the length of training and scikit-learn's `params`."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import MDPDataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CartPole's file in d3rlpy's format, from this machine: that which comes with the package. And a catalog that names it."""
    made = tmp_path_factory.mktemp("published")
    MDPDataset.open("d3ray/cartpole-replay").dump(made / "cartpole.h5")
    entry = {"files": [{"url": str(made / "cartpole.h5")}], "environment": {"id": "CartPole-v1"}}
    (made / "catalog.json").write_text(json.dumps({"entries": {"d3rlpy/cartpole-replay": entry}}))
    return made


@pytest.fixture
def published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `get_cartpole` finds."""
    monkeypatch.setenv("D3RAY_CATALOG", str(folder / "catalog.json"))
    monkeypatch.setenv("D3RAY_CACHE", str(folder / "cache"))


@pytest.mark.long
@pytest.mark.usefixtures("published")
def test_the_quick_start() -> None:
    from sklearn.model_selection import train_test_split

    from d3ray import DQN
    from d3ray.datasets import get_cartpole
    from d3ray.metrics.scorer import average_value_estimation_scorer, evaluate_on_environment, td_error_scorer

    dataset, env = get_cartpole()
    train_episodes, test_episodes = train_test_split(dataset, test_size=0.2)
    dqn = DQN(batch_size=8192, encoder={"hidden_units": [16]})
    dqn.fit(
        train_episodes,
        eval_episodes=test_episodes,
        n_epochs=10,
        scorers={
            "td_error": td_error_scorer,
            "value_scale": average_value_estimation_scorer,
            "environment": evaluate_on_environment(env),
        },
    )
    assert td_error_scorer(dqn, test_episodes) < 0
    x = np.random.random((10, 4))
    actions = dqn.predict(x)
    assert actions.shape == (10,)
    assert dqn.predict_value(x, actions).shape == (10,)
    found = dqn.eval_results_
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(
        ("scorers/td_error", "scorers/value_scale", "scorers/environment"), 10
    )
    assert found["scorers/td_error"][-1] == -td_error_scorer(dqn, test_episodes)  # the console shows it positive


@pytest.mark.usefixtures("published")
def test_soft_opc() -> None:
    from sklearn.model_selection import train_test_split

    from d3ray import DQN
    from d3ray.datasets import get_cartpole
    from d3ray.metrics.scorer import soft_opc_scorer

    dataset, _ = get_cartpole()
    train_episodes, test_episodes = train_test_split(dataset, test_size=0.2, random_state=0)
    scorer = soft_opc_scorer(return_threshold=180)
    dqn = DQN(batch_size=256)
    dqn.fit(train_episodes, eval_episodes=test_episodes, n_epochs=1, scorers={"soft_opc": scorer})
    (found,) = dqn.eval_results_["scorers/soft_opc"]
    assert found == scorer(dqn, test_episodes)
    assert any(episode.compute_return() >= 180 for episode in test_episodes)


@pytest.mark.long
@pytest.mark.usefixtures("published")
def test_cross_validation_and_grid_search() -> None:
    from sklearn.model_selection import GridSearchCV, cross_validate

    import d3ray
    from d3ray import DQN
    from d3ray.datasets import get_cartpole
    from d3ray.metrics.scorer import evaluate_on_environment, td_error_scorer

    dataset, env = get_cartpole()
    dqn = DQN(batch_size=4096, encoder={"hidden_units": [16]})
    scores = cross_validate(
        dqn,
        dataset,
        scoring={"td_error": td_error_scorer, "environment": evaluate_on_environment(env)},
        params={"n_epochs": 1},  # scikit-learn called it fit_params
        error_score="raise",
    )
    assert scores["test_td_error"].shape == scores["test_environment"].shape == (5,)
    assert (scores["test_td_error"] < 0).all()
    assert (scores["test_environment"] > 0).all()
    gscv = GridSearchCV(
        estimator=dqn,
        param_grid={"learning_rate": [1e-4, 3e-4, 1e-3]},
        scoring={"td_error": d3ray.metrics.td_error_scorer},
        refit=False,
    )
    gscv.fit(dataset.episodes, n_epochs=1)
    assert np.isfinite(gscv.cv_results_["mean_test_td_error"]).all()
    assert len(gscv.cv_results_["params"]) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_parallel_validation() -> None:
    from sklearn.model_selection import cross_validate

    from d3ray import DQN
    from d3ray.context import parallel
    from d3ray.datasets import get_cartpole
    from d3ray.metrics.scorer import td_error_scorer

    dataset, _ = get_cartpole()
    dqn = DQN(use_gpu=torch.cuda.is_available(), batch_size=4096)
    with parallel():
        scores = cross_validate(
            dqn, dataset, scoring={"td_error": td_error_scorer}, params={"n_epochs": 1}, n_jobs=4, error_score="raise"
        )
    assert (scores["test_td_error"] < 0).all()


def test_copies_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from d3ray.context import parallel
    from d3ray.gpu import Device

    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)

    def ids(device: Any) -> tuple[int, int]:
        return copy.deepcopy(device).get_id(), device.get_id()

    device = Device(0)
    assert ids(device) == (0, 0)
    with parallel():
        assert ids(device) == (1, 1)
        assert ids(device) == (0, 0)
    assert ids(Device(1)) == (1, 1)
