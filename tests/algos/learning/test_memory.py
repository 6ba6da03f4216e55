"""What a learner needs of a device at least: what it turns out to hold, and an error in one sentence where a GPU has less."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.devices import GpuTooSmallError, check_room
from d3ray.algos.learning.memory import least_bytes
from d3ray.algos.registry import algorithm_class
from d3ray.algos.stack import Stack

from ...stand_ins.cuda import Card, pretend

NOISY = {"hidden_units": [8, 8], "normalization": "batch", "spectral_norm": True}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("TD3PlusBC", {"critic_optimizer": {"name": "rmsprop", "centered": True, "momentum": 0.5}}),
    ("TD3PlusBC", {"actor_optimizer": "sgd", "critic_optimizer": "muon", "dtype": "float64"}),
    ("DQN", {"encoder": NOISY}),
    ("SAC", {}),
    ("CQL", {}),
    ("DecisionTransformer", {"context": 3}),
    ("ACER", {}),
]


def n_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.itemsize


@pytest.mark.parametrize("seeds", [None, (3, 4, 5)], ids=["alone", "stack"])
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_it_is_what_a_learner_holds_and_the_gradients_of_its_largest_network(
    name: str, settings: dict[str, Any], seeds: tuple[int, ...] | None
) -> None:
    make = testing.maker(algorithm_class(name), **settings)
    if name == "ACER":
        made: Any = make().build_with_shapes((4,), 2)
        seeds = None
    else:
        made = make() if seeds is None else Stack(make(), seeds)
        made.fit(testing.data_for(make), 1)  # from then on optimisers say what they remember
    learner = made.fit_.learner
    held = [tensors for kind in (learner.live, learner.buffers, learner.target) for tensors in kind.values()]
    slots = [dict(one._named()) for parts in learner._optimizers.values() for one in parts.values()]
    holds = sum(n_bytes(tensor) for tensors in (*held, *slots) for tensor in tensors.values())
    largest = max(sum(map(n_bytes, live.values())) for live in learner.live.values())
    with torch.random.fork_rng():
        networks = made.fit_.algorithm.networks(made.fit_.spec, made.fit_.config)
    assert least_bytes(networks, len(seeds or (0,)), learner.dtype) == holds + largest


def test_what_fits_exactly_fits() -> None:
    device = torch.device("cuda:0")
    with pretend(Card(total=1000, others=300)) as cards:
        torch.cuda.init()
        check_room("DQN", 700, device, 1)
        with pytest.raises(GpuTooSmallError) as caught:
            check_room("DQN", 701, device, 1)
        assert str(caught.value) == (
            "DQN is too large for this GPU, for it needs at least 701 bytes of memory and Pretended H200 has 1 kB, of which 700 "
            "bytes are free: make its networks smaller."
        )
        cards.every[0].take(200)  # by an earlier training of this process, which may end
        check_room("DQN", 700, device, 1)
        torch.cuda.set_per_process_memory_fraction(0.25, device)
        check_room("DQN", 250, device, 3)
        with pytest.raises(GpuTooSmallError, match=r"of which a share of 0\.25 is 250 bytes: stack fewer seeds than 3 or make its"):
            check_room("DQN", 251, device, 3)
    check_room("DQN", 10**18, torch.device("cpu"), 1)  # the host is not asked


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stack"])
def test_an_algorithm_that_cannot_fit_takes_nothing(monkeypatch: pytest.MonkeyPatch, stacked: bool) -> None:
    def moved(*_: Any) -> None:
        raise AssertionError("a network was moved to a GPU that is too small for it")

    monkeypatch.setattr(torch.nn.Module, "to", moved)
    make = testing.maker(algorithm_class("TD3PlusBC"), device="cuda")
    one: Any = Stack(make(), (0, 1)) if stacked else make()
    with pretend(Card(total=10_000)) as cards:
        with pytest.raises(GpuTooSmallError, match=r"^TD3PlusBC is too large for this GPU, for it needs at least .* kB of"):
            one.fit(testing.tiny_dataset(discrete=False), 1)
        assert cards.every[0].allocated == 0
