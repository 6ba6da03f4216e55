"""d3rlpy 2.8.1's files become the same algorithm here, and nothing in them is run.

`tests/algos/saving/record_d3.py` made the files, with small networks, and wrote down what d3rlpy answers.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d3ray
from d3ray.data.batch import Batch
from d3ray.data.errors import ConfigError, DataError

FILES = Path(__file__).parent / "d3_files"
GOLDEN: dict[str, Any] = json.loads((FILES / "golden.json").read_text())
READ = [name for name in GOLDEN if name != "prdc"]
DISCRETE = [name for name in READ if isinstance(GOLDEN[name]["actions"][0][0], int)]


def loaded(name: str, device: str | None = "cpu") -> Any:
    return d3ray.load(FILES / f"{name}.d3", device)


def arrays(name: str) -> dict[str, Any]:
    kinds = {"observations": np.uint8 if name.endswith("pixel") else np.float32}
    return {key: np.asarray(value, kinds.get(key, np.float32)) for key, value in GOLDEN[name].items() if key != "batch"}


def random_data(*, discrete: bool = False) -> d3ray.Dataset:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, 300) if discrete else rng.uniform(-0.9, 0.9, (300, 2)).astype(np.float32)
    return d3ray.Dataset.from_arrays(rng.normal(size=(300, 3)), actions, rng.normal(size=300), np.arange(300) % 30 == 29)


@pytest.mark.parametrize("name", READ)
def test_what_is_loaded_answers_as_d3rlpy_does(name: str) -> None:
    algorithm, golden = loaded(name), arrays(name)
    if name.endswith("transformer"):
        actor = algorithm.as_stateful_wrapper(2.0)
        did = [actor.predict(x, reward) for x, reward in zip(golden["observations"], golden["rewards"], strict=True)]
        np.testing.assert_allclose(did, golden["predict"], rtol=0, atol=1e-5)
    elif "predict" in golden:  # others choose among draws
        np.testing.assert_allclose(algorithm.predict(golden["observations"]), golden["predict"], rtol=0, atol=1e-5)
    if "predict_value" in golden and name != "dqn_iqn":  # whose expected values take other fractions here
        actions = golden["actions"][:, 0].astype(np.int64) if name in DISCRETE else golden["actions"]
        values = algorithm.predict_value(golden["observations"], actions)
        np.testing.assert_allclose(values, golden["predict_value"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bc", "td3_plus_bc"])
def test_the_next_update_is_d3rlpys(name: str) -> None:
    """Which takes the optimisers' moments, their counts, the targets and the gradient step: TD3+BC's actor is due at step 3."""
    algorithm, golden = loaded(name), arrays(name)
    assert algorithm.step == 3
    parts = {key: torch.tensor(value) for key, value in GOLDEN[name]["batch"].items()}
    reward, ends = parts["rewards"][:, 0], parts["terminals"][:, 0]
    algorithm.update(
        Batch(
            parts["observations"],
            parts["actions"],
            reward,
            parts["next_observations"],
            0.99 * (1 - ends),
            torch.arange(len(reward)),
        )
    )
    seen, actions = golden["observations"], golden["actions"]
    np.testing.assert_allclose(algorithm.predict(seen), golden["predict_after"], rtol=0, atol=1e-5)
    assert np.abs(golden["predict_after"] - golden["predict"]).max() > 1e-4
    if name != "bc":
        np.testing.assert_allclose(algorithm.predict_value(seen, actions), golden["predict_value_after"], rtol=0, atol=1e-5)
        assert np.abs(golden["predict_value_after"] - golden["predict_value"]).max() > 1e-4


@pytest.mark.parametrize("name", READ)
def test_what_is_loaded_trains_on_and_is_saved(name: str, tmp_path: Path) -> None:
    algorithm = loaded(name)
    assert algorithm.step == 3
    if not name.endswith("pixel"):
        algorithm.fit(random_data(discrete=name in DISCRETE), 4)
        assert algorithm.step == 7
    algorithm.save(tmp_path / "saved")
    tensors, again = algorithm.state()[0], d3ray.load(tmp_path / "saved", "cpu").state()[0]
    assert all(torch.equal(tensor, again[key]) for key, tensor in tensors.items())


def test_settings_are_taken_over() -> None:
    rich = loaded("td3_plus_bc_rich").config_
    assert (rich.gamma, rich.alpha, rich.n_critics, rich.batch_size, rich.update_actor_interval) == (0.9, 1.5, 3, 256, 2)
    assert (rich.observation_scaler.label, rich.action_scaler.label) == ("standard", "min_max")
    assert (rich.reward_scaler.label, rich.reward_scaler.multiplier) == ("return_based", 10.0)
    assert rich.reward_scaler.return_max is not None
    actor, critic = rich.actor_optimizer, rich.critic_optimizer
    assert (actor.name, actor.weight_decay) == ("adamw", 1e-3)
    assert (actor.schedule.name, actor.schedule.duration) == ("cosine", 100)  # 50 steps of the actor, which steps every other time
    assert (critic.name, critic.alpha, critic.centered, critic.epsilon, critic.max_grad_norm) == ("rmsprop", 0.95, True, 1e-2, 5.0)
    assert (critic.schedule.name, critic.schedule.warm_up) == ("warm_up", 20)
    layers = rich.actor_encoder
    assert (layers.activation, layers.normalization, layers.dropout_rate) == ("silu", "batch", 0.1)
    assert (rich.critic_encoder.normalization, rich.critic_encoder.last_activation) == ("layer", "tanh")
    sac = loaded("sac_rich").config_
    assert (sac.learn_temperature, sac.share_encoder, sac.q_function.name, sac.q_function.n_quantiles) == (False, True, "qr", 5)
    assert (sac.actor_optimizer.name, sac.actor_optimizer.momentum) == ("sgd", 0.9)
    assert (loaded("iql").config_.expectile, loaded("iql").config_.actor_optimizer.amsgrad) == (0.8, True)


def test_a_temperature_and_a_deviation_mean_the_same_as_in_d3rlpy() -> None:
    states = torch.load(io.BytesIO(pickle.loads((FILES / "sac.d3").read_bytes())["torch"]), weights_only=True)
    sac = loaded("sac")
    temperature = sac.config_.initial_temperature * sac.fit_.nets().temperature()
    assert float(temperature.detach()) == pytest.approx(float(states["log_temp"]["_parameter"].exp()), rel=1e-6)
    assert float(temperature.detach()) != pytest.approx(0.5, rel=1e-6)  # it has been learnt since
    states = torch.load(io.BytesIO(pickle.loads((FILES / "iql.d3").read_bytes())["torch"]), weights_only=True)
    deviation = (-5.0 + 7.0 * states["policy"]["_logstd"].sigmoid()).reshape(-1)
    assert torch.allclose(loaded("iql").state()[0]["live/policy/log_std"], deviation)


def test_every_tensor_of_the_state_comes_from_the_file() -> None:
    """Of each algorithm: no network, target or optimiser is left as it began."""
    for name in READ:
        tensors, _ = loaded(name).state()
        fresh = d3ray.load(FILES / f"{name}.d3", "cpu")
        begun, _ = type(fresh)(**fresh.get_params()).create_impl(fresh.observation_shape, fresh.action_size).state()
        for key, tensor in begun.items():
            constant = key.startswith("hyper/") or key.endswith(("running_mean", "running_var"))
            assert constant or not torch.equal(tensor, tensors[key]), f"{name}: {key}"
        stepped = {key.split("/")[1] for key in tensors if key.startswith("optimizer/")}
        assert stepped == set(fresh.fit_.learner.networks), name


# ---- what is refused


class Calls:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def parts_of(name: str) -> dict[str, Any]:
    return pickle.loads((FILES / f"{name}.d3").read_bytes())


def write(path: Path, parts: Any, **change: Any) -> Path:
    path.write_bytes(pickle.dumps({**parts, **change}))
    return path


def refused(path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        d3ray.load(path, "cpu")
    text = str(caught.value)
    assert path.name in text
    assert "\n" not in text
    assert text.endswith(".")


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    ran, parts = tmp_path / "ran", parts_of("bc")
    evil = Calls(os.system, f"touch {ran}")
    refused(write(tmp_path / "outer.d3", parts, extra=evil), "names .*system; only NumPy arrays and plain containers")
    states = torch.load(io.BytesIO(parts["torch"]), weights_only=True)
    stream = io.BytesIO()
    torch.save({**states, "extra": evil}, stream)
    refused(write(tmp_path / "inner.d3", parts, torch=stream.getvalue()), "names .*system; only NumPy arrays and plain containers")
    assert not ran.exists()
    pickle.loads((tmp_path / "outer.d3").read_bytes())
    assert ran.exists()  # the file is what it claims to be


def configured(name: str, change: Any) -> dict[str, Any]:
    parts = parts_of(name)
    config = json.loads(parts["config"])
    change(config)
    return {**parts, "config": json.dumps(config)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c["config"].update(type="tacr"),
            "holds the algorithm 'tacr'; those that are read are 'awac', 'bc', 'bcq', ",
        ),
        (lambda c: c["config"]["params"].update(beta=1.0), "a setting 'beta' of 'td3_plus_bc' that is not known"),
        (lambda c: c["config"]["params"]["actor_encoder_factory"].update(type="simba"), "an encoder 'simba', which there is not"),
        (lambda c: c["config"]["params"]["actor_encoder_factory"]["params"].update(activation="geglu"), "an activation 'geglu'"),
        (lambda c: c["config"]["params"]["actor_encoder_factory"]["params"].update(width=3), "'width' of the encoder 'vector'"),
        (lambda c: c["config"]["params"]["actor_optim_factory"].update(type="gpt_adam_w"), "an optimizer 'gpt_adam_w'"),
        (lambda c: c["config"]["params"].update(observation_scaler={"type": "tuple", "params": {}}), "observation scaler 'tuple'"),
        (lambda c: c["config"]["params"].update(tau=2.0), "TD3PlusBC: tau is 2.0"),
        (lambda c: c["config"]["params"].update(n_critics=3), "has the shape .*, and '.*' is"),
        (
            lambda c: c["config"]["params"]["actor_encoder_factory"]["params"].update(hidden_units=[9, 7]),
            "of the policy has the shape",
        ),
        (lambda c: c["config"]["params"]["actor_encoder_factory"]["params"].update(hidden_units=[8]), "the policy"),
        (lambda c: c["config"]["params"]["actor_encoder_factory"]["params"].update(hidden_units=[8, 7, 7]), "there is nothing for"),
        (lambda c: c["config"]["params"]["critic_encoder_factory"]["params"].update(use_layer_norm=True), "the critic"),
        (lambda c: c.update(observation_shape=[[3], [2]]), "several parts"),
        (lambda c: c.update(action_size=3), "has the shape"),
        (
            lambda c: c["config"]["params"]["critic_encoder_factory"]["params"].update(hidden_units=[3000, 3000]),
            r"its settings ask for 18,\d{3},\d{3} parameters, and the file has",
        ),
        (lambda c: c.pop("config"), "its parts do not fit together"),
        (lambda c: c.update(observation_shape=None), "its parts do not fit together"),
    ],
)
def test_settings_that_there_are_not_here_are_named(tmp_path: Path, change: Any, message: str) -> None:
    refused(write(tmp_path / "changed.d3", configured("td3_plus_bc", change)), message)


def test_settings_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    def wide(config: Any) -> None:
        config["config"]["params"]["critic_encoder_factory"]["params"].update(hidden_units=[1 << 16, 1 << 16])

    refused(write(tmp_path / "wide.d3", configured("td3_plus_bc", wide)), "its settings ask for ")


def test_settings_nested_deeply_are_refused(tmp_path: Path) -> None:
    refused(write(tmp_path / "deep.d3", parts_of("bc"), config="[" * 100_000 + "]" * 100_000), "nested too deeply")


def test_other_algorithms_of_d3rlpys_are_refused() -> None:
    refused(FILES / "prdc.d3", "holds the algorithm 'prdc'")


@pytest.mark.parametrize("version", ["1.1.1", "2.8.0", "3.0.0"])
def test_other_versions_are_refused(tmp_path: Path, version: str) -> None:
    refused(write(tmp_path / "old.d3", parts_of("bc"), version=version), f"written by d3rlpy {version}; files of 2.8.1 are read")


def test_damaged_files_are_refused_wherever_they_were_cut(tmp_path: Path) -> None:
    whole, file = (FILES / "bc.d3").read_bytes(), tmp_path / "cut.d3"
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(file, r"cut\.d3")
    weight = parts_of("bc")["torch"].index(b"PK")  # the archive's first member
    broken = bytearray(whole)
    at = whole.index(parts_of("bc")["torch"]) + weight + len(parts_of("bc")["torch"]) // 2
    broken[at] ^= 0xFF
    file.write_bytes(bytes(broken))
    with pytest.raises(DataError):
        d3ray.load(file)
    (tmp_path / "text.d3").write_text("hello")
    refused(tmp_path / "text.d3", "holds more than arrays and plain containers")
    refused(write(tmp_path / "other.d3", {"weights": [1.0]}), "has not the parts torch, config and version")
    states = torch.load(io.BytesIO(parts_of("bc")["torch"]), weights_only=True)
    stream = io.BytesIO()
    torch.save({name: state for name, state in states.items() if name != "imitator"}, stream)
    refused(write(tmp_path / "lacks.d3", parts_of("bc"), torch=stream.getvalue()), "it lacks policy or transformer or imitator")


def test_a_file_of_another_algorithm_than_was_asked_for_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bc\.d3 holds a BC, not a SAC"):
        d3ray.SAC.load(FILES / "bc.d3")
