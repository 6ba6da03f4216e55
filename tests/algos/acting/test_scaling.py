"""Scalers through fit, checkpoints, evaluation and exports."""

import numpy as np
import pytest
import torch

from d3ray import load
from d3ray.algos import testing
from d3ray.algos.actor_critic.sac import SAC
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.export.graphs import portable
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import read_torch_policy, write_package
from d3ray.algos.imitation.bc import BC
from d3ray.algos.sequence.decision_transformer import DecisionTransformer
from d3ray.algos.testing import maker
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box

CONTINUOUS, DISCRETE = testing.tiny_dataset(discrete=False), testing.tiny_dataset(discrete=True)


def keyed(n=60):
    rng = np.random.default_rng(4)
    seen = {
        "seen": rng.integers(0, 256, (n, 2, 6, 6)).astype(np.uint8),
        "a.b/felt": rng.normal(300, 0.1, (n, 4)).astype("f4"),  # a name that is none for a buffer
        "told": rng.normal(size=(n, 3)).astype("f4"),
    }
    return Dataset.from_arrays(
        seen, rng.uniform(-1, 1, (n, 2)).astype("f4"), rng.normal(size=n).astype("f4"), np.arange(n) % 10 == 9, name="keyed"
    )


def test_rewards_are_fitted_saved_and_learned_from_in_scaled_units(tmp_path):
    """Multiplied by 10, with no bootstrapping, the least squares value of an action is 10 times its reward."""
    data = Dataset.from_arrays(np.zeros((2, 1), "f4"), np.array([0, 1]), np.array([1.0, -2.0]), np.array([True, True]))
    made = maker(DQN, learning_rate=0.05, reward_scaler={"name": "multiply", "multiplier": 10.0})().fit(data, 400)
    np.testing.assert_allclose(made.predict_value(np.zeros((2, 1), "f4"), np.array([0, 1])), [10, -20], atol=0.5)
    made = maker(DQN, reward_scaler="standard")().fit(data, 2)
    made.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert (again.config_.reward_scaler.mean, again.config_.reward_scaler.std) == (-0.5, 1.5)
    np.testing.assert_allclose(again.fit_.scaling.reward(np.array([1.0])), [1.5 / 1.501])


def test_held_out_errors_are_in_scaled_units_and_returns_are_raw():
    from d3ray.algos.environments.evaluate import EnvironmentEvaluator
    from d3ray.algos.judging.held_out import HeldOut

    held = HeldOut(DISCRETE)
    made = maker(DQN, reward_scaler={"name": "constant_shift", "shift": -7.0})().fit(DISCRETE, 1)
    seen = DISCRETE.columns["observation"]
    rows = np.flatnonzero(~DISCRETE.columns["closing"])
    here, there, action = seen[rows], seen[rows + 1], DISCRETE.columns["action"][rows]
    alive, reward = ~DISCRETE.columns["terminated"][rows], DISCRETE.columns["reward"][rows]
    q, after = made.predict_value(here, action), made.predict_value(there, made.predict(there))
    by_hand = np.abs(reward - 7 + 0.99 * alive * after - q).mean()
    assert held(made, 1)["td_error"] == pytest.approx(by_hand, rel=1e-6)
    online = DQN(reward_scaler={"name": "multiply", "multiplier": 100.0}, batch_size=8, encoder=testing.SMALL)
    online.fit_online("CartPole-v1", n_steps=2, n_steps_per_epoch=2, random_steps=10)
    played = EnvironmentEvaluator("CartPole-v1", episodes=2)(online, 1)
    assert played["return"] == played["length"]  # one a step


def test_a_policy_holds_no_reward_scaler():
    data = CONTINUOUS
    plain = maker(TD3, observation_scaler="standard")().fit(data, 0)
    scaled = maker(TD3, observation_scaler="standard", reward_scaler="return_based")().fit(data, 0)
    exported = [portable(algorithm.policy()) for algorithm in (plain, scaled)]
    for arrays in ([p.golden for p in exported], [p.module.state_dict() for p in exported]):
        assert arrays[0].keys() == arrays[1].keys()
        assert all((arrays[0][name] == arrays[1][name]).all() for name in arrays[0])
    assert set(scaled.policy_module().affines()) == {"observation"}


def test_dict_observations_are_scaled_by_key_in_exports_too(tmp_path):
    data = keyed()
    scaler = {"seen": "pixel", "a.b/felt": "standard"}
    made = maker(BC, observation_scaler=scaler)().fit(data, 3)
    raw = {key: data.columns[f"observation/{key}"][:20] for key in ("seen", "a.b/felt", "told")}
    felt = data.columns["observation/a.b/felt"][~data.columns["closing"]].astype(np.float64)
    parts = {  # by hand, in the order of the keys
        "a.b/felt": (raw["a.b/felt"] - felt.mean(0)) / (felt.std(0) + 1e-3),
        "seen": raw["seen"].reshape(20, -1) / 255,
        "told": raw["told"],
    }
    x = torch.from_numpy(np.concatenate([parts[key] for key in sorted(parts)], 1).astype("f4"))
    with torch.no_grad():
        by_hand = made.fit_.learner.modules["policy"](x).mode().numpy()
    np.testing.assert_allclose(made.predict(raw), by_hand, atol=1e-4)  # felt is 300 ± 0.1: float32 keeps 1e-4 of it
    made.save_policy(tmp_path / "policy.pt")
    made.save(tmp_path / "saved")
    np.testing.assert_array_equal(load(tmp_path / "saved").predict(raw), made.predict(raw))
    write_package(made, tmp_path / "package")
    np.testing.assert_allclose(read_package(tmp_path / "package").predict(raw), made.predict(raw), atol=1e-5)
    np.testing.assert_array_equal(read_torch_policy(tmp_path / "package").predict(raw), made.predict(raw))


def test_scalers_that_were_given_their_numbers_act_online():
    made = DQN(
        batch_size=8,
        encoder=testing.SMALL,
        observation_scaler={"name": "standard", "mean": [0, 0, 0, 0], "std": [2, 1, 1, 1], "epsilon": 0},
        reward_scaler={"name": "clip", "low": 0.0, "high": 0.5},
    )
    seen = []
    made.fit_online(
        "CartPole-v1",
        n_steps=2,
        n_steps_per_epoch=1,
        random_steps=10,
        callbacks=[lambda algorithm, epoch, metrics: seen.append(metrics)],
    )
    assert seen
    np.testing.assert_allclose(made.fit_.scaling.observation(np.ones((1, 4), "f4"))[0], [0.5, 1, 1, 1])
    with pytest.raises(ConfigError, match="'standard' has no numbers yet"):
        DQN(reward_scaler="standard").fit_online("CartPole-v1", n_steps=1)


@pytest.mark.parametrize(
    "scaler",
    [
        "standard",
        "min_max",
        "clip",
        {"name": "multiply", "multiplier": 2.0},
        {"name": "constant_shift", "shift": 1.0},
        "return_based",
    ],
    ids=str,
)
def test_every_reward_scaler_changes_what_is_learned(scaler):
    plain = maker(DQN, td_steps=2)().fit(DISCRETE, 3).state()[0]
    assert testing.largest_difference(plain, maker(DQN, td_steps=2, reward_scaler=scaler)().fit(DISCRETE, 3).state()[0])[1] > 1e-7


def bounded(low, high):
    spec = CONTINUOUS.spec.model_copy(update={"action": Box(shape=(3,), low=low, high=high)})
    return Dataset.from_arrays(**testing.tiny_arrays(False, reach=0.4), spec=spec, name="bounded")


def wide(low, high):
    return {"name": "min_max", "minimum": [low] * 3, "maximum": [high] * 3}


@pytest.mark.parametrize(("scaler", "slope"), [(wide(-0.55, 0.55), 0.55), (None, 1.0)], ids=["wider", "none"])
def test_actions_end_at_the_bounds_of_their_space_where_policies_reach_further(scaler, slope, tmp_path):
    data = bounded(-0.5, (0.5, 0.45, 0.5))
    made = maker(TD3, action_scaler=scaler)().fit(data, 2)
    far = 30 * data.columns["observation"][:50]
    with torch.no_grad():
        unclipped = slope * made.fit_.learner.modules["policy"](torch.from_numpy(far)).numpy()
    by_hand = np.clip(unclipped, -0.5, np.array([0.5, 0.45, 0.5], "f4"))
    assert 0.1 < (by_hand != unclipped).mean() < 0.9
    np.testing.assert_allclose(made.predict(far), by_hand, atol=1e-6)
    write_package(made, tmp_path / "package")
    for policy in (read_package(tmp_path / "package"), read_torch_policy(tmp_path / "package")):
        given = policy.predict(far)
        np.testing.assert_allclose(given, by_hand, atol=1e-6)
        assert (given.min(), given.max()) == (-0.5, 0.5)


def test_a_policy_that_looks_back_remembers_the_action_within_its_bounds():
    data = bounded(-0.4, 0.4)
    made = maker(DecisionTransformer, action_scaler=wide(-40, 40), context=4)().fit(data, 1)
    policy = made.policy()
    memory, action = policy.step(policy.start(2), data.columns["observation"][:2])
    assert np.abs(action).max() == np.float32(0.4)
    np.testing.assert_array_equal(memory["context/action"][:, -1], action)
    taken_out = portable(policy)  # which compares what it does with the policy
    assert taken_out.module.bounds() is not None
    given = np.concatenate([array for name, array in taken_out.golden.items() if name.endswith("/action") and array.ndim == 2])
    assert np.abs(given).max() == np.float32(0.4)


def test_draws_end_at_the_bounds_too():
    made = maker(SAC, action_scaler=wide(-0.5003, 0.5003))().fit(bounded(-0.5, 0.5), 2)
    drawn = made.sample_action(30 * CONTINUOUS.columns["observation"][:200])
    assert (drawn.min(), drawn.max()) == (-0.5, 0.5)


@pytest.mark.parametrize("scaler", ["min_max", wide(-0.5, 0.5), wide(-0.45, 0.45)], ids=["bounds", "same", "narrower"])
def test_policies_that_cannot_leave_their_space_are_not_clipped(scaler):
    assert maker(TD3, action_scaler=scaler)().fit(bounded(-0.5, 0.5), 0).policy_module().bounds() is None
