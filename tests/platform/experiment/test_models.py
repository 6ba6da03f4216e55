"""Models of the dynamics as experiments: trained as trials, named by an experiment's name, kept in the storage, swept over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray.algos.export.model_package import read_model_record
from d3ray.algos.export.model_packing import read_torch_model
from d3ray.algos.saving.checkpoint import newest_valid, read_checkpoint
from d3ray.algos.saving.saving import load
from d3ray.algos.testing import tiny_dataset
from d3ray.data.errors import ConfigError
from d3ray.platform.api.policies import export, promote
from d3ray.platform.experiment.models import KEPT, with_kept_model
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.tracking.runs import Tracking
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from ...faults.processes import Command, clean_environment
from ...graphs import without_origin

SMALL = {"hidden_units": [16]}
MODEL = {"name": "ProbabilisticEnsemble", "encoder": {"name": "vector", **SMALL}, "n_members": 3, "n_elites": 2, "batch_size": 16}
POLICY = {"actor_encoder": SMALL, "critic_encoder": SMALL, "batch_size": 16}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the experiment `model`, of two seeds."""
    place = tmp_path_factory.mktemp("models")
    tiny_dataset(discrete=False).write(place / "tiny")
    run_experiment(config(place, "model", MODEL, seeds=(0, 1)))
    return place


def config(place: Path, name: str, algorithm: dict[str, Any], **more: Any) -> ExperimentConfig:
    told = {"n_steps": 60, "n_steps_per_epoch": 30, "seeds": (0,), **more}
    return ExperimentConfig.checked(
        {"name": name, "dataset": str(place / "tiny"), "algorithm": algorithm, "storage": str(place / "results"), **told}
    )


def test_a_model_is_trained_as_trials_and_has_its_error_as_metric(storage: Path) -> None:
    trials = Experiment.look(str(storage / "results"), "model").trials()
    assert [trial.status[seed]["status"] for trial in trials for seed in trial.seeds] == ["FINISHED"] * 2
    for trial in trials:
        assert not (Path(trial.folder.name) / "policy").exists()  # nothing acts
        assert trial.package(trial.seeds[0]) is not None


def test_it_is_named_by_its_trial_and_kept_once(storage: Path) -> None:
    results = storage / "results"
    trial = Experiment.look(str(results), "model").trials()[0]
    named = config(storage, "policy", {"name": "MOPO", **POLICY, "dynamics": f"model/{trial.identity}"})
    kept = with_kept_model(named).algorithm.settings["dynamics"]
    assert Path(kept).parent == results / KEPT
    by_folder = {**named.algorithm.model_dump(), "dynamics": trial.folder.name}
    again = with_kept_model(config(storage, "policy", by_folder))
    assert again.algorithm.settings["dynamics"] == kept
    assert with_kept_model(again).algorithm.settings["dynamics"] == kept
    newest = newest_valid(Path(trial.folder.name) / "checkpoints")
    assert newest is not None
    of_trial, of_copy = (read_checkpoint(folder)[0] for folder in (newest, Path(kept)))
    assert all(torch.equal(tensor, of_copy[name]) for name, tensor in of_trial.items())
    assert len(Folder(str(results / KEPT)).names()) == 1


def test_a_model_whose_errors_have_stopped_falling_stays_as_it_is_also_when_it_goes_on(storage: Path) -> None:
    settings = {**MODEL, "patience": 5}
    about = {"dataset": str(storage / "tiny"), "algorithm": settings, "n_steps": 240, "n_steps_per_epoch": 40, "device": "cpu"}

    def run(epochs: int, kept: Any = None) -> TrialRun:
        made = TrialRun(TrialConfig.checked({**about, "seeds": (0, 1)}))
        if kept is not None:
            made.load(*kept, own=True)
        for _ in range(epochs):
            made.epoch()
        made.close()
        return made

    first = run(4)
    whole, again = run(6), run(2, first.state())
    for seed in (0, 1):
        held, ended, resumed = (one.one(seed).state()[0] for one in (first, whole, again))
        assert all(torch.equal(tensor, resumed[name]) for name, tensor in ended.items())
        weights = [name for name in held if name.startswith("live/")]
        assert all(torch.equal(held[name], ended[name]) for name in weights)


def test_it_is_packaged_registered_and_promoted_by_its_error(storage: Path, tmp_path: Path) -> None:
    results = str(storage / "results")
    trials = Experiment.look(results, "model").trials()
    packages = {seed: Path(trial.folder.name) / "model" / f"seed-{seed}" for trial in trials for seed in trial.seeds}
    errors = {seed: read_model_record(folder).held_out_error for seed, folder in packages.items()}
    client = Tracking.open(results).client
    candidate = client.get_model_version_by_alias("model", "candidate")
    measured = {seed: trial.status[seed]["metrics"]["train/held_out_error"] for trial in trials for seed in trial.seeds}
    best = min(measured, key=measured.__getitem__)
    assert int(candidate.tags["d3ray.seed"]) == best
    assert float(candidate.tags["d3ray.held_out_error"]) == errors[best]
    by_name = config(storage, "policy", {"name": "MOPO", **POLICY, "dynamics": "models:/model@candidate"})
    kept = load(with_kept_model(by_name).algorithm.settings["dynamics"], "cpu")
    ours = read_torch_model(packages[best]).model().state_dict()
    assert all(torch.equal(tensor, ours[name]) for name, tensor in kept.model().state_dict().items())
    made = export("models:/model@candidate", str(tmp_path / "model.onnx"), storage=results)
    assert without_origin(Path(made.target)) == without_origin(packages[best] / "model.onnx")
    export("model", str(tmp_path / "package"), seed=1 - best, storage=results)
    assert read_model_record(tmp_path / "package").seed == 1 - best
    naive = float(candidate.tags["d3ray.mean_error"])
    told = promote("model", storage=results)
    assert told.passed == (errors[best] < naive)
    assert (
        f"error {errors[best]:.4g} is {'' if told.passed else 'not '}below that of the mean of all targets, {naive:.4g}" in told.why
    )
    client.set_model_version_tag("model", candidate.version, "d3ray.mean_error", repr(2 * errors[best]))
    assert promote("model", storage=results).passed
    assert client.get_model_version_by_alias("model", "champion").version == candidate.version
    (other,) = (v for v in client.search_model_versions("name = 'model'") if v.version != candidate.version)
    client.set_registered_model_alias("model", "champion", other.version)
    beside = promote("model", storage=results)
    assert beside.passed == (errors[best] < errors[1 - best])
    assert f"below that of the champion, version {other.version}, {errors[1 - best]:.4g}" in beside.why
    client.set_model_version_tag("model", other.version, "d3ray.held_out_error", repr(errors[best]))
    client.set_registered_model_alias("model", "champion", other.version)
    assert not promote("model", storage=results).passed  # as good is not better


def test_what_is_no_model_is_refused_before_any_work(storage: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no checkpoint|no policy"):
        run_experiment(config(storage, "nothing", {"name": "MOPO", **POLICY, "dynamics": "nowhere"}))
    run_experiment(config(storage, "cloned", {"name": "BC", "encoder": SMALL}, n_steps=30))
    with pytest.raises(ConfigError, match=r"is no model|no policy"):
        run_experiment(config(storage, "nothing", {"name": "MOPO", **POLICY, "dynamics": "cloned"}))
    with pytest.raises(ConfigError, match=r"^MOPO learns in a model"):
        run_experiment(config(storage, "nothing", {"name": "MOPO", **POLICY}))
    assert not (storage / "results/nothing").exists()


def test_a_model_is_chosen_by_what_it_is_worth_on_episodes_that_are_held_out(storage: Path) -> None:
    held_out = {"evaluation": {"holdout": 0.2}, "checkpoint": {"best": "holdout/error_5"}}
    run_experiment(config(storage, "chosen", MODEL, n_steps=90, **held_out))
    (trial,) = Experiment.look(str(storage / "results"), "chosen").trials()
    (kept,) = (trial.folder / "best").names()
    assert read_checkpoint(Path(trial.folder.name) / "best" / kept)[1]["algorithm"] == "ProbabilisticEnsemble"
    lines = [json.loads(line) for part in sorted((Path(trial.folder.name) / "outbox/seed-0").iterdir()) for line in part.open()]
    told = [metrics for _, _, metrics in lines if "holdout/error_5" in metrics]
    assert len(told) == 3
    assert all(0 < metrics["holdout/coverage_90"] <= 1 for metrics in told)
    with pytest.raises(ConfigError, match=r"^evaluation: ProbabilisticEnsemble has no policy that could play"):
        run_experiment(config(storage, "played", MODEL, evaluation={"environment": "Pendulum-v1"}))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sweep_over_penalty_and_horizon_goes_on_after_a_kill(storage: Path, tmp_path: Path) -> None:
    trial = Experiment.look(str(storage / "results"), "model").trials()[0]
    rollouts = {"n_transitions": 20, "interval": 50}
    sweep = {
        "dataset": str(storage / "tiny"),
        "algorithm": {"name": "MOPO", **POLICY, "dynamics": f"model/{trial.identity}", "rollouts": rollouts},
        "search": {
            "algorithm.rollouts.penalty": {"grid": ["aleatoric", "difference"]},
            "algorithm.rollouts.horizon": {"grid": [1, 3]},
        },
        "searcher": {"name": "grid"},
        "evaluation": {"holdout": 0.1},
        "objective": {"metric": "holdout/td_error", "mode": "min"},
        "n_steps": 1200,
        "n_steps_per_epoch": 100,
        "seeds": [0],
        "storage": str(storage / "results"),
    }

    def command(name: str, *more: str) -> Command:
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**sweep, "name": name}))
        return Command(["d3ray.jobs", "sweep", "--config", str(tmp_path / f"{name}.yaml"), *more], tmp_path, clean_environment())

    def steps(name: str) -> list[int]:
        if Folder(str(storage / "results" / name)).read("experiment.json") is None:
            return []
        return [one.committed for one in Experiment.look(str(storage / "results"), name).trials()]

    whole, killed = command("whole"), None
    try:
        assert whole.process.wait(300) == 0, whole.log.read_text()
        killed = command("killed")
        killed.until(lambda: max(steps("killed"), default=-1) >= 200)
        killed.end()
        assert min((*steps("killed"), 0 if len(steps("killed")) < 4 else 1200)) < 1200
        killed = command("killed", "--resume")
        assert killed.process.wait(300) == 0, killed.log.read_text()
    finally:
        for one in (whole, killed):
            if one is not None:
                one.end()
    ends = [states(storage / "results" / name) for name in ("whole", "killed")]
    assert len(ends[0]) == 4
    assert ends[0].keys() == ends[1].keys()
    for identity, tensors in ends[0].items():
        assert all(torch.equal(tensor, ends[1][identity][name]) for name, tensor in tensors.items()), identity
    assert len({float(np.sum([float(t.double().sum()) for t in tensors.values()])) for tensors in ends[0].values()}) == 4


def states(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """What every trial of a sweep ended with, by what it was."""
    found = dict[str, dict[str, torch.Tensor]]()
    for trial in Experiment.look(str(folder.parent), folder.name).trials():
        newest = newest_valid(Path(trial.folder.name) / "checkpoints")
        assert newest is not None
        assert trial.committed == 1200
        rollouts = trial.configuration["algorithm"]["rollouts"]
        found[f"{rollouts['penalty']} {rollouts['horizon']}"] = read_checkpoint(newest)[0]
    return found
