"""What users of the estimator do beside training: set it up, hand networks on, keep and take up again, and get it wrong."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d3ray
from d3ray.algos.saving.loggers import CSVLogger
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError

CONTINUOUS, DISCRETE = tiny_dataset(discrete=False), tiny_dataset(discrete=True)
SEEN = CONTINUOUS.columns["observation"][:6]


def tensors(algorithm: Any, prefix: str) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in algorithm.state()[0].items() if name.startswith(prefix)}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# ---- setting up


def test_what_is_built_is_what_fit_builds() -> None:
    fitted = maker(d3ray.TD3, observation_scaler="standard")(seed=4).fit(CONTINUOUS, 0)
    built = maker(d3ray.TD3, observation_scaler="standard")(seed=4).build_with_dataset(CONTINUOUS)
    assert same(built.state()[0], fitted.state()[0])
    assert built.config_ == fitted.config_
    assert (built.observation_shape, built.action_size, built.step) == ((5,), 3, 0)
    by_shape = maker(d3ray.TD3)(seed=4).build_with_shapes((5,), 3)
    assert same(tensors(by_shape, "live/"), tensors(fitted, "live/"))
    assert by_shape.predict(SEEN).shape == (6, 3)


def test_what_is_built_trains_on_as_if_fit_had_built_it() -> None:
    built = maker(d3ray.DQN)(seed=1).build_with_shapes((5,), 3).fit(DISCRETE, 9)
    assert same(built.state()[0], maker(d3ray.DQN)(seed=1).fit(DISCRETE, 9).state()[0])


def test_an_environment_gives_the_spaces() -> None:
    built = maker(d3ray.DQN)().build_with_env("CartPole-v1")
    assert (built.observation_shape, built.action_size) == ((4,), 2)
    assert built.predict(np.zeros((2, 4), np.float32)).shape == (2,)


def test_shapes_may_have_parts() -> None:
    built = maker(d3ray.TD3)().build_with_shapes({"camera": (2, 2), "state": (3,)}, 1)
    assert built.observation_shape == {"camera": (2, 2), "state": (3,)}
    assert built.predict({"camera": np.zeros((4, 2, 2)), "state": np.zeros((4, 3))}).shape == (4, 1)
    assert maker(d3ray.TD3)().build_with_shapes([(2,), (3,)], 1).observation_shape == {"0": (2,), "1": (3,)}


def test_building_again_begins_anew_and_says_so() -> None:
    algorithm = maker(d3ray.TD3)(seed=4).fit(CONTINUOUS, 3)
    with pytest.warns(UserWarning, match="set up already"):
        algorithm.build_with_dataset(CONTINUOUS)
    assert algorithm.step == 0


def test_a_scaler_without_numbers_needs_data() -> None:
    with pytest.raises(ConfigError, match="'standard' has no numbers yet: fit it on a dataset first"):
        maker(d3ray.TD3, observation_scaler="standard")().build_with_shapes((5,), 3)
    fitted = maker(d3ray.TD3, observation_scaler="standard")().fit(CONTINUOUS, 0)
    assert maker(d3ray.TD3, observation_scaler=fitted.config_.observation_scaler)().build_with_shapes((5,), 3).step == 0


# ---- handing on


def test_a_cloned_policy_begins_any_actor_of_its_shape() -> None:
    cloned = maker(d3ray.BC)(seed=1).fit(CONTINUOUS, 3)
    for make in (d3ray.TD3, d3ray.TD3PlusBC):
        tuned = maker(make)(seed=2).build_with_shapes((5,), 3)
        tuned.copy_from(cloned, "policy")
        assert np.array_equal(tuned.predict(SEEN), cloned.predict(SEEN))
    other = maker(d3ray.DiscreteBC)(seed=1).fit(tiny_dataset(discrete=True), 1)  # logits of three kinds, not three numbers
    with pytest.raises(ConfigError, match="has other layers than that of the DiscreteBC"):
        tuned.copy_from(other, "policy")


def test_networks_are_copied_with_their_targets_and_nothing_else_is() -> None:
    source = maker(d3ray.TD3PlusBC)(seed=1).fit(CONTINUOUS, 6)
    tuned = maker(d3ray.TD3)(seed=2).build_with_shapes(source.observation_shape, source.action_size)
    critic = tensors(tuned, "live/critic/")
    tuned.copy_from(source, "policy")
    assert np.array_equal(tuned.predict(SEEN), source.predict(SEEN))
    assert same(tensors(tuned, "live/critic/"), critic)
    assert same(tensors(tuned, "optimizer/"), {})
    policy = {name.partition("/")[2]: tensor for name, tensor in tensors(source, "live/policy/").items()}
    assert same({name.partition("/")[2]: tensor for name, tensor in tensors(tuned, "target/policy/").items()}, policy)
    tuned.copy_from(source, "critic")
    action = source.predict(SEEN)
    assert np.array_equal(tuned.predict_value(SEEN, action), source.predict_value(SEEN, action))
    source.fit(CONTINUOUS, 3)  # a copy shares nothing
    assert not np.array_equal(tuned.predict(SEEN), source.predict(SEEN))


@pytest.mark.parametrize("role", ["policy", "q_function"])
def test_what_optimisers_remember_is_copied_and_forgotten(role: str) -> None:
    network = "policy" if role == "policy" else "critic"
    source, tuned = (
        maker(d3ray.TD3)(seed=1).fit(CONTINUOUS, 6),
        maker(d3ray.TD3, actor_learning_rate=0.5)(seed=2).fit(CONTINUOUS, 3),
    )
    kept = tensors(tuned, "live/") | tensors(tuned, "hyper/")
    getattr(tuned, f"copy_{role}_optim_from")(source)
    assert same(tensors(tuned, f"optimizer/{network}/"), tensors(source, f"optimizer/{network}/"))
    other = "critic" if network == "policy" else "policy"
    assert not same(tensors(tuned, f"optimizer/{other}/"), tensors(source, f"optimizer/{other}/"))
    tuned.reset_optimizers()
    assert tensors(tuned, "optimizer/") == {}
    assert same(tensors(tuned, "live/") | tensors(tuned, "hyper/"), kept)
    getattr(source, f"copy_{role}_optim_from")(tuned)
    assert tensors(source, f"optimizer/{network}/") == {}
    assert tensors(source, f"optimizer/{other}/") != {}


@pytest.mark.parametrize(
    ("make", "copies", "message"),
    [
        (maker(d3ray.BC), ("copy_from", "critic"), r"^(BC|TD3) has no network 'critic' to copy; it has policy\.$"),
        (maker(d3ray.DQN), ("copy_from", "policy"), r"^DQN has no network 'policy' to copy; it has critic\.$"),
        (
            maker(d3ray.TD3, actor_encoder={"hidden_units": [7, 16]}),
            ("copy_from", "policy"),
            r"^The policy of TD3 is built otherwise than that of the TD3: '.*' is \(.*\) here and \(.*7.*\) there\.$",
        ),
        (
            maker(d3ray.TD3, actor_encoder={"hidden_units": [16, 16], "activation": "tanh"}),
            ("copy_from", "policy"),
            "^The policy of TD3 has other layers than that of the TD3, of the same shapes",
        ),
        (maker(d3ray.TD3, n_critics=3), ("copy_from", "critic"), r"^The critic of TD3 is built otherwise"),
        (maker(d3ray.TD3, n_critics=3), ("copy_optimizer_from", "critic"), r"^The optimizer of the critic of TD3 is"),
    ],
)
def test_networks_that_do_not_fit_are_refused_and_nothing_changes(make: Any, copies: tuple[str, str], message: str) -> None:
    other = make()
    other.fit(DISCRETE if other.actions == "discrete" else CONTINUOUS, 2)
    for trained in (0, 2):
        tuned = maker(d3ray.TD3)(seed=2).fit(CONTINUOUS, trained)
        before = tuned.state()[0]
        with pytest.raises(ConfigError, match=message) as caught:
            getattr(tuned, copies[0])(other, copies[1])
        assert "\n" not in str(caught.value)
        assert same(tuned.state()[0], before)


def test_scalers_that_differ_are_warned_of() -> None:
    source = maker(d3ray.TD3, observation_scaler="standard")().fit(CONTINUOUS, 2)
    with pytest.warns(UserWarning, match=r"different values of observation_scaler, so the policy sees other numbers"):
        maker(d3ray.TD3)().build_with_shapes((5,), 3).copy_from(source, "policy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = maker(d3ray.TD3, observation_scaler=source.config_.observation_scaler)().build_with_shapes((5,), 3)
        tuned.copy_from(source, "policy")


def test_schedules_and_random_numbers_follow_the_gradient_step_that_is_set() -> None:
    algorithm = maker(d3ray.TD3, update_actor_interval=4)().fit(CONTINUOUS, 0)
    algorithm.step = 3
    before = tensors(algorithm, "live/policy/")
    algorithm.fit(CONTINUOUS, 1)  # step 3 is the fourth
    assert algorithm.step == 4
    assert not same(tensors(algorithm, "live/policy/"), before)
    with pytest.raises(ConfigError, match="step is -1"):
        algorithm.step = -1


# ---- keeping


def test_params_make_an_algorithm_that_takes_a_model_at_once(tmp_path: Path) -> None:
    first = maker(d3ray.TD3PlusBC, observation_scaler="standard", alpha=1.5)(seed=7, dtype="float64")
    first.fit(CONTINUOUS, 6, 3, logger=CSVLogger(tmp_path / "log", save_interval=1))
    params = json.loads((tmp_path / "log" / "params.json").read_text())
    assert (params["algorithm"], params["observation_shape"], params["action_size"]) == ("TD3PlusBC", [5], 3)
    again = d3ray.TD3PlusBC.from_params(tmp_path / "log" / "params.json")
    assert (again.step, again.alpha, again.seed, again.dtype) == (0, 1.5, 7, "float64")
    assert same(tensors(again, "live/"), tensors(maker(d3ray.TD3PlusBC)(seed=7, dtype="float64").fit(CONTINUOUS, 0), "live/"))
    again.restore(tmp_path / "log" / "model_6")
    assert np.array_equal(again.predict(SEEN), first.predict(SEEN))
    assert same(again.fit(CONTINUOUS, 4).state()[0], first.fit(CONTINUOUS, 4).state()[0])


def test_a_model_is_loaded_into_a_fresh_object(tmp_path: Path) -> None:
    first = maker(d3ray.DQN, learning_rate=0.01)(seed=5).fit(DISCRETE, 5)
    first.save(tmp_path / "model")
    second = d3ray.DQN()
    second.restore(tmp_path / "model")
    assert (second.step, second.learning_rate, second.seed) == (5, 0.01, 5)
    assert same(second.state()[0], first.state()[0])


def test_copies_and_pickles_share_nothing_and_go_on_alike() -> None:
    first = maker(d3ray.TD3)(seed=2).fit(CONTINUOUS, 4)
    first.note = "mine"
    copies = [copy.deepcopy(first), copy.copy(first), pickle.loads(pickle.dumps(first))]
    first.fit(CONTINUOUS, 4)
    for one in copies:
        assert (one.step, one.note) == (4, "mine")
        assert same(one.fit(CONTINUOUS, 4).state()[0], first.state()[0])
    assert copy.deepcopy(maker(d3ray.TD3)(seed=2)).get_params() == maker(d3ray.TD3)(seed=2).get_params()


def test_draws_of_a_deterministic_policy_are_its_predictions() -> None:
    algorithm = maker(d3ray.TD3)().fit(CONTINUOUS, 2)
    assert np.array_equal(algorithm.sample_action(SEEN), algorithm.predict(SEEN))


# ---- scikit-learn


def test_the_signature_shows_every_argument_of_training() -> None:
    shown = inspect.signature(d3ray.TD3.fitter).parameters
    assert [*shown][1:] == [
        *("dataset", "n_steps", "n_steps_per_epoch", "evaluators", "callbacks"),
        *("callback", "epoch_callback", "logger", "show_progress", "n_epochs", "former"),
    ]


def test_a_list_of_episodes_is_a_dataset() -> None:
    episodes = [CONTINUOUS.episodes[k] for k in range(3)]
    by_list = maker(d3ray.BC)().fit(episodes, 3)
    assert same(by_list.state()[0], maker(d3ray.BC)().fit(CONTINUOUS.take(3), 3).state()[0])


def larger_is_better(algorithm: Any, episodes: Any) -> float:
    return -float(np.mean([np.square(algorithm.predict(e.observations[:-1]) - e.actions).mean() for e in episodes]))


def test_scikit_learn_clones_validates_and_searches() -> None:
    selection, base = pytest.importorskip("sklearn.model_selection"), pytest.importorskip("sklearn.base")
    dataset = d3ray.MDPDataset.from_episodes(CONTINUOUS.episodes)
    algorithm = maker(d3ray.BC)(seed=1)
    assert base.clone(algorithm).get_params() == algorithm.get_params()
    assert base.clone(algorithm.fit(dataset, 1)).step == 0
    steps = {"n_steps": 3}
    scores = selection.cross_validate(algorithm, dataset, cv=2, scoring={"error": larger_is_better}, params=steps)
    assert scores["test_error"].shape == (2,)
    grid = {"learning_rate": [1e-6, 1e-1]}
    search = selection.GridSearchCV(algorithm, grid, cv=2, scoring={"error": larger_is_better}, refit="error")
    search.fit(dataset.episodes, n_steps=40)
    assert search.best_params_ == {"learning_rate": 1e-1}  # with one in a million nothing is learned
    assert search.best_estimator_.step == 40


def test_draws_go_on_once_it_was_saved_and_loaded(tmp_path):
    made = maker(d3ray.SAC)(seed=3).fit(CONTINUOUS, 1)
    x = CONTINUOUS.columns["observation"][:5]
    first = made.sample_action(x)
    made.save(tmp_path / "saved")
    second, again = made.sample_action(x), d3ray.load(tmp_path / "saved")
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(again.sample_action(x), second)


@pytest.mark.parametrize("name", ["TD3", "DQN", "SAC"])
def test_a_single_observation_gets_a_single_action(name: str) -> None:
    """Without the batch axis, as d3rlpy's users write it; what comes is the row of the batch."""
    algorithm = maker(getattr(d3ray, name))(seed=2).fit(DISCRETE if name == "DQN" else CONTINUOUS, 2)
    batch = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    actions = algorithm.predict(batch)
    for single in (batch[1], batch[1].tolist(), torch.from_numpy(batch[1])):
        # Some processors sum the products of one row in another order than those of two.
        np.testing.assert_allclose(algorithm.predict(single), actions[1], rtol=1e-6)
    assert np.shape(algorithm.sample_action(batch[1])) == actions.shape[1:]
    values, spread = algorithm.predict_value(batch, actions, with_std=True)
    np.testing.assert_allclose(algorithm.predict_value(batch[1], actions[1], with_std=True), (values[1], spread[1]), rtol=1e-6)


def test_training_opens_a_dataset_by_its_place(tmp_path: Path) -> None:
    CONTINUOUS.write(tmp_path / "data")
    placed = [maker(d3ray.TD3)(seed=1).fit(place, 3).state()[0] for place in (tmp_path / "data", str(tmp_path / "data"))]
    given = maker(d3ray.TD3)(seed=1).fit(CONTINUOUS, 3).state()[0]
    assert all(same(state, given) for state in placed)
    assert repr(CONTINUOUS.episodes[0]).startswith(f"Episode({len(CONTINUOUS.episodes[0])} steps, return ")
