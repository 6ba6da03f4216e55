"""Schedulers stop what they should, forget nothing over a restart, and a stopped trial says why it ended."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from d3ray.algos.learning.divergence import DivergenceWarning
from d3ray.data.config import Config
from d3ray.data.errors import ConfigError
from d3ray.platform.driver.proposer import Listed
from d3ray.platform.driver.trials import run_trials
from d3ray.platform.results.experiment import results_of
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.settings.objective import Objective
from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.scheduler_config import ASHA, PBT, Median, NoScheduler, SchedulerConfig
from d3ray.platform.sweep.schedulers import Stopping, make_scheduler, told
from d3ray.platform.worker.decisions import note_stop, results, stop_of
from d3ray.platform.worker.trial_run import TrialRun

from .sweep_trials import SCORE, Sweep, TuneTrial, commit, curve, lend, plugins, write_dataset


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with plugins():
        yield write_dataset(tmp_path_factory.mktemp("data") / "tiny")


# ---- settings


class Settings(Config):
    scheduler: SchedulerConfig = NoScheduler()
    other: Annotated[int, "beside it"] = 0


def test_a_scheduler_is_named_in_a_word_or_with_its_settings() -> None:
    assert isinstance(Settings.checked({"scheduler": "asha"}).scheduler, ASHA)
    assert Settings.checked({"scheduler": {"name": "median", "min_samples": 5}}).scheduler == Median(min_samples=5)
    with pytest.raises(ConfigError, match="there is no such scheduler; did you mean 'asha'"):
        Settings.checked({"scheduler": "ash"})
    with pytest.raises(ConfigError, match=r"'scheduler\.grace_step'; did you mean 'grace_steps'"):
        Settings.checked({"scheduler": {"name": "asha", "grace_step": 5}})


def experiment(**changes: Any) -> ExperimentConfig:
    base = {"dataset": "d3ray/cartpole-replay", "algorithm": "DQN", "n_steps": 6_400, "n_steps_per_epoch": 40}
    return ExperimentConfig.checked({**base, **changes})


@pytest.mark.parametrize(
    ("scheduler", "changes", "message"),
    [
        (ASHA(), {"seeds": [0, 1]}, "asha compares configurations over all their seeds: set seeds_per_trial to 2"),
        (ASHA(grace_steps=6_400), {}, "at step 6400 first, and n_steps is 6400: none would be stopped; make scheduler.grace_steps"),
        (ASHA(), {"n_steps_per_epoch": 10_000}, "asha looks at trials at step 10000 first, .* make n_steps_per_epoch smaller"),
        (ASHA(), {"n_steps_per_epoch": 6_400}, "make n_steps_per_epoch smaller, it is 6400"),
        (
            ASHA(grace_steps=50),
            {"n_steps_per_epoch": 6_400},
            "make n_steps_per_epoch smaller",
        ),  # it ends there
        (Median(), {"n_steps_per_epoch": 10_000}, "median looks at trials at step 10000 first"),
        (Median(grace_steps=6_380), {}, "at step 6400 first, .* make scheduler.grace_steps smaller, it is 6380"),
        (ASHA(brackets=5), {}, "brackets is 5; it must be at most 3, the number of rungs"),
        (PBT(interval=100), {}, "interval is 100; it must be a multiple of n_steps_per_epoch, which is 40"),
        (PBT(interval=200), {"evaluation": {"every": 80}}, "must be a multiple of evaluation.every, which is 80"),
        (PBT(interval=200), {"checkpoint": {"every": 400}}, "must be a multiple of checkpoint.every, which is 400"),
        (PBT(), {"n_steps": 6_410}, "n_steps is 6410; with pbt it must be a multiple of n_steps_per_epoch"),
        (PBT(interval=6_400), {}, "nothing would be taken over"),
        (PBT(perturb_factors=(0.8, -1.2)), {}, "all must be above 0"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(scheduler: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scheduler.suits(experiment(**changes))


def test_steps_follow_from_the_experiment() -> None:
    assert ASHA().first_step(experiment()) == 120  # 6400 / 4^3 = 100, in epochs of 40
    assert ASHA(grace_steps=50).first_step(experiment()) == 50
    assert Median().first_step(experiment()) == 640
    assert PBT().steps(experiment()) == 320
    assert PBT().steps(experiment(evaluation={"every": 120})) == 360
    assert PBT().perturbed(["a", "b", "c"], ["a", "c"]) == ("a", "c")
    with pytest.raises(ConfigError, match="'b' shapes the program and cannot change"):
        PBT(settings=("b",)).perturbed(["a", "b"], ["a"])
    with pytest.raises(ConfigError, match="'gama' is not searched; did you mean 'gamma'"):
        PBT(settings=("gama",)).perturbed(["gamma"], ["gamma"])
    with pytest.raises(ConfigError, match="and there is none"):
        PBT().perturbed(["algorithm.n_critics"], [])


# ---- rules


def asha(sweep: Sweep, **settings: Any) -> Stopping:
    made = make_scheduler(ASHA(**settings), sweep.config, sweep.experiment, SCORE, {}, 0)
    assert isinstance(made, Stopping)
    return made


def report(scheduler: Stopping, trial: Trial, step: int, score: float) -> str | None:
    """A result as Tune would give it. Why the trial is stopped, None where it goes on."""
    assert scheduler.on_trial_result(None, TuneTrial(trial), {"step": step, "objective": score}) == "CONTINUE"
    stop = stop_of(trial)
    return None if stop is None else stop[1]


def test_asha_by_hand(tmp_path: Path, data: Path) -> None:
    """Rungs at 10, 20, 40, 80; the better half of those that came to a rung before goes on."""
    sweep = Sweep(tmp_path, data)
    scheduler = asha(sweep, grace_steps=10, reduction_factor=2)
    a, b, c, d, e = (sweep.trial(number) for number in range(5))
    assert report(scheduler, a, 10, 1) is None  # nobody before it
    assert report(scheduler, b, 10, 3) is None
    assert report(scheduler, c, 10, 2) is None  # the median of 1, 3 is 2, and 2 is not below
    assert report(scheduler, d, 10, 1.5) == "stopped by asha at step 10"  # the median of 1, 3, 2 is 2
    assert report(scheduler, b, 20, 3) is None
    assert report(scheduler, a, 20, 2.9) == "stopped by asha at step 20"
    assert report(scheduler, c, 20, float("nan")) is None  # cannot be ranked
    assert report(scheduler, e, 20, 3.1) is None  # came to its first rung late: counts at 20
    assert stop_of(d) == (10, "stopped by asha at step 10")


def test_the_smallest_is_best_where_the_objective_says_so(tmp_path: Path, data: Path) -> None:
    sweep = Sweep(tmp_path, data)
    objective = Objective(metric="holdout/td_error")
    scheduler = make_scheduler(ASHA(grace_steps=10, reduction_factor=2), sweep.config, sweep.experiment, objective, {}, 0)
    assert isinstance(scheduler, Stopping)
    assert report(scheduler, sweep.trial(0), 10, 1.0) is None
    assert report(scheduler, sweep.trial(1), 10, 2.0) == "stopped by asha at step 10"


def test_the_median_rule_by_hand(tmp_path: Path, data: Path) -> None:
    """The best so far against the median of the others' means from `grace_steps` on."""
    sweep = Sweep(tmp_path, data)
    scheduler = make_scheduler(Median(grace_steps=20, min_samples=2), sweep.config, sweep.experiment, SCORE, {}, 0)
    assert isinstance(scheduler, Stopping)
    a, b, c = (sweep.trial(number) for number in range(3))
    for step, score in ((10, 100), (20, 4), (20, 4), (20, 4), (30, 6)):  # means from 20 on: 4, 5; what comes again counts once
        assert report(scheduler, a, step, score) is None
    for step, score in ((10, 0), (20, 2), (30, 4)):  # 2, 3
        assert report(scheduler, b, step, score) is None
    assert report(scheduler, c, 10, 1) is None  # too early
    assert report(scheduler, c, 20, 3.8) is None  # the median of 4 and 2 is 3
    assert report(scheduler, c, 30, 2) == "stopped by median at step 30"  # its best is 3.8, the median of 5 and 3 is 4


def slow_asha(heard: list[tuple[int, int, float]], factor: float, first: int, last: int) -> dict[int, int]:
    """The rule of Li et al. (2020) anew: where each trial stops. `heard`: (trial, step, value) in order of time."""
    rungs = [first]
    while rungs[-1] * factor <= last:
        rungs.append(int(rungs[-1] * factor))
    recorded: dict[int, dict[int, float]] = {rung: {} for rung in rungs}
    stopped: dict[int, int] = {}
    for trial, step, value in heard:
        reached = [rung for rung in rungs if rung <= step]
        if trial in stopped or not reached or trial in recorded[reached[-1]]:
            continue
        before = list(recorded[reached[-1]].values())
        if before and value < np.quantile(before, 1 - 1 / factor):
            stopped[trial] = step
        recorded[reached[-1]][trial] = value
    return stopped


@pytest.mark.parametrize("seed", range(3))
def test_asha_forgets_nothing_over_restarts(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A scheduler made anew at any moment decides as the rule does that saw everything."""
    sweep, rng, clock = Sweep(tmp_path, data), random.Random(seed), [1_000]
    monkeypatch.setattr("d3ray.platform.storage.outbox.time.time_ns", lambda: clock[0] * 1_000_000)
    trials = [sweep.trial(number) for number in range(12)]
    scheduler, seen = asha(sweep, grace_steps=10, reduction_factor=2), list[tuple[int, int, float]]()
    steps = dict.fromkeys(range(12), 0)
    while running := [k for k, step in steps.items() if step < 70 and stop_of(trials[k]) is None]:
        k = rng.choice(running)
        steps[k] += 10
        clock[0] += 1
        score = rng.random()
        seen.append((k, steps[k], score))
        commit(trials[k], steps[k], {0: score})
        if rng.random() < 0.2:  # the driver dies, before or after it decides
            if rng.random() < 0.5:
                report(scheduler, trials[k], steps[k], score)
            scheduler = asha(sweep, grace_steps=10, reduction_factor=2)
        report(scheduler, trials[k], steps[k], score)  # once more: its worker was started again, or the driver heard it before
    found = {k: stop[0] for k, trial in enumerate(trials) if (stop := stop_of(trial)) is not None}
    assert found == slow_asha(seen, 2, 10, 80)
    assert len(found) > 4


def test_the_median_rule_forgets_nothing_over_a_restart(tmp_path: Path, data: Path) -> None:
    sweep = Sweep(tmp_path, data)
    a, b, c = (sweep.trial(number) for number in range(3))
    for step in (10, 20):
        commit(a, step, {0: 4.0})
        commit(b, step, {0: 2.0})
        commit(c, step, {0: 3.0 - step / 10})
    a.settle({0: {"status": "FINISHED"}})
    made = [make_scheduler(Median(grace_steps=10, min_samples=2), sweep.config, sweep.experiment, SCORE, {}, 0) for _ in range(2)]
    assert isinstance(made[1], Stopping)
    assert stop_of(a) is stop_of(b) is None
    assert stop_of(c) == (20, "stopped by median at step 20")  # nobody had decided about that result
    d, e = sweep.trial(3), sweep.trial(4)
    assert report(made[1], d, 10, 2.1) is None  # the median of 4, 2 and 2 is 2
    assert report(made[1], e, 10, 2.0) == "stopped by median at step 10"  # of 4, 2, 2 and 2.1 it is 2.05


# ---- what a worker does


def run_out(run: TrialRun) -> TrialRun:
    """As `Training.step` does it, without the last word."""
    run.heed()
    while not run.done:
        run.epoch()
        run.heed()
    return run


@pytest.mark.parametrize("best", [None, "train/score"])
def test_a_stopped_trial_ends_with_its_reason_at_the_step_of_the_decision(tmp_path: Path, data: Path, best: str | None) -> None:
    """Also where its worker is killed between the decision and its last word, and what it had done was not committed."""
    sweep = Sweep(tmp_path, data, seeds=(3, 4), checkpoint={"every": 40, "best": best})
    trial = sweep.trial(0, score=0.5)
    killed = TrialRun(sweep.worker(trial))
    while killed.step < 20:
        killed.epoch()
    note_stop(trial, 20, "stopped by asha at step 20")
    note_stop(trial, 30, "another")  # the first decision stands
    assert run_out(killed).step == 20
    assert trial.committed == -1
    run_out(TrialRun(sweep.worker(trial))).finish()
    policies = {result.seed: result.policy for result in results_of(sweep.experiment).seeds}
    for seed in (3, 4):
        ended = trial.status[seed]
        assert (ended["status"], ended["reason"], ended["final"], ended["step"]) == (
            "KILLED",
            "stopped by asha at step 20",
            True,
            20,
        )
        package = trial.folder / "policy" / f"seed-{seed}"
        assert bool(package.names()) is (best is not None)
        assert policies[seed] == (None if best is None else package.name)
        assert curve(trial, "train/score", seed) == {10: 0.5, 20: 0.5}
    assert trial.committed == 20
    assert trial.is_settled


def test_seeds_that_diverge_end_where_that_is_asked_for(tmp_path: Path, data: Path) -> None:
    """By the objective, or by a warning; else by their losses alone."""
    sweep = Sweep(tmp_path, data, seeds=(0, 1))
    wild = sweep.trial(0, learning_rate=100.0, target_update_interval=1)
    with pytest.warns(DivergenceWarning):
        run = run_out(TrialRun(sweep.worker(wild, stop_diverging=True)))
    run.finish()
    for ended in wild.status.values():
        assert (ended["status"], ended["final"]) == ("FAILED", True)
        assert ended["reason"].startswith(f"diverged at step {run.step}: values diverge: the mean Q-value is ")
    assert run.step < 80
    assert results(wild, SCORE) == []  # a scheduler has not seen more of it
    mute = sweep.trial(1, score=1e39)  # infinite as a 32-bit float
    for asked, status in ((False, "FINISHED"), (True, "FAILED")):
        mute.reopen()
        shutil.rmtree(str((mute.folder / "checkpoints").local), ignore_errors=True)
        run_out(TrialRun(sweep.worker(mute, stop_diverging=asked))).finish()
        assert {ended["status"] for ended in mute.status.values()} == {status}
    assert mute.status[0]["reason"] == "diverged at step 10: its train/score is inf"


# ---- under Tune


class Listening:
    """A rule of Ray's, and what it was told, in order."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.told: list[tuple[str, int, float]] = []

    def on_trial_add(self, controller: Any, trial: Any) -> None:
        self.rule.on_trial_add(controller, trial)

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        self.told.append((trial.trial_id, result["step"], result["objective"]))
        return self.rule.on_trial_result(controller, trial, result)

    def on_trial_complete(self, controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self.told.append((trial.trial_id, result["step"], result["objective"]))
        self.rule.on_trial_complete(controller, trial, result)


@pytest.mark.long
def test_asha_under_tune(local_ray: Path, tmp_path: Path, data: Path) -> None:
    """Two slots, six configurations: those below the best so far end at the first rung, and actors are used again."""
    sweep = Sweep(tmp_path, data, checkpoint={"every": 40})
    scores = [0.5, 0.1, 0.9, 0.2, 0.3, 1.0]
    trials = [sweep.trial(number, score=score) for number, score in enumerate(scores)]
    chosen = ASHA(grace_steps=20, reduction_factor=2, stop_diverging=True)
    rules: list[Listening] = []
    lend(local_ray)
    for _ in range(2):  # the second time nothing is left to do
        scheduler = make_scheduler(chosen, sweep.config, sweep.experiment, SCORE, {}, 0)
        assert isinstance(scheduler, Stopping)
        rules.append(Listening(scheduler.rule))
        scheduler.rule = rules[-1]  # pyright: ignore[reportAttributeAccessIssue]
        run_trials(sweep.experiment, Listed(trials), sweep.work(scheduler, **told(chosen)))
    numbers = {trial.identity: number for number, trial in enumerate(trials)}
    heard = [(numbers[name], step, score) for name, step, score in rules[0].told]
    assert sorted(heard) == sorted((k, one.step, one.objective) for k, trial in enumerate(trials) for one in results(trial, SCORE))
    assert rules[1].told == []
    stops = {number: step for number, step in slow_asha(heard, 2, 20, 80).items() if step < 80}  # the others end there
    assert stops  # which, depends on who comes to a rung first: clocks of trials do not tell whom the rule heard first
    for number, (trial, score) in enumerate(zip(trials, scores, strict=True)):
        step = stops.get(number, 80)
        assert curve(trial, "train/score") == pytest.approx(dict.fromkeys(range(10, step + 1, 10), score))
        assert trial.status[0]["status"] == ("KILLED" if number in stops else "FINISHED")
        assert trial.committed == trial.status[0]["step"] == step
        assert int(trial.folder.read("attempt") or 0) == 1
