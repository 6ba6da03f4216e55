"""`d3ray judge` killed while FQE trains goes on, and says what it would have said undisturbed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset, DiscreteBC, experiments
from d3ray.algos.testing import maker
from d3ray.platform.experiment.checks import describe_dataset
from d3ray.platform.judging.policies import keep
from d3ray.platform.judging.run import judge
from d3ray.platform.judging.settings import JudgeSettings
from d3ray.platform.judging.training import fqe_experiment, fqe_work
from d3ray.platform.planning.rehearsal import proposed, rehearsal
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from ...faults.processes import Command, clean_environment
from .test_judging import bandit

N_STEPS = 3000


def visits(n: int) -> Dataset:
    """The rows of `bandit`, of which two make an episode: FQE then trains in trials."""
    columns, log_prob = bandit(n).columns, np.full(n, np.log(1 / 3))
    seen, action, reward = (columns[name][: 2 * n : 2] for name in ("observation", "action", "reward"))
    return Dataset.from_arrays(seen, action, reward, np.arange(n) % 2 == 1, extra={"log_prob": log_prob}, name="visits")


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """What is asked for, in a storage of a name."""
    logs = visits(60)
    logs.write(tmp_path / "logs")
    maker(DiscreteBC)().fit(bandit(50), 5, 5).save(tmp_path / "policy")

    def settings(storage: str) -> dict[str, Any]:
        return {
            "policies": str(tmp_path / "policy"),
            "dataset": str(tmp_path / "logs"),
            "fqe": {"encoder": {"hidden_units": [16]}, "batch_size": 8},
            "n_steps": N_STEPS,
            "seeds": [0, 1],
            "storage": str(tmp_path / storage),
        }

    return settings


def numbers(storage: str) -> Any:
    """What a judgement's record says of its policy, but for where things lie."""
    (verdict,) = json.loads((Path(storage) / "judge-logs/judgement.json").read_text())["verdicts"]
    assert verdict["estimates"]["rows"]["DM"]["value"] is not None
    return verdict["estimates"], verdict["by_seed"]


def test_a_training_of_fqe_that_was_cut_off_ends_as_one_that_was_not(tmp_path: Path, asked: Callable[..., dict[str, Any]]) -> None:
    settings = JudgeSettings.checked({**asked("there"), "n_steps": 100})
    dataset = Dataset.open(settings.dataset)
    (kept,) = keep(settings.sources, settings.storage_place, None)
    about = fqe_experiment(settings, dataset, settings.dataset, kept.path).configuration()
    ended = []
    for name, cut in (("whole", 0), ("cut", 4)):
        trial = Trial.create(Folder(tmp_path / name), about, settings.seeds, describe_dataset(dataset, settings.dataset))
        training = {key: about[key] for key in ("algorithm", "n_steps", "n_steps_per_epoch")}
        told = {**training, "dataset": settings.dataset, "seeds": settings.seeds, "device": "cpu", "folder": trial.folder.name}
        run = TrialRun(TrialConfig.checked(told))
        for _ in range(cut):
            run.epoch()
        run = TrialRun(TrialConfig.checked(told)) if cut else run
        assert run.step == 10 * cut
        while not run.done:
            run.epoch()
        ended.append((tmp_path / name / "checkpoints/step-000000100/tensors.safetensors").read_bytes())
    assert ended[0] == ended[1]


def test_seeds_of_fqe_stay_in_one_trial(asked: Callable[..., dict[str, Any]]) -> None:
    settings = JudgeSettings.checked(asked("there"))
    dataset, kept = Dataset.open(settings.dataset), keep(settings.sources, settings.storage_place, None)
    work = fqe_work(settings, dataset, kept, [fqe_experiment(settings, dataset, settings.dataset, one.path) for one in kept])
    assert work.undivided == "a policy is judged by all seeds of its FQE together"
    with rehearsal(work.stacked(1)) as experiment:
        (trial,) = proposed(work.stacked(1), experiment, 10)[0]
        assert trial.seeds == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.timeout(300)
def test_a_judgement_that_was_killed_while_fqe_trained_goes_on_to_the_same_numbers(
    tmp_path: Path, asked: Callable[..., dict[str, Any]], by: signal.Signals
) -> None:
    killed = asked("killed")
    (tmp_path / "judge.yaml").write_text(json.dumps(killed))
    command = Command(["d3ray.jobs", "judge", "--config", str(tmp_path / "judge.yaml")], tmp_path, clean_environment())
    try:
        trials = Path(killed["storage"]) / "judge-logs/trials"
        command.until(lambda: list(trials.glob("*/checkpoints/step-*")))
        os.killpg(command.process.pid, by)
        command.wait()
    finally:
        command.end()
    left = experiments.open("judge-logs", storage=killed["storage"])
    assert [one.label for one in left.status().trials] == ["FQE of policy"]
    assert left.settings() == {"job": "judge", "config": killed}
    (trial,) = Experiment.look(killed["storage"], "judge-logs").trials()
    assert 0 < trial.committed < N_STEPS
    assert not (Path(killed["storage"]) / "judge-logs/judgement.json").exists()
    judge(JudgeSettings.checked(killed), resume=True)
    judge(JudgeSettings.checked(undisturbed := asked("undisturbed")))
    assert numbers(killed["storage"]) == numbers(undisturbed["storage"])
