"""Population based training moves weights and coefficients, never identities, and does again what a kill took away."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from d3ray.data.errors import StorageError
from d3ray.platform.driver.proposer import Listed
from d3ray.platform.driver.trials import run_trials
from d3ray.platform.results.configurations import read_configurations
from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.population import Population, coefficients, explore
from d3ray.platform.sweep.scheduler_config import PBT
from d3ray.platform.sweep.schedulers import make_scheduler, told
from d3ray.platform.sweep.spaces import read_space
from d3ray.platform.trainable import Training
from d3ray.platform.worker.decisions import Exploit, exploits_of, note_exploit, results
from d3ray.platform.worker.system_metrics import SystemMetrics
from d3ray.platform.worker.trial_run import TrialRun

from ...faults.processes import until
from .sweep_trials import SCORE, Sweep, TuneTrial, commit, curve, lend, plugins, write_dataset

SPACES = {"score": read_space("", {"uniform": [0, 1]}), "learning_rate": read_space("", {"loguniform": [1e-4, 1e-2]})}
TOLD = {"perturbed": ["score", "learning_rate"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with plugins():
        yield write_dataset(tmp_path_factory.mktemp("data") / "tiny")


# ---- coefficients


def test_a_coefficient_stays_within_its_space() -> None:
    rng, near = random.Random(0), PBT(resample_probability=0, perturb_factors=(0.5, 2.0))
    assert {explore(0.3, SPACES["score"], near, rng) for _ in range(20)} == {0.15, 0.6}
    assert {explore(0.8, SPACES["score"], near, rng) for _ in range(20)} == {0.4, 1.0}
    assert {explore(1.5e-4, SPACES["learning_rate"], near, rng) for _ in range(20)} == {1e-4, 3e-4}
    steps = read_space("", {"uniform": [0.5, 0.9], "step": 0.1})
    assert {explore(0.7, steps, near, rng) for _ in range(20)} == {0.6, 0.8}
    assert {explore(0.9, steps, near, rng) for _ in range(20)} == {0.8, 0.9}
    assert {explore(2.0, read_space("", {"integers": [1, 3]}), near, rng) for _ in range(20)} == {1.0, 3.0}
    anew = PBT(resample_probability=1)
    drawn = [explore(0.3, SPACES["learning_rate"], anew, rng) for _ in range(300)]
    assert 1e-4 <= min(drawn) < 2e-4
    assert 5e-3 < max(drawn) <= 1e-2
    assert sum(value < 1e-3 for value in drawn) == pytest.approx(150, abs=30)  # half of the logarithms


# ---- what a worker does


def epochs(run: TrialRun, until: int) -> TrialRun:
    """As `Training.step` does them."""
    run.heed()
    while run.step < until and not run.done:
        run.epoch()
        run.heed()
    return run


def weights(run: TrialRun) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in run.state()[0].items() if not name.startswith("hyper/")}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("seeds", [(3,), (3, 4)])
def test_an_exploit_takes_weights_and_leaves_the_trial_itself(tmp_path: Path, data: Path, seeds: tuple[int, ...]) -> None:
    sweep = Sweep(tmp_path, data, seeds=seeds, evaluation={"episodes": 1, "every": 20}, checkpoint={"every": 10})
    donor, taker = sweep.trial(0, score=0.9, learning_rate=1e-3), sweep.trial(1, score=0.1, learning_rate=2e-3)
    best = epochs(TrialRun(sweep.worker(donor, **TOLD)), 30)
    run = epochs(TrialRun(sweep.worker(taker, **TOLD)), 20)
    learner, keys = run.subject.fit_.learner, dict(taker.runs)
    run._system = SystemMetrics(lambda gpu: 50.0, seconds=0.001)
    note_exploit(taker, Exploit(20, donor.identity, 30, {"score": 0.7, "learning_rate": 5e-4}))
    run.heed()
    assert_same(weights(run), weights(best))
    assert run.subject.fit_.learner is learner  # written in place: what was compiled for it holds
    assert (run.step, run.subject.step) == (20, 30)
    assert learner.seeds == seeds
    assert learner.values["score"] == [0.7] * len(seeds)
    assert learner.values["learning_rate"] == [5e-4] * len(seeds)
    assert float(learner.hyper["score"].reshape(-1)[0]) == pytest.approx(0.7)
    run._system()
    until(lambda: "system/gpu_0_utilization_percentage" in run._system(), seconds=10)  # it goes on being measured
    run.heed()  # once
    assert (run.step, run.subject.step) == (20, 30)
    epochs(run, 80)
    assert Trial(taker.folder).runs == keys
    run.close()
    for seed in seeds:
        assert curve(taker, "train/score", seed) == pytest.approx({10: 0.1, 20: 0.1} | dict.fromkeys(range(30, 90, 10), 0.7))
        assert curve(taker, "hyper/learning_rate", seed) == {10: 2e-3, 20: 2e-3} | dict.fromkeys(range(30, 90, 10), 5e-4)
        assert curve(taker, "time/gradient_steps", seed) == {10: 10, 20: 20} | {step: step + 10 for step in range(30, 90, 10)}
        assert list(curve(taker, "evaluation/return", seed)) == [20, 40, 60, 80]
    assert coefficients(taker, SPACES) == {"score": 0.7, "learning_rate": 5e-4}
    assert coefficients(donor, SPACES) == {"score": 0.9, "learning_rate": 1e-3}


def test_an_exploit_that_a_kill_took_away_is_done_again(tmp_path: Path, data: Path) -> None:
    """And one that a checkpoint has is not; coefficients are the decided ones, and the numbers those of an undisturbed trial."""
    sweep = Sweep(tmp_path, data, checkpoint={"every": 20})
    donor = sweep.trial(0, score=0.9)
    epochs(TrialRun(sweep.worker(donor, **TOLD)), 40)
    ends: list[dict[str, torch.Tensor]] = []
    for number, kills in ((1, []), (2, [20, 30, 40, 50, 60])):
        taker = sweep.trial(number, score=0.1)
        run = epochs(TrialRun(sweep.worker(taker, **TOLD)), 20)
        note_exploit(taker, Exploit(20, donor.identity, 40, {"score": 0.7, "learning_rate": 5e-4}))
        for step in kills:  # after the exploit of step 20, after one more epoch without a checkpoint, with one, …
            epochs(run, step)
            run = TrialRun(sweep.worker(taker, **TOLD))
            assert run.step == step // 20 * 20
            run.heed()
            assert run.subject.step == run.step + 20
            assert run.subject.fit_.learner.values["score"] == [0.7]
        epochs(run, 80).finish()
        ends.append(run.state()[0])
        assert curve(taker, "train/score") == pytest.approx({10: 0.1, 20: 0.1} | dict.fromkeys(range(30, 90, 10), 0.7))
        assert (taker.folder / "policy/seed-0").read_json("policy.json")["config"]["score"] == 0.7
    assert_same(*ends)


def test_an_exploit_takes_what_was_decided_however_far_the_donor_is(tmp_path: Path, data: Path) -> None:
    """With the default of two checkpoints, of which a donor that goes on soon deletes the one that was meant."""
    sweep = Sweep(tmp_path, data)
    donor, taker = sweep.trial(0, score=0.9), sweep.trial(1, score=0.1)
    best = epochs(TrialRun(sweep.worker(donor, **TOLD)), 40)
    meant = {name: tensor.clone() for name, tensor in weights(best).items()}
    run = epochs(TrialRun(sweep.worker(taker, **TOLD)), 20)
    note_exploit(taker, Exploit(20, donor.identity, 40, {"score": 0.7, "learning_rate": 5e-4}))
    epochs(best, 80)
    assert (donor.folder / "checkpoints").checkpoint_steps() == [70, 80]
    kept = taker.folder / "donated"
    for begun in range(3):  # at once, and after kills before and after the first checkpoint that has the exploit
        run.heed()
        assert_same(weights(run), meant)
        assert (run.step, run.subject.step) == (20, 40)
        if begun == 2:
            break
        run.epoch()
        (taker.folder / "checkpoints/step-000000030").remove()  # it was not whole
        run = TrialRun(sweep.worker(taker, **TOLD))
    epochs(run, 30)
    assert kept.checkpoint_steps() == [20]  # one checkpoint is from before the exploit
    epochs(run, 40)
    assert kept.checkpoint_steps() == []
    note_exploit(taker, Exploit(40, donor.identity, 80, {"score": 0.6, "learning_rate": 5e-4}))
    epochs(run, 80).finish()
    assert kept.names() == []
    assert curve(taker, "time/gradient_steps")[50] == 90


def test_what_an_exploit_cannot_keep_is_said(tmp_path: Path, data: Path) -> None:
    sweep = Sweep(tmp_path, data)
    donor, taker = sweep.trial(0, score=0.9), sweep.trial(1, score=0.1)
    epochs(TrialRun(sweep.worker(donor, **TOLD)), 40)
    run = epochs(TrialRun(sweep.worker(taker, **TOLD)), 20)
    with pytest.raises(StorageError, match="step-000000020 cannot be kept: no such file or directory"):
        note_exploit(taker, Exploit(20, donor.identity, 20, {"score": 0.7}))  # deleted already: nothing is decided
    assert exploits_of(taker) == []
    note_exploit(taker, Exploit(20, donor.identity, 40, {"score": 0.7, "learning_rate": 5e-4}))
    (taker.folder / "donated").remove()
    (donor.folder / "checkpoints").remove()
    with pytest.raises(StorageError, match=r"was to go on from .*, whose step 40 is gone"):
        run.heed()


def test_a_pause_commits_and_leaves_nothing_with_tune(tmp_path: Path, data: Path) -> None:
    """A worker gives its trial up for another, and takes it up again from its folder."""
    sweep = Sweep(tmp_path, data, checkpoint={"every": 40})
    trial, other = sweep.trial(0, score=0.5), sweep.trial(1, score=0.25)
    worker = Training(config={"trial": sweep.told(trial)})
    assert worker.save().checkpoint is None  # it has not begun
    worker.train()
    assert worker.save().checkpoint is None
    assert trial.committed == 10
    worker.reset_config({"trial": sweep.told(other)})
    assert worker.train()["objective"] == 0.25
    worker.reset_config({"trial": sweep.told(trial)})
    assert worker.train()["step"] == 20
    assert curve(trial, "train/score") == {10: 0.5}


# ---- who takes over from whom


class Members:
    """A population that never trains: results come by hand."""

    def __init__(self, tmp_path: Path, data: Path, n: int, **chosen: Any) -> None:
        self.sweep = Sweep(tmp_path, data)
        self.trials = [self.sweep.trial(k, score=k / 10, learning_rate=1e-3) for k in range(n)]
        self.chosen = PBT(interval=20, resample_probability=0, perturb_factors=(2.0,), **chosen)
        self.begin()

    def begin(self) -> None:
        """A scheduler made anew."""
        made = make_scheduler(self.chosen, self.sweep.config, self.sweep.experiment, SCORE, SPACES, len(self.trials))
        assert isinstance(made, Population)
        self.scheduler = made
        self.tune = [TuneTrial(trial) for trial in self.trials]
        self.controller: Any = SimpleNamespace(get_trials=lambda: self.tune)
        for one in self.tune:
            self.scheduler.on_trial_add(self.controller, one)

    def report(self, k: int, step: int, score: float, n_failed: int = 0) -> list[tuple[int, int, float]]:
        """(step, donor, new score) of the exploits of a trial, after a result."""
        commit(self.trials[k], step, {0: score})
        result = {"step": step, "objective": score, "n_failed": n_failed}
        assert self.scheduler.on_trial_result(self.controller, self.tune[k], result) == "CONTINUE"
        names = [trial.identity for trial in self.trials]
        return [(one.step, names.index(one.donor), one.coefficients["score"]) for one in exploits_of(self.trials[k])]


def test_the_worst_go_on_from_the_best_once_all_have_been_measured(tmp_path: Path, data: Path) -> None:
    members = Members(tmp_path, data, 4)
    for k, score in ((3, 0.9), (2, 0.2), (1, 0.1)):
        assert members.report(k, 10, score) == []  # before the interval
        assert members.report(k, 20, score) == []  # one is missing
    assert members.report(0, 20, 0.05) == [(20, 3, 0.6)]  # the best one's coefficient is 0.3, times 2
    assert members.report(1, 30, 0.1) == []
    assert members.report(3, 40, 0.9) == []
    assert members.report(1, 40, 0.01) == [(40, 3, 0.6)]
    assert exploits_of(members.trials[1])[0].donor_step == 40
    assert members.report(0, 40, 0.95) == [(20, 3, 0.6)]
    assert members.report(3, 60, 0.0) == [(60, 0, 1.0)]  # 0 is the best now; its coefficient is 0.6 since step 20, and 1 the end


def test_what_a_configuration_has_come_to_is_told_and_not_what_it_began_with(tmp_path: Path, data: Path) -> None:
    members = Members(tmp_path, data, 4)
    for k, score in ((1, 0.1), (3, 0.9), (2, 0.2)):
        members.report(k, 20, score)
    assert members.report(0, 20, 0.05) == [(20, 3, 0.6)]
    first, last = members.trials[0], members.trials[3]
    assert first.choice_at_end == (first.choice or {})  # decided, and nothing was trained with it yet
    commit(first, 40, {0: 0.95})
    commit(last, 40, {0: 0.9})
    assert first.choice_at_end["algorithm.score"] == 0.6
    told = {one.number: one.choice for one in read_configurations(members.trials, SCORE)}
    assert told[first.number] == first.choice_at_end
    assert told[last.number] == (last.choice or {})


def test_a_population_stands_where_it_stood_after_a_restart(tmp_path: Path, data: Path) -> None:
    members = Members(tmp_path, data, 4)
    for k, score in ((1, 0.1), (3, 0.9), (2, 0.2)):
        members.report(k, 20, score)
    members.begin()  # a new driver: it knows three of four
    assert members.report(2, 30, 0.0) == []  # not yet
    assert members.report(0, 20, 0.05) == [(20, 3, 0.6)]
    members.begin()
    assert members.report(3, 40, 0.9) == []
    assert members.report(2, 40, 0.0) == [(40, 3, 0.6)]


def test_weights_that_do_not_fit_are_left_alone(tmp_path: Path, data: Path) -> None:
    """Another network, or a donor of which a seed diverged."""
    members = Members(tmp_path, data, 2)
    members.trials.append(members.sweep.trial(2, score=0.2, n_critics=2))
    members.begin()
    members.report(2, 20, 0.9)
    members.report(1, 20, 0.5, n_failed=1)
    assert members.report(0, 20, 0.1) == []  # the best has two critics
    members.report(1, 40, 0.95, n_failed=1)
    assert members.report(0, 40, 0.1) == []  # the best has lost a seed
    members.report(1, 60, 0.95)
    assert members.report(0, 60, 0.1) == [(60, 1, 0.2)]


# ---- under Tune


@pytest.mark.long
@pytest.mark.parametrize("n", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_a_population_under_tune(local_ray: Path, tmp_path: Path, data: Path, n: int) -> None:
    """On two slots, where five take turns: they exploit one another, and each step is there once."""
    sweep = Sweep(tmp_path, data, seeds=(0, 1))
    trials = [sweep.trial(k, score=(k + 1) / 10, learning_rate=1e-3) for k in range(n)]
    chosen = PBT(interval=20, resample_probability=0.0, perturb_factors=(1.25,))
    spaces = {"score": SPACES["score"]}
    lend(local_ray)
    scheduler = make_scheduler(chosen, sweep.config, sweep.experiment, SCORE, spaces, n)
    run_trials(sweep.experiment, Listed(trials), sweep.work(scheduler, **told(chosen, ["score"])))
    identities = [trial.identity for trial in trials]
    for k, trial in enumerate(trials):
        expected, steps, score, offset = dict[int, float](), dict[int, float](), (k + 1) / 10, 0.0
        exploits = {one.step: one for one in exploits_of(trial)}
        for step in range(10, 90, 10):
            expected[step], steps[step] = score, step + offset
            if (one := exploits.get(step)) is not None:
                score = one.coefficients["score"]
                donor = curve(trials[identities.index(one.donor)], "time/gradient_steps")
                offset = donor[one.donor_step] - step
        for seed in (0, 1):
            assert curve(trial, "train/score", seed) == pytest.approx(expected)
            assert curve(trial, "hyper/score", seed) == pytest.approx(expected)
            assert curve(trial, "time/gradient_steps", seed) == steps
            assert trial.status[seed]["status"] == "FINISHED"
    looks = [{one.step: one.time for one in results(trial, SCORE)} for trial in trials]
    # Two that find two slots do not wait for one another: the better may have ended before the worker of the worse came up.
    if n > 2 or any(looks[1][20] < looks[0][step] < looks[1][60] for step in (20, 40, 60)):
        assert any(exploits_of(trial) for trial in trials)
    if n > 2:
        assert max(int(trial.folder.read("attempt") or 0) for trial in trials) > 1  # taken up again after a pause
