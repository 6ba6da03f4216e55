"""MOPO as users of d3rlpy's first versions write it: trained, chosen by scorers, read back, and given to an algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from d3ray import d3rlpy
from d3ray.d3rlpy.algos import CQL
from d3ray.d3rlpy.dynamics import MOPO
from d3ray.d3rlpy.dynamics.mopo import MOPO as FROM_MODULE
from d3ray.d3rlpy.metrics.scorer import (
    dynamics_observation_prediction_error_scorer,
    dynamics_prediction_variance_scorer,
    dynamics_reward_prediction_error_scorer,
)
from d3ray.data.errors import ConfigError
from d3ray.data.sampling import TransitionSampler

SMALL: Any = {"hidden_units": [16]}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    d3rlpy.seed(1)


def test_a_model_is_trained_read_back_and_given_to_cql() -> None:
    dataset = d3rlpy.datasets.get_dataset("d3ray/pendulum-replay")[0]
    train, test = train_test_split(dataset.episodes[:20], test_size=0.2, random_state=0)
    scorers = {
        "observation_error": dynamics_observation_prediction_error_scorer,
        "reward_error": dynamics_reward_prediction_error_scorer,
        "variance": dynamics_prediction_variance_scorer,
    }
    mopo = MOPO(learning_rate=1e-3, n_ensembles=3, use_gpu=False, action_scaler="min_max", encoder=SMALL)
    told = mopo.fit(train, eval_episodes=test, n_epochs=2, scorers=scorers, show_progress=False)
    assert [sorted(scorers.keys() & metrics.keys()) for _, metrics in told] == [sorted(scorers)] * 2
    folder = next(Path("d3rlpy_logs").iterdir())
    again = MOPO.from_json(str(folder / "params.json"))
    again.load_model(str(max(folder.glob("model_*"))))
    seen = train[0].observations[:5]
    action = train[0].actions[:5]
    for found, wanted in zip(again.predict(seen, action, True), mopo.predict(seen, action, True), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert (again.n_transitions, again.horizon, again.lam) == (400, 5, 1.0)
    again.horizon, again.n_transitions, again.lam = 1, 30, 0.5
    cql = CQL(dynamics=again, batch_size=16, action_scaler="min_max", actor_encoder=SMALL, critic_encoder=SMALL)
    assert (cql.rollouts.horizon, cql.rollouts.n_transitions, cql.rollouts.lam) == (1, 30, 0.5)
    cql.fit(train, n_steps=20, n_steps_per_epoch=10, show_progress=False)
    assert len(again.generate(cql, train[0].transitions)) == 30
    assert len(again.generate(cql, train[0].transitions, horizon=2)) == 60


def test_defaults_are_those_of_the_manual() -> None:
    mopo = MOPO()
    assert FROM_MODULE is MOPO
    assert (mopo.batch_size, mopo.learning_rate, mopo.n_members, mopo.n_elites) == (100, 1e-3, 5, 5)
    assert (mopo.optimizer.weight_decay, mopo.optimizer.epsilon) == (1e-4, 1e-8)
    assert (mopo.observation_scaler, mopo.augmentation, mopo.encoder.normalization) == (None, (), None)
    changed = MOPO(eps=1e-6, weight_decay=0.0, use_batch_norm=True, scaler="standard", discrete_action=True, n_frames=1)
    assert (changed.optimizer.weight_decay, changed.optimizer.epsilon) == (0.0, 1e-6)
    assert (changed.observation_scaler, changed.encoder.normalization) == ("standard", "batch")
    with pytest.raises(ConfigError, match=r"^MOPO has no argument 'n_ensemble'; did you mean 'n_ensembles'"):
        MOPO(n_ensemble=3)


def test_networks_are_made_for_shapes_and_learn_from_batches_of_ones_own() -> None:
    dataset = d3rlpy.datasets.get_dataset("d3ray/cartpole-replay")[0]
    mopo = MOPO(n_ensembles=2, encoder=SMALL, discrete_action=True)
    mopo.create_impl((4,), 2)
    batch = TransitionSampler(dataset, 32, next_action=False).sample(0)
    first, last = (mopo.update(batch)["dynamics_loss"] for _ in range(2))
    assert last < first
    assert mopo.get_params()["n_members"] == 2
    mopo.set_params(lam=2.0, learning_rate=1e-4)
    assert (mopo.lam, mopo.learning_rate) == (2.0, 1e-4)
