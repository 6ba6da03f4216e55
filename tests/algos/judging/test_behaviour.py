"""Estimated behaviours beside the ones that acted."""

from __future__ import annotations

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.algos.imitation.discrete_bc import DiscreteBC
from d3ray.algos.judging.behaviour import estimate_behaviour
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.data.errors import ConfigError, DataError

SMALL = VectorEncoder(hidden_units=(32,))


def test_of_discrete_actions_probabilities_are_those_that_acted() -> None:
    """Of two actions the second is taken with the probability 1 / (1 + exp(-2 s)): held-out log-probabilities come near."""
    rng, n = np.random.default_rng(0), 4000
    seen = rng.normal(size=(n, 1)).astype(np.float32)
    second = 1 / (1 + np.exp(-2 * seen[:, 0]))
    action = (rng.uniform(size=n) < second).astype(np.int64)
    true = np.log(np.where(action == 1, second, 1 - second))
    dataset = Dataset.from_arrays(seen, action, np.zeros(n), np.arange(n) % 4 == 3)
    found = estimate_behaviour(dataset, model=DiscreteBC(beta=0.0, encoder=SMALL, batch_size=256), n_steps=300)
    assert np.abs(np.exp(found.log_prob) - np.exp(true)).mean() < 0.04  # a fair coin is off by 0.25
    assert found.fit == pytest.approx(true.mean(), abs=0.02)
    assert found.baseline == pytest.approx(-np.log(2), abs=0.01)
    assert found.calibration is not None
    assert found.calibration < 0.03


def test_what_is_chance_is_not_learned() -> None:
    """Of 300 fair coins a network learns every one by heart in 2,000 steps, and thinks others as sure."""
    rng, n = np.random.default_rng(0), 300
    dataset = Dataset.from_arrays(rng.normal(size=(n, 4)), rng.integers(0, 2, n), np.zeros(n), np.ones(n, bool))
    model = DiscreteBC(beta=0.0, encoder=SMALL, batch_size=64)
    found = estimate_behaviour(dataset, model=model, n_steps=2000)
    assert found.fit > found.baseline - 0.05


@pytest.mark.long
def test_of_continuous_actions_densities_are_in_the_datas_units() -> None:
    """A ~ N(3 s, 2²) in units of which the scaler makes [-1, 1]."""
    rng, n = np.random.default_rng(1), 3000
    seen = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    action = 3 * seen + rng.normal(0, 2, (n, 1))
    true = -0.5 * ((action - 3 * seen)[:, 0] / 2) ** 2 - np.log(2) - 0.5 * np.log(2 * np.pi)
    dataset = Dataset.from_arrays(seen, action, np.zeros(n), np.arange(n) % 3 == 2)
    found = estimate_behaviour(dataset, n_steps=300)
    assert found.fit == pytest.approx(true.mean(), abs=0.06)
    assert found.fit > found.baseline + 0.1  # which does not look at s: half the log of 7/4 below
    assert found.calibration is None
    assert np.corrcoef(found.log_prob, true)[0, 1] > 0.95


def test_what_cannot_be_estimated_is_refused() -> None:
    dataset = Dataset.from_arrays(np.ones((2, 1)), [0, 1], np.zeros(2), [0, 1])
    with pytest.raises(DataError, match="has 1 episodes; 2 folds need as many"):
        estimate_behaviour(dataset)
    with pytest.raises(ConfigError, match="folds is 1; it is 2 or more"):
        estimate_behaviour(dataset, folds=1)
    several = Dataset.from_arrays(np.ones((2, 1)), [[0, 1], [1, 2]], np.zeros(2), [1, 1])
    with pytest.raises(DataError, match="discrete or continuous actions, and those of dataset are multi-discrete"):
        estimate_behaviour(several)
