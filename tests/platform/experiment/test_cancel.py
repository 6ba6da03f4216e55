"""Experiments and trials that somebody cancels, with a real Ray: from any process that sees the storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from d3ray.data.errors import ConfigError
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.results.progress import OnProgress, Progress
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.worker.decisions import note_stop

STEP, STEPS = 10, 80


def config(place: Path) -> ExperimentConfig:
    given: dict[str, Any] = {"dataset": "d3ray/cartpole-replay", "algorithm": {"name": "DiscreteBC", "batch_size": 8}}
    times = {"n_steps": STEPS, "n_steps_per_epoch": STEP, "seeds": (0, 1, 2)}
    return ExperimentConfig.checked({**given, **times, "name": "some", "storage": str(place)})


def statuses(place: Path) -> dict[int, dict[str, Any]]:
    return {seed: about for trial in Experiment.look(str(place), "some").trials() for seed, about in trial.status.items()}


def when_begun(place: Path, do: Any, seed: int | None = None) -> OnProgress:
    """Calls `do` with the experiment and the trial of a seed, or of the one that is first, once that has done an epoch."""
    done: list[int] = []

    def on_progress(progress: Progress) -> None:
        for one in progress.trials.values():
            if (seed is None or one.seeds == (seed,)) and one.step and not done:
                done.append(one.step)
                experiment = Experiment.look(str(place), "some")
                do(experiment, next(trial for trial in experiment.trials() if trial.seeds == one.seeds))

    return on_progress


@pytest.mark.long
def test_what_is_cancelled_ends_at_its_next_epoch(local_ray: Path, tmp_path: Path) -> None:
    first: list[int] = []

    def cancel(experiment: Experiment, trial: Any) -> None:
        first.extend(trial.seeds)
        experiment.cancel()

    with pytest.raises(KeyboardInterrupt, match=r"Cancelled; 0 of 3 seeds are done, checkpoints up to step \d+ are kept"):
        run_experiment(config(tmp_path), on_progress=when_begun(tmp_path, cancel))
    experiment = Experiment.look(str(tmp_path), "some")
    assert (experiment.state["status"], experiment.is_cancelled) == ("KILLED", True)
    ended = statuses(tmp_path)
    assert {(about["status"], about["reason"], about["final"]) for about in ended.values()} == {("KILLED", "cancelled", False)}
    assert ended[first[0]]["step"] in (STEP, 2 * STEP)  # what had begun when it was cancelled was done to its end
    assert [trial.committed for trial in experiment.trials()] == [ended[seed]["step"] or -1 for seed in (0, 1, 2)]
    assert ended[2]["step"] == 0  # it waited for a place, for there are two CPUs

    # gone on with; meanwhile one trial is cancelled, which is an outcome and not a fault
    on_progress = when_begun(tmp_path, lambda experiment, trial: note_stop(trial, 0, "cancelled"), seed=1)
    result = run_experiment(config(tmp_path), resume=True, on_progress=on_progress)
    assert (result.state, [(seed.status, seed.is_final) for seed in result.seeds]) == (
        "FINISHED",
        [("FINISHED", True), ("KILLED", True), ("FINISHED", True)],
    )
    assert 0 < result.seeds[1].step < STEPS
    assert result.seeds[1].reason == "cancelled"
    assert [seed.policy is not None for seed in result.seeds] == [True, False, True]

    # which stays so, until it is asked for by its name
    assert [seed.status for seed in run_experiment(config(tmp_path), resume=True).seeds] == ["FINISHED", "KILLED", "FINISHED"]
    second = next(trial.identity for trial in experiment.trials() if trial.seeds == (1,))
    result = run_experiment(config(tmp_path), resume=True, trial=second)
    assert [(seed.status, seed.step) for seed in result.seeds] == [("FINISHED", STEPS)] * 3
    assert [seed.policy is not None for seed in result.seeds] == [True] * 3
    with pytest.raises(ConfigError, match="nothing to go on with"):
        run_experiment(config(tmp_path), resume=True, trial=second)


@pytest.mark.long
def test_one_of_several_that_were_stopped_goes_on_alone(local_ray: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_experiment(config(tmp_path), on_progress=when_begun(tmp_path, lambda experiment, _: experiment.cancel()))
    experiment = Experiment.look(str(tmp_path), "some")
    before = {trial.identity: trial.status for trial in experiment.trials()}
    last = experiment.trials()[-1].identity
    result = run_experiment(config(tmp_path), resume=True, trial=last)
    after = {trial.identity: trial.status for trial in experiment.trials()}
    assert {name: after[name] for name in before if name != last} == {name: before[name] for name in before if name != last}
    assert {about["status"] for about in after[last].values()} == {"FINISHED"}
    assert (result.state, experiment.state["reason"]) == ("KILLED", "cancelled")
    client = MlflowClient(result.tracking_uri)
    assert [client.get_run(str(seed.run_id)).info.status for seed in result.seeds] == ["KILLED", "KILLED", "FINISHED"]
