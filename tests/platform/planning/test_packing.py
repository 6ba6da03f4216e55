"""Trials that share GPUs: the share that memory asks for, more of it for who ran out, and whose device each trial sees."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch

from d3ray import Dataset
from d3ray.algos.devices import GpuTooSmallError
from d3ray.data.errors import StorageError
from d3ray.platform.cluster.gpus import BY_NAME_ONLY
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.driver.proposer import Listed
from d3ray.platform.driver.trial_queue import TrialQueue, TuneSearcher, slots
from d3ray.platform.experiment.run import run_experiment, train_work
from d3ray.platform.planning import probe
from d3ray.platform.planning.packing import pack, share
from d3ray.platform.planning.probe import Probe, TooLargeError
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import Writer
from d3ray.platform.worker.trial_config import trial_config
from d3ray.platform.worker.trial_run import note_failure

CONFIG = ExperimentConfig.checked(
    {"dataset": "data", "algorithm": {"name": "DQN", "batch_size": 32}, "resources": {"cpu": 1, "gpu": 0.3}}
)
DECIDED, DATA = CONFIG.configuration(), {"source": "data"}


@pytest.mark.parametrize(
    ("memory", "most", "expected"),
    [
        (0.20, 100, 0.25),  # 4 × 0.20 of the 0.9 that a pack may fill; a fifth would not fit
        (0.18, 100, 0.2),  # 5 × 0.18 = 0.9
        (0.45, 100, 0.5),
        (0.46, 100, 1.0),
        (0.95, 100, 1.0),  # more than the head room leaves: alone
        (0.01, 8, 0.125),  # 90 would fit, and CPUs feed 8
        (0.10, 0, 1.0),
        (0.0, 8, 1.0),  # nothing was seen
    ],
)
def test_the_share_that_memory_asks_for(memory: float, most: int, expected: float) -> None:
    assert share(memory, most) == expected


def test_as_many_as_a_share_says_fit_as_ray_counts() -> None:
    """Ray counts in ten-thousandths: a third must not be 0.3334."""
    for n in range(1, 91):
        part = share(0.9 / n, 1000)
        assert round(part * 10_000) * n <= 10_000
        assert round(part * 10_000) * (n + 1) > 10_000


@pytest.mark.parametrize(
    ("cpu", "gpu", "expected"),
    [
        (1, 0, 8 + 4),
        (3, 0, 2 + 1),
        (0.1, 0, 80 + 40),
        (1, 0.1, 8),  # the node without GPUs has no room, and CPUs are what there is least of
        (0.1, 0.1, 20),
        (0.1, 0.6, 2),  # one on each GPU
        (1, 2, 1),
        (16, 0, 0),
    ],
)
def test_room_for_trials_on_a_cluster(monkeypatch: pytest.MonkeyPatch, cpu: float, gpu: float, expected: int) -> None:
    nodes: list[dict[str, Any]] = [
        {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0}},
        {"Alive": True, "Resources": {"CPU": 4.0}},
        {"Alive": False, "Resources": {"CPU": 100.0, "GPU": 8.0}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert slots({"cpu": cpu, "gpu": gpu}) == expected


LACKING = "it needs at least 12 GB of memory and Pretended H200 has 10 GB, of which 10 GB are free"
TOO_SMALL = GpuTooSmallError("DQN", LACKING, 2)


def out_of_memory(trial: Trial, error: BaseException | None = None) -> None:
    note_failure(Writer(trial), error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), {})


@pytest.mark.parametrize(
    ("error", "out"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (TOO_SMALL, True),
        (MemoryError("out of memory"), False),
    ],
)
def test_a_gpu_that_is_full_before_torch_takes_anything_has_run_out_too(error: BaseException, out: bool, tmp_path: Path) -> None:
    trial = Trial.create(Folder(tmp_path), DECIDED, (0,), DATA)
    note_failure(Writer(trial), error, {})
    assert bool(trial.status[0].get("out_of_memory")) == out


def told(trial: Trial) -> dict[str, Any]:
    return trial_config(CONFIG, trial)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (None, ": lower seeds_per_trial (2 seeds are stacked) or algorithm.batch_size (32)"),
        (TOO_SMALL, f", for {LACKING}: lower seeds_per_trial (2 seeds are stacked) or the size of its networks"),
    ],
    ids=["while it trains", "before it trains"],
)
def test_who_runs_out_of_memory_comes_again_with_twice_the_share_and_others_do_not(
    tmp_path: Path, error: BaseException | None, why: str
) -> None:
    made = (("a", (0, 1)), ("b", (2,)), ("c", (3, 4)), ("d", (5,)))
    greedy, modest, later, other = (Trial.create(Folder(tmp_path / name), DECIDED, seeds, DATA) for name, seeds in made)

    def hand_out(trial: Trial) -> dict[str, Any]:
        trial.reopen()
        return told(trial)

    queue = TrialQueue(Listed([greedy, modest]), hand_out, take_turns=True)
    assert [queue.suggest(name) for name in "ab"] == [{"trial": told(greedy)}, {"trial": told(modest)}]
    assert queue.suggest("c") is None  # either may come again
    modest.settle({2: {"status": "FAILED", "reason": "RuntimeError: other"}})
    queue.on_trial_complete("b")
    shares, name = [], "a"
    while True:
        out_of_memory(greedy, error)
        queue.on_trial_complete(name)
        name += "a"
        again = queue.suggest(name)
        if again == TuneSearcher.FINISHED:
            break
        assert again == {"trial": told(greedy)}
        shares.append(told(greedy)["resources"])
    assert greedy.retried == 0  # memory that a share was too small for costs none of the user's `retries`
    assert shares == [{"cpu": 1, "gpu": 0.6}, {"cpu": 1, "gpu": 1.0}]
    reason = f"a whole GPU has too little memory for it{why}"
    assert {seed: ended["reason"] for seed, ended in greedy.status.items()} == {0: reason, 1: reason}
    Trial(greedy.folder).reopen()
    assert greedy.retried == 1  # what a whole GPU is too small for is a failure
    queue._proposer = Listed([later, other])
    assert [queue.suggest(name) for name in "de"] == [{"trial": told(later)}, {"trial": told(other)}]
    shares = [told(trial)["resources"]["gpu"] for trial in (greedy, modest, later, other)]
    assert shares == [1.0, 0.3, 1.0, 0.3]  # a stack of as many seeds is of its kind, and one of one seed is not


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_plan_names_who_does_not_fit(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*_: Any) -> None:
        raise TOO_SMALL

    monkeypatch.setattr(probe, "_begun", begin)
    told = {"resources": {"gpu": share}, "algorithm": {"name": "DQN"}, "seeds": [0]}
    ((_, found),) = Probe().measure([(0, told)], 1.0)
    assert isinstance(found, TooLargeError)
    gpu = "a whole GPU" if share == 1 else "0.25 of a GPU"
    assert str(found) == f"DQN: {gpu} has too little memory for it, for {LACKING}: lower the size of its networks."


def test_what_a_user_can_mend_is_given_back_and_a_bug_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = [StorageError("The folder is gone."), RuntimeError("a bug")]

    def begin(*_: Any) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(probe, "_begun", begin)
    seen, told = list[tuple[int, str]](), dict[str, Any]()
    with pytest.raises(RuntimeError, match="a bug"):
        seen += ((k, str(one)) for k, one in Probe().measure([(3, told), (4, told)], 1.0))
    assert seen == [(3, "The folder is gone.")]


PLUGIN = """
'''Hungry runs out of GPU memory at step 30 while it has less than a whole GPU, and notes where it runs.

With a whole GPU it waits there until another has had one too, so that two of them are at work at the same time.
'''
import json, os, time, uuid
from pathlib import Path
import ray, torch
from d3ray import DQN
from d3ray.algos.registry import register_algorithm

SEEN = Path(__file__).with_name("seen.jsonl")

@register_algorithm
class Hungry(DQN):
    attempt = None

    def schedule(self, step):
        if step % 10 == 0:
            self.attempt = self.attempt or uuid.uuid4().hex
            gpu = ray.get_runtime_context().get_assigned_resources().get("GPU", 0)
            seen = {"pid": os.getpid(), "attempt": self.attempt, "device": os.environ["CUDA_VISIBLE_DEVICES"],
                    "threads": torch.get_num_threads(), "gpu": gpu, "step": step, "time": time.time()}
            with SEEN.open("a") as file:
                file.write(json.dumps(seen) + "\\n")
            if step == 30 and gpu < 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            end = time.monotonic() + 120
            while step == 30 and self.alone() and time.monotonic() < end:
                time.sleep(0.02)
        return super().schedule(step)

    def alone(self):
        whole = (one for one in map(json.loads, SEEN.read_text().splitlines()) if one["gpu"] == 1)
        return all(one["attempt"] == self.attempt for one in whole)
"""

MEETING = """
'''Meeting notes which GPUs it was given and sees, and waits until as many trials are at work as the file `meeting` says.'''
import json, os, time, uuid
from pathlib import Path
import ray
from d3ray import DQN
from d3ray.algos.registry import register_algorithm

HERE = Path(__file__).parent

@register_algorithm
class Meeting(DQN):
    met = False

    def schedule(self, step):
        if not self.met:
            self.met, (name, n) = True, (HERE / "meeting").read_text().split()
            seen = {"given": [str(gpu) for gpu in ray.get_gpu_ids()], "sees": os.environ["CUDA_VISIBLE_DEVICES"].split(",")}
            place, end = HERE / name, time.monotonic() + 120
            place.mkdir(exist_ok=True)
            (place / uuid.uuid4().hex).write_text(json.dumps(seen))
            while len(list(place.iterdir())) < int(n):
                if time.monotonic() > end:
                    raise RuntimeError("the others did not come")
                time.sleep(0.02)
        return super().schedule(step)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a dataset and a plugin, and a Ray with four CPUs and four GPUs that are there by name only."""
    folder = tmp_path_factory.mktemp("packing")
    rng = np.random.default_rng(0)
    ends = np.arange(1, 401) % 20 == 0
    arrays = rng.normal(size=(400, 4)).astype(np.float32), rng.integers(0, 2, 400), np.ones(400, np.float32), ends
    Dataset.from_arrays(*arrays, name="tiny").write(folder / "tiny")
    (folder / "hungry_plugin.py").write_text(PLUGIN)
    (folder / "meeting_plugin.py").write_text(MEETING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(folder)
        patch.setenv(BY_NAME_ONLY, "1")
        with ray_session(address="local", num_cpus=4, num_gpus=4):
            yield folder
    for name in ("hungry_plugin", "meeting_plugin"):
        sys.modules.pop(name, None)


def config(place: Path, **changes: Any) -> ExperimentConfig:
    base: dict[str, Any] = {
        "name": "hungry",
        "dataset": str(place / "tiny"),
        "algorithm": {"name": "Hungry", "encoder": {"hidden_units": [16]}, "batch_size": 8},
        "n_steps": 60,
        "n_steps_per_epoch": 20,
        "seeds": (0, 1, 2, 3, 4, 5),
        "seeds_per_trial": 2,
        "resources": {"cpu": 2, "gpu": 0.5},
        "storage": str(place / "results"),
        "plugins": ("hungry_plugin",),
    }
    return ExperimentConfig.checked({**base, **changes})


@pytest.mark.long
@pytest.mark.timeout(600)
def test_trials_that_run_out_of_memory_go_on_with_a_whole_gpu_each_on_its_own(place: Path) -> None:
    result = run_experiment(config(place))
    assert [(seed.seed, seed.status, seed.step) for seed in result.seeds] == [(seed, "FINISHED", 60) for seed in range(6)]
    seen = [json.loads(line) for line in (place / "seen.jsonl").read_text().splitlines()]
    assert {one["threads"] for one in seen} == {2}  # as many as CPUs
    small, whole = ([one for one in seen if one["gpu"] == gpu] for gpu in (0.5, 1.0))
    assert len(small) + len(whole) == len(seen)
    ran_out, steps = [one["step"] for one in small].count(30), [one["step"] for one in whole]
    assert 1 <= ran_out <= 3  # those that were out before the first of them did; others begin with more
    each = {step: steps.count(step) for step in range(0, 60, 10)}
    assert each == {0: 3 - ran_out, 10: 3 - ran_out, 20: 3, 30: 3, 40: 3, 50: 3}  # who did goes on from its checkpoint at step 20
    assert len({one["pid"] for one in seen}) < 3 + ran_out  # fewer processes than attempts
    assert all(one["device"] in {"0", "1", "2", "3"} for one in seen)
    lives = [[one for one in whole if one["attempt"] == attempt] for attempt in {one["attempt"] for one in whole}]
    together = [
        (a[0]["device"], b[0]["device"])
        for a, b in combinations(lives, 2)
        if a[0]["time"] < b[-1]["time"] and b[0]["time"] < a[-1]["time"]
    ]
    assert together  # two waited for each other
    assert all(a != b for a, b in together)  # at the same time nobody else has the same device
    trial = next((place / "results/hungry/trials").iterdir())
    assert json.loads((trial / "resources.json").read_text()) == {"gpu": 1.0}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("n_trials", "gpu", "on_each"), [(4, 1.0, 1), (8, 0.5, 2)])
def test_trials_of_four_gpus_each_see_their_own(place: Path, n_trials: int, gpu: float, on_each: int) -> None:
    """All are at work at the same time: none of them ends before the last of them has begun."""
    algorithm = {"name": "Meeting", "encoder": {"hidden_units": [16]}, "batch_size": 8}
    more: dict[str, Any] = {"n_steps": 1, "n_steps_per_epoch": 1, "seeds": range(n_trials), "seeds_per_trial": 1}
    name = f"meeting-{n_trials}"
    (place / "meeting").write_text(f"{name} {n_trials}")
    settings = config(
        place, name=name, algorithm=algorithm, plugins=("meeting_plugin",), resources={"cpu": 0.5, "gpu": gpu}, **more
    )
    result = run_experiment(settings)
    assert [(seed.status, seed.reason) for seed in result.seeds] == [("FINISHED", "")] * n_trials
    seen = [json.loads(file.read_text()) for file in (place / name).iterdir()]
    assert len(seen) == n_trials
    assert all(one["sees"] == one["given"] and len(one["sees"]) == 1 for one in seen)
    assert Counter(one["sees"][0] for one in seen) == dict.fromkeys("0123", on_each)


@pytest.mark.long
def test_without_hardware_auto_gives_a_gpu_each_and_without_gpus_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no GPU can be asked about: whoever says it has them and shows none to torch gets one trial a GPU."""
    settings = config(place, name="auto", algorithm="DQN", seeds=(0,), seeds_per_trial=1, resources={"cpu": 1, "gpu": "auto"})
    assert settings.resources.gpu == "auto"
    assert pack(train_work(settings)).config.resources.gpu == 1.0
    assert not [*place.glob("results/.rehearsal*")]
    without = [{**node, "Resources": {"CPU": 4}} for node in ray.nodes()]
    monkeypatch.setattr(ray, "nodes", lambda: without)
    assert pack(train_work(settings)).config.resources.gpu == 0.0
