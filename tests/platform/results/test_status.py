"""How an experiment stands, from its storage alone; times by hand."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.record.status import Status, rate_of
from d3ray.platform.results import status_reader
from d3ray.platform.results.progress import Progress, TrialProgress
from d3ray.platform.results.status_reader import StatusReader
from d3ray.platform.statistics import summarise
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.locks import Lock

from .fake_status import METRIC, SEARCH, begin, configuration, write_trial
from .fake_status import since as begun_at

NOW = float(int(time.time()))  # files that are written now are of this moment
DIVERGED = {"status": "FAILED", "reason": "diverged at step 217", "final": True, "step": 217, "time": (NOW - 50) * 1000}


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_reader.time, "time", lambda: NOW)


def since(experiment: Experiment, seconds: float) -> None:
    """The experiment was begun, or taken up again, so long ago."""
    begun_at(experiment, NOW - seconds)


def look(storage: Path | str, name: str = "one") -> Status:
    return StatusReader(str(storage), name).read()


def going(seed: int, upto: int, last: float, every: float = 10.0) -> list[tuple[int, float, dict[int, float]]]:
    """Epochs of 100 steps up to a step, the last of them `last` seconds ago, one in `every` seconds; the return is -step."""
    n = upto // 100
    return [(100 * k, NOW - last - every * (n - k), {seed: -100.0 * k}) for k in range(1, n + 1)]


def test_rates_and_the_time_left_come_from_the_newest_epochs_and_the_slots(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    since(experiment, 100)
    write_trial(experiment, (0,), epochs=going(0, 400, last=5))  # 10 steps a second; 600 left: 60 s, 5 of them gone
    write_trial(experiment, (1,), epochs=going(1, 500, last=0, every=20))  # 5 a second; 500 left: 100 s
    write_trial(experiment, (2,))  # waits 55 s for the first slot, and takes 1000 / 7.5 s, the median
    status = look(tmp_path)
    assert [trial.state for trial in status.trials] == ["RUNNING", "RUNNING", "PENDING"]
    assert [trial.rate for trial in status.trials] == [10.0, 5.0, None]
    assert status.rate == 15.0
    assert status.eta == pytest.approx(55 + 1000 / 7.5)
    assert status.later(NOW + 40).eta == pytest.approx(15 + 1000 / 7.5)
    assert status.elapsed == 100.0
    assert status.share == pytest.approx(900 / 3000)
    assert status.updates == 900
    assert status.metric == METRIC
    assert status.trials[0].scores == {0: -400.0}
    assert status.best is None  # one seed has not been measured
    assert (status.state, status.advice) == ("RUNNING", "")


def test_before_the_first_epoch_nothing_is_known_and_after_it_the_trials_own_speed(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    since(experiment, 100)
    write_trial(experiment, (0, 1), attempt=1)
    assert look(tmp_path).eta is None
    assert look(tmp_path).trials[0].state == "RUNNING"
    write_trial(experiment, (0, 1), epochs=[(100, NOW, {0: 1.0, 1: 2.0})])
    status = look(tmp_path)
    assert status.rate == 77.0  # both seeds: 38.5 steps a second each
    assert status.eta == pytest.approx(900 / 38.5)


def test_a_stack_counts_each_of_its_seeds_and_a_pause_is_not_its_speed(tmp_path: Path) -> None:
    assert rate_of([(0.0, 0), (10.0, 100), (5000.0, 200), (5010.0, 300)]) == 10.0
    assert rate_of([(0.0, 100)]) is None
    assert rate_of([(k * 1.0, 10 * k) for k in range(9)] + [(9.0 + k, 80 + 20 * k) for k in range(1, 6)]) == 20.0  # the newest five
    experiment = begin(tmp_path, "one")
    since(experiment, 100)
    epochs = [(100 * k, NOW - 1000 * (k == 1) - 10 * (4 - k), {0: 1.0, 1: 3.0}) for k in range(1, 5)]
    write_trial(experiment, (0, 1), epochs=epochs)
    status = look(tmp_path)
    assert status.rate == 20.0
    assert status.best is not None
    assert status.best.value == 2.0


def test_a_dead_one_says_so_and_what_to_do(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    since(experiment, 1000)
    write_trial(experiment, (0,), epochs=going(0, 400, last=300))
    write_trial(experiment, (1,))
    assert look(tmp_path).is_running
    experiment.close()
    status = look(tmp_path)
    assert (status.state, status.reason) == ("KILLED", "its command died")
    assert [trial.state for trial in status.trials] == ["KILLED", "PENDING"]
    assert status.advice.startswith("To go on from the last checkpoints: d3ray resume ")
    assert (status.rate, status.eta) == (None, None)
    assert status.elapsed > 600


def test_what_a_resumed_command_has_not_taken_up_again_waits(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    write_trial(experiment, (0,), epochs=going(0, 400, last=300))
    write_trial(experiment, (1,), epochs=going(1, 400, last=300))
    since(experiment, 100)
    for trial, ago in zip(experiment.trials(), (200, 50), strict=True):
        assert trial.folder.local is not None
        attempt = trial.folder.local / "attempt"
        os.utime(attempt, (NOW - ago, NOW - ago))
    status = look(tmp_path)
    assert [trial.state for trial in status.trials] == ["PENDING", "RUNNING"]
    assert status.eta == pytest.approx(60 - 50 + 60)  # what runs did its last epoch before it was taken up


def test_the_best_is_chosen_as_the_objective_says_and_has_an_interval(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one", **SEARCH)
    since(experiment, 100)
    alphas = {n: {"alpha": float(n)} for n in range(6)}
    write_trial(experiment, (0, 1, 2), 0, settings=alphas[0], epochs=[(1000, NOW - 9, {0: 1, 1: 2, 2: 3})], ended="FINISHED")
    write_trial(experiment, (0, 1, 2), 1, settings=alphas[1], epochs=[(1000, NOW - 8, {0: 4, 1: 2, 2: 6})], ended="FINISHED")
    write_trial(experiment, (0, 1, 2), 2, settings=alphas[2], epochs=[(100, NOW - 7, {0: 9, 1: 9})])  # seed 2 is not measured
    bad = dict.fromkeys((0, 1), DIVERGED) | {2: {"status": "FINISHED", "step": 1000, "metrics": {METRIC: 3.5}}}
    write_trial(experiment, (0, 1, 2), 3, settings=alphas[3], epochs=[(1000, NOW - 6, {2: 3.5})], ended=bad)
    stopped = {"status": "KILLED", "reason": "stopped by asha at step 200", "final": True, "step": 200, "metrics": {METRIC: 0.5}}
    write_trial(experiment, (0,), 4, settings=alphas[4], ended={0: stopped})
    write_trial(experiment, (0,), 5, settings=alphas[5], epochs=[(100, NOW, {0: float("nan")})])
    status = look(tmp_path)
    assert [(one.number, one.value) for one in status.ranked] == [(1, 4.0), (3, 3.5), (0, 2.0), (4, 0.5)]
    assert status.best is not None
    assert status.best.interval == summarise([4.0, 2.0, 6.0]).interval
    assert status.best.label == "alpha=1"
    assert status.counts == {"FINISHED": 2, "RUNNING": 2, "FAILED": 1, "STOPPED": 1}
    assert [(fault.number, fault.seeds, fault.reason) for fault in status.errors] == [(3, (0, 1), "diverged at step 217")]
    assert status.trials[3].step == 1000
    by_error = begin(tmp_path, "two", **{**SEARCH, "objective": {"metric": METRIC, "mode": "min", "seeds": "mean"}})
    for number, value in enumerate((3.0, 1.0, 2.0)):
        write_trial(by_error, (0,), number, settings=alphas[number], epochs=[(1000, NOW, {0: value})], ended="FINISHED")
    assert [one.number for one in look(tmp_path, "two").ranked] == [1, 2, 0]


def test_a_budget_counts_what_is_still_to_be_proposed(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one", **{**SEARCH, "budget": {"configurations": 4, "hours": 1.0, "gpu_hours": None}})
    since(experiment, 100)
    write_trial(experiment, (0,), 0, settings={"alpha": 1.0}, epochs=going(0, 1000, last=50), ended="FINISHED")
    write_trial(experiment, (0,), 1, settings={"alpha": 2.0}, epochs=going(0, 500, last=0))
    status = look(tmp_path)
    assert status.share == pytest.approx(1.5 / 4)
    usual = (10 + 77) / 2  # steps a second: measured now, and as the finished one says itself
    assert status.eta == pytest.approx(50 + 2 * 1000 / usual)
    assert (status.expected, status.budget.limits) == (4, {"configurations": 4, "hours": 1.0})
    experiment.folder.write_json("spent.json", {"seconds": 3590.0, "gpu_seconds": 0.0})
    assert look(tmp_path).eta == pytest.approx(10.0)  # the hour is over


def test_what_is_half_made_or_damaged_hides_nothing_else(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    write_trial(experiment, (0,), epochs=going(0, 400, last=0))
    trials = tmp_path / "one" / "trials"
    (trials / "half-made").mkdir()
    (trials / ".deleted-x").mkdir()
    damaged = write_trial(experiment, (1,), epochs=going(1, 400, last=0), ended="FINISHED")
    damaged.folder.write("status.json", b"{")
    status = look(tmp_path)
    assert [[one.seed for one in trial.seeds] for trial in status.trials] == [[0]]
    (trouble,) = status.trouble
    assert trouble.endswith("status.json is damaged: it is not JSON.")
    (tmp_path / "one" / "state.json").unlink()
    assert (look(tmp_path).state, look(tmp_path).reason) == ("PENDING", "its command is starting")
    experiment.close()
    assert look(tmp_path).state == "KILLED"
    assert json.loads(look(tmp_path).model_dump_json())["trials"][0]["seeds"][0]["score"] == -400.0


def test_looking_changes_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    write_trial(experiment, (0,), epochs=going(0, 400, last=0))
    experiment.close()

    def files() -> dict[str, Any]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}

    before, reader, stop = files(), StatusReader(str(tmp_path), "one"), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            reader.experiment.lock.is_free()
            time.sleep(0.0005)

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for asker in askers:
        asker.start()
    lock = Lock(Folder(tmp_path / "one"))
    for _ in range(100):
        assert lock.acquire()
        assert not Lock(Folder(tmp_path / "one")).is_free()
        lock.release()
    stop.set()
    for asker in askers:
        asker.join()
    with (tmp_path / "one" / "lock").open() as another:  # that asks at the very same moment
        fcntl.flock(another, fcntl.LOCK_SH)
        assert look(tmp_path).state == "KILLED"
    after = files()
    lock_file = str(tmp_path / "one" / "lock")
    assert {name: after[name] for name in after if name != lock_file} == {
        name: before[name] for name in before if name != lock_file
    }


def test_storage_behind_a_uri_says_the_same(tmp_path: Path) -> None:
    uri = f"fsspec+memory://{tmp_path.name}"
    begun = [begin(storage, "one") for storage in (str(tmp_path), uri)]
    for experiment in begun:
        since(experiment, 100)
        write_trial(experiment, (0,), epochs=going(0, 400, last=5))
        write_trial(experiment, (1,), epochs=going(1, 1000, last=5), ended="FINISHED")
        write_trial(experiment, (2,))
    ours, theirs = look(tmp_path), look(uri)
    assert [trial.state for trial in theirs.trials] == ["RUNNING", "FINISHED", "PENDING"]
    assert [one.model_copy(update={"at": 0}) for one in theirs.trials] == [one.model_copy(update={"at": 0}) for one in ours.trials]
    begun[1].folder.write_json("lock", {"owner": "x", "time": NOW - 61})  # a note that nobody renews
    assert [trial.state for trial in look(uri).trials] == ["KILLED", "FINISHED", "PENDING"]


def test_what_is_settled_is_read_once_until_the_experiment_is_taken_up_again(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,), epochs=going(0, 1000, last=5), ended="FINISHED")
    reader = StatusReader(str(tmp_path), "one")
    assert reader.read().trials[0].state == "FINISHED"
    trial.folder.delete(["status.json"])
    assert reader.read().trials[0].state == "FINISHED"
    since(experiment, 1)
    assert reader.read().trials[0].state == "PENDING"  # to be taken up again
    write_trial(experiment, (1,), attempt=1)
    assert len(reader.read().trials) == 2


def test_the_driver_knows_of_epochs_that_no_checkpoint_stands_for(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    since(experiment, 100)
    first = write_trial(experiment, (0,), epochs=going(0, 200, last=20))
    second = write_trial(experiment, (1,), attempt=1)
    ended = write_trial(experiment, (2,), epochs=going(2, 1000, last=5), ended="FINISHED")
    progress = Progress({t.identity: TrialProgress(t.identity, None, t.seeds, 1000) for t in (first, second, ended)})
    one = progress.trials[first.identity]
    one.state, one.step, one.metrics = "RUNNING", 600, {0: {METRIC: -1.0}}
    one.moments.extend([(NOW - 20, 400), (NOW - 10, 600)])
    progress.trials[ended.identity].state = "RUNNING"  # it ended since
    status = StatusReader(str(tmp_path), "one").read(progress)
    assert [trial.state for trial in status.trials] == ["RUNNING", "PENDING", "FINISHED"]
    assert (status.trials[0].step, status.trials[0].scores, status.trials[0].rate) == (600, {0: -1.0}, 20.0)
    assert status.eta == pytest.approx(400 / 20 - 10 + 1000 / 48.5)  # 48.5: between 20 and the finished one's 77


def test_a_trial_that_has_a_title_is_called_by_it(tmp_path: Path) -> None:
    """A judgement's trials differ in the place of a policy, which tells nobody which it is."""
    experiment = begin(tmp_path, "one")
    for k, title in enumerate(("FQE of b", "FQE of a")):
        experiment.trial({**configuration(), "algorithm": {"name": "FQE", "algo": f"/somewhere/{k}"}}, (0, 1), title=title)
    assert [trial.label for trial in look(tmp_path).trials] == ["FQE of a", "FQE of b"]
    assert [one.label for one in look(tmp_path).trials] == ["FQE of a", "FQE of b"]


def test_a_name_that_there_is_not_is_refused_with_the_nearest(tmp_path: Path) -> None:
    begin(tmp_path, "pendulum").close()
    with pytest.raises(ConfigError, match=r"no experiment 'pendulm' in .*; did you mean 'pendulum'\?"):
        StatusReader(str(tmp_path), "pendulm")


def test_without_an_evaluation_there_is_no_score_and_held_out_data_have_theirs(tmp_path: Path) -> None:
    begin(tmp_path, "losses", evaluation=None)
    assert look(tmp_path, "losses").metric is None
    settings = {**configuration(), "evaluation": {"environment": None, "holdout": 0.1}}
    plain = {"name": "x", "fingerprint": "y", "environment": None, "schema": {"action": ["int64"]}}
    Experiment.begin(str(tmp_path), "held", settings, plain)
    status = look(tmp_path, "held")
    assert (status.metric, status.mode) == ("holdout/action_match", "max")
