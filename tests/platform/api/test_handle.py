"""Experiments in the hand: those of a storage, with whoever runs jobs in a double or as processes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from d3ray import experiments
from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.api.handle import ExperimentHandle
from d3ray.platform.api.places import Submission
from d3ray.platform.api.processes import Processes
from d3ray.platform.record.jobs import Job
from d3ray.platform.record.results import Results
from d3ray.platform.record.status import Status
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.worker.decisions import stop_of

from ..results.fake_experiment import BEGUN, write_experiment


class Nowhere:
    """Who runs jobs of which only notes are kept."""

    address = "http://head:8265"

    def __init__(self, *jobs: Job, answer: str = "") -> None:
        self.known, self.answer, self.asked, self.stopped = list(jobs), answer, list[list[str]](), list[str]()
        self.started = list[Submission]()

    def start(self, submission: Submission) -> Job:
        self.started.append(submission)
        self.known.append(job(submission.experiment, submission.storage, command=" ".join(submission.flags)))
        return self.known[-1]

    def jobs(self, experiment: str | None = None, storage: str | None = None) -> list[Job]:
        return [one for one in self.known if experiment in (None, one.experiment) and storage in (None, one.storage)]

    def log(self, job: Job) -> str:
        return "first line\nthe last line\n\n"

    def stop(self, job: Job) -> None:
        self.stopped.append(job.id)

    def ask(self, command: str, arguments: Sequence[str]) -> str:
        self.asked.append([command, *arguments])
        if not self.answer:
            raise ConfigError("There is no experiment.")
        return self.answer

    def forget(self, job: Job) -> None:
        self.known.remove(job)


def job(experiment: str, storage: str, state: Any = "RUNNING", started: float = BEGUN + 10, command: str = "d3ray train") -> Job:
    about: dict[str, Any] = {"id": "train-1", "address": "http://head:8265", "command": command}
    return Job(**about, experiment=experiment, storage=storage, state=state, started=started)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two configurations of which one is better."""
    curves = {2.5: {0: [1, 2, 3, 4], 1: [1, 2, 3, 6]}, 5.0: {0: [1, 1, 1, 1], 1: [1, 1, 1, 2]}}
    write_experiment(monkeypatch, tmp_path, "old", curves)
    return tmp_path


def test_importing_it_is_cheap() -> None:
    code = "import sys, d3ray.experiments; print([name for name in ('ray', 'mlflow', 'torch') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_an_experiment_is_told_in_plain_data(storage: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = experiments.open("old", storage=str(storage))
    status, results = one.status(), one.results()
    assert (status.state, status.metric, status.job, status.is_over) == ("FINISHED", "evaluation/return", None, True)
    assert status.best is not None
    assert (status.best.value, status.best.seeds) == (5.0, 2)
    assert Status.model_validate_json(status.model_dump_json()) == status
    good, bad = sorted(results.configurations, key=lambda each: -(each.value or 0.0))
    assert [(each.value, each.chosen, each.dataset) for each in (good, bad)] == [
        (5.0, {"alpha": 2.5}, "hopper-medium-v2"),
        (1.5, {"alpha": 5.0}, "hopper-medium-v2"),
    ]
    assert results.best == {"hopper-medium-v2": results.configurations.index(good)}
    assert [seed.metrics["evaluation/return"] for seed in good.seeds] == [4.0, 6.0]
    assert Results.model_validate_json(results.model_dump_json()) == results
    rows = one.metrics(after=200)
    assert sorted((row.step, row.metrics["evaluation/return"]) for row in rows) == [
        *[(300, 1.0), (300, 1.0), (300, 3.0), (300, 3.0)],
        *[(400, 1.0), (400, 2.0), (400, 4.0), (400, 6.0)],
    ]
    assert len(one.metrics(trial=rows[0].trial)) == 4
    assert [found.name for found in experiments.list(str(storage))] == ["old"]
    assert capfd.readouterr() == ("", "")


def test_names_and_paths_lead_nowhere_else(storage: Path) -> None:
    for name in ("../old", "/etc", "..", "a/b", ""):
        with pytest.raises(ConfigError, match="cannot be a folder's"):
            experiments.open(name, storage=str(storage))
    one = experiments.open("old", storage=str(storage))
    with pytest.raises(ConfigError, match=r"has no trial '\.\./\.\./old'"):
        one.metrics(trial="../../old")
    for target in ("../policy.onnx", "a/../../policy.onnx"):
        with pytest.raises(ConfigError, match="leads out of where it begins"):
            one.export(target)
    with pytest.raises(ConfigError, match="leads out of where it begins"):
        one.report("../pages")
    with pytest.raises(ConfigError, match="did you mean 'old'"):
        experiments.open("odl", storage=str(storage))


def test_what_a_job_is_about_to_begin_is_pending(tmp_path: Path) -> None:
    place = Nowhere(job("new", str(tmp_path)))
    handle = ExperimentHandle("new", str(tmp_path), place)
    assert (handle.status().state, handle.status().reason) == ("PENDING", "its command is starting")
    with pytest.raises(ConfigError, match="has no trials yet"):
        handle.cancel("some")
    handle.cancel()
    assert place.stopped == ["train-1"]
    place.known[0] = job("new", str(tmp_path), "FAILED")
    assert (handle.status().state, handle.status().reason) == ("FAILED", "the last line")
    assert handle.logs(len("first line\n")) == "the last line\n\n"
    handle.delete()
    assert place.known == []


def test_what_runs_is_cancelled_by_a_note(storage: Path) -> None:
    experiment = Experiment.look(str(storage), "old")
    handle = ExperimentHandle("old", str(storage), Nowhere())
    with pytest.raises(ConfigError, match="does not run: it is finished"):
        handle.cancel()
    trial = experiment.trials()[0]
    trial.folder.delete(["status.json"])
    assert experiment.lock.acquire()
    experiment.set_state("RUNNING")
    handle.cancel(trial.identity)
    assert stop_of(trial) == (0, "cancelled")
    with pytest.raises(ConfigError, match="has ended"):
        handle.cancel(experiment.trials()[1].identity)
    with pytest.raises(ConfigError, match="is running"):
        handle.delete()
    assert not experiment.is_cancelled
    handle.cancel()
    assert experiment.is_cancelled
    experiment.close()


def test_what_is_not_seen_from_here_is_asked_of_the_cluster(tmp_path: Path, storage: Path) -> None:
    told = experiments.open("old", storage=str(storage)).status().model_copy(update={"state": "RUNNING"})
    place = Nowhere(job("old", "/data/results"), answer=told.model_dump_json())
    handle = ExperimentHandle("old", "/data/results", place)
    assert handle.status() == told.model_copy(update={"job": place.known[0]})
    handle.cancel("a-trial")
    assert place.asked[-1] == ["cancel", "old", "storage=/data/results", "trial=a-trial"]
    with pytest.raises(StorageError, match="/data/results is not seen from this machine"):
        handle.results()


def test_a_storage_that_is_seen_is_watched_while_a_job_begins(storage: Path) -> None:
    """Each question is a job of the cluster; later there is one, for its storage may be another of the same name."""
    told = experiments.open("old", storage=str(storage)).status().model_copy(update={"name": "new", "state": "RUNNING"})
    for ago, asked in ((5, 0), (100, 1)):
        place = Nowhere(job("new", str(storage), started=time.time() - ago), answer=told.model_dump_json())
        found = ExperimentHandle("new", str(storage), place).status()
        assert (found.state, len(place.asked)) == (("PENDING", "RUNNING")[asked], asked)


def test_a_resume_has_the_settings_of_the_beginning(storage: Path) -> None:
    place = Nowhere()
    handle = ExperimentHandle("old", str(storage), place)
    with pytest.raises(ConfigError, match="kept no settings"):
        handle.resume()
    config = {"dataset": "d3ray/pendulum-replay", "algorithm": {"name": "TD3PlusBC", "alpha": 5.0}, "n_steps": 20}
    Experiment.look(str(storage), "old").keep_settings({"job": "train", "config": config})
    assert handle.settings() == {"job": "train", "config": config}
    trials = Experiment.look(str(storage), "old").trials()
    with pytest.raises(ConfigError, match=r"has ended \(finished\): there is nothing to go on with"):
        handle.resume(trials[0].identity)
    trials[0].settle({seed: {"status": "KILLED", "reason": "cancelled", "final": True} for seed in trials[0].seeds})
    assert [one.identity for one in handle.status().trials if one.may_go_on] == [trials[0].identity]
    with pytest.raises(ConfigError, match=f"has no trial {trials[0].identity[:-1]!r}; did you mean"):
        handle.resume(trials[0].identity[:-1])
    Experiment.look(str(storage), "old").keep_settings({"job": "judge", "config": config})
    with pytest.raises(ConfigError, match="is a judgement, whose trials go on together"):
        handle.resume(trials[0].identity)
    Experiment.look(str(storage), "old").keep_settings({"job": "train", "config": config})
    handle.resume(trials[0].identity)
    assert place.known.pop().command == f"--resume trial={trials[0].identity}"
    handle.resume()
    assert place.known[0].command == "--resume"
    assert handle.status().state == "PENDING"
    with pytest.raises(ConfigError, match="is running"):
        handle.resume()
    with pytest.raises(ConfigError, match="is there already: resume it, replace it"):
        experiments.submit({**config, "name": "old", "storage": str(storage)})


def test_a_resume_may_be_longer(storage: Path) -> None:
    place, experiment = Nowhere(), Experiment.look(str(storage), "old")
    handle = ExperimentHandle("old", str(storage), place)
    first = int(experiment.configuration["n_steps"])
    config = {"dataset": "d3ray/cartpole-replay", "algorithm": {"name": "DQN"}, "n_steps": first, "n_steps_per_epoch": 100}
    experiment.keep_settings({"job": "train", "config": config})
    trial = experiment.trials()[0].identity
    for how, said in (
        ({"n_steps": first - 1}, f"old trains for {first} gradient steps, and n_steps is {first - 1}: say more."),
        ({"n_steps": 200_000}, f"was begun for {first} gradient steps and cannot go on to 200,000, for training of 100,000 steps"),
        ({"n_steps": first + 1, "trial": trial}, "n_steps is of all trials: leave the trial out."),
        ({"n_steps": 0}, "n_steps"),
    ):
        with pytest.raises(ConfigError) as refused:
            handle.resume(**how)
        assert said in str(refused.value)
    experiment.keep_settings({"job": "benchmark", "config": {"suite": "micro"}})
    with pytest.raises(ConfigError, match="old is a benchmark, whose n_steps stay: say another name"):
        handle.resume(n_steps=first + 1)
    experiment.keep_settings({"job": "train", "config": config})
    handle.resume(n_steps=first + 100)
    assert (place.started[-1].flags, place.started[-1].config["n_steps"]) == (["--resume"], first + 100)


def test_a_process_says_how_it_ends(tmp_path: Path) -> None:
    processes, storage = Processes(), str(tmp_path / "results")
    config = {"dataset": str(tmp_path / "nothing"), "algorithm": "DiscreteBC", "storage": storage, "name": "none"}
    handle = experiments.submit(config)
    found = handle.wait(timeout=120)
    assert found.state == "FAILED"
    assert found.job is not None
    assert found.job.exit_status == 2
    assert found.reason == handle.logs().strip().splitlines()[-1]
    assert str(tmp_path / "nothing") in found.reason
    assert oct((processes.folder / found.job.id / "config.yaml").stat().st_mode)[-3:] == "600"

    # one that is killed before it has begun, and one that is asked to stop then
    long = Submission("train", {**config, "name": "long"}, "long", storage, env={"PYTHONPATH": str(tmp_path)})
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")
    jobs = [processes.start(long), processes.start(long)]
    assert [one.state for one in processes.jobs("long", storage)] == ["RUNNING", "RUNNING"]
    psutil.Process(json.loads((processes.folder / jobs[0].id / "job.json").read_text())["pid"]).kill()
    processes.stop(jobs[1])
    deadline = time.monotonic() + 10
    while any(one.is_alive for one in processes.jobs("long", storage)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [(one.state, one.exit_status) for one in processes.jobs("long", storage)] == [("FAILED", 1), ("FAILED", 1)]
    for one in processes.jobs(None, storage):
        processes.forget(one)
    assert processes.jobs(None, storage) == []
