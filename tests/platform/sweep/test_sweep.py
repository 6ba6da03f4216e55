"""Sweeps: what is proposed and resumed, from folders alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Environment
from d3ray.platform.driver.budget import Spent
from d3ray.platform.experiment.checks import describe_dataset
from d3ray.platform.results.configurations import best_by, read_configurations
from d3ray.platform.settings.config import Limits
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import run_sweep

from .small_sweep import SEARCH, Driver, sweep, write_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("sweep"))


# ---- settings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": "evaluation/return", "evaluation": None}, "objective.metric is evaluation/return, which nothing measures"),
        (
            {"objective": {"metric": "holdout/td_error", "seeds": "lower_bound"}, "seeds": (0,)},
            "lower_bound, which needs two seeds",
        ),
        ({"scheduler": "ash"}, "did you mean 'asha'?"),
        ({"scheduler": "asha", "seeds_per_trial": 1}, "compares configurations over all their seeds"),
        ({"budget": {"hour": 3}}, "did you mean 'hours'?"),
        ({"search": {"algorithm.gama": 0.9}}, "did you mean 'gamma'?"),
        ({"scheduler": "pbt", "search": {"algorithm.gamma": {"choice": [0.9, 0.99]}}}, "and there is none"),
        ({"scheduler": {"name": "pbt", "population": 4}}, "scheduler.population is 4 and budget.configurations 6"),
        ({"scheduler": "pbt", "budget": {"configurations": 1}}, "pbt compares the trials of a population, and here is 1;"),
        ({"scheduler": "pbt", "budget": {"hours": 1}}, "say scheduler.population, how many there are"),
        ({"scheduler": "asha", "evaluation": {"holdout": 0.2, "every": 40}}, "at step 40 first, and n_steps is 40: none would be"),
    ],
)
def test_settings_are_refused(data: Path, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sweep(data, tmp_path, **changes)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"objective": "holdout/td_eror"}, ConfigError, "measures no 'holdout/td_eror'; did you mean 'holdout/td_error'?"),
        ({"search": {"dataset": {"grid": ["tiny", "nowhere"]}}}, DataError, "nowhere"),
        ({"search": {"dataset": {"grid": ["tiny", "continuous"]}}}, DataError, "DQN"),
        ({"searcher": "grid"}, ConfigError, "algorithm.learning_rate has no end of values"),
    ],
)
def test_what_only_data_and_searchers_can_tell_is_refused_before_anything_runs(
    data: Path, tmp_path: Path, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    search = changes.get("search", {})
    if "dataset" in search:
        changes = {"search": {"dataset": {"grid": [str(data / name) for name in search["dataset"]["grid"]]}}}
    with pytest.raises(error) as refused:
        run_sweep(sweep(data, tmp_path / "results", **changes))
    assert said in str(refused.value)
    assert not (tmp_path / "results").exists()


def test_a_population_goes_on_as_a_whole(data: Path, tmp_path: Path) -> None:
    spaces = {"algorithm.learning_rate": {"loguniform": [1e-4, 1e-2]}}
    with pytest.raises(ConfigError, match="trials of a population go on together"):
        run_sweep(sweep(data, tmp_path / "results", scheduler="pbt", search=spaces), resume=True, trial="one")
    assert not (tmp_path / "results").exists()


def test_what_is_left_out_follows_from_the_rest(data: Path, tmp_path: Path) -> None:
    search = {"dataset": {"grid": [str(data / "other")]}, "algorithm.name": {"choice": ["DQN", "DiscreteBC"]}, "DQN.gamma": 0.9}
    config = SweepConfig.checked({"search": search, "seeds": (3, 4, 5), "storage": str(tmp_path)})
    assert (config.dataset, config.algorithm.name, config.seeds_per_trial) == (str(data / "other"), "DQN", 3)
    assert (config.experiment, config.groups()) == ("sweep", [(3, 4, 5)])
    assert sweep(data, tmp_path, name=None).experiment == "sweep-DQN-tiny"
    assert config.max_configurations(None) == 20
    assert config.max_configurations(7) == 7
    assert SweepConfig.checked({"search": search, "searcher": "grid"}).max_configurations(70) == 70
    assert SweepConfig.checked({"search": search, "budget": {"hours": 1}}).max_configurations(None) is None


# ---- proposing


@pytest.mark.parametrize("searcher", ["random", "grid", "optuna"])
def test_a_sweep_that_goes_on_proposes_what_an_undisturbed_one_does(data: Path, tmp_path: Path, searcher: str) -> None:
    search = {"algorithm.learning_rate": {"choice": [1e-4, 1e-3, 1e-2]}, "algorithm.gamma": {"choice": [0.9, 0.99]}}
    search = search if searcher == "grid" else SEARCH
    settings: dict[str, Any] = {"searcher": {"name": searcher, "max_concurrent": 1}, "search": search}
    if searcher == "optuna":
        settings["searcher"]["n_startup_trials"] = 2
    whole = Driver(sweep(data, tmp_path / "whole", **settings))
    assert whole.run() == 6
    for killed_after in (0, 3):
        storage = tmp_path / f"killed-{killed_after}"
        first = Driver(sweep(data, storage, **settings))
        first.run(killed_after)
        cut_off = first.take()  # and the driver dies
        assert cut_off is not None
        first.stop()
        again = Driver(sweep(data, storage, **settings))
        assert again.search.has_more()
        trial = again.take()
        assert trial is not None
        assert trial.identity == cut_off.identity  # what is unfinished goes first
        again.end(trial)
        again.run()
        assert again.chosen() == whole.chosen()
        assert sorted(again.chosen()) == list(range(6))
        assert not again.search.has_more()
        again.stop()
        done = Driver(sweep(data, storage, **settings))
        assert not done.search.has_more()
        assert done.run() == 0


def test_a_searcher_hears_what_became_of_each(data: Path, tmp_path: Path) -> None:
    driver = Driver(sweep(data, tmp_path))
    trials = [driver.take() for _ in range(4)]
    assert [past.ended for past in driver.search.history()] == [None] * 4
    finished, stopped, failed, _ = (trial for trial in trials if trial is not None)
    driver.end(finished)
    driver.end(stopped, "KILLED", final=True, step=20)
    driver.end(failed, "FAILED", final=True)
    past = driver.search.history()
    assert [one.ended for one in past] == ["finished", "stopped", "failed", None]
    status = finished.status
    assert past[0].value == pytest.approx(sum(about["metrics"]["holdout/td_error"] for about in status.values()) / 2)
    assert (past[1].step, past[2].value) == (20, None)
    driver.stop()
    assert Driver(sweep(data, tmp_path)).search.history() == past


def test_seeds_that_train_apart_are_trials_of_one_configuration(data: Path, tmp_path: Path) -> None:
    config = sweep(data, tmp_path, seeds=(0, 1, 2), seeds_per_trial=1, budget={"configurations": 2})
    driver = Driver(config)
    assert [trial.seeds for trial in (driver.take(), driver.take()) if trial] == [(0,), (1,)]
    third = next(trial for trial in driver.experiment.trials() if trial.seeds == (2,))
    third.folder.remove()  # as if the driver had died before it made this one
    driver.stop()
    again = Driver(config)
    assert again.run() == 6
    assert sorted((trial.number, trial.seeds) for trial in again.experiment.trials()) == [
        (n, (s,)) for n in (0, 1) for s in (0, 1, 2)
    ]
    past = again.search.history()
    assert [one.ended for one in past] == ["finished"] * 2
    results = read_configurations(again.experiment.trials(), config.objective)
    assert [len(one.scores) for one in results] == [3, 3]
    assert results[0].value == pytest.approx(past[0].value)


def test_equal_configurations_are_trained_once(data: Path, tmp_path: Path) -> None:
    search = {"algorithm.gamma": {"choice": [0.9, 0.99]}}
    config = sweep(data, tmp_path, search=search, searcher={"name": "grid", "start": ["config"]})
    driver = Driver(config)
    assert driver.run() == 2
    # number 0 is gamma as it stands, 0.99; number 1 is the grid's 0.9, and number 2, its 0.99 again, is left out
    assert driver.chosen() == {0: {"algorithm.gamma": 0.99}, 1: {"algorithm.gamma": 0.9}}


def test_all_of_few_combinations_come_from_a_sobol_sequence(data: Path, tmp_path: Path) -> None:
    search = {"algorithm.learning_rate": {"choice": [1e-4, 1e-3, 1e-2]}, "algorithm.gamma": {"choice": [0.9, 0.99]}}
    assert Driver(sweep(data, tmp_path, search=search, searcher="qmc", budget={})).run() == 6


def test_over_datasets_and_algorithms(data: Path, tmp_path: Path) -> None:
    search = {
        "dataset": {"grid": [str(data / "tiny"), str(data / "other")]},
        "algorithm.name": {"grid": ["DQN", "DiscreteBC"]},
        "DQN.gamma": {"grid": [0.9, 0.99]},
    }
    config = sweep(data, tmp_path, search=search, searcher="grid", objective="holdout/action_match", budget={}, seeds=(0,))
    driver = Driver(config)
    trials = [driver.take() for _ in range(6)]
    kinds = [(t.configuration["algorithm"]["name"], t.dataset["name"]) for t in trials if t is not None]
    assert sorted(kinds) == sorted(2 * [("DQN", "tiny"), ("DQN", "other")] + [("DiscreteBC", "tiny"), ("DiscreteBC", "other")])
    with pytest.raises(StopIteration):
        driver.take()
    for k, trial in enumerate(t for t in trials if t is not None):
        trial.settle({0: {"status": "FINISHED", "step": 40, "metrics": {"holdout/action_match": k / 10}}})
    found = read_configurations(driver.experiment.trials(), config.objective)
    best = best_by(lambda one: one.dataset, found, config.objective)
    highest = {one.dataset: max(o.value for o in found if o.value is not None and o.dataset == one.dataset) for one in found}
    assert {place: one.value for place, one in best.items()} == highest
    assert len(best) == 2


def test_what_a_searcher_proposes_but_cannot_be_built_is_left_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(sweep(data, tmp_path, budget={"configurations": 2}))
    suggest = driver.search._searcher.suggest
    odd = {"algorithm.learning_rate": -1.0, "algorithm.gamma": 0.9}
    monkeypatch.setattr(driver.search._searcher, "suggest", lambda n, history: odd if n == 0 else suggest(n, history))
    assert driver.run() == 2
    assert sorted(driver.chosen()) == [1, 2]
    assert "Configuration 0 is left out. search: DQN: learning_rate is -1" in caplog.text


# ---- budgets


def test_hours_count_over_every_resume(data: Path, tmp_path: Path) -> None:
    now = 1000.0
    config = sweep(data, tmp_path, budget={"hours": 1})

    def clocked(experiment: Experiment) -> Spent:
        return Spent(experiment.folder, Limits(hours=1), lambda: now)

    driver = Driver(config, clocked)
    now += 7200  # nothing runs yet
    trial = driver.take()
    assert trial is not None
    now += 1800
    driver.spent.epoch({"time_this_iter_s": 1800.0, "config": {"trial": {"resources": {"gpu": 0.5}}}})
    driver.stop()  # killed half way
    now = 5.0  # of another boot
    again = Driver(config, clocked)
    trial = again.take()
    assert trial is not None
    now += 1799
    again.end(trial)
    now += 100_000  # nobody counts this: nothing runs
    trial = again.take()  # one second is left
    assert trial is not None
    assert trial.number == 1
    now += 1
    again.end(trial)
    assert not again.search.has_more()
    with pytest.raises(StopIteration):
        again.take()
    again.stop()
    raised = Driver(sweep(data, tmp_path, budget={"hours": 2}))  # which --resume may do
    assert raised.search.has_more()
    assert raised.experiment.configuration["budget"]["hours"] == 2


def test_gpu_hours_are_hours_times_shares(tmp_path: Path) -> None:
    from d3ray.platform.storage.folders import Folder

    spent = Spent(Folder(str(tmp_path)), Limits())
    spent.epoch({"time_this_iter_s": 3600.0, "config": {"trial": {"resources": {"gpu": 0.25}}}})
    spent.epoch({"time_this_iter_s": 1800.0, "config": {"trial": {"resources": {"gpu": 2}}}})
    assert spent.gpu_seconds == 900 + 3600
    for limits, is_over in ((Limits(gpu_hours=1.26), False), (Limits(gpu_hours=1.25), True), (Limits(), False)):
        limited = Spent(Folder(str(tmp_path)), limits)
        limited.gpu_seconds = spent.gpu_seconds
        assert limited.is_over is is_over


def test_what_was_spent_without_a_limit_counts_for_one_that_a_resume_sets(tmp_path: Path) -> None:
    from d3ray.platform.storage.folders import Folder

    now = [0.0]
    before = Spent(Folder(str(tmp_path)), None, lambda: now[0])
    before.began("one")
    now[0] = 60.0
    before.ended("one")
    resumed = [Spent(Folder(str(tmp_path)), None, lambda: now[0], time_limit=seconds) for seconds in (60, 61)]
    assert [one.is_time_up for one in resumed] == [True, False]


def test_a_resumed_sweep_must_be_the_same_but_for_its_budget(data: Path, tmp_path: Path) -> None:
    driver = Driver(sweep(data, tmp_path, budget={"configurations": 2}))
    assert driver.run() == 2
    driver.stop()
    with pytest.raises(ConfigError, match=r"begun with search\.algorithm\.gamma\.choice \[0\.9, 0\.99\]"):
        Driver(sweep(data, tmp_path, search={**SEARCH, "algorithm.gamma": {"choice": [0.9, 0.98]}}))
    more = Driver(sweep(data, tmp_path, budget={"configurations": 3}))
    assert more.run() == 1


def test_other_data_under_the_same_name_are_refused(data: Path, tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    for place, seed in zip(places, (0, 1), strict=True):
        _write(place, seed)
    search = {"dataset": {"grid": [str(place) for place in places]}, "algorithm.gamma": {"choice": [0.9, 0.99]}}
    driver = Driver(sweep(data, tmp_path / "results", search=search))
    assert driver.run() == 4
    driver.stop()
    _write(places[1], 2)
    with pytest.raises(ConfigError, match="begun with other data: 'two' had another fingerprint"):
        Driver(sweep(data, tmp_path / "results", search=search))


def _write(place: Path, seed: int) -> None:
    rng, ends = np.random.default_rng(seed), np.zeros(100, bool)
    ends[9::10] = True
    arrays = rng.normal(size=(100, 4)).astype(np.float32), rng.integers(0, 2, 100), np.ones(100, np.float32), ends
    written = Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name=place.name)
    written.write(place, overwrite=True)
    assert describe_dataset(Dataset.open(place), str(place))["name"] == place.name
