"""Every actor-critic with every Q-function, n-step returns and observations of several parts: offline, in stacks, online."""

import numpy as np
import pytest

from d3ray.algos.registry import algorithm_class
from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.random import normal, root_key

SMALL = {"hidden_units": [8]}
ALGORITHMS = ("DDPG", "IQL", "SAC", "TD3", "TD3PlusBC")


def parts(n=60):
    """Transitions with observations of two parts, in episodes of ten."""
    action = np.tanh(normal(root_key(2), (n, 2)).numpy())
    seen = {"place": normal(root_key(1), (n, 3)).numpy(), "speed": normal(root_key(4), (n, 2)).numpy()}
    ends = np.arange(n) % 10 == 9
    return Dataset.from_arrays(seen, action, action[:, 0], ends & (np.arange(n) % 20 == 19), ends, name="parts")


@pytest.mark.parametrize("q_function", ["mean", "qr", "iqn", "fqf"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_critic_with_n_steps_and_observations_of_parts(name, q_function):
    cls, dataset = algorithm_class(name), parts()
    sizes = {field: SMALL for field in cls.Config.model_fields if field in ("actor_encoder", "critic_encoder", "value_encoder")}
    made = cls(**sizes, q_function=q_function, td_steps=3, batch_size=8, observation_scaler="standard")
    *_, last = made.fitter(dataset, n_steps=4, n_steps_per_epoch=4)
    assert all(np.isfinite(value) for value in last.metrics.values())
    seen = {key: dataset.columns[f"observation/{key}"][:5] for key in ("place", "speed")}
    action = made.predict(seen)
    assert action.shape == (5, 2)
    assert (np.abs(action) <= 1).all()
    assert made.predict_value(seen, action).shape == (5,)
    rows = Stack(made.__class__(**made.get_params()), (0, 1)).fit(dataset, n_steps=4)
    np.testing.assert_allclose(rows.seed(0).predict(seen), action, atol=1e-4)


@pytest.mark.parametrize("name", ["SAC", "IQL", "BC"])
def test_stochastic_policies_draw_other_actions_at_every_call_and_predict_their_mode(name):
    cls = algorithm_class(name)
    made = cls(policy_type="stochastic") if "policy_type" in cls.Config.model_fields else cls()
    made.fit(parts(), n_steps=1)
    seen = {key: np.tile(parts().columns[f"observation/{key}"][:1], (2000, 1)) for key in ("place", "speed")}
    first, second = made.sample_action(seen), made.sample_action(seen)
    assert not np.array_equal(first, second)
    assert len(np.unique(first[:, 0])) > 1000
    assert np.array_equal(made.policy().draw(seen, step=3, seed=1), made.policy().draw(seen, step=3, seed=1))
    assert np.median(first, 0) == pytest.approx(made.predict(seen)[0], abs=0.15)
    assert made.stochastic


@pytest.mark.parametrize("name", ["IQL", "BC"])
def test_deterministic_policies_draw_what_they_predict(name):
    made = algorithm_class(name)(policy_type="deterministic").fit(parts(), n_steps=1)
    seen = {key: parts().columns[f"observation/{key}"][:5] for key in ("place", "speed")}
    assert np.array_equal(made.sample_action(seen), made.predict(seen))
    assert not made.stochastic


@pytest.mark.parametrize("name", [*ALGORITHMS, "BC"])
def test_every_one_of_them_learns_online(name):
    cls = algorithm_class(name)
    sizes = {field: SMALL for field in cls.Config.model_fields if field.endswith("encoder") and field != "share_encoder"}
    made = cls(**sizes, batch_size=8, action_scaler="min_max", seed=3)
    made.fit_online("Pendulum-v1", n_steps=6, n_steps_per_epoch=6, random_steps=10)
    assert made.step == 6


@pytest.mark.parametrize("name", [*ALGORITHMS, "BC"])
def test_presets_are_told_apart_by_their_values(name):
    """Those of one name as the sources have them: the rate of the first network, the batch and the layers."""
    cls = algorithm_class(name)
    assert {"d3rlpy"} <= set(cls.presets)
    for preset in cls.presets:
        cls.from_preset(preset).check_settings()
    if name in ("DDPG", "TD3"):
        pfrl = cls.from_preset("pfrl").check_settings()
        assert (pfrl.actor_learning_rate, pfrl.batch_size, pfrl.actor_encoder.hidden_units) == (1e-3, 100, (400, 300))
    if name == "SAC":
        assert cls.from_preset("d3rlpy-2020").check_settings().update_actor_interval == 2


@pytest.mark.parametrize("name", ["BC", "IQL", "SAC"])
@pytest.mark.parametrize("wrong", [(2.0, -20.0), (1.0, 1.0)])
def test_bounds_of_a_deviation_rise(name, wrong):
    with pytest.raises(ConfigError, match=f"^{name}: log_std_bounds is .*; the first bound must be below the second.$"):
        algorithm_class(name)(log_std_bounds=wrong).check_settings()
