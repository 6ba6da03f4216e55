"""Values of logs of one step: what rewards come to on average, by models that did not see them, in as many steps as that takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3ray import Dataset, DiscreteFQE
from d3ray.algos.judging.decisions import decisions
from d3ray.algos.judging.estimates import estimate
from d3ray.algos.judging.logs import Logs
from d3ray.algos.judging.values import is_one_step, one_step_values

from .test_fqe import Always

SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "batch_size": 256,
    "encoder": {"hidden_units": [64]},
    "reward_scaler": "standard",
}


def offers(n: int, seed: int, scale: float = 1.0, noise: float = 1.0) -> Dataset:
    """Three actions, of which the second pays 1 and the others what is seen of them, all with noise."""
    rng = np.random.default_rng(seed)
    seen, action = rng.normal(size=(n, 2)).astype(np.float32), rng.integers(0, 3, n)
    paid = np.stack([seen[:, 0], np.ones(n), seen[:, 1]], 1)[np.arange(n), action]
    reward = scale * (paid + noise * rng.normal(size=n))
    return Dataset.from_arrays(seen, action, reward, np.ones(n, bool), extra={"log_prob": np.full(n, np.log(1 / 3))}, name="offers")


def values(data: Dataset, seed: int, n_steps: int = 50_000) -> Any:
    policy = Always(1, data)
    return one_step_values(lambda: DiscreteFQE(algo=policy, seed=seed, **SETTINGS), data, decisions(policy, data), n_steps)


@pytest.mark.parametrize("scale", [0.01, 1.0, 500.0])
def test_the_mean_reward_is_found_whatever_its_unit_and_noise_is_not_learned(scale: float) -> None:
    data = offers(1500, 0, scale, noise=3.0)
    assert is_one_step(data)
    found = values(data, 0)
    assert found.initial.mean() == pytest.approx(scale, abs=0.4 * scale)  # four standard errors of 500 rewards
    reward = np.asarray(data.columns["reward"][:-1:2])
    left = reward - found.q_value
    assert left.std() >= 2.9 * scale  # what was learned of an episode is not its own reward


def test_logs_of_several_steps_are_none_of_one() -> None:
    data = offers(40, 0)
    seen, action, reward = (data.columns[name][:-1:2] for name in ("observation", "action", "reward"))
    assert not is_one_step(Dataset.from_arrays(seen, action, reward, np.arange(40) % 2 == 1, name="two"))
    cut = Dataset.from_arrays(seen, action, reward, np.zeros(40, bool), truncated=np.ones(40, bool), name="cut")
    assert not is_one_step(cut)  # who knows what came after


@pytest.mark.long
@pytest.mark.timeout(600)
def test_intervals_of_fitted_values_hold_the_truth() -> None:
    """Always the second action is worth 1; values are fitted as `judge` fits them."""
    within: dict[str, list[bool]] = {}
    for seed in range(20):
        data = offers(300, seed, noise=2.0)
        found, policy = values(data, seed), decisions(Always(1, data), data)
        taken = np.asarray(data.columns["action"][:-1:2]) == policy.taken
        with np.errstate(divide="ignore"):
            logs = Logs.of(data, np.log(taken.astype(float)), gamma=1.0, q_value=found.q_value, value=found.value)
        table = estimate(logs, times=200)
        for name in table:
            low, high = table[name].interval or (np.nan, np.nan)
            within.setdefault(name, []).append(low <= 1.0 <= high)
    for name, held in within.items():
        assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(held)), (name, np.mean(held))
