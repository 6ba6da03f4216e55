"""What failed is tried again by `--resume`, so often and no more, counted in the trial's folder."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from d3ray import Dataset
from d3ray.jobs.command.running import run_command
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial
from d3ray.platform.tracking.runs import Tracking

FAILED: dict[str, Any] = {"status": "FAILED", "reason": "no luck", "step": 0}
BAD_LUCK = """
import os
from pathlib import Path
from d3ray.platform.worker import trial_run

def epoch(self, call=trial_run.TrialRun.epoch):
    if (Path(__file__).parent / "bad_luck").exists():
        raise RuntimeError("no luck")
    if (Path(__file__).parent / "death").exists():
        os._exit(1)
    if (mortal := Path(__file__).parent / "mortal").exists() and not (mortal / str(self.step)).exists():
        (mortal / str(self.step)).touch()
        os._exit(1)  # once before each epoch
    return call(self)

trial_run.TrialRun.epoch = epoch
"""


def test_retries_are_counted_where_a_failure_is_reopened(tmp_path: Path) -> None:
    trial = Trial.create(Folder(tmp_path), {"n_steps": 1}, (0, 1), {})
    trial.reopen()  # begun for the first time
    assert trial.retried == 0
    for retried in range(3):
        trial.settle({0: FAILED, 1: FAILED})
        trial.give_up_after(2)
        assert trial.is_settled == (retried == 2)
        if not trial.is_settled:
            trial.reopen()
            trial.reopen()  # once a failure, however often it is said
            assert trial.retried == retried + 1
    trial.give_up_after(3)  # one more
    assert not trial.is_settled
    assert trial.status[0] == {**FAILED, "final": False, "retries_used": False}
    trial.reopen()
    trial.settle({0: {"status": "KILLED"}, 1: {"status": "FINISHED"}})
    trial.give_up_after(0)
    assert not trial.is_settled  # what was stopped has not failed
    trial.reopen()
    assert trial.retried == 3
    trial.settle({0: {**FAILED, "final": True}, 1: {"status": "FINISHED"}})
    trial.give_up_after(9)
    assert trial.is_settled  # it diverged


@pytest.fixture(scope="module")
def plugins(local_ray: Path) -> Iterator[Path]:
    """Files here decide over the luck of trials, from when the plugin is imported, here too."""
    (local_ray / "luck_of_retries.py").write_text(BAD_LUCK)
    yield local_ray
    for luck in ("bad_luck", "death"):
        (local_ray / luck).unlink(missing_ok=True)
    shutil.rmtree(local_ray / "mortal", ignore_errors=True)


def attempt(storage: Path, *more: str) -> tuple[int, str, str]:
    """Exit status, how often the trial was begun, and what MLflow says of it."""
    command = ["d3ray/cartpole-replay", "algorithm=DQN", "algorithm.preset=small", "n_steps=20", "n_steps_per_epoch=10"]
    command += [f"storage={storage}", "name=unlucky", "plugins=[luck_of_retries]", "evaluation.episodes=1"]
    status = run_command("train", [*command, *more])
    (trial,) = (storage / "unlucky/trials").iterdir()
    tracking = Tracking.open(str(storage))
    (run,) = tracking.client.search_runs([tracking.experiment_id], "tags.`d3ray.kind` = 'seed'")
    return status, (trial / "attempt").read_text(), f"{run.info.status}: {run.data.tags.get('d3ray.reason')}"


@pytest.mark.long
def test_a_failure_is_tried_again_and_then_final(plugins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plugins / "bad_luck").touch()
    assert attempt(tmp_path, "retries=1") == (1, "1", "FAILED: RuntimeError: no luck")
    assert capsys.readouterr().err.endswith(
        f"seed 0: RuntimeError: no luck. Once that is mended, d3ray resume unlucky storage={tmp_path} goes on.\n"
    )
    assert attempt(tmp_path, "retries=1", "--resume") == (1, "2", "FAILED: RuntimeError: no luck")
    assert "as often as `retries` says" in capsys.readouterr().err
    assert attempt(tmp_path, "retries=1", "--resume") == (1, "2", "FAILED: RuntimeError: no luck")  # it is left alone
    (plugins / "bad_luck").unlink()
    assert attempt(tmp_path, "retries=2", "--resume") == (0, "3", "FINISHED: None")


def test_what_a_dead_worker_leaves_as_a_pickle_is_not_read(plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune pickles the error into the storage, and would read it back when all trials have ended."""
    from ray.tune.experiment import Trial as TuneTrial

    read: list[object] = []
    monkeypatch.setattr(TuneTrial, "get_pickled_error", lambda trial: read.append(trial.run_metadata.pickled_error_filename))
    (plugins / "death").touch()
    status, begun, said = attempt(tmp_path, "retries=0")
    (plugins / "death").unlink()
    assert (status, begun) == (1, "1")
    assert said == "FAILED: its worker died once: it was killed (SIGKILL), or ended itself"
    (pickled,) = (tmp_path / "unlucky/tune").rglob("error.pkl")
    assert read == [None], pickled
    assert stat.S_IMODE((tmp_path / "unlucky/tune").stat().st_mode) == 0o700  # and nobody else could have written one


@pytest.mark.long
def test_a_trial_whose_workers_die_but_that_gets_on_is_trained(
    plugins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two deaths, where one without a checkpoint between is allowed."""
    (plugins / "mortal").mkdir()
    ended = attempt(tmp_path, "retries=1")
    (plugins / "mortal").rename(plugins / "was_mortal")
    assert ended == (0, "3", "FINISHED: None")
    assert {file.name for file in (plugins / "was_mortal").iterdir()} == {"0", "10"}
    assert "Traceback" not in capsys.readouterr().err
    assert (tmp_path / "unlucky/faults.log").read_text().count("ActorDiedError") >= 2


def test_a_worker_that_tune_throws_away_fences_nobody_off(tmp_path: Path) -> None:
    """Tune starts one for each trial, and gives the trial to another that became free meanwhile."""
    from d3ray.platform.trainable import trainable

    about = {"name": "cartpole-replay", "fingerprint": Dataset.open("d3ray/cartpole-replay").fingerprint}
    trial = Trial.create(Folder(tmp_path / "trial"), {"n_steps": 2}, (0,), about)
    told: dict[str, Any] = {"dataset": "d3ray/cartpole-replay", "algorithm": {"name": "DQN"}, "n_steps": 2, "n_steps_per_epoch": 1}
    config = {"trial": {**told, "folder": trial.folder.name}}
    used = trainable("DQN")(config=config)
    assert not used.step()["done"]
    thrown_away = trainable("DQN")(config=config)
    assert used.step()["done"]
    assert trial.status[0]["status"] == "FINISHED"
    assert trial.folder.read("attempt") == b"1"
    thrown_away.cleanup()
    used.cleanup()


@pytest.mark.usefixtures("plugins")  # a Ray
def test_a_trial_that_tune_gives_up_too_soon_is_handed_out_again(tmp_path: Path) -> None:
    """As when a node dies under two calls to one worker: the second failure finds the trial waiting, not running."""
    from d3ray.platform.driver.proposer import Listed
    from d3ray.platform.driver.trial_queue import TrialQueue, TuneSearcher

    trial = Trial.create(Folder(tmp_path / "trial"), {"n_steps": 2}, (0,), {})
    queue = TrialQueue(Listed([trial]), lambda one: {"folder": one.identity, "resources": {"cpu": 1, "gpu": 0}})
    first = queue.suggest("a")
    assert queue.suggest("b") is None  # not finished: "a" may come back
    queue.died("a")
    assert queue.given_up("a", most=1)
    assert queue.suggest("c") == first
    queue.died("c")
    assert not queue.given_up("c", most=1)  # the second death
    queue.lost("c")
    assert queue.suggest("d") == TuneSearcher.FINISHED


@pytest.mark.usefixtures("plugins")  # a Ray
def test_only_deaths_since_the_newest_checkpoint_count(tmp_path: Path) -> None:
    """Machines that are taken away now and then do not fail a trial that gets on meanwhile."""
    from d3ray.platform.driver.proposer import Listed
    from d3ray.platform.driver.trial_queue import TrialQueue

    trial = Trial.create(Folder(tmp_path / "trial"), {"n_steps": 9}, (0,), {})
    queue = TrialQueue(Listed([trial]), lambda one: {"folder": one.identity, "resources": {"cpu": 1, "gpu": 0}})
    queue.suggest("a")
    assert queue.deaths("a") == 0
    counts: list[int] = []
    for step in (0, 0, 1, 1, 1, 2):  # the newest checkpoint's, when the worker dies; 0: there is none
        if step:
            (tmp_path / f"trial/checkpoints/step-{step:09d}").mkdir(parents=True, exist_ok=True)
        counts.append(queue.died("a"))
        assert queue.deaths("a") == counts[-1]
    assert counts == [1, 2, 1, 2, 3, 1]
    assert queue.given_up("a", most=2)
    queue.suggest("b")  # what Tune takes for another trial
    assert queue.deaths("b") == 1
    queue.died("b")
    queue.died("b")
    assert not queue.given_up("b", most=2)
