"""Suites as they come with d3ray, how they are overridden, and what is refused; the paper's settings by hand from its Table 4."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.catalog import catalog
from d3ray.data.catalog.download import Patience
from d3ray.data.catalog.local import prepare
from d3ray.data.errors import ConfigError, DataError
from d3ray.platform.benchmark import suite as suites
from d3ray.platform.benchmark.data import obtain
from d3ray.platform.benchmark.suite import SUITES, DatasetChoice, SuiteConfig, fits, read_suite, suite_names
from d3ray.platform.yaml_text import read_yaml

NAMES = suite_names()
TASKS, KINDS = ("halfcheetah", "hopper", "walker2d"), ("medium", "medium-replay", "medium-expert")
LOCOMOTION = [f"{task}-{kind}" for task in TASKS for kind in KINDS]


def suite(name: str, **said: Any) -> SuiteConfig:
    return SuiteConfig.checked({"suite": name, "plugins": [], **said}, title="benchmark")


def test_the_suites_are_those_that_are_promised() -> None:
    promised = {"d4rl-locomotion-v0", "d4rl-locomotion-v2", "d4rl-antmaze-v2", "d4rl-adroit", "d4rl-kitchen"}
    assert {*promised, "paper-table-2", "corl-v2", "mini", "micro", "gate", "discrete", "discrete-mini", "atari-replay"} <= set(
        NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_suite_is_whole(name: str) -> None:
    config, document = suite(name), read_yaml(SUITES / f"{name}.yaml")[0]
    assert config.about
    assert config.source
    assert set(document) <= set(SuiteConfig.model_fields)
    fewer = {"gate": 2, "ogbench-mini": 2 * 5 + 2 * 3, "ogbench-pixels": 5 + 3 + 11 * 4}
    assert len(config.cells()) == fewer.get(name, len(config.datasets) * len(config.algorithms))
    assert config.evaluation is not None
    assert len(config.definition()) <= 5000
    known = catalog()
    for dataset in config.datasets:
        assert known.find(dataset.name) is not None, dataset.name
        own = known.find(dataset.name)
        assert dataset.environment or (own and own.environment), f"nothing says where {dataset.name} is scored"
    for entry in document["algorithms"]:  # a setting without a preset needs a word on where it is from
        told = "preset" in entry or any("preset" in more for more in entry.get("on", {}).values())
        assert told or name in ("corl-v2", "discrete", "gate")


def test_the_datasets_are_those_of_the_tables() -> None:
    paper = [f"d4rl/{task}-{kind}-v0" for task in TASKS for kind in ("random", *KINDS)]
    assert sorted(one.label for one in suite("d4rl-locomotion-v0").datasets) == sorted(paper)
    assert sorted(one.label for one in suite("paper-table-2").datasets) == sorted(paper)
    for name in ("d4rl-locomotion-v2", "corl-v2"):
        assert sorted(one.label for one in suite(name).datasets) == sorted(f"d4rl/{task}-v2" for task in LOCOMOTION)
    assert {one.label for one in suite("d4rl-antmaze-v2").datasets} == {
        f"d4rl/antmaze-{maze}-v2"
        for maze in ("umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse")
    }
    with (SUITES / "published.csv").open() as file:
        published = {(row["source"], row["dataset"], row["algorithm"]) for row in csv.DictReader(file)}
    for name, source in (("paper-table-2", "d3rlpy"), ("corl-v2", "CORL")):  # every cell has a published score to stand beside
        missing = [c for c in suite(name).cells() if (source, c.dataset.removeprefix("d4rl/"), c.label) not in published]
        assert missing == []


ADAM, WIDE = 3e-4, [750, 750]
COLD = {"learn_temperature": False, "initial_temperature": 1e-20}
SOFT = {"tau": 5e-3, "target_update_interval": 1}
TABLE_4: dict[str, dict[str, Any]] = {  # Seno and Imai 2021, Table 4, and d3rlpy 1.0.0, reproductions/offline; typed by hand
    "SAC": {"actor_learning_rate": ADAM, "critic_learning_rate": ADAM, "batch_size": 256},
    "TD3": {"actor_learning_rate": ADAM, "critic_learning_rate": ADAM, "batch_size": 256, "update_actor_interval": 2},
    "AWAC": {"actor_learning_rate": ADAM, "batch_size": 1024, "lam": 1.0, "actor_encoder": [256] * 4},
    "BCQ": {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "batch_size": 100, "lam": 0.75, "imitator_encoder": WIDE},
    "BEAR": {"actor_learning_rate": 1e-4, "critic_learning_rate": ADAM, "batch_size": 256, "warmup_steps": 40_000, **COLD},
    "CQL": {
        "actor_learning_rate": 1e-4,
        "critic_learning_rate": ADAM,
        "critic_encoder": [256] * 3,
        "n_action_samples": 10,
        "learn_alpha": False,
        "backup": "mode",
    },
    "CRR": {"actor_learning_rate": ADAM, "weight_type": "binary", "advantage_type": "mean", "n_action_samples": 4, **SOFT},
    "PLAS": {"actor_learning_rate": 1e-4, "critic_learning_rate": 1e-3, "lam": 1.0, "warmup_steps": 500_000, "batch_size": 100},
    "PLASWithPerturbation": {"actor_learning_rate": 1e-4, "lam": 1.0, "warmup_steps": 500_000, "action_flexibility": 0.05},
    "TD3PlusBC": {"actor_learning_rate": ADAM, "batch_size": 256, "alpha": 2.5, "update_actor_interval": 2},
}


def test_the_papers_table_is_trained_as_its_table_4_says() -> None:
    config = suite("paper-table-2")
    assert (config.n_steps, config.seeds, len(config.cells())) == (500_000, (0, 1, 2), 120)
    assert config.evaluation is not None
    assert (config.evaluation.episodes, config.evaluation.every) == (10, 5_000)
    for cell in config.cells():
        decided = cell.config.configuration()["algorithm"]
        for name, value in TABLE_4[cell.label].items():
            found = decided[name]
            assert (found["hidden_units"] if isinstance(value, list) else found) == value, f"{cell.label}: {name}"
        if cell.label == "CQL":
            assert decided["conservative_weight"] == (10.0 if cell.dataset.endswith("-medium-v0") else 5.0), cell.dataset
        if cell.label == "BEAR":
            assert decided["mmd_kernel"] == ("gaussian" if "halfcheetah" in cell.dataset else "laplacian"), cell.dataset
        if cell.label.startswith("PLAS"):
            behaviour = [128, 128] if "medium-replay" in cell.dataset else WIDE
            assert decided["imitator_encoder"]["hidden_units"] == behaviour, cell.dataset
            assert cell.config.n_steps - decided["warmup_steps"] == 500_000  # of the policy, after those of the behaviour
        if cell.label == "TD3PlusBC":
            assert decided["observation_scaler"]["name"] == "standard"


def test_every_network_in_minatar_is_minatars() -> None:
    cells = [cell for cell in suite("discrete").cells() if cell.dataset.startswith("d3ray-minatar/")]
    for cell in cells:
        decided = cell.config.configuration()["algorithm"]
        networks = {name: value for name, value in decided.items() if name.endswith("encoder") and isinstance(value, dict)}
        assert networks, cell.label
        for name, network in networks.items():
            assert (network["name"], network["filters"], network["feature_size"]) == ("pixel", [[16, 3, 1]], 128), (
                cell.label,
                name,
            )
    kinds = {"full-replay", "medium", "expert"}
    assert {(cell.dataset.removeprefix("d3ray-minatar/breakout-"), cell.label) for cell in cells} == {
        (f"{kind}-v1", entry.label) for kind in kinds for entry in suite("discrete").algorithms
    }


def test_atari_replay_is_drawn_in_stacks_of_four_frames() -> None:
    found = [cell.config.configuration()["algorithm"] for cell in suite("atari-replay").cells()]
    assert {(one["sampler"]["frames"], one["observation_scaler"]["name"]) for one in found} == {(4, "pixel")}
    quantiles = [one for one in found if one.get("q_function", {}).get("name") == "qr"]
    told = ("learning_rate", "batch_size", "target_update_interval", "gamma")
    # reproductions/offline/qr_dqn.py and discrete_cql.py of d3rlpy, 0e6e9d8
    assert {tuple(one[name] for name in told) for one in quantiles} == {(5e-5, 32, 2000, 0.99)}
    assert {(one["q_function"]["n_quantiles"], one["optimizer"]["epsilon"]) for one in quantiles} == {(200, 3.125e-4)}
    assert {one["alpha"] for one in quantiles if one["name"] == "DiscreteCQL"} == {4.0}


def test_tables_of_the_same_runs_are_one_suite() -> None:
    for table in (3, 5, 6, 7):
        assert read_suite(f"paper-table-{table}")[0] == "paper-table-2"
        assert suite(f"paper-table-{table}").suite == suite(f"paper-table-{table}").experiment == "paper-table-2"


# ---- overriding


def test_names_and_patterns_choose_of_the_suite() -> None:
    config = suite("paper-table-2", datasets="hopper-*-v0", algorithms=["TD3*", "CQL"], n_steps=1_000, seeds=[7])
    assert [one.label for one in config.datasets] == [f"d4rl/hopper-{kind}-v0" for kind in ("random", *KINDS)]
    assert [entry.label for entry in config.algorithms] == ["TD3", "TD3PlusBC", "CQL"]  # of a pattern in the suite's order
    cells = {(cell.dataset, cell.label): cell.config for cell in config.cells()}
    assert cells["d4rl/hopper-medium-v0", "CQL"].algorithm.settings == {"conservative_weight": 10.0}  # as the suite has it
    assert {cell.config.n_steps for cell in config.cells()} == {1_000}
    assert config.seeds_per_trial == 1
    assert [one.label for one in suite("paper-table-2", datasets="walker2d-random-v0,hopper-random-v0").datasets] == [
        "d4rl/walker2d-random-v0",
        "d4rl/hopper-random-v0",
    ]


def test_what_a_suite_has_not_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "logs.d3ray").mkdir()
    mine = {"name": "IQL", "expectile": 0.9, "label": "IQL 0.9"}
    config = suite("micro", datasets=[str(tmp_path / "logs.d3ray"), "d4rl/hopper-medium-v2", "*"], algorithms=["IQL", mine, "SAC"])
    assert [one.label for one in config.datasets] == ["logs", "d4rl/hopper-medium-v2", "d3ray/pendulum-replay"]
    assert [(entry.label, entry.preset) for entry in config.algorithms] == [("IQL", "paper"), ("IQL 0.9", None), ("SAC", None)]


def test_settings_of_a_dataset_are_every_algorithms_that_says_nothing_else() -> None:
    config = suite("micro", algorithms=["BC", {"name": "IQL", "action_scaler": None, "label": "unscaled"}])
    assert [cell.config.algorithm.settings.get("action_scaler", "") for cell in config.cells()] == ["min_max", None]


def test_an_algorithm_may_act_otherwise_than_its_suite() -> None:
    config = suite("offline-to-online", online={"pretrain": 50_000, "n_envs": 4})
    found = {cell.label: cell.config.online for cell in config.cells()}
    assert [(label, one.pretrain, one.n_envs) for label, one in found.items() if one is not None] == [
        ("RLPD", 0, 4),
        ("CalQL", 50_000, 4),
        ("FQL", 50_000, 4),
        ("IQL", 50_000, 4),
    ]
    assert [cell.config.online for cell in suite("micro").cells()] == [None] * 3
    plain = suite("micro", online=2, algorithms=["IQL", {"name": "AWAC", "online": None}, {"name": "BC", "online": 3}])
    assert [cell.config.online and cell.config.online.n_envs for cell in plain.cells()] == [2, None, 3]
    again = SuiteConfig.checked(json.loads(config.model_dump_json()), title="benchmark")
    assert again.cells() == config.cells()
    assert config.protocol()["online"]["pretrain"] == 50_000
    assert "online" not in suite("micro").protocol()


def test_an_algorithm_may_be_for_some_datasets_only() -> None:
    config = suite("gate")
    assert {cell.dataset: cell.label for cell in config.cells()} == {"d3ray/cartpole-replay": "DQN", "d3ray/pendulum-replay": "TD3"}
    assert [cell.label for cell in suite("gate", datasets="pendulum*").cells()] == ["TD3"]
    with pytest.raises(ConfigError, match="none of the algorithms is for any of the datasets"):
        suite("gate", datasets="pendulum*", algorithms="DQN")
    with pytest.raises(
        ConfigError, match="DQN: only has 'd3ray/cartpole', which is no dataset; did you mean 'd3ray/cartpole-replay'"
    ):
        suite("gate", algorithms=[{"name": "DQN", "only": "d3ray/cartpole"}])


def test_what_is_told_goals_is_trained_on_the_data_of_all_five_tasks() -> None:
    cells = suite("ogbench-mini").cells()
    told = {(cell.dataset, cell.label): cell.config.evaluation for cell in cells if cell.label in ("GCBC", "GCIQL", "HIQL")}
    assert {dataset for dataset, _ in told} == {
        "d3ray-ogbench/pointmaze-medium-navigate-100k-v0",
        "d3ray-ogbench/cube-single-play-100k-v0",
    }
    assert {evaluation.environment.goals.tasks for evaluation in told.values()} == {(1, 2, 3, 4, 5)}  # pyright: ignore
    assert all("singletask" in cell.dataset for cell in cells if (cell.dataset, cell.label) not in told)
    with pytest.raises(ConfigError, match=r"GCBC: only has '\*-ply-100k-v0', which is no dataset"):
        suite("ogbench-mini", algorithms=[{"name": "GCBC", "only": ["*-navigate-100k-v0", "*-ply-100k-v0"]}])


def test_a_suite_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("datasets: [d3ray/pendulum-replay]\nalgorithms:\n  - {name: BC, action_scaler: min_max}\nn_steps: 20_000\n")
    config = suite(str(file))
    assert (config.suite_name, config.experiment, config.n_steps) == ("ours", "ours", 20_000)
    places = read_suite(str(file))[2]
    assert places["n_steps",] == f"{file}:4"
    file.write_text("suite: micro\n")
    with pytest.raises(ConfigError, match=r"ours.yaml:1: a suite has no base; give this file to --config"):
        suite(str(file))


def test_what_is_written_reads_back_as_the_same() -> None:
    config = suite("paper-table-2")
    again = SuiteConfig.checked(json.loads(config.model_dump_json()), title="benchmark")
    assert again == config
    assert again.cells() == config.cells()


def test_labels_tasks_and_patterns() -> None:
    assert DatasetChoice(name="d4rl/hopper-medium-v2").task == "hopper-medium"
    assert DatasetChoice(name="s3://bucket/walks/logs.d3ray/").label == "logs"
    assert DatasetChoice(name="s3://bucket/logs.d3ray").task == "logs"
    assert fits("d4rl/hopper-medium-v2", "hopper-*")
    assert fits("d4rl/hopper-medium-v2", "d4rl/*-v2")
    assert not fits("d4rl/hopper-medium-v2", "*-v0")


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "said", "sentence"),
    [
        ("mikro", {}, "There is no suite 'mikro'; did you mean 'micro'?"),
        ("paper-table-4", {}, "There is no suite 'paper-table-4'; did you mean 'paper-table-"),
        ("nowhere/ours.yaml", {}, "There is no config file 'nowhere/ours.yaml'"),
        ("micro", {"datasets": "pendulm-replay"}, "suite micro has the name 'pendulm-replay'; did you mean 'pendulum-replay'?"),
        (
            "micro",
            {"datasets": "d4rl/hoper-medium-v2"},
            "has the name 'd4rl/hoper-medium-v2'; did you mean 'd4rl/hopper-medium-v2'?",
        ),
        ("micro", {"datasets": "*-v7"}, "has the pattern '*-v7'; choose from 'd3ray/pendulum-replay'."),
        ("micro", {"algorithms": "TD3plusBC"}, "has the name 'TD3plusBC'; did you mean 'TD3PlusBC'?"),
        ("micro", {"algorithms": "SPTO"}, "has the name 'SPTO'; did you mean 'SPOT'?"),
        ("micro", {"algorithms": [{"name": "IQL", "expectil": 0.9}]}, "IQL has no setting 'expectil'; did you mean 'expectile'?"),
        ("micro", {"algorithms": [{"name": "IQL", "preset": "papre"}]}, "IQL has no preset 'papre'; did you mean 'paper'?"),
        ("micro", {"algorithms": ["IQL", {"name": "IQL"}]}, "algorithms has 'IQL' twice: give one a label."),
        ("micro", {"algorithms": [{"name": "IQL", "on": {"hoper-*": {}}}]}, "IQL: on has 'hoper-*', which is no dataset"),
        ("micro", {"algorithms": [{"name": "IQL", "only": 5}]}, "only is 5; it must be a list, as [5]"),
        ("micro", {"algorithms": [{"name": "IQL", "on": 5}]}, "on is 5; it must be a mapping"),
        ("micro", {"algorithms": [{"name": "IQL", "on": ["pendulum*"]}]}, "it must be a mapping"),
        (
            "micro",
            {"algorithms": [{"name": "IQL", "on": {"pendulum*": {"name": "BC"}}}]},
            "IQL: on 'pendulum*' has 'name', which is no setting: list another algorithm, with only: 'pendulum*'.",
        ),
        (
            "micro",
            {"datasets": [{"name": "d3ray/pendulum-replay", "settings": {"name": "BC"}}]},
            "datasets: d3ray/pendulum-replay: settings has 'name', which is for `algorithms`.",
        ),
        ("micro", {"datasets": []}, "datasets"),
        (
            "micro",
            {"evaluation": {"every": 150}},
            "evaluation.every is 150; it must be a multiple of n_steps_per_epoch, which is 100.",
        ),
        (
            "micro",
            {"online": {"pretrain": 150}},
            "online.pretrain is 150; it must be a multiple of n_steps_per_epoch, which is 100",
        ),
        ("micro", {"n_stepss": 1}, "has no setting 'n_stepss'; did you mean 'n_steps'?"),
    ],
)
def test_bad_input_ends_in_a_sentence(name: str, said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        suite(name, **said)
    assert sentence.lower() in str(error.value).lower()
    assert "\n" not in str(error.value)


def test_an_environment_that_is_not_installed_is_refused_before_anything_is_downloaded() -> None:
    with pytest.raises(ConfigError) as error:
        obtain(suite("d4rl-kitchen"))
    assert str(error.value).startswith("d4rl/kitchen-complete-v0: gymnasium knows no environment 'kitchen-complete-v0'")
    assert "d4rl-kitchen needs D4RL's own Kitchen" in str(error.value)


def test_a_plugin_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gymnasium_robotics", None)
    with pytest.raises(ConfigError) as error:
        SuiteConfig.checked({"suite": "d4rl-adroit"}, title="benchmark")
    assert "there is no plugin 'gymnasium_robotics'" in str(error.value)
    assert "pip install 'd3ray[robotics]' brings it" in str(error.value)


# ---- datasets that are not here


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two datasets whose files nobody serves."""
    entries = {f"team/{name}": {"files": [{"url": f"http://127.0.0.1:9/{name}.hdf5"}], "format": "d4rl"} for name in ("arm", "leg")}
    for entry in entries.values():
        entry["environment"] = {"id": "Pendulum-v1"}
    (tmp_path / "catalog.json").write_text(json.dumps({"entries": entries}))
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "catalog.json"))


def test_what_cannot_be_had_is_named_and_its_server_is_not_waited_for_twice(dead: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(name: str, entry: Any, *, patience: Any = None) -> Any:
        asked.append(6 if patience is None else patience.attempts)
        return prepare(name, entry, patience=patience or Patience(attempts=2, first_wait=0.0))

    monkeypatch.setattr("d3ray.platform.benchmark.data.prepare", counted)
    got = obtain(suite("micro", datasets=["team/arm", "team/leg", "*"]))
    assert list(got.found) == ["d3ray/pendulum-replay"]
    assert list(got.missing) == ["team/arm", "team/leg"]
    assert "http://127.0.0.1:9/arm.hdf5" in got.missing["team/arm"]
    assert asked == [6, 1]
    with pytest.raises(DataError, match=r"None of the datasets of micro can be had; team/arm: http://127\.0\.0\.1:9/arm\.hdf5"):
        obtain(suite("micro", datasets=["team/arm"]))
    here = obtain(suite("micro", datasets=["team/arm", "*"]), only_here=True)
    assert here.missing == {"team/arm": "team/arm is not on this machine yet."}
    nothing = obtain(suite("micro", datasets=["team/arm"]), only_here=True)  # a plan goes on
    assert (nothing.found, list(nothing.missing)) == ({}, ["team/arm"])


def test_a_definition_has_what_is_said_of_datasets() -> None:
    pendulum = {"name": "d3ray/pendulum-replay", "environment": "Acrobot-v1", "settings": {"gamma": 0.5}}
    said = json.loads(suite("micro", datasets=[pendulum, "d3ray/cartpole-replay"], algorithms="DQN", evaluation=None).definition())
    assert said["datasets"] == ["d3ray/pendulum-replay", "d3ray/cartpole-replay"]
    assert said["on_datasets"] == {pendulum["name"]: {name: pendulum[name] for name in ("environment", "settings")}}
    assert "on_datasets" not in suite("gate").described()


def test_definitions_that_are_too_long_are_told_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    config = suite("corl-v2")
    assert json.loads(config.definition())["algorithms"][0]["preset"] == "d3rlpy"
    monkeypatch.setattr(suites, "_MOST", 1500)
    short = json.loads(config.definition())
    assert short["algorithms"][:2] == ["BC", "10% BC"]
    assert config.described()["algorithms"][0]["preset"] == "d3rlpy"
    assert len(config.definition()) <= 1500
