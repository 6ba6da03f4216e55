"""Settings as data: what is wrong with them, all of it, and of what form they are; no plugin is imported to find out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from d3ray import experiments
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.data.errors import ConfigError
from d3ray.platform.settings.config import ExperimentConfig

DATA: dict[str, Any] = {"dataset": "d3ray/cartpole-replay", "algorithm": "DQN"}


@pytest.mark.parametrize(
    ("job", "given", "found"),
    [
        ("train", {}, {}),
        ("train", {"n_steps": "x", "seeds": "0", "nam": "y"}, {"n_steps": "whole number", "seeds": "as [0]", "nam": "'name'"}),
        (
            "train",  # of the algorithm, one by one, beside what else is wrong
            {"algorithm": {"name": "DQN", "gama": 1, "batch_size": 0}, "n_steps": 0},
            {"algorithm.gama": "did you mean 'gamma'?", "algorithm.batch_size": "greater than 0", "n_steps": "greater than 0"},
        ),
        ("train", {"algorithm": "DQM"}, {"": "did you mean 'DQN'?"}),
        ("train", {"name": "../../etc"}, {"name": "cannot be a folder's"}),
        ("train", {"search": {}}, {"search": "no setting 'search'"}),
        ("sweep", {}, {"search": "needs 'search'"}),
        ("sweep", {"search": {"algorithm.gamma": {"uniform": [0, 1]}}, "evaluation": None}, {"": "objective.metric"}),
    ],
)
def test_everything_that_is_wrong_is_said(job: Any, given: dict[str, Any], found: dict[str, str]) -> None:
    problems = {one.setting: one.sentence for one in experiments.problems({**DATA, **given}, job=job)}
    assert problems.keys() == found.keys()
    assert [part for name, part in found.items() if part not in problems[name]] == []
    if found:
        with pytest.raises(ConfigError, match="^" + next(iter(problems.values()))[:20].replace("[", ".").replace("(", ".")):
            experiments.check({**DATA, **given}, job=job)


def test_what_is_right_comes_with_its_defaults(tmp_path: Path) -> None:
    found = experiments.check({**DATA, "storage": str(tmp_path), "n_steps": 20})
    assert (found.name, found.storage, found.plugins) == ("DQN-cartpole-replay", str(tmp_path), [])
    assert (found.config["n_steps"], found.config["n_steps_per_epoch"], found.config["retries"]) == (20, 10_000, 3)
    assert ExperimentConfig.checked(found.config).model_dump(mode="json") == found.config
    suite = experiments.check({"suite": "micro"}, job="benchmark")
    assert (suite.job, suite.name, suite.files) == ("benchmark", "micro", [])


def test_a_plugin_is_imported_by_another_process(tmp_path: Path) -> None:
    (tmp_path / "plugin_of_configs.py").write_text(
        "from d3ray import DQN\nfrom d3ray.algos.registry import register_algorithm\n"
        "@register_algorithm\nclass OwnOfConfigs(DQN):\n    pass\nprint('what a plugin prints')\n"
    )
    given = {**DATA, "algorithm": "OwnOfConfigs", "plugins": ["plugin_of_configs"]}
    assert experiments.check(given, working_directory=str(tmp_path)).plugins == ["plugin_of_configs"]
    (problem,) = experiments.problems({**given, "plugins": ["plugin_of_nobody"]}, working_directory=str(tmp_path))
    assert "here is no plugin 'plugin_of_nobody'" in problem.sentence
    assert "plugin_of_configs" not in sys.modules
    assert "OwnOfConfigs" not in algorithm_names()


def test_every_schema_takes_its_own_defaults() -> None:
    for name in [name for name in experiments.algorithms() if not name.startswith("rllib/")]:
        about = experiments.algorithm(name)
        validator = jsonschema.Draft202012Validator(about.settings)
        defaults = algorithm_class(name).Config().model_dump(mode="json")
        assert [error.message for error in validator.iter_errors(defaults)] == [], name
        assert about.presets.keys() == about.preset_sources.keys()
        json.dumps(about.presets)
    schema = experiments.algorithm("IQL").settings
    jsonschema.Draft202012Validator.check_schema(schema)
    own = {"name": "keys", "encoders": {"depth": {"name": "pixel"}}, "hidden_units": [8]}
    wrong = {"actor_encoder": {"name": "nothing"}, "value_encoder": {"name": "vector", "hidden_units": 8}, "expectil": 0.8}
    assert list(jsonschema.Draft202012Validator(schema).iter_errors({"actor_encoder": own})) == []
    assert len(list(jsonschema.Draft202012Validator(schema).iter_errors(wrong))) == 3
    for job in ("train", "sweep", "benchmark"):
        jsonschema.Draft202012Validator.check_schema(experiments.schema(job))
    assert "gradient steps" in experiments.schema()["properties"]["n_steps"]["description"]


def test_of_a_config_object_only_what_was_given_is_kept() -> None:
    config = ExperimentConfig.checked({**DATA, "n_steps": 30})
    assert experiments.check(config).config["n_steps"] == 30
    with pytest.raises(ConfigError, match="is no config of sweep"):
        experiments.check(config, job="sweep")
    with pytest.raises(ConfigError, match=r"'trian' is no job .*did you mean 'train'"):
        experiments.check(config, job="trian")  # pyright: ignore[reportArgumentType]


def test_an_algorithm_is_told_of_whose_module_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plugin's, of a file that was imported again under another name."""
    monkeypatch.setattr(algorithm_class("DQN"), "__module__", "a_plugin_that_is_gone")
    assert experiments.algorithm("DQN").about == "Deep Q-network, offline or online. Data: discrete actions."
