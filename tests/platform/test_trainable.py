"""Trials: the same training as outside, the same after a stop, and Tune's schedulers on top."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import DQN, Dataset, Stack
from d3ray.algos.judging.scorers import SCORERS, soft_opc_scorer
from d3ray.algos.learning.divergence import DivergenceWarning
from d3ray.algos.registry import register_algorithm
from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.data.spec import Environment
from d3ray.platform.experiment.checks import check_data
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.outbox import lines
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import Writer
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun, note_failure

ENCODER = {"name": "vector", "hidden_units": [16]}
ROOT = Path(__file__).parents[2]


@register_algorithm
class Bad1(DQN):
    """DQN whose seed 1 begins with a NaN."""

    def networks(self, spec: Any, config: Any) -> Any:
        networks = super().networks(spec, config)
        if torch.initial_seed() == 1:
            with torch.no_grad():
                for network in networks.values():
                    next(network.module.parameters()).fill_(float("nan"))
        return networks


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "tiny"
    rng = np.random.default_rng(0)
    ends = np.zeros(600, bool)
    ends[19::20] = True
    Dataset.from_arrays(
        rng.normal(size=(600, 4)).astype(np.float32),
        rng.integers(0, 2, 600),
        np.ones(600, np.float32),
        ends,
        environment=Environment(id="CartPole-v1"),
        name="tiny",
    ).write(folder)
    return folder


def config(data: Path, folder: Folder | None = None, **changes: Any) -> TrialConfig:
    base: dict[str, Any] = {
        "dataset": str(data),
        "algorithm": {"name": "DQN", "encoder": ENCODER, "batch_size": 8},
        "n_steps": 60,
        "n_steps_per_epoch": 20,
        "evaluation": {"episodes": 2},
        "device": "cpu",
        "folder": None if folder is None else folder.name,
    }
    return TrialConfig.checked({**base, **changes})


def new_trial(tmp_path: Path, data: Path, seeds: tuple[int, ...] = (0,)) -> Trial:
    about = {"name": "tiny", "fingerprint": Dataset.open(data).fingerprint}
    return Trial.create(Folder(tmp_path / "trial"), {"algorithm": {"name": "DQN"}}, seeds, about)


def run_out(run: TrialRun) -> TrialRun:
    while not run.done:
        run.epoch()
    return run


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("seeds", [(3,), (3, 4)])
def test_a_trial_learns_what_fit_learns_and_a_stopped_one_the_same(tmp_path: Path, data: Path, seeds: tuple[int, ...]) -> None:
    alone = DQN(seed=3, encoder=ENCODER, batch_size=8, device="cpu")
    outside = alone if len(seeds) == 1 else Stack(alone, seeds)
    outside.fit(Dataset.open(data), n_steps=60, n_steps_per_epoch=20)
    trial = new_trial(tmp_path, data, seeds)
    run = TrialRun(config(data, trial.folder, seeds=seeds))
    run.epoch()
    run.epoch()
    played = [[line.metrics["evaluation/return"] for line in lines(trial.outbox(seed), -1, 99)] for seed in seeds]
    again = TrialRun(config(data, trial.folder, seeds=seeds))
    assert again.step == 40
    run_out(again).finish()
    assert_same(again.state()[0], outside.state()[0])
    through = run_out(TrialRun(config(data, seeds=seeds)))
    for seed, before in zip(seeds, played, strict=True):
        written = list(lines(trial.outbox(seed), -1, 99))
        assert [line.step for line in written] == [20, 40, 60]
        assert [line.metrics["evaluation/return"] for line in written][:2] == before
        assert written[-1].metrics["evaluation/return"] == through.last[seed]["evaluation/return"]
        assert trial.status[seed]["status"] == "FINISHED"
        assert (tmp_path / f"trial/policy/seed-{seed}/policy.onnx").exists()


def test_a_trial_stopped_before_its_last_word_finishes_without_training(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data)
    run_out(TrialRun(config(data, trial.folder)))  # committed, and killed before `finish`
    again = TrialRun(config(data, trial.folder))
    assert again.done
    again.finish()
    assert trial.status[0]["step"] == 60
    assert "train/critic_loss" in trial.status[0]["metrics"]


def test_the_best_checkpoint_is_kept_and_packaged(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data)
    run = TrialRun(config(data, trial.folder, checkpoint={"best": "train/critic_loss", "keep": 1}))
    losses: dict[int, float] = {}
    while not run.done:
        (metrics,) = run.epoch()
        losses[run.step] = metrics["train/critic_loss"]
    run.finish()
    step = min(losses, key=lambda s: losses[s])
    assert trial.status[0]["best"] == {"metric": "train/critic_loss", "value": losses[step], "step": step}
    assert json.loads((tmp_path / "trial/best/seed-0/meta.json").read_text())["logging_step"] == step
    assert json.loads((tmp_path / "trial/policy/seed-0/policy.json").read_text())["step"] == step


def test_a_best_metric_that_there_is_not_is_said(tmp_path: Path, data: Path) -> None:
    run = TrialRun(config(data, new_trial(tmp_path, data).folder, checkpoint={"best": "train/criticloss"}))
    with pytest.raises(ConfigError, match="did you mean 'train/critic_loss'"):
        run.epoch()


def test_a_seed_that_diverges_fails_alone(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data, (0, 1, 2))
    algorithm = {"name": "Bad1", "encoder": ENCODER, "batch_size": 8}
    run = run_out(TrialRun(config(data, trial.folder, seeds=(0, 1, 2), algorithm=algorithm)))
    run.finish()
    status = trial.status
    assert [status[seed]["status"] for seed in (0, 1, 2)] == ["FINISHED", "FAILED", "FINISHED"]
    assert status[1]["reason"].startswith("diverged at step 0")
    assert status[1]["first_bad_step"] == 0
    assert trial.is_settled
    assert [line.step for line in lines(trial.outbox(0), -1, 99)] == [20, 40, 60]
    assert [line.metrics["first_bad_step"] for line in lines(trial.outbox(1), -1, 99)] == [0]
    assert not (tmp_path / "trial/policy/seed-1").exists()
    alone = run_out(TrialRun(config(data, seeds=(0,), algorithm=algorithm)))
    for name, tensor in run.one(0).state()[0].items():
        torch.testing.assert_close(tensor, alone.state()[0][name], rtol=1e-3, atol=1e-4)


def test_a_single_seed_that_diverges_stops(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data, (1,))
    run = TrialRun(config(data, trial.folder, seeds=(1,), algorithm={"name": "Bad1", "encoder": ENCODER}))
    run_out(run).finish()
    assert run.step == 20
    assert trial.status[1]["status"] == "FAILED"


def test_weights_of_another_trial_leave_this_ones_identity(data: Path) -> None:
    """What population based training does: B goes on from A's weights with its own seed, logging step and coefficients."""
    a = run_out(TrialRun(config(data, seeds=(5,))))
    tensors, meta = a.state()
    changed = {"name": "DQN", "encoder": ENCODER, "batch_size": 8, "learning_rate": 0.5, "gamma": 0.5}
    b = TrialRun(config(data, seeds=(6,), algorithm=changed, n_steps=120))
    b.load(tensors, meta, own=False, reached=20)
    assert b.step == 20
    assert b.subject.step == 60
    assert_same({k: v for k, v in b.state()[0].items() if "hyper" not in k}, {k: v for k, v in tensors.items() if "hyper" not in k})
    learner = b.subject.fit_.learner
    assert learner.seeds == (6,)
    assert float(learner.hyper["gamma"]) == 0.5
    assert learner.values["learning_rate"] == [0.5]
    (metrics,) = b.epoch()
    assert metrics["step"] == 40
    assert b.subject.config_.learning_rate == 0.5
    run_out(b)
    assert b.step == 120


def test_a_taken_over_learner_does_what_a_new_one_does(data: Path) -> None:
    tensors, meta = run_out(TrialRun(config(data))).state()
    changed = config(data, algorithm={"name": "DQN", "encoder": ENCODER, "batch_size": 8, "gamma": 0.5}, n_steps=120)
    before = TrialRun(config(data, n_steps=120))
    before.epoch()
    learner = before.subject.fit_.learner
    states: list[dict[str, torch.Tensor]] = []
    for reuse in (True, False):
        run = TrialRun(changed)
        assert not reuse or run.take_over(before)
        run.load(tensors, meta, own=False, reached=60)
        assert (run.subject.fit_.learner is learner) is reuse
        states.append(run_out(run).state()[0])
    assert_same(*states)
    other = TrialRun(config(data, algorithm={"name": "DQN", "encoder": ENCODER, "batch_size": 9}, n_steps=120))
    assert not other.take_over(before)


def test_held_out_episodes_are_measured(data: Path) -> None:
    run = TrialRun(config(data, evaluation={"holdout": 0.2, "episodes": 1, "every": 60}))
    rows = [run.epoch()[0] for _ in range(3)]
    assert "holdout/td_error" not in rows[0]
    assert 0 <= rows[2]["holdout/action_match"] <= 1
    _, test = Dataset.open(data).split(0.2, seed=0)
    one, errors = run.one(0), []
    for episode in test.episodes:
        value = one.predict_value(episode.observations[:-1], episode.actions)
        after = one.predict_value(episode.observations[1:], one.predict(episode.observations[1:]))
        alive = np.ones(len(episode))
        alive[-1] = 0
        errors += list(np.abs(episode.rewards + 0.99 * alive * after - value))
    assert rows[2]["holdout/td_error"] == pytest.approx(np.mean(errors), rel=1e-4)


def test_scorers_of_held_out_episodes_are_metrics_of_a_trial(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data)
    names = ("td_error", "soft_opc", "initial_state_value_estimation", "discrete_action_match")
    evaluation = {"holdout": 0.2, "episodes": 1, "every": 60, "scorers": names, "return_threshold": 20.0}
    run = run_out(TrialRun(config(data, trial.folder, evaluation=evaluation)))
    run.finish()
    told = {line.step: line.metrics for line in lines(trial.outbox(0), -1, 60)}
    _, test = Dataset.open(data).split(0.2, seed=0)
    known = {**SCORERS, "soft_opc": soft_opc_scorer(20.0)}
    assert [any(name.startswith("scorers/") for name in told[step]) for step in (20, 40, 60)] == [False, False, True]
    for name in names:
        assert told[60][f"scorers/{name}"] == pytest.approx(known[name].sign * known[name](run.one(0), test), rel=1e-6)


@pytest.mark.parametrize(
    ("evaluation", "algorithm", "message"),
    [
        ({"scorers": ["td_error"]}, "DQN", "evaluation.scorers look at held-out episodes: say evaluation.holdout too"),
        (
            {"scorers": ["soft_opc"], "holdout": 0.1},
            "DQN",
            "soft_opc and evaluation.return_threshold, which makes a success, go tog",
        ),
        (
            {"return_threshold": 9.0, "holdout": 0.1},
            "DQN",
            "soft_opc and evaluation.return_threshold, which makes a success, go tog",
        ),
        ({"scorers": ["td_eror"], "holdout": 0.1}, "DQN", "evaluation.scorers"),
        ({"scorers": ["td_error"], "holdout": 0.1}, "DiscreteBC", "DiscreteBC learns no values, so there is no td_error of it"),
        (
            {"scorers": ["continuous_action_diff"], "holdout": 0.1},
            "DQN",
            "which continuous_action_diff is not for; say discrete_ac",
        ),
        (
            {"scorers": ["discrete_action_match"], "holdout": 0.1},
            "DiscreteDecisionTransformer",
            "DiscreteDecisionTransformer acts on what came before, and scorers show it single observations",
        ),
    ],
)
def test_scorers_that_cannot_be_measured_are_refused_before_any_work(
    data: Path, evaluation: Any, algorithm: str, message: str
) -> None:
    settings = {"dataset": str(data), "algorithm": algorithm, "evaluation": {**evaluation, "episodes": 1}}
    with pytest.raises(ConfigError) as caught:
        check_data(ExperimentConfig.checked(settings), Dataset.open(data))
    assert message in str(caught.value)


def test_values_that_diverge_are_said_where_a_seed_ends(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data)
    wild = {"name": "DQN", "encoder": ENCODER, "batch_size": 8, "learning_rate": 100.0, "target_update_interval": 1}
    with pytest.warns(DivergenceWarning):
        run_out(TrialRun(config(data, trial.folder, algorithm=wild, evaluation=None))).finish()
    assert trial.status[0]["warning"].startswith("step 20: values diverge: the mean Q-value is ")
    assert trial.status[0]["status"] == "FINISHED"


def test_a_dataset_that_a_worker_cannot_see_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"every machine that trains must see the dataset"):
        TrialRun(config(tmp_path / "nowhere"))


def test_a_worker_that_has_another_dataset_in_its_place_does_not_train(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data)
    ends = np.arange(40) % 20 == 19
    other = Dataset.from_arrays(np.zeros((40, 4), np.float32), np.arange(40) % 2, np.ones(40, np.float32), ends, name="tiny")
    other.write(tmp_path / "tiny")
    says = rf"in the place of 'tiny' than the trial .* {other.fingerprint[:12]} and {trial.dataset['fingerprint'][:12]}\)"
    with pytest.raises(DataError, match=says):
        TrialRun(config(tmp_path / "tiny", trial.folder))
    assert trial.worker is None  # nor has it fenced anybody off


def test_a_failure_leaves_its_reason(tmp_path: Path, data: Path) -> None:
    trial = new_trial(tmp_path, data)
    note_failure(Writer(trial), StorageError("The checkpoint x could not be written: the disk is full."), {})
    assert trial.status[0]["reason"] == "The checkpoint x could not be written: the disk is full"
    assert not trial.is_settled


@pytest.fixture(scope="module")
def ray_here(local_ray: Path) -> None:
    from d3ray.platform.trainable import register

    register()  # a cluster before this one, of another test, took the names with it


@pytest.mark.long
@pytest.mark.usefixtures("ray_here")
def test_population_based_training_moves_weights_and_not_identities(tmp_path: Path, data: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    import d3ray.platform.trainable  # noqa: F401 - registers d3ray/NAME

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="train/critic_loss",
        mode="min",
        perturbation_interval=1,
        quantile_fraction=0.5,
        resample_probability=1.0,
        hyperparam_mutations={"algorithm": {"learning_rate": [1e-3]}},
        synch=True,
    )
    results = tune.Tuner(
        "d3ray/DQN",
        param_space={
            "dataset": str(data),
            "n_steps": 60,
            "n_steps_per_epoch": 20,
            "seed": tune.grid_search([0, 1]),
            "algorithm": {"encoder": ENCODER, "batch_size": 8, "learning_rate": tune.grid_search([1e-3])},
        },
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=True),
        run_config=tune.RunConfig(name="pbt", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert [result.error for result in results] == [None, None]
    assert [result.metrics["step"] for result in results] == [60, 60]
    exploited = (tmp_path / "pbt/pbt_global.txt").read_text().splitlines()
    assert exploited  # weights did move


@pytest.mark.usefixtures("ray_here")
def test_a_wrong_name_or_setting_is_refused_where_the_user_is() -> None:
    from d3ray.platform.trainable import trainable

    with pytest.raises(ConfigError, match="did you mean 'DQN'"):
        trainable("DQM")


@pytest.mark.long
@pytest.mark.usefixtures("ray_here")
def test_the_example_runs(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A user's own Tuner with ASHA."""
    script = ROOT / "examples/own_scheduler.py"
    monkeypatch.setenv("HOME", str(data.parent))  # where Tune keeps results that nobody gave a place
    monkeypatch.setattr(sys, "argv", [str(script), str(data), "80"])
    runpy.run_path(str(script))
    assert "4 trials; best return" in capsys.readouterr().out
