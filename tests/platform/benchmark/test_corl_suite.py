"""The suite `corl-v2` beside CORL's own configurations, typed from tinkoff-ai/CORL at 6afec90: configs/offline and its programs."""

from __future__ import annotations

from typing import Any

import pytest

from d3ray.platform.benchmark.suite import SuiteConfig

TASKS, KINDS = ("halfcheetah", "hopper", "walker2d"), ("medium", "medium-replay", "medium-expert")
DATASETS = [f"{task}-{kind}" for task in TASKS for kind in KINDS]
TWO, THREE = [256, 256], [256, 256, 256]
SCALED = {"name": "return_based", "multiplier": 1000.0}  # modify_reward: 1,000 over the range of returns

# What is the same on all nine datasets, by the names that d3ray has for it.
EVERYWHERE: dict[str, dict[str, Any]] = {
    "BC": {"learning_rate": 3e-4, "batch_size": 256, "encoder": TWO, "observation_scaler": "standard", "sampler": None},
    "10% BC": {"learning_rate": 3e-4, "batch_size": 256, "encoder": TWO, "observation_scaler": "standard"},
    "TD3PlusBC": {
        "alpha": 2.5, "batch_size": 256, "gamma": 0.99, "tau": 0.005, "target_smoothing_sigma": 0.2, "target_smoothing_clip": 0.5,
        "update_actor_interval": 2, "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "actor_encoder": TWO,
        "critic_encoder": TWO, "observation_scaler": "standard", "reward_scaler": None,
    },
    "AWAC": {
        "lam": 0.3333, "batch_size": 256, "gamma": 0.99, "tau": 0.005, "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4,
        "weighting": "exp", "max_weight": 100.0, "n_action_samples": 1, "actor_encoder": THREE, "critic_encoder": THREE,
        "observation_scaler": "standard", "reward_scaler": None, "weight_decay": 0.0,
    },
    "CQL": {
        "conservative_weight": 10.0, "batch_size": 256, "gamma": 0.99, "tau": 0.005, "actor_learning_rate": 3e-5,
        "temp_learning_rate": 3e-5, "critic_learning_rate": 3e-4, "n_action_samples": 10, "importance_sampling": True,
        "learn_alpha": False, "backup": "sampled", "cloning_steps": 0, "learn_temperature": True, "log_std_bounds": [-20.0, 2.0],
        "actor_encoder": THREE, "critic_encoder": THREE, "observation_scaler": "standard",
    },
    "IQL": {
        "batch_size": 256, "gamma": 0.99, "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "value_learning_rate": 3e-4,
        "max_weight": 100.0, "log_std_bounds": [-20.0, 2.0], "state_dependent_std": False, "observation_scaler": "standard",
        "actor_encoder": TWO, "critic_encoder": TWO, "value_encoder": TWO, "duration": 1_000_000,
    },
    "SACN": {
        "batch_size": 256, "gamma": 0.99, "tau": 0.005, "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4,
        "temp_learning_rate": 3e-4, "actor_encoder": THREE, "critic_encoder": THREE, "log_std_bounds": [-5.0, 2.0],
        "observation_scaler": None, "reward_scaler": None,
    },
    "EDAC": {
        "batch_size": 256, "gamma": 0.99, "tau": 0.005, "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4,
        "temp_learning_rate": 3e-4, "actor_encoder": THREE, "critic_encoder": THREE, "log_std_bounds": [-5.0, 2.0],
        "observation_scaler": None, "reward_scaler": None,
    },
}  # fmt: skip

# beta, iql_tau, iql_deterministic, tau and normalize_reward of iql; num_critics of sac_n; num_critics and eta of edac;
# normalize_reward of cql.
BY_DATASET: dict[str, tuple[tuple[float, float, bool, float, bool], int, tuple[int, float], bool]] = {
    "halfcheetah-medium": ((3.0, 0.7, False, 0.005, False), 10, (10, 1.0), False),
    "halfcheetah-medium-replay": ((3.0, 0.7, False, 0.005, False), 10, (10, 1.0), False),
    "halfcheetah-medium-expert": ((3.0, 0.7, False, 0.005, False), 10, (10, 5.0), False),
    "hopper-medium": ((3.0, 0.7, True, 0.001, True), 500, (50, 1.0), True),
    "hopper-medium-replay": ((3.0, 0.7, True, 0.001, True), 200, (50, 1.0), False),
    "hopper-medium-expert": ((6.0, 0.5, False, 0.005, False), 200, (50, 1.0), False),
    "walker2d-medium": ((3.0, 0.7, False, 0.005, False), 20, (10, 1.0), False),
    "walker2d-medium-replay": ((3.0, 0.7, False, 0.005, False), 20, (10, 1.0), False),
    "walker2d-medium-expert": ((3.0, 0.7, False, 0.005, False), 20, (10, 5.0), False),
}


def on(dataset: str) -> dict[str, dict[str, Any]]:
    """CORL's values of each algorithm on a dataset."""
    (beta, expectile, deterministic, tau, scaled), n_sac, (n_edac, eta), cql_scaled = BY_DATASET[dataset]
    more: dict[str, dict[str, Any]] = {
        "IQL": {
            "weight_temp": beta,
            "expectile": expectile,
            "policy_type": "deterministic" if deterministic else "stochastic",
            "tau": tau,
            "reward_scaler": SCALED if scaled else None,
        },
        "SACN": {"n_critics": n_sac},
        "EDAC": {"n_critics": n_edac, "eta": eta},
        "CQL": {"reward_scaler": SCALED if cql_scaled else None},
    }
    return {label: {**values, **more.get(label, {})} for label, values in EVERYWHERE.items()}


@pytest.fixture(scope="module")
def suite() -> SuiteConfig:
    return SuiteConfig.checked({"suite": "corl-v2"}, title="benchmark")


@pytest.fixture(scope="module")
def decided(suite: SuiteConfig) -> dict[tuple[str, str], dict[str, Any]]:
    """Every setting of every cell, as a trial is told."""
    return {(c.dataset[len("d4rl/") : -len("-v2")], c.label): c.config.configuration()["algorithm"] for c in suite.cells()}


def found(settings: dict[str, Any], name: str) -> Any:
    """A setting in the table's terms: an encoder as its layers, a scaler as its name where nothing else counts."""
    if name in ("weight_decay", "duration"):
        optimizer = settings["actor_optimizer"]
        return optimizer["weight_decay"] if name == "weight_decay" else optimizer["schedule"]["duration"]
    value = settings[name]
    if name.endswith("encoder"):
        return value["hidden_units"]
    if name == "reward_scaler" and value is not None:
        return {key: value[key] for key in SCALED}
    return value["name"] if name == "observation_scaler" and value is not None else value


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_cell_has_the_settings_of_corls_configuration(decided: dict[tuple[str, str], dict[str, Any]], dataset: str) -> None:
    for label, expected in on(dataset).items():
        assert {name: found(decided[dataset, label], name) for name in expected} == expected, label


def test_ten_percent_is_of_the_episodes(decided: dict[tuple[str, str], dict[str, Any]]) -> None:
    samplers = [decided[dataset, "10% BC"]["sampler"] for dataset in DATASETS]
    assert {(one["by"], one["share"], one["share_of"]) for one in samplers} == {("top", 0.1, "episodes")}


def test_steps_and_evaluations(suite: SuiteConfig) -> None:
    steps = {"SACN": 3_000_000, "EDAC": 3_000_000, "DecisionTransformer": 100_000}
    assert {(c.label, c.config.n_steps) for c in suite.cells()} == {
        (entry.label, steps.get(entry.label, 1_000_000)) for entry in suite.algorithms
    }
    assert suite.evaluation is not None
    assert (suite.evaluation.episodes, suite.evaluation.every, len(suite.seeds)) == (10, 5_000, 4)
