"""`d3ray collect`: a dataset of random actions or of a policy, the same for the same seed, and nothing for bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from d3ray import TD3PlusBC
from d3ray.algos.environments.collect import collect
from d3ray.data.dataset import Dataset
from d3ray.jobs.command.running import run_command


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy that has learned nothing, of Pendulum."""
    folder = tmp_path_factory.mktemp("algorithm") / "td3"
    algorithm = TD3PlusBC(action_scaler="min_max")
    algorithm.fit(collect("Pendulum-v1", n_steps=100), n_steps=1, n_steps_per_epoch=1)
    algorithm.save(folder)
    return str(folder)


def test_random_actions_are_the_same_for_the_same_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert run_command("collect", ["CartPole-v1", str(tmp_path / name), "n_steps=200", f"seed={seed}", "n_envs=2"]) == 0
    a, b, c = (Dataset.open(tmp_path / name) for name in "abc")
    assert a.fingerprint == b.fingerprint != c.fingerprint
    assert a.n_transitions == 200
    assert a.environment is not None
    assert (a.name, a.environment.id) == ("CartPole-v1-random", "CartPole-v1")
    assert a.statistics.n_final_missing == 0
    assert a.provenance["collected"]["by"] == "random"
    assert f"CartPole-v1-random: 200 transitions in {a.n_episodes} episodes, mean return" in capsys.readouterr().out


def test_a_saved_policy_acts_with_the_noise_that_was_asked_for(saved: str, tmp_path: Path) -> None:
    def actions(name: str, *more: str) -> np.ndarray:
        arguments = ["Pendulum-v1", str(tmp_path / name), f"policy={saved}", "n_episodes=1", *more]
        assert run_command("collect", arguments) == 0
        return Dataset.open(tmp_path / name).episodes[0].actions

    from d3ray import load

    plain = actions("plain")
    observations = Dataset.open(tmp_path / "plain").episodes[0].observations[:-1]
    np.testing.assert_allclose(plain, load(saved).predict(observations), atol=1e-6)
    greedy, noisy, random = actions("greedy", "epsilon=0"), actions("noisy", "noise=0.1"), actions("random", "epsilon=0.5")
    np.testing.assert_array_equal(greedy, plain)
    assert 0 < abs(noisy[0] - plain[0]) < 1
    own = np.isclose(random, load(saved).predict(Dataset.open(tmp_path / "random").episodes[0].observations[:-1]), atol=1e-6)
    assert 0.35 < own.mean() < 0.65


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["CartPol-v1", "TARGET"], "did you mean 'CartPole-v1'?"),
        (["CartPole-v1", "TARGET", "policy=nowhere"], "There is no folder 'nowhere'"),
        (["CartPole-v1", "TARGET", "policy=SAVED"], "The actions of the policy"),
        (["MountainCarContinuous-v0", "TARGET", "policy=SAVED"], "this policy takes (batch, 3)"),
        (["CartPole-v1", "TARGET", "n_steps=5", "n_episodes=5"], "n_steps and n_episodes are both given"),
        (["CartPole-v1", "TARGET", "epsilon=0.1"], "Actions are random already"),
        (["CartPole-v1", "TARGET", "n_envs=0"], "n_envs is 0"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_nothing(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    words = {"TARGET": str(tmp_path / "set"), "policy=SAVED": f"policy={saved}"}
    assert run_command("collect", [words.get(argument, argument) for argument in arguments]) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_taken_is_refused_before_playing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("collect", ["CartPole-v1", str(tmp_path / "set"), "n_steps=20"]) == 0
    capsys.readouterr()
    assert run_command("collect", ["CartPole-v1", str(tmp_path / "set"), "n_steps=20"]) == 2
    assert "collecting" not in (err := capsys.readouterr().err)
    assert "set is a dataset already" in err
    assert run_command("collect", ["CartPole-v1", str(tmp_path / "set"), "n_steps=30", "--overwrite"]) == 0
    assert Dataset.open(tmp_path / "set").n_transitions == 30
