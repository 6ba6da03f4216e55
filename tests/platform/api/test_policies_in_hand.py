"""Policies and plans from a program, beside what the algorithm itself says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from d3ray import BC, Dataset, DecisionTransformer, experiments
from d3ray.data.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy package beside the saved algorithm that it is of."""
    folder = tmp_path_factory.mktemp("policies")
    dataset = Dataset.open("d3ray/pendulum-replay").take(3)
    algorithm = BC(action_scaler="min_max", seed=3).fit(dataset, n_steps=2, n_steps_per_epoch=1)
    algorithm.save(folder / "algorithm")
    algorithm.save_policy(folder / "package")
    return folder


def test_what_a_policy_does_at_an_observation(saved: Path) -> None:
    from d3ray import load

    observation = [0.5, -0.5, 1.0]
    expected = load(saved / "algorithm").predict(np.array([observation], np.float32))[0]
    for kind in ("algorithm", "package"):
        source = str(saved / kind)
        about = experiments.about(source)
        assert (about.algorithm, about.seed, about.step, about.size, about.remembers) == ("BC", 3, 2, 3, False)
        assert about.action == "1 float32 from -2 to 2"
        assert experiments.act(source, observation) == pytest.approx(expected.tolist(), abs=1e-5)
    with pytest.raises(DataError):
        experiments.act(str(saved / "package"), [1.0, 2.0])
    with pytest.raises(DataError):
        experiments.act(str(saved / "package"), [1.0, float("nan"), 0.0])


def test_a_policy_says_what_it_is_shown_by_the_names_of_its_data(tmp_path: Path) -> None:
    dataset = Dataset.open("d3ray/pendulum-replay").take(3).to_steps()
    names = {"observation": ("cosine", "sine", "speed"), "action": ("torque",)}
    named = Dataset.from_steps(dataset, name="named", names=names)
    BC(action_scaler="min_max").fit(named, n_steps=2, n_steps_per_epoch=1).save_policy(tmp_path / "package")
    about = experiments.about(str(tmp_path / "package"))
    assert about.names == ("cosine", "sine", "speed")
    assert about.action == "1 float32, bounds not known (torque)"


def test_only_logs_of_its_spaces_can_judge_a_policy(saved: Path, tmp_path: Path) -> None:
    """Of its environment first, and what it learned from last of these."""
    pendulum = Dataset.open("d3ray/pendulum-replay")
    rng = np.random.default_rng(0)
    flags = np.arange(20) % 10 == 9
    alike = Dataset.from_arrays(rng.normal(size=(20, 3)), rng.uniform(-1, 1, (20, 1)), np.ones(20), flags)
    made = {"one": pendulum.take(1), "learned": pendulum.take(3), "later": pendulum.take([5, 6]), "alike": alike}
    for name, dataset in {"a-cartpole": Dataset.open("d3ray/cartpole-replay").take(3), **made}.items():
        dataset.write(tmp_path / name)
    among = sorted(experiments.datasets.list(str(tmp_path)), key=lambda one: one.name)
    for kind in ("algorithm", "package"):
        found = experiments.judges(str(saved / kind), among)
        assert [one.name for one in found] == ["later", "learned", "alike"]
        assert found[1].fingerprint == experiments.about(str(saved / kind)).fingerprint


def test_a_policy_with_a_memory_says_so(tmp_path: Path) -> None:
    dataset = Dataset.open("d3ray/pendulum-replay").take(3)
    algorithm = DecisionTransformer(action_scaler="min_max", batch_size=4).fit(dataset, n_steps=1, n_steps_per_epoch=1)
    algorithm.save_policy(tmp_path / "package")
    assert experiments.about(str(tmp_path / "package")).remembers
    with pytest.raises(ConfigError, match="has a memory"):
        experiments.act(str(tmp_path / "package"), [0.0, 0.0, 0.0])


@pytest.mark.long
def test_a_plan(tmp_path: Path) -> None:
    config = {"dataset": "d3ray/cartpole-replay", "algorithm": "DiscreteBC", "seeds": [0, 1], "storage": str(tmp_path / "results")}
    found = experiments.plan({**config, "n_steps": 100_000})
    assert (found.trials, found.seeds, found.gpu_hours) == (2, 2, 0)
    assert found.wall_seconds > 10
    assert found.text.startswith("2 trials, ")
    assert not (tmp_path / "results").exists() or not any((tmp_path / "results").glob("*/experiment.json"))


def test_a_judgement_is_checked_as_any_other() -> None:
    config = {"policies": "policies/x", "dataset": "d3ray/cartpole-replay"}
    found = experiments.check(config, job="judge")
    assert (found.job, found.name) == ("judge", "judge-cartpole-replay")
    (problem,) = experiments.problems({**config, "estimators": ["DMM"]}, job="judge")
    assert "did you mean 'DM'" in problem.sentence
