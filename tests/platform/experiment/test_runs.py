"""Experiments as a whole, with a real Ray and a real MLflow."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.algos.environments.evaluate import evaluate
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Environment
from d3ray.platform.experiment.run import carry_out, run_experiment, train_work
from d3ray.platform.record.results import Results
from d3ray.platform.results.progress import Progress
from d3ray.platform.settings.config import ExperimentConfig

PLUGIN = """
'''A user's own algorithms: seed 1 of NotANumber1 begins with NaN; Stumbles raises at step 30 while a file is there.'''
import os, torch
from d3ray import DQN
from d3ray.algos.registry import register_algorithm

@register_algorithm
class NotANumber1(DQN):
    def networks(self, spec, config):
        networks = super().networks(spec, config)
        if torch.initial_seed() == 1:
            with torch.no_grad():
                for network in networks.values():
                    next(network.module.parameters()).fill_(float("nan"))
        return networks

@register_algorithm
class Stumbles(DQN):
    def schedule(self, step):
        if step == 30 and os.path.exists(os.path.join(os.path.dirname(__file__), "stumble")):
            raise RuntimeError("something is wrong with step 30")
        return super().schedule(step)
"""


@pytest.fixture(scope="module")
def place(local_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset and a plugin, which workers can import."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    ends = np.zeros(600, bool)
    ends[19::20] = True
    arrays = rng.normal(size=(600, 4)).astype(np.float32), rng.integers(0, 2, 600), np.ones(600, np.float32), ends
    Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name="tiny").write(folder / "tiny")
    (local_ray / "our_plugin.py").write_text(PLUGIN)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    return folder


def config(place: Path, **changes: Any) -> ExperimentConfig:
    base: dict[str, Any] = {
        "name": "first",
        "dataset": str(place / "tiny"),
        "algorithm": {"name": "NotANumber1", "encoder": {"hidden_units": [16]}, "batch_size": 8},
        "n_steps": 60,
        "n_steps_per_epoch": 20,
        "seeds": (0, 1, 2),
        "seeds_per_trial": 2,
        "evaluation": {"episodes": 2},
        "checkpoint": {"best": "evaluation/return"},
        "storage": str(place / "results"),
        "plugins": ("our_plugin",),
    }
    return ExperimentConfig.checked({**base, **changes})


@pytest.fixture(scope="module")
def first(place: Path) -> tuple[Results, list[int]]:
    waited, done = list[str](), list[int]()

    def watch(progress: Progress) -> None:
        if progress.waiting:
            waited.append(progress.waiting)
            assert not done
            return
        assert waited[0] == "opening MLflow"
        assert progress.total == 180
        done.append(progress.done)

    return run_experiment(config(place), on_progress=watch), done


def client(result: Results) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(result.tracking_uri)


def runs(result: Results) -> dict[str, Any]:
    """MLflow's runs of an experiment, by seed, and "parent"."""
    mlflow = client(result)
    found = mlflow.search_runs([mlflow.get_experiment_by_name("d3ray").experiment_id], f"tags.`d3ray.experiment` = '{result.name}'")
    by_seed = {run.data.tags.get("d3ray.seed", "parent"): run for run in found}
    assert len(by_seed) == len(found)
    return by_seed


def test_what_came_of_each_seed(first: tuple[Results, list[int]]) -> None:
    result, done = first
    assert done == sorted(done)
    assert [(s.seed, s.status) for s in result.seeds] == [(0, "FINISHED"), (1, "FAILED"), (2, "FINISHED")]
    assert result.state == "FAILED"
    assert result.seeds[1].reason.startswith("diverged at step 0")
    assert result.undelivered == ""
    assert result.look == f"mlflow ui --backend-store-uri {result.tracking_uri}"
    for seed in (result.seeds[0], result.seeds[2]):
        assert seed.step == 60
        assert seed.best is not None
        assert seed.score == seed.best.value
        assert seed.policy is not None
        assert (Path(seed.policy) / "policy.onnx").exists()


def test_mlflow_has_a_parent_and_a_run_for_each_seed(first: tuple[Results, list[int]]) -> None:
    result, _ = first
    found = runs(result)
    assert {name: run.info.status for name, run in found.items()} == {
        "parent": "FAILED",
        "0": "FINISHED",
        "1": "FAILED",
        "2": "FINISHED",
    }
    assert found["1"].data.tags["d3ray.reason"].startswith("diverged at step 0")
    for seed in result.seeds:
        run = found[str(seed.seed)]
        assert run.info.run_id == seed.run_id
        assert run.data.tags["mlflow.parentRunId"] == result.run_id == found["parent"].info.run_id
        steps = [m.step for m in client(result).get_metric_history(seed.run_id, "train/critic_loss")]
        assert steps == ([20] if seed.seed == 1 else [20, 40, 60])


def test_the_candidate_acts_as_the_best_seeds_policy(first: tuple[Results, list[int]]) -> None:
    import mlflow

    from d3ray.algos.export.package import read_package

    result, _ = first
    versions = {v.version: v for v in client(result).search_model_versions(f"name = '{result.models[0]}'")}
    assert {v.tags["d3ray.seed"] for v in versions.values()} == {"0", "2"}
    best = max((s for s in result.seeds if s.status == "FINISHED"), key=lambda s: s.score or 0)
    assert client(result).get_registered_model(result.name).aliases.keys() == {"candidate"}  # a champion is promoted
    chosen = client(result).get_model_version_by_alias(result.name, "candidate")
    assert float(chosen.tags["d3ray.value"]) == best.score
    candidate = next(s for s in result.seeds if str(s.model_version) == str(chosen.version))
    observation = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    mlflow.set_tracking_uri(result.tracking_uri)
    try:
        model = mlflow.pyfunc.load_model(f"models:/{result.name}@candidate")
        answer = model.predict(observation)
    finally:
        mlflow.set_tracking_uri(None)  # pyright: ignore[reportArgumentType]
    (actions,) = answer.values() if isinstance(answer, dict) else (answer,)
    assert candidate.policy is not None
    policy = read_package(candidate.policy)
    assert np.array_equal(np.asarray(actions).reshape(-1), policy.predict(observation).reshape(-1))
    asked = {"episodes": int(chosen.tags["d3ray.evaluation_episodes"]), "seed": int(chosen.tags["d3ray.evaluation_seed"])}
    assert evaluate(policy, "CartPole-v1", **asked).mean == best.score  # the score in MLflow, played again through onnxruntime


def test_resuming_what_is_done_changes_nothing(
    first: tuple[Results, list[int]], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = first
    monkeypatch.chdir(tmp_path)
    before = {name: repr((run.info.end_time, run.data.metrics)) for name, run in runs(result).items()}  # NaN is not NaN
    again = run_experiment(config(place), resume=True)
    assert again.model_copy(update={"surroundings": result.surroundings}) == result  # from another folder, in no Git repository
    assert {name: repr((run.info.end_time, run.data.metrics)) for name, run in runs(result).items()} == before
    with pytest.raises(ConfigError, match="already: say --resume"):
        run_experiment(config(place))
    assert list(tmp_path.iterdir()) == []  # no database in the current folder
    assert "MLFLOW_TRACKING_URI" not in os.environ


@pytest.mark.long
def test_what_failed_says_why_and_goes_on_when_it_is_mended(local_ray: Path, place: Path) -> None:
    settings = config(place, name="stumbling", algorithm="Stumbles", seeds=(0,), evaluation=None, checkpoint={})
    (local_ray / "stumble").touch()
    failed = run_experiment(settings)
    assert failed.seeds[0].status == "FAILED"
    assert failed.seeds[0].step == 20
    found = runs(failed)
    assert found["0"].data.tags["d3ray.reason"] == "RuntimeError: something is wrong with step 30"
    (local_ray / "stumble").unlink()
    mended = run_experiment(settings, resume=True)
    assert mended.state == "FINISHED"
    found = runs(mended)
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    assert all("d3ray.reason" not in run.data.tags for run in found.values())
    assert [m.step for m in client(mended).get_metric_history(mended.seeds[0].run_id, "train/critic_loss")] == [20, 40, 60]
    replaced = run_experiment(settings, replace=True)
    assert runs(replaced)["0"].info.run_id != mended.seeds[0].run_id  # and those of before are deleted


def test_a_node_that_has_another_dataset_than_this_machine_is_refused(place: Path, tmp_path: Path) -> None:
    """As where a place is a local folder of each machine; here the folder's content changes after the command has read it."""

    def write(reward: float) -> None:
        shutil.rmtree(tmp_path / "tiny", ignore_errors=True)
        ends = np.arange(40) % 20 == 19
        arrays = np.zeros((40, 4), np.float32), np.arange(40) % 2, np.full(40, reward, np.float32), ends
        Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name="tiny").write(tmp_path / "tiny")

    write(1.0)
    work = train_work(config(place, name="changed", dataset=str(tmp_path / "tiny")))
    write(2.0)
    with pytest.raises(DataError, match="has another dataset of that name than the machine of this command"):
        carry_out(work, resume=False, replace=False, on_progress=None)
    assert not (place / "results/changed").exists()


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"dataset": "/nowhere/data"}, DataError, "/nowhere/data"),
        ({"algorithm": "TD3"}, DataError, "TD3 needs continuous actions"),
        ({"evaluation": {"environment": "CartPole-v9"}}, ConfigError, "CartPole-v"),
        ({"resources": {"cpu": 1000}}, ConfigError, "1000 CPU"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(
    place: Path, changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        run_experiment(config(place, name="refused", **changes))
    assert not (place / "results/refused").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": (1, 1)}, "each may stand there once"),
        ({"checkpoint": {"every": 30}}, "checkpoint.every is 30; it must be a multiple of n_steps_per_epoch, which is 20"),
        ({"evaluation": {"every": 5}}, "evaluation.every is 5"),
        ({"algorithm": {"name": "DQN", "gama": 1}}, "did you mean 'gamma'"),
        ({"plugins": ("not_there",)}, "there is no plugin 'not_there'"),
        ({"evaluation": None}, "checkpoint.best is evaluation/return, which nothing measures"),
        ({"n_step": 5}, "did you mean 'n_steps'"),
    ],
)
def test_settings_are_explained(place: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(place, **changes)
