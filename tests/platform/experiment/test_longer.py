"""Training that had finished goes on to more steps, and comes bit for bit to what those come to from the start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Environment
from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.platform.experiment.run import run_experiment, train_work
from d3ray.platform.planning.plan import _as_begun, _left  # pyright: ignore[reportPrivateUsage]
from d3ray.platform.planning.rehearsal import proposed, rehearsal
from d3ray.platform.results.experiment import read_results
from d3ray.platform.results.status_reader import StatusReader
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.outbox import lines
from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import run_sweep
from d3ray.platform.tracking.measured import read_run

from ...graphs import without_origin
from .in_process import trained

SMALL: dict[str, Any] = {"encoder": {"hidden_units": [8]}, "batch_size": 8}
DQN = {"name": "DQN", **SMALL, "target_update_interval": 30}
PENDULUM = {"environment": "Pendulum-v1", "episodes": 1, "max_steps": 20}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of CartPole's spaces and one of Pendulum's."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    ends = np.zeros(400, bool)
    ends[19::20] = True
    found, rewards = rng.normal(size=(400, 4)).astype(np.float32), rng.normal(size=400).astype(np.float32)
    environment = Environment(id="CartPole-v1")
    Dataset.from_arrays(found, rng.integers(0, 2, 400), rewards, ends, environment=environment, name="tiny").write(folder / "tiny")
    actions = rng.uniform(-2, 2, (400, 1)).astype(np.float32)
    Dataset.from_arrays(found[:, :3], actions, rewards, ends, name="pendulum").write(folder / "pendulum")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    return folder


def config(data: Path, storage: Path, **changes: Any) -> ExperimentConfig:
    base: dict[str, Any] = {
        "name": "grown", "dataset": str(data / "tiny"), "algorithm": DQN, "n_steps": 40, "n_steps_per_epoch": 20, "seeds": (0,),
        "evaluation": {"episodes": 1}, "storage": str(storage),
    }  # fmt: skip
    kind = SweepConfig if "search" in changes else ExperimentConfig
    return kind.checked({**base, **changes})


def learned(trial: Trial, *, after: int = -1) -> dict[str, Any]:
    """All that came of a trial, but for what clocks say."""
    assert trial.folder.local is not None
    folder, step = trial.folder.local, trial.committed
    curves = {
        seed: [
            (line.step, {n: v for n, v in line.metrics.items() if not n.startswith("time/")}) for line in lines(box, after, step)
        ]
        for seed in trial.seeds
        for box in [trial.outbox(seed)]
    }
    ended = {
        seed: {**about, "time": None, "metrics": {n: v for n, v in about["metrics"].items() if not n.startswith("time/")}}
        for seed, about in trial.status.items()
    }
    kept = [path for path in folder.rglob("*") if path.suffix in (".safetensors", ".onnx")]
    return {
        "configuration": trial.configuration,
        "curves": curves,
        "ended": ended,
        "files": {str(path.relative_to(folder)): _content(path) for path in kept},
    }


def _content(file: Path) -> bytes:
    return without_origin(file) if file.suffix == ".onnx" else file.read_bytes()


CASES: dict[str, dict[str, Any]] = {
    "one step at a time": {},
    "a stack": {"seeds": (0, 1), "seeds_per_trial": 2},
    "the best is kept": {"checkpoint": {"best": "evaluation/return", "keep": 9}},
    "priorities": {"algorithm": {**DQN, "sampler": "prioritized"}},
    "a schedule of its own": {
        "dataset": "pendulum",
        "evaluation": PENDULUM,
        "algorithm": {
            "name": "IQL",
            "batch_size": 8,
            "action_scaler": "min_max",
            "actor_optimizer": {"name": "adam", "schedule": {"name": "cosine", "duration": 60}},
        },
    },
    "sequences": {"algorithm": {"name": "DiscreteDecisionTransformer", "batch_size": 4, "context": 4}, "evaluation": None},
    "while acting": {"dataset": None, "online": 1, "evaluation": {"environment": "CartPole-v1", "episodes": 1}},
    "on policy": {"dataset": None, "algorithm": {"name": "A2C"}, "evaluation": {"environment": "CartPole-v1", "episodes": 1}},
}  # fmt: skip


_QUICK = ("a stack", "the best is kept", "while acting")


@pytest.mark.parametrize("case", [one if one in _QUICK else pytest.param(one, marks=pytest.mark.long) for one in CASES])
def test_longer_equals_as_long_from_the_start(case: str, data: Path, tmp_path: Path) -> None:
    changes = dict(CASES[case])
    if changes.get("dataset"):
        changes["dataset"] = str(data / changes["dataset"])
    short = config(data, tmp_path / "short", **changes)
    assert short.why_not_longer(40) == ""
    begun = trained(short)
    longer = short.model_copy(update={"n_steps": 100})
    trained(longer, resume=True, most=1)  # and it is interrupted
    grown = trained(longer, resume=True)
    whole = trained(config(data, tmp_path / "whole", **{**changes, "n_steps": 100}))
    assert [trial.identity for trial in grown] == [trial.identity for trial in begun]
    assert [trial.runs for trial in grown] == [trial.runs for trial in begun]
    for one, other in zip(grown, whole, strict=True):
        assert one.committed == 100
        assert learned(one) == learned(other)


def test_a_sweep_equals_one_that_was_longer_from_the_start(data: Path, tmp_path: Path) -> None:
    search = {"search": {"algorithm.gamma": {"uniform": [0.8, 0.99]}}, "budget": {"configurations": 2}}
    short = config(data, tmp_path / "short", **search)
    trained(short)
    grown = trained(short.model_copy(update={"n_steps": 60}), resume=True)
    whole = trained(config(data, tmp_path / "whole", **search, n_steps=60))
    assert [trial.number for trial in grown] == [0, 1]
    assert [learned(trial) for trial in grown] == [learned(trial) for trial in whole]


def test_where_an_epoch_was_cut_its_row_stays_and_all_else_is_equal(data: Path, tmp_path: Path) -> None:
    short = config(data, tmp_path / "short", n_steps=30)
    trained(short)
    grown = trained(short.model_copy(update={"n_steps": 60}), resume=True)
    whole = trained(config(data, tmp_path / "whole", n_steps=60))
    for one, other in zip(grown, whole, strict=True):
        assert [line.step for line in lines(one.outbox(one.seeds[0]), -1, 60)] == [20, 30, 40, 60]
        assert learned(one)["files"] == learned(other)["files"]
        assert learned(one, after=40) == learned(other, after=40)


def test_what_diverged_stays_as_it_is(data: Path, tmp_path: Path) -> None:
    short = config(data, tmp_path / "short", seeds=(0, 1), seeds_per_trial=2)
    (trial,) = trained(short)
    ended = trial.status
    diverged = {"status": "FAILED", "reason": "diverged at step 7", "final": True}
    trial.settle({0: diverged, 1: {"status": "KILLED", "reason": "cancelled", "final": True}})
    (trial,) = trained(short.model_copy(update={"n_steps": 60}), resume=True)
    assert (trial.n_steps, trial.committed, trial.status[0], trial.is_settled) == (60, 40, diverged, True)
    limited = {0: diverged, 1: {**ended[1], "time_limit": {"trial": 1.0}}}  # a larger limit lets it go on
    trial.settle(limited)
    (trial,) = trained(short.model_copy(update={"n_steps": 70}), resume=True)
    assert (trial.n_steps, trial.committed, trial.status) == (70, 40, limited)
    trial.settle({0: diverged, 1: ended[1]})
    (trial,) = trained(short.model_copy(update={"n_steps": 80}), resume=True)
    assert (trial.n_steps, trial.committed, trial.status[1]["status"]) == (80, 80, "FINISHED")


@pytest.mark.parametrize("moment", ["status.json", "delivered.json", "trial.json"])
def test_a_command_that_dies_while_it_makes_it_longer_is_said_again(
    moment: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from d3ray.platform.storage.folders import Folder

    short = config(data, tmp_path / "short")
    (trial,) = trained(short)
    trial.note_delivered({0: {"run": "abc", "step": 40, "status": "FINISHED", "model": "1", "registered": "grown", "scored": True}})
    longer = short.model_copy(update={"n_steps": 60})
    write, delete = Folder.write, Folder.delete

    def dying_write(self: Folder, name: str, *more: Any) -> None:
        if name == moment:
            raise KeyboardInterrupt
        write(self, name, *more)

    def dying_delete(self: Folder, names: Any) -> None:
        if moment in (names := list(names)):
            raise KeyboardInterrupt
        delete(self, names)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write", dying_write)
        patched.setattr(Folder, "delete", dying_delete)
        with pytest.raises(KeyboardInterrupt):
            trained(longer, resume=True)
    (trial,) = trained(longer, resume=True)
    assert (trial.committed, trial.status[0]["status"]) == (60, "FINISHED")
    assert trial.delivered[0] == {"run": "abc", "step": 40, "status": "FINISHED"}  # so that the new end is registered and scored


@pytest.mark.parametrize(
    ("changes", "first", "why"),
    [
        ({"algorithm": {**DQN, "optimizer": {"name": "adam", "schedule": {"name": "linear", "duration": 30}}}}, 40,
         "the learning rate is 0 from step 30 on, where the linear schedule of algorithm.optimizer ends"),
        ({"algorithm": {**DQN, "optimizer": {"name": "adam", "schedule": {"name": "linear", "duration": 50}}}}, 40, ""),
        ({"n_steps": 100_000, "n_steps_per_epoch": 1000}, 40_000,
         "training of 100,000 steps and more is compiled, which rounds otherwise; with algorithm.compile_graph=false it goes on as "
         "it began"),
        ({"n_steps": 100_000, "n_steps_per_epoch": 1000, "algorithm": {**DQN, "compile_graph": False}}, 40_000, ""),
        ({"n_steps": 300_000, "n_steps_per_epoch": 1000}, 200_000, ""),
        ({"algorithm": {**DQN, "compile_graph": True}}, 30,
         "step 30 is not the end of an epoch, within which compiled steps are done in groups"),
        ({"checkpoint": {"best": "evaluation/return"}}, 30,
         "checkpoint.best has looked at step 30 too, which is no multiple of n_steps_per_epoch, 20"),
        ({"checkpoint": {"best": "evaluation/return"}, "evaluation": {"every": 60}}, 40,
         "checkpoint.best has looked at step 40 too, which is no multiple of evaluation.every, 60"),
        ({"algorithm": "rllib/CQL", "dataset": "pendulum", "evaluation": None}, 40,
         "rllib/CQL does not go on from a checkpoint bit for bit"),
        ({"search": {"n_steps": {"choice": [40, 60]}}}, 40, "n_steps is searched"),
        ({"search": {"algorithm.gamma": {"choice": [0.9, 0.99]}}, "searcher": "optuna"}, 40,
         "the searcher optuna has proposed by what came of 40 steps"),
        ({"search": {"algorithm.gamma": {"choice": [0.9, 0.99]}}, "scheduler": "asha", "n_steps": 400}, 200,
         "the scheduler asha has decided by how many steps there were"),
        ({"search": {"algorithm.gamma": {"choice": [0.9, 0.99]}}, "objective": "train/td_error"}, 30,
         "train/td_error is a mean over epochs, and step 30 is not the end of one"),
        ({"search": {"algorithm.gamma": {"choice": [0.9, 0.99]}}}, 30, ""),
    ],
)  # fmt: skip
def test_why_training_cannot_be_longer_is_said(changes: dict[str, Any], first: int, why: str, data: Path, tmp_path: Path) -> None:
    if changes.get("dataset"):
        changes = {**changes, "dataset": str(data / changes["dataset"])}
    assert config(data, tmp_path, **changes).why_not_longer(first) == why


def test_what_is_refused_is_said_before_any_work(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = config(data, tmp_path, checkpoint={"best": "evaluation/return"}, n_steps=30)
    trained(short)
    said: list[str] = []
    for changes in ({"n_steps": 60}, {"n_steps": 20}, {"n_steps": 60, "algorithm": {**DQN, "gamma": 0.5}}):
        with pytest.raises(ConfigError) as refused:
            run_experiment(
                short.model_copy(update=changes) if "algorithm" not in changes else config(data, tmp_path, **changes), resume=True
            )
        said.append(str(refused.value))
    assert said[0] == (
        "The experiment 'grown' was begun for 30 gradient steps and cannot go on to 60, for checkpoint.best has looked at step 30 "
        "too, which is no multiple of n_steps_per_epoch, 20. To train 60 from the start, say another name, or --replace."
    )
    assert said[1].startswith("The experiment 'grown' was begun with n_steps 30, and now n_steps is 20:")
    assert said[2].startswith("The experiment 'grown' was begun with algorithm.gamma 0.99")
    assert run_command("train", [str(data / "tiny"), "algorithm=DQN", "name=grown", f"storage={tmp_path}"]) == BAD_INPUT
    assert "say --resume to go on with it, also to a larger n_steps, --replace to delete it" in capsys.readouterr().err


def test_once_longer_it_is_longer(data: Path, tmp_path: Path) -> None:
    short = config(data, tmp_path)
    trained(short)
    longer = short.model_copy(update={"n_steps": 60})
    trained(longer, resume=True)
    with pytest.raises(ConfigError, match="was begun with n_steps 60, and now n_steps is 40"):
        trained(short, resume=True)
    trained(longer.model_copy(update={"n_steps": 100}), resume=True)
    assert {one.n_steps for one in read_results(str(tmp_path), "grown").configurations[0].seeds} == {100}


def test_a_plan_has_what_is_left(data: Path, tmp_path: Path) -> None:
    short = config(data, tmp_path)
    trained(short)
    work, _, first = _as_begun(train_work(short.model_copy(update={"n_steps": 100})))
    with rehearsal(work) as experiment:
        experiment.first_n_steps = first
        assert list(_left(work, proposed(work, experiment, 9)[0]).values()) == [60]
    with pytest.raises(ConfigError, match="was begun with n_steps 40, and now n_steps is 20"):
        _as_begun(train_work(short.model_copy(update={"n_steps": 20})))


@pytest.mark.long
def test_runs_in_mlflow_go_on(local_ray: Path, data: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    short = config(data, tmp_path, seeds=(0, 1), loggers=("csv",))
    before = run_experiment(short)
    client, model = MlflowClient(before.tracking_uri), before.models[0]
    assert client.get_model_version_by_alias(model, "candidate").tags["d3ray.step"] == "40"
    after = run_experiment(short.model_copy(update={"n_steps": 60}), resume=True)
    assert after.state == "FINISHED"
    assert [(seed.step, seed.run_id) for seed in after.seeds] == [(60, seed.run_id) for seed in before.seeds]
    for run_id in [str(seed.run_id) for seed in after.seeds]:
        run = client.get_run(run_id)
        assert (run.info.status, run.data.params["n_steps"], run.data.tags["d3ray.n_steps"]) == ("FINISHED", "40", "60")
        assert [one.step for one in client.get_metric_history(run_id, "evaluation/return")] == [20, 40, 60]
        assert read_run(f"runs:/{run_id}", before.tracking_uri).configurations[0].n_steps == 60
    assert client.get_run(str(after.run_id)).data.tags["d3ray.n_steps"] == "60"
    assert client.get_model_version_by_alias(model, "candidate").tags["d3ray.step"] == "60"
    assert [seed.model_version for seed in after.seeds] == ["3", "4"]
    status = StatusReader(str(tmp_path), "grown").read()
    assert {(trial.n_steps, trial.step) for trial in status.trials} == {(60, 60)}
    (csv,) = tmp_path.glob("grown/csv/*/seed-0/evaluation/return.csv")
    assert [line.split(",")[1] for line in csv.read_text().splitlines()] == ["20", "40", "60"]


@pytest.mark.long
def test_a_sweep_in_mlflow_goes_on(local_ray: Path, data: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    short = config(data, tmp_path, search={"algorithm.gamma": {"grid": [0.9, 0.99]}}, searcher="grid", budget={"hours": 1})
    assert isinstance(short, SweepConfig)
    before = run_sweep(short)
    after = run_sweep(short.model_copy(update={"n_steps": 60}), resume=True)
    assert [one.choice for one in after.configurations] == [one.choice for one in before.configurations]
    assert {seed.step for seed in after.seeds} == {60}
    client = MlflowClient(after.tracking_uri)
    for one, seed in zip(after.configurations, after.seeds, strict=True):
        assert client.get_run(str(seed.run_id)).data.metrics["configuration/objective"] == one.scores[0]
    (best,) = (after.configurations[place] for place in after.best.values())
    version = client.get_model_version_by_alias("grown", "candidate")
    assert (version.tags["d3ray.configuration"], version.tags["d3ray.step"]) == (str(best.number), "60")
