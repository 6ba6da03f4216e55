"""Pages of all kinds on a GPU: held networks, guests; and what building leaves of torch's generators."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.stack import Stack
from d3ray.algos.testing import data_for, largest_difference, maker, tiny_dataset
from d3ray.algos.values.dqn import DQN

from .test_hold import DATA as HELD_DATA
from .test_hold import ToyHold
from .toy_pages import ToyAnchored, ToyFQE, mlp

pytestmark = pytest.mark.gpu
GPU, SEEDS = "cuda", (3, 4, 5)
DATA = tiny_dataset(discrete=False)


def judge(**settings: Any) -> Any:
    torch.manual_seed(0)
    made = maker(ToyFQE)(**settings)
    made.policies = [mlp(5, 8, 3).double() for _ in SEEDS]
    return made


PAGES = {
    "held": (lambda **settings: maker(ToyHold)(learning_rate=1e-2, **settings), HELD_DATA),
    "judged": (judge, DATA),
    "renewed": (ToyAnchored, DATA),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_stack_learns_what_it_learns_on_the_host(name: str) -> None:
    make, given = PAGES[name]
    here, there = (Stack(make(dtype="float64", device=device), SEEDS).fit(given, 20, 9) for device in ("cpu", GPU))
    assert all(t.is_cuda for network in there.fit_.learner.live.values() for t in network.values())
    where, gap = largest_difference(there.state()[0], here.state()[0])
    assert gap < 1e-9, where


@pytest.mark.parametrize("name", PAGES)
def test_rows_are_single_runs(name: str) -> None:
    make, given = PAGES[name]
    stack = Stack(make(dtype="float64", device=GPU), SEEDS).fit(given, 20, 9)
    for k, seed in enumerate(SEEDS):
        alone = make(dtype="float64", seed=seed, device=GPU)
        if name == "judged":
            alone.policies = alone.policies[k:]
        where, gap = largest_difference(stack.seed(k).state()[0], alone.fit(given, 20, 9).state()[0])
        assert gap < 1e-9, f"{where} of seed {seed}"


@pytest.mark.parametrize("name", PAGES)
def test_a_run_goes_on_in_the_middle(name: str) -> None:
    make, given = PAGES[name]
    whole = Stack(make(device=GPU), SEEDS).fit(given, 20, 9).state()[0]
    tensors, meta = Stack(make(device=GPU), SEEDS).fit(given, 11, 9).state()
    again = Stack(make(device=GPU), SEEDS).load_state(tensors, meta).fit(given, 9, 9).state()[0]
    where, gap = largest_difference(again, whole)
    assert gap == 0, where


@pytest.mark.parametrize("name", ["held", "judged"])
def test_an_update_waits_for_nothing(name: str) -> None:
    """The host never asks the device for a value: a hold reads none, and rows of a stack that are held are no exception."""
    make, given = PAGES[name]
    made = Stack(make(device=GPU), SEEDS).fit(given, 2, 9)
    fit = made.fit_
    source = fit.sampler(given)
    batches = [source.sample(step) for step in range(2, 6)]
    fit.learner.update(batches[0])  # tables and counts are made at first use
    with _no_waiting():
        for batch in batches[1:]:
            fit.learner.update(batch)


@pytest.mark.parametrize("name", algorithm_names())
@pytest.mark.parametrize("seeds", [None, (3, 4)], ids=["alone", "stacked"])
def test_replayed_steps_are_eager_ones(name: str, seeds: tuple[int, ...] | None) -> None:
    """Every page: 68 steps in epochs of 23, bit for bit, and something was captured."""
    states, make = list[Any](), maker(algorithm_class(name))
    for captured in (False, True):
        made: Any = make(seed=1, device=GPU) if seeds is None else Stack(make(device=GPU), seeds)
        made.fit(data_for(make), 1, 1)
        if not captured:
            made.fit_.programs = None
        made.fit(made.fit_.sources.given, 68, 23)
        if captured:
            assert any(made.fit_.programs._replays.values())
        states.append(made.state()[0])
    where, gap = largest_difference(*states)
    assert gap == 0, where


@contextmanager
def _no_waiting() -> Generator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_building_leaves_the_generators_of_gpus_alone() -> None:
    torch.cuda.manual_seed_all(7)
    before = torch.cuda.get_rng_state_all()
    make = maker(DQN)
    make(seed=1, device=GPU).fit(data_for(make), 3)
    assert all(torch.equal(a, b) for a, b in zip(torch.cuda.get_rng_state_all(), before, strict=True))
