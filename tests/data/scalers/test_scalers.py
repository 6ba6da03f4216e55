"""Scalers of observations and rewards against their formulas, at constant entries, and through JSON."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from d3ray.data.config import Config
from d3ray.data.dataset import Dataset
from d3ray.data.doctor import KINDS
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import TransitionSampler
from d3ray.data.scalers import (
    ActionScaler,
    ClipRewardScaler,
    ConstantShiftRewardScaler,
    KeywiseScaler,
    MinMaxActionScaler,
    MinMaxRewardScaler,
    MinMaxScaler,
    MultiplyRewardScaler,
    ObservationScaler,
    PixelScaler,
    ReturnBasedRewardScaler,
    RewardScaler,
    StandardRewardScaler,
    StandardScaler,
)
from d3ray.data.spec import Box, Discrete, Spec

OBSERVATIONS = np.array([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]], "f4")  # the second entry is constant
ACTIONS = np.array([[-2.0], [1.0], [0.5]], "f4")
DATA = Dataset.from_arrays(OBSERVATIONS, ACTIONS, np.zeros(3, "f4"), np.array([False, False, True]))


class Holder(Config):
    observation: ObservationScaler | None = None
    action: ActionScaler | None = None


def scaled(scaler, values):
    return scaler.affine(torch.float64).transform(torch.tensor(values)).numpy()


def test_standard():
    fitted = StandardScaler().fit(DATA)
    expected = (OBSERVATIONS - [2.0, 5.0]) / (np.array([np.sqrt(8 / 3), 0.0]) + 1e-3)
    np.testing.assert_allclose(scaled(fitted, OBSERVATIONS), expected, rtol=1e-6)


def test_standard_without_epsilon_does_not_divide_a_constant():
    fitted = StandardScaler(epsilon=0.0).fit(DATA)
    assert np.isfinite(scaled(fitted, OBSERVATIONS)).all()
    np.testing.assert_allclose(scaled(fitted, OBSERVATIONS)[:, 1], 0)


def test_a_change_where_the_data_never_changed():
    """The doctor tells what `standard` does to it, and that `min_max` does nothing."""
    changed = OBSERVATIONS + np.array([0.0, 0.01])
    scalers = [StandardScaler(), StandardScaler(epsilon=0.0), MinMaxScaler()]
    moved = [scaled(scaler.fit(DATA), changed)[:, 1] for scaler in scalers]
    np.testing.assert_allclose(moved, np.repeat([[10.0], [0.01], [0.01]], 3, axis=1), rtol=1e-9)
    remedy = KINDS["observations_constant"].remedy
    assert "`observation_scaler=min_max`" in remedy
    assert f"`standard` multiplies any change by {moved[0][0] / 0.01:,.0f}" in remedy


def test_min_max_reaches_both_ends_and_puts_a_constant_at_zero():
    np.testing.assert_allclose(scaled(MinMaxScaler().fit(DATA), OBSERVATIONS), [[-1, 0], [0, 0], [1, 0]], atol=1e-7)


def test_min_max_of_actions_takes_the_data_or_a_bounded_space():
    np.testing.assert_allclose(scaled(MinMaxActionScaler().fit(DATA), ACTIONS), [[-1], [1], [2 / 3]], rtol=1e-6)
    spec = Spec(observation=Box(shape=(2,)), action=Box(shape=(1,), low=-4.0, high=4.0))
    bounded = Dataset.from_arrays(OBSERVATIONS, ACTIONS, np.zeros(3, "f4"), np.array([False, False, True]), spec=spec)
    np.testing.assert_allclose(scaled(MinMaxActionScaler().fit(bounded), ACTIONS), ACTIONS / 4)


def test_pixels():
    np.testing.assert_allclose(scaled(PixelScaler(), np.array([0, 51, 255], np.uint8)), [0, 0.2, 1])


def test_given_numbers_are_kept():
    fitted = StandardScaler(mean=(1.0, 1.0), std=(2.0, 2.0), epsilon=0.0).fit(DATA)
    np.testing.assert_allclose(scaled(fitted, OBSERVATIONS), (OBSERVATIONS - 1) / 2)


@pytest.mark.parametrize(
    "scaler", [StandardScaler().fit(DATA), MinMaxScaler().fit(DATA), MinMaxActionScaler(minimum=(-2.0,), maximum=(1.0,))]
)
def test_reverse_and_json_give_back_what_went_in(scaler):
    affine = scaler.affine(torch.float64)
    values = torch.tensor(OBSERVATIONS[:, : len(scaler.numbers()[0])], dtype=torch.float64)
    torch.testing.assert_close(affine.reverse(affine.transform(values)), values)
    assert type(scaler).model_validate_json(scaler.model_dump_json()) == scaler


def test_a_name_stands_for_a_scaler_and_a_wrong_one_is_explained():
    assert Holder.checked({"observation": "standard"}).observation == StandardScaler()
    with pytest.raises(ConfigError, match="there is no such scaler; did you mean 'min_max'"):
        Holder.checked({"observation": "minmax"})
    with pytest.raises(ConfigError, match="'standard' has no numbers yet"):
        StandardScaler().affine()


def test_action_scalers_refuse_discrete_actions():
    discrete = Dataset.from_arrays(OBSERVATIONS, np.array([0, 1, 1]), np.zeros(3, "f4"), np.array([False, False, True]))
    with pytest.raises(DataError, match="needs continuous actions, and 'dataset' has discrete ones"):
        MinMaxActionScaler().fit(discrete)


# ---- dict observations

SEEN = np.random.default_rng(3).integers(0, 256, (3, 3, 4, 4)).astype(np.uint8)
KEYED = Dataset.from_arrays(
    {"seen": SEEN, "felt": OBSERVATIONS, "told": OBSERVATIONS + 1},
    ACTIONS,
    np.zeros(3, "f4"),
    np.array([False, False, True]),
    name="keyed",
)


def test_each_key_has_its_own_scaler():
    scaler = Holder.checked({"observation": {"seen": "pixel", "felt": {"name": "standard", "epsilon": 0.0}}}).observation
    assert isinstance(scaler, KeywiseScaler)
    fitted = scaler.fit(KEYED)
    found = fitted.transform({"seen": SEEN, "felt": OBSERVATIONS, "told": OBSERVATIONS})
    np.testing.assert_allclose(found["seen"], SEEN / 255, rtol=1e-6)
    np.testing.assert_allclose(found["felt"][:, 0], (OBSERVATIONS[:, 0] - 2) / np.sqrt(8 / 3), rtol=1e-6)
    np.testing.assert_allclose(found["told"], OBSERVATIONS)
    np.testing.assert_allclose(fitted.reverse_transform(found)["felt"], OBSERVATIONS, atol=1e-6)
    assert Holder.model_validate_json(Holder(observation=fitted).model_dump_json()).observation == fitted
    assert set(fitted.affines()) == {"observation/seen", "observation/felt"}


def test_samplers_scale_each_key():
    scaler = Holder.checked({"observation": {"seen": "pixel", "told": "min_max"}}).observation.fit(KEYED)
    raw = TransitionSampler(KEYED, 32).sample(0)
    batch = TransitionSampler(KEYED, 32, observation_scaler=scaler).sample(0)
    torch.testing.assert_close(batch.observation["seen"], raw.observation["seen"] / 255)
    torch.testing.assert_close(batch.next_observation["told"][:, 0], raw.next_observation["told"][:, 0] / 2 - 1.5)
    assert torch.equal(batch.observation["felt"], raw.observation["felt"])


def test_one_scaler_stands_for_all_keys_where_it_fits():
    vectors = Dataset.from_arrays(
        {"a": OBSERVATIONS, "b": OBSERVATIONS * 2}, ACTIONS, np.zeros(3, "f4"), np.array([False, False, True])
    )
    fitted = StandardScaler().fit(vectors)
    assert fitted.scalers["a"].mean == (2, 5)
    assert fitted.scalers["b"].mean == (4, 10)
    with pytest.raises(DataError, match="'standard' needs vectors, and 'seen' of 'keyed' is something else: give each key"):
        StandardScaler().fit(KEYED)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sen": "pixel"}, "Observations of 'keyed' have no key 'sen' to scale; did you mean 'seen'"),
        ({"felt": "pixel"}, "'pixel' needs images, and 'felt' of 'keyed' is something else"),
    ],
)
def test_keys_that_do_not_fit_are_refused(given, sentence):
    scaler = Holder.checked({"observation": given}).observation
    with pytest.raises(DataError, match=sentence):
        scaler.fit(KEYED)
    with pytest.raises(DataError, match="and observations of 'dataset' have no keys"):
        scaler.fit(DATA)


def test_nested_keys_are_joined_and_parts_of_a_tuple_are_numbered():
    nested = Holder.checked({"observation": {"arm": {"left": "standard", "right": None}, "seen": "pixel"}}).observation
    assert list(nested.scalers) == ["arm/left", "seen"]
    assert list(Holder.checked({"observation": ["pixel", None, "min_max"]}).observation.scalers) == ["0", "2"]
    with pytest.raises(ConfigError, match="there is no such scaler; did you mean 'pixel'"):
        Holder.checked({"observation": {"seen": "pixl"}})


def test_parts_of_nested_observations_are_scaled():
    data = Dataset.from_arrays(
        {"arm": {"left": OBSERVATIONS, "right": OBSERVATIONS}, "eye": (SEEN, OBSERVATIONS)},
        ACTIONS,
        np.zeros(3, "f4"),
        np.array([False, False, True]),
    )
    scaler = Holder.checked({"observation": {"arm": {"left": "min_max"}, "eye/0": "pixel"}}).observation.fit(data)
    batch = TransitionSampler(data, 32, observation_scaler=scaler).sample(0)
    plain = TransitionSampler(data, 32).sample(0)
    torch.testing.assert_close(batch.observation["arm/left"][:, 0], plain.observation["arm/left"][:, 0] / 2 - 1)
    torch.testing.assert_close(batch.observation["eye/0"], plain.observation["eye/0"] / 255)
    assert torch.equal(batch.observation["eye/1"], plain.observation["eye/1"])
    pair = Dataset.from_arrays((SEEN, OBSERVATIONS), ACTIONS, np.zeros(3, "f4"), np.array([False, False, True]))
    assert Holder.checked({"observation": ["pixel", "standard"]}).observation.fit(pair).scalers["1"].mean == (2, 5)


def test_vectors_are_no_images():
    with pytest.raises(DataError, match="'pixel' needs images, and 'dataset' has observations of another kind"):
        PixelScaler().fit(DATA)


def test_d3rlpys_methods():
    fitted = MinMaxScaler().fit(DATA)
    assert fitted.get_type() == "min_max"
    assert fitted.get_params() == {"minimum": (0, 5), "maximum": (4, 5)}
    assert MinMaxScaler(**fitted.get_params()) == fitted
    assert PixelScaler().get_params() == {}
    np.testing.assert_allclose(fitted.reverse_transform(fitted.transform(OBSERVATIONS)), OBSERVATIONS)
    assert fitted.transform(OBSERVATIONS.astype(np.float64)).dtype == torch.float64


def test_a_bound_that_is_left_out_is_that_of_the_data():
    low, high = MinMaxActionScaler(minimum=(-4.0,)).fit(DATA), MinMaxActionScaler(maximum=(3.0,)).fit(DATA)
    assert [(s.minimum, s.maximum) for s in (low, high)] == [((-4.0,), (1.0,)), ((-2.0,), (3.0,))]


REWARDS = np.array([-3.0, 0.5, 2.0, 5.0, 0.0, 4.0], "f4")  # episodes of 2, 3 and 1: returns -2.5, 7 and 4
ENDS = np.array([False, True, False, False, True, True])
STEPS = np.arange(6, dtype="f4")
REWARDED = Dataset.from_arrays(
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


class RewardHolder(Config):
    reward: RewardScaler | None = None


def fitted(settings):
    return RewardHolder.checked({"reward": settings}).reward.fit(REWARDED)


@CASES
def test_formulas(settings, formula):
    scaler = fitted(settings)
    found = scaler.transform(REWARDS.astype(np.float64))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, formula(REWARDS.astype(np.float64)), rtol=1e-12, atol=1e-12)
    assert RewardHolder.model_validate_json(RewardHolder(reward=scaler).model_dump_json()).reward == scaler
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
    sampler = TransitionSampler(REWARDED, 64, gamma=gamma, td_steps=td_steps, reward_scaler=scaler, dtype=torch.float64)
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
        RewardHolder.checked({"reward": settings})


def test_numbers_are_asked_for_before_use():
    for scaler in (StandardRewardScaler(), MinMaxRewardScaler(), ReturnBasedRewardScaler()):
        with pytest.raises(ConfigError, match="has no numbers yet: fit it on a dataset first"):
            scaler.transform(REWARDS)
    assert MultiplyRewardScaler(multiplier=2.0).transform(np.array([1, 2])).tolist() == [2, 4]
    assert ConstantShiftRewardScaler(shift=-1.0).transform([0.0, 1.0]).tolist() == [-1, 0]
