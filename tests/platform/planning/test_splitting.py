"""Stacks of seeds that a GPU is too small for are split: by memory that is pretended, and by workers that run out of it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from d3ray import Dataset
from d3ray.data.errors import ConfigError
from d3ray.platform.cluster.gpus import BY_NAME_ONLY
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.experiment.run import run_experiment, train_work
from d3ray.platform.planning import packing, plan, probe
from d3ray.platform.planning.around import Tracked
from d3ray.platform.planning.packing import pack
from d3ray.platform.planning.probe import Measured, Probe, TooLargeError
from d3ray.platform.planning.rehearsal import proposed, rehearsal
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import sweep_work

from ...stand_ins.cuda import Card, pretend

PLUGIN = """
'''Wide runs out of GPU memory with more than three seeds, and breaks at step 30 while there is a file `broken`.'''
from pathlib import Path
import torch
from d3ray import DQN
from d3ray.algos.registry import register_algorithm

@register_algorithm
class Wide(DQN):
    def schedule(self, step):
        if len(self.fit_.seeds) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        if step == 30 and Path(__file__).with_name("broken").exists():
            raise RuntimeError("broken")
        return super().schedule(step)
"""
GPU_BYTES = 80_000_000_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a dataset and the plugin, and a Ray with four CPUs and two GPUs that are there by name only."""
    folder = tmp_path_factory.mktemp("splitting")
    rng = np.random.default_rng(0)
    ends = np.arange(1, 401) % 20 == 0
    arrays = rng.normal(size=(400, 4)).astype(np.float32), rng.integers(0, 2, 400), np.ones(400, np.float32), ends
    Dataset.from_arrays(*arrays, name="tiny").write(folder / "tiny")
    (folder / "wide_plugin.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(folder)
        patch.setenv(BY_NAME_ONLY, "1")
        with ray_session(address="local", num_cpus=4, num_gpus=2):
            yield folder
    sys.modules.pop("wide_plugin", None)


def settings(place: Path, n_seeds: int, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": "wide",
        "dataset": str(place / "tiny"),
        "algorithm": {"name": "Wide", "encoder": {"hidden_units": [16]}, "batch_size": 8},
        "n_steps": 60,
        "n_steps_per_epoch": 20,
        "seeds": tuple(range(n_seeds)),
        "seeds_per_trial": n_seeds,
        "resources": {"cpu": 1, "gpu": "auto"},
        "storage": str(place / "results"),
        "plugins": ("wide_plugin",),
    }
    return {**base, **changes}


def config(place: Path, n_seeds: int, **changes: Any) -> ExperimentConfig:
    return ExperimentConfig.checked(settings(place, n_seeds, **changes))


def sweep(place: Path, n_seeds: int, *batches: int, **changes: Any) -> SweepConfig:
    search = {"algorithm.batch_size": {"grid": list(batches)}}
    more = {"evaluation": None, "objective": "train/critic_loss", "search": search, "searcher": "grid", **changes}
    return SweepConfig.checked(settings(place, n_seeds, **more))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """What probes measured, batch sizes with numbers of seeds: each takes a thousandth of a GPU for an item and a seed."""
    found: list[list[tuple[int, int]]] = []

    def probed(programs: Sequence[Mapping[str, Any]], **_: Any) -> list[Measured | TooLargeError | None]:
        sizes = [(told["algorithm"]["batch_size"], len(told["seeds"])) for told in programs]
        found.append(sizes)
        answers: list[Measured | TooLargeError | None] = []
        for batch, n_seeds in sizes:
            whole = Measured(start=0, setup=0, update=0.1, row_bytes=1, n_metrics=1, gpu_memory=batch * n_seeds / 1000)
            large = TooLargeError(f"Wide: too large with {n_seeds}.")
            large.gpu_bytes = GPU_BYTES
            answers.append(large if whole.gpu_memory > 1 else whole)
        if not any(isinstance(one, Measured) for one in answers):
            raise next(one for one in answers if isinstance(one, TooLargeError))
        return answers

    monkeypatch.setattr(packing, "probe", probed)
    monkeypatch.setattr(plan, "probe", probed)
    return found


def refused(*_: Any, **__: Any) -> list[Measured]:
    raise TooLargeError("too large.")


def trials(storage: Path) -> dict[str, tuple[tuple[int, ...], str, list[str]]]:
    """Seeds and keys of an experiment's trials, and their runs in MLflow, by identity."""
    found = Experiment.look(str(storage), "wide").trials()
    return {one.identity: (one.seeds, one.key, [note["run"] for note in one.delivered.values()]) for one in found}


@pytest.mark.parametrize(
    ("n_seeds", "batch", "sizes", "share", "said"),
    [
        (50, 10, [50], 1.0, []),  # two would leave no head room
        (50, 8, [50], 0.5, []),
        (50, 30, [50, 25], 1.0, ["Stacks of 50 seeds do not fit into a GPU of 80 GB: they are split into stacks of 25."]),
        (5, 400, [5, 3, 2], 1.0, ["Stacks of 5 seeds do not fit into a GPU of 80 GB: they are split into stacks of 2."]),
        (3, 600, [3, 2, 1], 1.0, ["Stacks of 3 seeds do not fit into a GPU of 80 GB: they are split into trials of one seed."]),
    ],
)
def test_stacks_are_halved_until_they_fit(
    place: Path, asked: list[Any], n_seeds: int, batch: int, sizes: list[int], share: float, said: list[str]
) -> None:
    algorithm = {"name": "Wide", "encoder": {"hidden_units": [16]}, "batch_size": batch}
    work, told = train_work(config(place, n_seeds, algorithm=algorithm)), list[str]()
    packed = pack(work, tell=told.append)
    assert asked == [[(batch, n)] for n in sizes]
    assert (packed.config.seeds_per_trial, packed.config.resources.gpu, told) == (sizes[-1], share, said)
    assert packed.configuration["seeds_per_trial"] == n_seeds  # what was asked for: a resumed experiment asks for the same
    assert sorted(seed for seeds in packed.config.groups() for seed in seeds) == list(range(n_seeds))
    assert not [*place.glob("results/.rehearsal*")]


def test_what_does_not_fit_with_one_seed_is_refused(place: Path, asked: list[Any]) -> None:
    algorithm = {"name": "Wide", "batch_size": 1001}
    with pytest.raises(ConfigError, match=r"^Wide: too large with 1\.$"):
        pack(train_work(config(place, 3, algorithm=algorithm)))
    assert asked == [[(1001, n)] for n in (3, 2, 1)]


def test_a_share_that_is_said_is_not_measured(place: Path, asked: list[Any]) -> None:
    work = train_work(config(place, 50, resources={"cpu": 1, "gpu": 0.3}))
    assert pack(work) is work
    assert asked == []


def test_the_kind_that_needs_most_decides_how_stacks_are_split(place: Path, asked: list[Any]) -> None:
    packed = pack(sweep_work(sweep(place, 4, 100, 300)))
    assert asked == [[(100, 4), (300, 4)], [(300, 2), (100, 2)]]  # what was too large is measured first
    assert (packed.config.seeds_per_trial, packed.config.resources.gpu) == (2, 1.0)
    with rehearsal(packed) as experiment:
        made, _ = proposed(packed, experiment, 10)
        found = [(trial.configuration["algorithm"]["batch_size"], trial.seeds) for trial in made]
    assert found == [(batch, seeds) for batch in (100, 300) for seeds in ((0, 1), (2, 3))]


def test_a_kind_that_never_fits_splits_no_others(place: Path, asked: list[Any]) -> None:
    told = list[str]()
    packed = pack(sweep_work(sweep(place, 4, 100, 2000)), tell=told.append)
    assert [[n for _, n in sizes] for sizes in asked] == [[4, 4], [2, 2], [1, 1]]
    assert (packed.config.seeds_per_trial, packed.config.resources.gpu, told) == (4, 0.5, [])


def test_stacks_that_a_scheduler_needs_whole_are_refused_and_others_go_on(place: Path, asked: list[Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        pack(sweep_work(sweep(place, 4, 300, scheduler={"name": "asha", "grace_steps": 20})))
    assert str(refused.value) == (
        "Wide: a whole GPU has too little memory for a trial, and its seeds are not split, for scheduler asha compares "
        "configurations over all their seeds: lower the number of seeds (4 seeds are stacked) or algorithm.batch_size (300)."
    )
    packed = pack(sweep_work(sweep(place, 4, 100, 300, scheduler={"name": "asha", "grace_steps": 20})))
    assert (packed.config.seeds_per_trial, packed.config.resources.gpu) == (4, 0.5)  # that value's trials fail by themselves
    assert [len(sizes) for sizes in asked] == [1, 2]


def test_stacks_that_were_begun_are_not_split(place: Path, asked: list[Any]) -> None:
    algorithm = {"name": "Wide", "batch_size": 300}
    with pytest.raises(ConfigError, match=r"for a trial of 4 seeds, and trials were begun with as many, so they are not split: "):
        pack(train_work(config(place, 4, algorithm=algorithm)), kept=True)
    assert asked == [[(300, 4)]]


def test_a_plan_says_that_stacks_are_split(place: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "tracked", lambda *_: Tracked(0.0, database=1e6, run=1e4, models=1e5))
    algorithm = {"name": "Wide", "batch_size": 300}
    work = train_work(config(place, 5, algorithm=algorithm))
    found = plan.plan(work)
    said = "Stacks of 5 seeds do not fit into a GPU of 80 GB: they are split into stacks of 3."
    assert (found.n_trials, found.n_seeds, found.gpu_share) == (2, 5, 1.0)
    assert found.notes[0] == said
    assert said in str(found)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_experiment_that_was_split_goes_on_with_the_same_trials(
    place: Path, asked: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = {"name": "Wide", "encoder": {"hidden_units": [16]}, "batch_size": 300}
    of = config(place, 5, algorithm=algorithm, storage=str(tmp_path))
    (place / "broken").touch()
    try:
        with caplog.at_level(logging.WARNING, "d3ray"):
            broken = run_experiment(of)
    finally:
        (place / "broken").unlink()
    said = "Stacks of 5 seeds do not fit into a GPU of 80 GB: they are split into stacks of 3."
    assert [record.getMessage() for record in caplog.records] == [said]
    assert [(seed.seed, seed.status, seed.step) for seed in broken.seeds] == [(seed, "FAILED", 20) for seed in range(5)]
    begun = trials(tmp_path)
    assert sorted(seeds for seeds, *_ in begun.values()) == [(0, 1, 2), (3, 4)]
    with monkeypatch.context() as smaller:
        smaller.setattr(packing, "probe", refused)
        with pytest.raises(ConfigError, match="trials were begun with as many"):
            run_experiment(of, resume=True)
    assert trials(tmp_path) == begun
    left = plan.plan(train_work(of), resume=True)
    assert (left.n_trials, left.n_seeds) == (2, 5)
    result = run_experiment(of, resume=True)
    assert [(seed.seed, seed.status, seed.step) for seed in result.seeds] == [(seed, "FINISHED", 60) for seed in range(5)]
    assert trials(tmp_path) == begun
    mlflow = MlflowClient(result.tracking_uri)
    runs = mlflow.search_runs([experiment.experiment_id for experiment in mlflow.search_experiments()])
    assert len(runs) == 1 + 5  # nothing is left of the trial that was split


@pytest.mark.long
@pytest.mark.timeout(300)
def test_workers_that_run_out_of_memory_are_asked_again_with_fewer_seeds(place: Path) -> None:
    told = list[str]()
    packed = pack(train_work(config(place, 5)), tell=told.append)
    assert (packed.config.seeds_per_trial, packed.config.resources.gpu) == (3, 1.0)
    assert told == ["Stacks of 5 seeds do not fit into a whole GPU: they are split into stacks of 3."]  # these show no memory


@pytest.mark.parametrize("tells", [True, False])
def test_a_worker_that_ran_out_tells_how_much_memory_its_gpu_has(tells: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> tuple[int, int]:
        raise torch.AcceleratorError("CUDA error: out of memory")

    def begin(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(probe, "_begun", begin)
    told = {"resources": {"gpu": 1}, "algorithm": {"name": "DQN", "batch_size": 32}, "seeds": [0, 1]}
    with pretend(Card(total=GPU_BYTES)):
        if not tells:
            monkeypatch.setattr(torch.cuda, "mem_get_info", full)
        ((_, found),) = Probe().measure([(0, told)], 1.0)
    assert isinstance(found, TooLargeError)
    assert found.gpu_bytes == GPU_BYTES * tells
