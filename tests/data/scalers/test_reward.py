"""Reward scalers against their formulas, on each reward of a window, and through JSON."""

import numpy as np
import pytest
import torch

from d3ray.data.config import Config
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import TransitionSampler
from d3ray.data.scalers import (
    ClipRewardScaler,
    ConstantShiftRewardScaler,
    MinMaxRewardScaler,
    MultiplyRewardScaler,
    ReturnBasedRewardScaler,
    RewardScaler,
    StandardRewardScaler,
)
from d3ray.data.spec import Box, Discrete, Spec

REWARDS = np.array([-3.0, 0.5, 2.0, 5.0, 0.0, 4.0], "f4")  # episodes of 2, 3 and 1: returns -2.5, 7 and 4
ENDS = np.array([False, True, False, False, True, True])
STEPS = np.arange(6, dtype="f4")
DATA = Dataset.from_arrays(
    STEPS[:, None], np.zeros(6, int), REWARDS, ENDS & (STEPS != 4), ENDS & (STEPS == 4), final_observations=np.zeros((3, 1), "f4")
)
MEAN, STD = REWARDS.astype(float).mean(), REWARDS.astype(float).std()

FORMULAS = [
    ({"name": "standard"}, lambda r: (r - MEAN) / (STD + 1e-3)),
    ({"name": "standard", "mean": 1.0, "std": 0.5, "epsilon": 0.0, "multiplier": 3.0}, lambda r: 3 * (r - 1) / 0.5),
    ({"name": "min_max"}, lambda r: (r + 3) / 8),
    ({"name": "min_max", "minimum": 0.0, "maximum": 2.0, "multiplier": 10.0}, lambda r: 10 * r / 2),
    ({"name": "clip"}, lambda r: np.clip(r, -1, 1)),
    ({"name": "clip", "low": 0.0, "high": 2.0, "multiplier": 5.0}, lambda r: 5 * np.clip(r, 0, 2)),
    ({"name": "multiply", "multiplier": 0.1}, lambda r: 0.1 * r),
    ({"name": "constant_shift", "shift": -1.0}, lambda r: r - 1),
    ({"name": "return_based"}, lambda r: r / 9.5 * 1000),
    ({"name": "return_based", "return_max": 2.0, "return_min": -2.0, "multiplier": 1.0}, lambda r: r / 4),
]
CASES = pytest.mark.parametrize(("settings", "formula"), FORMULAS, ids=[f"{s['name']}-{k}" for k, (s, _) in enumerate(FORMULAS)])


class Holder(Config):
    reward: RewardScaler | None = None


def fitted(settings):
    return Holder.checked({"reward": settings}).reward.fit(DATA)


@CASES
def test_formulas(settings, formula):
    scaler = fitted(settings)
    found = scaler.transform(REWARDS.astype(np.float64))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, formula(REWARDS.astype(np.float64)), rtol=1e-12, atol=1e-12)
    assert Holder.model_validate_json(Holder(reward=scaler).model_dump_json()).reward == scaler
    assert scaler.get_type() == settings["name"]
    assert type(scaler)(**scaler.get_params()) == scaler
    if settings["name"] != "clip":
        np.testing.assert_allclose(scaler.reverse_transform(found), REWARDS, rtol=1e-12, atol=1e-12)


def test_what_was_clipped_stays_clipped():
    scaler = ClipRewardScaler(low=0.0, high=2.0, multiplier=5.0)
    np.testing.assert_allclose(scaler.reverse_transform(scaler.transform(REWARDS)), np.clip(REWARDS, 0, 2))


@CASES
@pytest.mark.parametrize("td_steps", [1, 2, 3])
def test_each_reward_is_scaled_before_the_sum(settings, formula, td_steps):
    """A clip of the sum, or a shift once a window, would be something else."""
    episodes, gamma = [(0, 2), (2, 5), (5, 6)], 0.9
    expected = {
        t: sum(gamma**k * formula(float(REWARDS[t + k])) for k in range(min(td_steps, last - t)))
        for first, last in episodes
        for t in range(first, last)
    }
    scaler = fitted(settings)
    sampler = TransitionSampler(DATA, 64, gamma=gamma, td_steps=td_steps, reward_scaler=scaler, dtype=torch.float64)
    buffer = ReplayBuffer(20, Spec(observation=Box(shape=(1,)), action=Discrete(n=1)))
    for t in range(6):
        buffer.append(STEPS[t : t + 1, None], [0], REWARDS[t], [ENDS[t] and t != 4], [t == 4], np.zeros((1, 1), "f4"))
    for source in (sampler, buffer.sampler(64, gamma=gamma, td_steps=td_steps, reward_scaler=scaler, dtype=torch.float64)):
        batch = source.sample(0)
        step = batch.observation[:, 0].long().tolist()
        assert set(step) == set(range(6))
        np.testing.assert_allclose(batch.reward, [expected[t] for t in step], rtol=1e-9, atol=1e-9)


def test_rewards_without_spread_are_not_divided_and_returns_without_range_are_refused():
    same = Dataset.from_arrays(STEPS[:, None], np.zeros(6, int), np.full(6, 2.0), np.ones(6, bool), name="flat")
    np.testing.assert_allclose(MinMaxRewardScaler().fit(same).transform(same.columns["reward"]).unique(), [-2, 0])
    assert StandardRewardScaler(epsilon=0.0).fit(same).transform(torch.tensor([2.0])).item() == 0
    with pytest.raises(DataError, match="'return_based' divides by the range of returns, 2 to 2 in 'flat'"):
        ReturnBasedRewardScaler().fit(same)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("clipp", "there is no such scaler; did you mean 'clip'"),
        ("multiply", "needs 'reward.multiplier'"),
        ("constant_shift", "needs 'reward.shift'"),
        ({"name": "clip", "low": 2.0}, "low is 2 and must be less than high, which is 1"),
        ({"name": "return_based", "return_max": 1.0, "return_min": 1.0}, "return_min is 1 and must be less than return_max"),
        ({"name": "multiply", "multiplier": 0.0}, "input should be greater than 0"),
    ],
)
def test_wrong_settings_are_explained(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Holder.checked({"reward": settings})


def test_numbers_are_asked_for_before_use():
    for scaler in (StandardRewardScaler(), MinMaxRewardScaler(), ReturnBasedRewardScaler()):
        with pytest.raises(ConfigError, match="has no numbers yet: fit it on a dataset first"):
            scaler.transform(REWARDS)
    assert MultiplyRewardScaler(multiplier=2.0).transform(np.array([1, 2])).tolist() == [2, 4]
    assert ConstantShiftRewardScaler(shift=-1.0).transform([0.0, 1.0]).tolist() == [-1, 0]
