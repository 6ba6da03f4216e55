"""A trial keeps to its share of the GPU that it trains on, and measures that one; on GPUs that are pretended."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

from d3ray.algos.devices import GpuTooSmallError
from d3ray.data.errors import ConfigError
from d3ray.data.sampling.base import free_memory
from d3ray.platform.cluster.gpus import BY_NAME_ONLY, ran_out
from d3ray.platform.planning.probe import gpu_memory
from d3ray.platform.worker.system_metrics import SystemMetrics
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from ...stand_ins.cuda import GIB, Card, pretend

TOLD: dict[str, Any] = {"dataset": "d3ray/cartpole-replay", "algorithm": {"name": "DiscreteBC"}}


@pytest.fixture(autouse=True)
def all_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", BY_NAME_ONLY):
        monkeypatch.delenv(name, raising=False)


def trial(gpu: float, **told: Any) -> TrialRun:
    return TrialRun(TrialConfig.checked({**TOLD, "resources": {"cpu": 1, "gpu": gpu}, **told}))


@pytest.mark.parametrize(
    ("gpu", "device", "shares"),
    [
        (0.25, None, [0.25, 1.0]),
        (0.25, "cuda", [0.25, 1.0]),
        (0.25, "cuda:1", [1.0, 0.25]),
        (0.25, "cpu", [1.0, 1.0]),
        (1, None, [1.0, 1.0]),
        (2, "cuda:1", [1.0, 1.0]),
        (0, None, [1.0, 1.0]),
    ],
)
def test_a_share_is_of_the_gpu_that_the_trial_trains_on(gpu: float, device: str | None, shares: list[float]) -> None:
    with pretend(Card(), Card()) as cards:
        run = trial(gpu, device=device)
        assert [card.fraction for card in cards.every] == shares
        assert run.device == torch.device("cuda:0" if device in (None, "cuda") else device)
        assert cards.begun is (device != "cpu")  # what trains on the host takes nothing of a GPU


def test_a_process_that_chose_a_gpu_keeps_to_its_share_there() -> None:
    with pretend(Card(), Card()) as cards:
        torch.cuda.set_device(1)
        run = trial(0.5)
        assert ([card.fraction for card in cards.every], run.device) == ([1.0, 0.5], torch.device("cuda:1"))


@pytest.mark.parametrize("visible", ["0", "3"])
def test_four_trials_on_a_gpu_see_a_quarter_each_less_what_they_took(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)  # as Ray sets it for all four
    taken, total = [1 * GIB, 2 * GIB, 3 * GIB, 4 * GIB], 100 * GIB
    for mine in taken:
        with pretend(*(Card(total=total, others=sum(taken) - mine) for _ in range(4))) as cards:
            run = trial(0.25)
            card = cards.every[int(visible)]
            card.take(mine)
            assert run.device == torch.device("cuda:0")
            assert free_memory(run.device) == total // 4 - mine
            with pytest.raises(torch.OutOfMemoryError):
                card.take(total // 4 - mine + 1)


def test_trials_that_are_spread_over_four_gpus_each_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(number))
        with pretend(*(Card() for _ in range(4))) as cards:
            assert trial(0.5).device == torch.device("cuda:0")
            assert [card.fraction for card in cards.every] == [0.5 if k == number else 1.0 for k in range(4)]


@pytest.mark.parametrize(
    ("gpu", "others", "said"),
    [
        (0.25, 0, "has 1 MB, of which a share of 0.25 is 250 kB"),
        (0.25, 900_000, "has 1 MB, of which a share of 0.25 is 250 kB"),  # what its neighbours have is for them to give back
        (1, 750_000, "has 1 MB, of which 250 kB are free"),
    ],
)
def test_a_trial_that_cannot_fit_ends_before_it_takes_memory(gpu: float, others: int, said: str) -> None:
    with pretend(Card(total=1_000_000, others=others)) as cards:
        run = trial(gpu, seeds=(0, 1), algorithm={"name": "DiscreteBC", "encoder": {"hidden_units": (128, 64)}})
        made: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.nn.Module, "to", lambda module, *to: made.append(to))
            with pytest.raises(GpuTooSmallError) as caught:
                run.epoch()
        # 128·4 + 128 + 64·128 + 64 + 2·64 + 2 = 9,026 parameters, gradients, and two moments each: 16 bytes, of two seeds
        assert "it needs at least 289 kB of memory and Pretended H200 " in str(caught.value)
        assert (made, cards.every[0].allocated) == ([], 0)
        assert said in str(caught.value)
        assert ran_out(caught.value)


def test_a_gpu_that_is_not_there_ends_a_trial_before_its_data_are_opened() -> None:
    with (
        pretend(Card()),
        pytest.raises(ConfigError, match=r"^There is no device 'cuda:1' here: CUDA error: invalid device ordinal$"),
    ):
        trial(1, device="cuda:1", dataset="no/such-dataset")


@pytest.mark.parametrize("index", [0, 1])
def test_what_a_trial_held_at_most_is_told_of_its_own_gpu(index: int) -> None:
    cards = [Card(total=100 * GIB, others=50 * GIB), Card(total=100 * GIB, others=50 * GIB)]
    with pretend(*cards):
        device = trial(1, device=f"cuda:{index}").device
        cards[index].others = 2 * GIB  # what CUDA takes for itself
        cards[index].take(10 * GIB, reserve=10 * GIB)
        cards[index].allocated, cards[index].reserved = 0, 5 * GIB  # given back
        assert gpu_memory(device) == pytest.approx(0.22)
        torch.cuda.reset_peak_memory_stats(device)
        assert gpu_memory(device) == pytest.approx(0.07)
        assert gpu_memory(torch.device("cpu")) == 0.0  # beside a GPU that is in use


@pytest.mark.parametrize(("visible", "seen"), [(None, (0, 1, 2)), ("2", (2,)), ("2,0", (2, 0)), ("", ())])
def test_system_metrics_are_of_the_gpus_that_a_trial_sees(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: tuple[int, ...]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pretend(*(Card(total=100 * 2**20, others=10 * (k + 1) * 2**20, use=10 * k) for k in range(3))):
        measure = SystemMetrics(seconds=0.01)
        try:
            found, end = measure(), time.monotonic() + 30
            while seen and f"system/gpu_{len(seen) - 1}_utilization_percentage" not in found and time.monotonic() < end:
                time.sleep(0.02)
                found = measure()
        finally:
            measure.close()
            for thread in threading.enumerate():  # else it would ask for GPUs that are no longer there
                if thread.name == "d3ray-system-metrics":
                    thread.join()
    named = {name: value for name, value in found.items() if "/gpu_" in name}
    kinds = ("utilization_percentage", "memory_usage_megabytes", "memory_usage_percentage")
    assert named == {
        f"system/gpu_{k}_{kind}": pytest.approx(10 * number if kind == kinds[0] else 10 * (number + 1))
        for k, number in enumerate(seen)
        for kind in kinds
    }
