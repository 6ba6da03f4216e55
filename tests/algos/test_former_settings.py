"""Settings that had another name once: what was written with it is read, in Python and from files."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.base import clone

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.imitation.bc import BC
from d3ray.algos.online.run import OnlineRun
from d3ray.algos.registry import algorithm_class, make_algorithm
from d3ray.algos.values.dqn import DQN
from d3ray.d3rlpy import algos as like_d3rlpy
from d3ray.data.config import recorded
from d3ray.data.errors import ConfigError

DATA = testing.tiny_dataset(discrete=False)
PRESENT = {True: "bfloat16", False: "float32"}


@pytest.mark.parametrize("was", [True, False])
def test_the_former_name_is_understood(was: bool) -> None:
    made = [
        TD3PlusBC(mixed_precision=was),
        TD3PlusBC.from_preset("paper", mixed_precision=was),
        TD3PlusBC(matmul_precision="tf32").set_params(mixed_precision=was),
        clone(TD3PlusBC(mixed_precision=was)),
        make_algorithm({"name": "TD3PlusBC", "preset": "paper", "mixed_precision": was}),
        TD3PlusBC(mixed_precision=was, matmul_precision=PRESENT[was]),
        like_d3rlpy.DQN(mixed_precision=was),
        like_d3rlpy.DQNConfig(mixed_precision=was).create(),
    ]
    assert {one.check_settings().matmul_precision for one in made} == {PRESENT[was]}
    assert TD3PlusBC.Config.checked({"mixed_precision": was}).matmul_precision == PRESENT[was]
    assert like_d3rlpy.DQN(mixed_precision=was).get_params() == like_d3rlpy.DQN(matmul_precision=PRESENT[was]).get_params()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"mixed_precision": "tf32"},
            r"^mixed_precision is 'tf32'; it is called matmul_precision now: write 'float32', which was False or 'bfloat16', which "
            r"was True\.$",
        ),
        (
            {"mixed_precision": False, "matmul_precision": "tf32"},
            r"^mixed_precision is False, which is called matmul_precision 'float32' now, and matmul_precision is 'tf32': say one "
            r"of them\.$",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TD3PlusBC(**settings)
    with pytest.raises(ConfigError, match=f"TD3PlusBC: {said[1:]}"):
        TD3PlusBC.Config.checked(settings, title="TD3PlusBC")


def in_former_words(config: dict[str, Any]) -> dict[str, Any]:
    """A config as it was written before."""
    was = {name: value for name, value in config.items() if name != "matmul_precision"}
    was["q_function"] = {name: value for name, value in was["q_function"].items() if name != "loss"}
    return {**was, "mixed_precision": config["matmul_precision"] == "bfloat16"}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_state_that_was_written_before_goes_on(precision: str) -> None:
    make = testing.maker(TD3PlusBC, matmul_precision=precision)
    tensors, meta = make(seed=1).fit(DATA, 4, 4).state()
    again = make(seed=1).load_state(tensors, {**meta, "config": in_former_words(meta["config"])})
    assert again.config_.matmul_precision == precision
    where, gap = testing.largest_difference(again.fit(DATA, 4, 4).state()[0], make(seed=1).fit(DATA, 8, 4).state()[0])
    assert gap == 0, where


OF_NO_EFFECT: dict[str, dict[str, Any]] = {  # what once stood in a config, beside what stands there now
    "BC": {"gamma": 0.99, "td_steps": 1, "reward_scaler": None},
    "DecisionTransformer": {"gamma": 0.99, "td_steps": 1},
    "ProbabilisticEnsemble": {"gamma": 0.99, "td_steps": 1},
    "FQE": {"td_steps": 1, "dynamics": None, "rollouts": {"horizon": 5, "n_transitions": 400, "interval": 1000}},
    "NFQ": {"tau": 1.0, "target_update_interval": 8000},
    "PPO": {"td_steps": 1, "sampler": None},
    "REINFORCE": {"td_steps": 1, "sampler": None, "update_interval": 2048},
    "TRPO": {"td_steps": 1, "sampler": None, "sequence_length": None},
}


@pytest.mark.parametrize("name", OF_NO_EFFECT)
def test_settings_of_no_effect_are_no_settings_any_more_and_old_configs_are_read(name: str) -> None:
    algorithm, once = algorithm_class(name), OF_NO_EFFECT[name]
    assert not algorithm.Config.model_fields.keys() & once.keys()
    config = algorithm.Config()
    assert algorithm.read_config({**config.model_dump(mode="json"), **once}) == config
    assert recorded(config).items() >= {k: v for k, v in once.items() if k not in ("dynamics", "rollouts")}.items()


def test_a_value_that_changed_nothing_is_left_out_and_one_that_never_was_is_refused() -> None:
    with pytest.warns(UserWarning, match="BC has no setting 'gamma', which changed nothing: 0.5 is left out"):
        assert BC(gamma=0.5).check_settings() == BC.Config()
    for name, given in {"PPO": {"sampler": "prioritized"}, "DecisionTransformer": {"td_steps": 3}}.items():
        with pytest.raises(ConfigError, match=f"{name} has no setting '{next(iter(given))}'"):
            algorithm_class(name)(**given).check_settings()
    with pytest.raises(ConfigError, match="gamma is 7"):
        BC(gamma=7.0).check_settings()


def test_a_state_with_a_setting_of_no_effect_goes_on() -> None:
    make = testing.maker(algorithm_class("BC"))
    tensors, meta = make(seed=1).fit(DATA, 4, 4).state()
    before = {**meta, "config": {**meta["config"], **OF_NO_EFFECT["BC"]}}
    again = make(seed=1).load_state({**tensors, "hyper/gamma": torch.tensor([0.99], dtype=torch.float64)}, before)
    where, gap = testing.largest_difference(again.fit(DATA, 4, 4).state()[0], make(seed=1).fit(DATA, 8, 4).state()[0])
    assert gap == 0, where


def test_an_online_run_that_was_written_before_goes_on() -> None:
    make = testing.maker(DQN, matmul_precision="bfloat16")
    run = OnlineRun(make(seed=1), "CartPole-v1")
    for _ in range(3):
        run.step()
    tensors, meta = run.state()
    run.close()
    online = {**meta["online"], "algorithm": in_former_words(meta["online"]["algorithm"])}
    before = {**meta, "config": in_former_words(meta["config"]), "online": online}
    for asked in (None, online["algorithm"]):
        again = OnlineRun.going_on(tensors, before, make(seed=1), "CartPole-v1", asked=asked)
        assert again.state()[1] == meta
        again.close()
    with pytest.raises(ConfigError, match="was begun with matmul_precision 'bfloat16', not 'float32'"):
        OnlineRun.going_on(tensors, before, testing.maker(DQN)(seed=1), "CartPole-v1")


@pytest.mark.parametrize("name", ["DiscreteIQL", "DiscreteCRR", "DiscreteFQE", "DQN"])
def test_critics_of_discrete_actions_that_were_trained_before_keep_their_huber_loss(name: str) -> None:
    huber = testing.maker(algorithm_class(name), q_function={"name": "mean", "loss": "huber"})
    data = testing.tiny_dataset(discrete=True)
    tensors, meta = huber(seed=1).fit(data, 4, 4).state()
    again = testing.maker(algorithm_class(name))(seed=1).load_state(tensors, {**meta, "config": in_former_words(meta["config"])})
    assert again.config_.q_function.is_huber(discrete=True)
    where, gap = testing.largest_difference(again.fit(data, 4, 4).state()[0], huber(seed=1).fit(data, 8, 4).state()[0])
    assert gap == 0, where
