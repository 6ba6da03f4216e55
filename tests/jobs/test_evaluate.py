"""`d3ray evaluate`: a package plays as its algorithm does, without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from d3ray.algos.base import Algorithm
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.export.packing import write_package
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.registry import algorithm_class
from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box, Discrete, Environment, Spec
from d3ray.jobs.command.running import run_command
from d3ray.jobs.policies.evaluate import EvaluateConfig, run

WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "ray"):
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Blocker())
from d3ray.jobs.__main__ import main
sys.argv[0] = "d3ray"
main()
"""


def trained(name: str, spec: Spec) -> Algorithm:
    """A small algorithm that has seen noise of these spaces."""
    rng = np.random.default_rng(0)
    n = 100
    size = spec.observation.size if isinstance(spec.observation, Box) else 0
    action = (
        rng.integers(0, spec.action.n, n)
        if isinstance(spec.action, Discrete)
        else rng.uniform(-1, 1, (n, spec.action.size)).astype(np.float32)
    )
    terminated = np.arange(n) % 20 == 19
    observation, reward = rng.normal(size=(n, size)).astype(np.float32), np.ones(n, np.float32)
    data = Dataset.from_arrays(observation, action, reward, terminated, spec=spec, name="noise")
    cls = algorithm_class(name)
    small = {
        field: VectorEncoder(hidden_units=(16,))
        for field in cls.Config.model_fields
        if field.endswith("encoder") and field != "share_encoder"
    }
    return cls(**small, observation_scaler="standard").fit(data, n_steps=2, n_steps_per_epoch=2)


@pytest.fixture(scope="module")
def cartpole() -> Algorithm:
    return trained("DQN", Spec(observation=Box(shape=(4,)), action=Discrete(n=2)))


@pytest.fixture(scope="module")
def package(cartpole: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages") / "cartpole"
    write_package(cartpole, folder, environment="CartPole-v1")
    return folder


def test_a_package_plays_as_its_algorithm(package: Path, cartpole: Algorithm, tmp_path: Path) -> None:
    result = run(EvaluateConfig(policy=str(package), episodes=12, seed=5, output=tmp_path / "new" / "result.json"))
    played = evaluate(cartpole.policy(), "CartPole-v1", episodes=12, seed=5)
    assert result.returns.tolist() == played.returns.tolist()
    assert (result.mean, result.std, result.normalized) == (played.mean, played.std, None)
    assert result.made.startswith(f"CartPole-v1: return {played.mean:.2f} ± {played.std:.2f} over 12 episodes of ")
    content = json.loads((tmp_path / "new" / "result.json").read_text())
    assert content["returns"] == played.returns.tolist()
    assert (content["algorithm"], content["environment"]["id"], content["seed"]) == ("DQN", "CartPole-v1", 5)
    assert content["normalized"] is None


@pytest.mark.parametrize("form", ["saved", "policy.onnx"])
def test_every_form_of_a_policy_plays_the_same(form: str, cartpole: Algorithm, tmp_path: Path) -> None:
    where = tmp_path / form
    (cartpole.save_policy if where.suffix else cartpole.save)(where)
    played = evaluate(cartpole.policy(), "CartPole-v1", episodes=4, seed=5)
    result = run(EvaluateConfig(policy=str(where), environment="CartPole-v1", episodes=4, seed=5))
    assert result.returns.tolist() == played.returns.tolist()


def test_the_command_needs_no_torch(package: Path, cartpole: Algorithm) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, "evaluate", "cartpole", "environment=CartPole-v1", "episodes=3"]
    done = subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    played = evaluate(cartpole.policy(), "CartPole-v1", episodes=3)
    assert done.stdout.startswith(f"CartPole-v1: return {played.mean:.2f} ± {played.std:.2f} over 3 episodes of ")


def test_a_score_with_a_reference_is_named_for_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")
    spec = Spec(observation=Box(shape=(11,)), action=Box(shape=(3,), low=-1.0, high=1.0))
    write_package(trained("BC", spec), tmp_path / "hopper")
    output = tmp_path / "result.json"
    assert run_command("evaluate", [str(tmp_path / "hopper"), "environment=Hopper-v4", "episodes=2", f"output={output}"]) == 0
    content = json.loads(output.read_text())
    score = 100 * (content["mean"] + 20.272305) / (3234.3 + 20.272305)  # Fu et al. 2020: 0 is a random policy, 100 an expert
    assert content["normalized"] == {"label": "D4RL-normalised return in gymnasium v4", "score": pytest.approx(score)}
    assert f"; D4RL-normalised return in gymnasium v4: {score:.1f}." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["environment=Acrobot-v1"], "sees arrays of the shape (4,), and Acrobot-v1 has arrays of the shape (6,)"),
        (["environment=CartPole-v7"], "CartPole"),
        (["episodes=0"], "episodes"),
        (["target_return=3"], "acts for no return: target_return is for policies as DecisionTransformer's"),
        (["enviroment=CartPole-v1"], "did you mean 'environment'?"),
    ],
)
def test_wrong_settings_end_in_a_sentence(
    arguments: list[str], sentence: str, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("evaluate", [str(package), *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_a_graph_that_was_made_for_another_environment_says_so(
    cartpole: Algorithm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cartpole.save_policy(tmp_path / "policy.onnx")
    assert run_command("evaluate", [str(tmp_path / "policy.onnx"), "environment=Acrobot-v1"]) == 2
    error = capsys.readouterr().err
    assert (
        "policy.onnx takes observations of 4 entries, and here they have 6 entries: it was made for another environment." in error
    )
    assert error.count("\n") == 1


def test_what_is_no_package_is_refused(
    package: Path, cartpole: Algorithm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("evaluate", [str(tmp_path)]) == 2
    assert "is no policy: name a policy package, a saved algorithm, a checkpoint, a trial, an experiment" in capsys.readouterr().err
    write_package(cartpole, tmp_path / "nowhere")
    assert run_command("evaluate", [str(tmp_path / "nowhere")]) == 2
    assert "names no environment: write environment=ID" in capsys.readouterr().err
    assert run_command("evaluate", ["models:/cartpole"]) == 2
    assert "write models:/NAME@champion or models:/NAME/VERSION" in capsys.readouterr().err
    assert run_command("evaluate", ["models:/cartpole@champion", f"storage={tmp_path}"]) == 2
    assert "There is no " in capsys.readouterr().err


def test_an_environment_with_arguments(package: Path) -> None:
    short = Environment(id="CartPole-v1", kwargs={"max_episode_steps": 5})
    result = run(EvaluateConfig(policy=str(package), environment=short, episodes=2))
    assert result.lengths.max() <= 5


@pytest.mark.long
def test_a_registered_model_plays_without_torch(package: Path, cartpole: Algorithm, tmp_path: Path) -> None:
    """Registered in a process of its own, as a driver does, with the package's files in `package/` of the model."""
    register = """
import sys
from mlflow import MlflowClient, set_tracking_uri
uri = "sqlite:///" + sys.argv[1] + "/mlflow.db"
set_tracking_uri(uri)
client = MlflowClient(uri)
experiment = client.create_experiment("d3ray", "file://" + sys.argv[1] + "/artifacts")
run = client.create_run(experiment)
model = client.create_logged_model(experiment, name="policy", source_run_id=run.info.run_id)
client.log_model_artifacts(model.model_id, sys.argv[2])
client.finalize_logged_model(model.model_id, "READY")
client.create_registered_model("cartpole")
version = client.create_model_version("cartpole", f"models:/{model.model_id}", run_id=run.info.run_id, model_id=model.model_id)
client.set_registered_model_alias("cartpole", "champion", version.version)
"""
    model = tmp_path / "model"
    model.mkdir()
    package_in_model = model / "package"
    write_package(cartpole, package_in_model, environment="CartPole-v1")
    (model / "MLmodel").write_text("flavors: {}\n")
    subprocess.run([sys.executable, "-c", register, str(tmp_path), str(model)], check=True, cwd=tmp_path)
    command = [sys.executable, "-c", WITHOUT_TORCH, "evaluate"]
    done = subprocess.run(
        [*command, "models:/cartpole@champion", f"tracking=sqlite:///{tmp_path}/mlflow.db", "episodes=3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    played = evaluate(cartpole.policy(), "CartPole-v1", episodes=3)
    assert done.stdout.startswith(f"CartPole-v1: return {played.mean:.2f} ± {played.std:.2f} over 3 episodes of ")
    other = [*command, "models:/cartpole@runner-up", f"storage={tmp_path}"]
    done = subprocess.run(other, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "models:/cartpole@runner-up cannot be fetched from sqlite:///" in done.stderr
    assert run_command("evaluate", ["models:/cartpole@runner-up", f"storage={tmp_path}"]) == 2
    assert "MLFLOW_TRACKING_URI" not in os.environ  # the next experiment of this process goes into its own storage
