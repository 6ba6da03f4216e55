"""Plans of sweeps: budgets, limits of what runs at a time, clusters that grow, kinds of trial that are too large for a GPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.cluster.gpus import BY_NAME_ONLY
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.planning import plan as planning
from d3ray.platform.planning.around import Tracked, tracked
from d3ray.platform.planning.packing import pack
from d3ray.platform.planning.probe import Measured, TooLargeError
from d3ray.platform.planning.rehearsal import proposed, rehearsal
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import sweep_work
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

PLUGIN = """
'''Greedy runs out of GPU memory with batches of 64.'''
import torch
from d3ray import DQN
from d3ray.algos.registry import register_algorithm

@register_algorithm
class Greedy(DQN):
    def schedule(self, step):
        if self.check_settings().batch_size == 64:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().schedule(step)
"""
CPUS = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the plugin, and a Ray with four CPUs and a GPU that is there by name only."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "greedy_plugin.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(folder)
        patch.setenv(BY_NAME_ONLY, "1")
        with ray_session(address="local", num_cpus=CPUS, num_gpus=1):
            yield folder


def sweep(place: Path, **changes: Any) -> SweepConfig:
    base: dict[str, Any] = {
        "name": "planned",
        "dataset": "d3ray/cartpole-replay",
        "algorithm": {"name": "Greedy", "encoder": {"hidden_units": [16]}, "batch_size": 8},
        "n_steps": 1000,
        "n_steps_per_epoch": 500,
        "evaluation": None,
        "objective": "train/critic_loss",
        "search": {"algorithm.batch_size": {"choice": [8, 16]}, "algorithm.learning_rate": {"loguniform": [1e-5, 1e-2]}},
        "storage": str(place / "results"),
        "plugins": ["greedy_plugin"],
    }
    return SweepConfig.checked({**base, **changes})


@pytest.fixture
def plan(place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plan of a sweep whose trials take 100 s each and nothing else."""
    asked: list[int] = []
    takes = {"start": 0.0, "around": 0.0}

    def probed(programs: Sequence[Mapping[str, Any]], *, side: int, **_: Any) -> list[Measured | TooLargeError | None]:
        asked.append(side)
        whole = Measured(start=takes["start"], setup=0, update=0.1, row_bytes=1, n_metrics=1, gpu_memory=0)
        large = TooLargeError("too large.")
        return [large if told["algorithm"]["batch_size"] == 64 else whole for told in programs]

    monkeypatch.setattr(planning, "probe", probed)
    monkeypatch.setattr(planning, "tracked", lambda *_: Tracked(takes["around"], database=1e6, run=1e4, models=1e5))

    def made(*, start: float = 0.0, around: float = 0.0, **changes: Any) -> Any:
        takes.update(start=start, around=around)
        work = sweep_work(sweep(place, **changes))
        found = planning.plan(work, n_configurations=work.configuration["budget"]["configurations"])
        return SimpleNamespace(plan=found, side=asked[-1] if asked else None)

    return made


def test_a_budget_of_hours_ends_a_search_that_nothing_else_ends(plan: Any) -> None:
    day = plan(budget={"hours": 24}).plan
    assert day.n_trials == pytest.approx(CPUS * 864, abs=CPUS)  # 864 trials of 100 s a slot; 64 of them were looked at
    assert (day.n_configurations, day.n_seeds) == (day.n_trials, day.n_trials)
    assert day.wall_seconds == pytest.approx(86_400, rel=0.01)
    assert day.cpu_hours == pytest.approx(24 * CPUS, rel=0.01)
    assert day.at_most == ""
    assert any("the number of configurations is what is begun by then" in note for note in day.notes)
    few = plan(budget={"hours": 24, "configurations": 8}).plan
    assert (few.n_trials, few.at_most) == (8, "")
    cut = plan(budget={"hours": 0.1, "configurations": 100}).plan  # 360 s: 4 at 0, 100, 200 and 300 s
    assert cut.cpu_hours == pytest.approx(16 * 100 / 3600)
    assert cut.at_most == "the budget ends it before every configuration is trained"


def test_hours_of_gpus_end_it_where_trials_hold_some(plan: Any) -> None:
    half = plan(budget={"gpu_hours": 1}, resources={"cpu": 1, "gpu": 0.5}).plan  # two hold the GPU: an hour of it
    assert (half.at_once, half.n_trials, half.gpu_hours) == (2, 2 * 36, 1.0)
    assert plan(budget={"gpu_hours": 1, "configurations": 4}).plan.n_trials == 4
    with pytest.raises(ConfigError, match="trials hold no GPU: there is no end to plan"):
        plan(budget={"gpu_hours": 1})


def test_what_the_probe_had_no_time_for_is_said(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Measured(update=1e-6, is_whole=False)
    monkeypatch.setattr(planning, "probe", lambda programs, **_: [late, None][: len(programs)])
    notes = plan(budget={"configurations": 3}).plan.notes
    assert any("before a trial had written and played" in note for note in notes)
    assert any(note.startswith("Epochs of 0.00050 s are shorter than one driver can follow") for note in notes)


def test_no_more_are_planned_at_a_time_than_the_searcher_allows(plan: Any) -> None:
    wide = plan(budget={"configurations": 8})
    one = plan(budget={"configurations": 8}, searcher={"name": "random", "max_concurrent": 1})
    assert (wide.plan.at_once, wide.side, one.plan.at_once, one.side) == (CPUS, CPUS, 1, 1)
    assert one.plan.probed["of_kinds"] == wide.plan.probed["of_kinds"] == 2  # all that come are looked at, not the first alone
    assert one.plan.wall_seconds - wide.plan.wall_seconds == pytest.approx(800 - 200, abs=5)


def test_the_command_itself_is_in_the_plan(plan: Any) -> None:
    bare = plan(budget={"configurations": 8}).plan
    assert bare.wall_seconds == pytest.approx(200, abs=2)  # two trials a slot
    whole = plan(budget={"configurations": 8}, start=5, around=11).plan
    assert whole.wall_seconds - bare.wall_seconds == pytest.approx(5 + 5 + 11, abs=2)  # its own start, that of its workers, MLflow
    assert whole.cpu_hours == bare.cpu_hours  # of trials
    assert bare.disk["tracking"] == pytest.approx(1e6 + 8 * 1e4 + 1e5 + 8 * 2 * 250)  # two rows of one metric a trial


def test_what_mlflow_takes_is_measured_and_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://nobody.invalid")  # which is not asked
    work = sweep_work(sweep(place, budget={"configurations": 1}))
    with rehearsal(work) as experiment:
        trials, _ = proposed(work, experiment, 1)
        source = trials[0]
        nothing = tracked(work.config.storage_place, experiment, trials)
        own = Trial.create(source.folder / "own", source.configuration, source.seeds, source.dataset)
        run = TrialRun(TrialConfig.checked({**work.told(own, in_full=True), "n_steps": 4, "n_steps_per_epoch": 2}, title="trial"))
        while not run.done:
            run.epoch()
        run.finish()
        found = tracked(work.config.storage_place, experiment, trials)
        assert own.delivered[0]["status"] == "FINISHED"
        assert "registered" in own.delivered[0]  # its policy too
        assert os.environ["MLFLOW_TRACKING_URI"] == "http://nobody.invalid"
    assert nothing.seconds > 0
    assert found.seconds > 0
    assert (nothing.run, nothing.models, nothing.database) == (0, 0, 0)  # a server has its own
    assert found.run > 10_000  # parameters, tags and metrics of a run, with their indexes
    assert found.models > 1_000
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with rehearsal(work) as experiment:
        assert tracked(work.config.storage_place, experiment, []).database > 100_000
    assert "MLFLOW_TRACKING_URI" not in os.environ
    assert not (place / "results").exists()


def test_a_cluster_that_grows_is_planned_as_large_as_it_will_be(plan: Any) -> None:
    grown = plan(budget={"configurations": 40}, resources={"grow_to": 10}).plan
    assert (grown.at_once, grown.n_nodes) == (12, 3)  # machines like the one that is there
    assert any("1 node is there, and the cluster may start 2 more" in note for note in grown.notes)


def test_a_kind_that_is_too_large_is_named_and_the_others_are_planned(plan: Any) -> None:
    search = {"algorithm.batch_size": {"choice": [8, 64]}}
    found = plan(search=search, budget={"configurations": 2}).plan
    assert found.n_trials == 2
    assert found.notes == ["too large. They are taken to be like the others."]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_greedy_value_does_not_stop_a_sweep_that_packs_itself(place: Path) -> None:
    changes: dict[str, Any] = {"resources": {"cpu": 1, "gpu": "auto"}, "seeds": (0, 1)}
    mixed = sweep(place, search={"algorithm.batch_size": {"choice": [64, 8]}}, **changes)
    packed = pack(sweep_work(mixed)).config
    assert packed.resources.gpu == 1.0  # of a GPU that shows nothing each trial gets a whole one
    assert packed.seeds_per_trial == 2  # one seed of the greedy value does not fit either
    greedy = sweep(place, search={"algorithm.batch_size": {"choice": [64]}}, **changes)
    with pytest.raises(ConfigError) as refused:
        pack(sweep_work(greedy))
    assert str(refused.value) == (
        "Greedy: a whole GPU has too little memory for it: lower algorithm.batch_size (64)."  # with one seed, at last
    )
    assert not (place / "results").exists()


def test_trials_of_a_search_over_steps_are_known_again(tmp_path: Path) -> None:
    """Theirs are in their names, and not those of the whole, as where a resume says more."""
    changes: dict[str, Any] = {"algorithm": {"name": "DQN"}, "plugins": [], "searcher": "grid", "n_steps_per_epoch": 10}
    work = sweep_work(sweep(tmp_path, **changes, search={"n_steps": {"choice": [20, 40]}}))
    with contextlib.closing(Experiment.begin(work.config.storage_place, "planned", work.configuration, work.about)) as experiment:
        proposed(work, experiment, 10)
    work, _, first = planning._as_begun(work)
    with rehearsal(work) as experiment:
        experiment.first_n_steps = first
        found, _ = proposed(work, experiment, 10)
        assert planning._left(work, found) == {trial.identity: trial.n_steps for trial in found}
        assert len(found) == 2
