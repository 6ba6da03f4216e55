"""Learning on a GPU is learning on the host: one update after another, stacks, runs that go on from a file, drawn batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import d3ray
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.devices import pick_device
from d3ray.algos.stack import Stack
from d3ray.algos.testing import data_for, maker
from d3ray.algos.testing.errors import largest_difference
from d3ray.algos.testing.tiny import tiny_dataset
from d3ray.algos.values.dqn import DQN
from d3ray.data.sampling import TransitionSampler
from d3ray.data.scalers import MinMaxActionScaler, StandardScaler

GPU = "cuda"
MAKERS = {"TD3PlusBC": maker(TD3PlusBC), "DQN": maker(DQN)}

pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("name", MAKERS)]


def state(algorithm: Any) -> dict[str, Tensor]:
    """What an algorithm goes on from, on the host."""
    return {name: tensor.cpu() for name, tensor in algorithm.state()[0].items()}


def test_updates_are_those_of_the_host(name: str) -> None:
    """Sums are in another order there: 20 updates in float64, compared as each tensor's largest entry."""
    make = MAKERS[name]
    here, there = (make(dtype="float64", seed=1, device=device).fit(data_for(make), 20) for device in ("cpu", GPU))
    assert there.fit_.device == torch.device(GPU, torch.cuda.current_device())
    where, gap = largest_difference(state(there), state(here))
    assert gap < 1e-9, where


def test_rows_of_a_stack_are_single_runs(name: str) -> None:
    make, dataset, seeds = MAKERS[name], data_for(MAKERS[name]), (3, 4, 5)
    stack = Stack(make(dtype="float64", device=GPU), seeds).fit(dataset, 20)
    for k, seed in enumerate(seeds):
        alone = make(dtype="float64", seed=seed, device=GPU).fit(dataset, 20)
        where, gap = largest_difference(state(stack.seed(k)), state(alone))
        assert gap < 1e-9, f"{where} of seed {seed}"


def test_a_saved_run_goes_on_as_if_it_had_not_ended(name: str, tmp_path: Path) -> None:
    make, dataset = MAKERS[name], data_for(MAKERS[name])
    make(seed=1, device=GPU).fit(dataset, 9, 6).save(tmp_path / "saved")
    resumed = d3ray.load(tmp_path / "saved", device=GPU).fit(dataset, 9, 6)
    assert resumed.fit_.device == torch.device(GPU, torch.cuda.current_device())
    where, gap = largest_difference(state(resumed), state(make(seed=1, device=GPU).fit(dataset, 18, 6)))
    assert gap == 0, where


def test_a_run_is_the_same_whatever_was_captured_before(name: str) -> None:
    """As after a kill: other programs are made from the step of a checkpoint on, and the bytes are the same."""
    make, dataset = MAKERS[name], data_for(MAKERS[name])
    whole = make(seed=1, device=GPU).fit(dataset, 100, 50)
    part = make(seed=1, device=GPU).fit(dataset, 61, 50)
    again = make(seed=1, device=GPU).load_state(*part.state()).fit(dataset, 39, 50)
    where, gap = largest_difference(state(again), state(whole))
    assert gap == 0, where


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("seeds", [None, (3, 4)], ids=["alone", "stacked"])
def test_compiled_steps_are_eager_ones_to_rounding(name: str, dtype: str, most: float, seeds: tuple[int, ...] | None) -> None:
    states = list[dict[str, Tensor]]()
    for compiled in (False, True):
        made: Any = MAKERS[name](seed=1, dtype=dtype, device=GPU, compile_graph=compiled)
        made = made if seeds is None else Stack(made, seeds)
        made.fit(data_for(MAKERS[name]), 20, 100)
        states.append({n: t for n, t in state(made).items() if n.startswith("live/")})
        assert bool(made.fit_.programs._units) == compiled
    where, gap = largest_difference(*states)
    assert gap < most, where


@pytest.mark.parametrize("compiled", [False, True], ids=["captured", "compiled"])
@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_other_precisions_of_products_stay_near(name: str, precision: str, compiled: bool) -> None:
    """And what products are computed in is afterwards what it was before."""
    before = torch.backends.cuda.matmul.fp32_precision
    wide: Any = {"hidden_units": (128, 128)}
    encoders: Any = dict.fromkeys(("encoder",) if name == "DQN" else ("actor_encoder", "critic_encoder"), wide)
    states = list[dict[str, Tensor]]()
    for chosen in ("float32", precision):
        made = MAKERS[name](seed=1, device=GPU, compile_graph=compiled, matmul_precision=chosen, **encoders)
        made.fit(data_for(MAKERS[name]), 20, 100)
        states.append({n: t for n, t in state(made).items() if n.startswith("live/")})
    where, gap = largest_difference(*states)
    assert 0 < gap < 0.05, where
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_what_was_saved_there_goes_on_here(name: str, tmp_path: Path) -> None:
    make, dataset = MAKERS[name], data_for(MAKERS[name])
    make(dtype="float64", seed=1, device=GPU).fit(dataset, 9, 6).save(tmp_path / "saved")
    resumed = d3ray.load(tmp_path / "saved", device="cpu").fit(dataset, 9, 6)
    assert resumed.fit_.device.type == "cpu"
    where, gap = largest_difference(state(resumed), state(make(dtype="float64", seed=1, device="cpu").fit(dataset, 18, 6)))
    assert gap < 1e-9, where


@pytest.mark.parametrize("td_steps", [1, 3])
@pytest.mark.parametrize("seed", [7, (7, 8, 9)], ids=["one seed", "three"])
def test_batches_are_gathered_there_as_on_the_host(name: str, td_steps: int, seed: int | tuple[int, ...]) -> None:
    discrete = name == "DQN"
    data = tiny_dataset(discrete=discrete)
    scalers: dict[str, Any] = {"observation_scaler": StandardScaler().fit(data)}
    if not discrete:
        scalers["action_scaler"] = MinMaxActionScaler().fit(data)
    drawn: list[list[Any]] = []
    for device in ("cpu", GPU):
        sampler = TransitionSampler(data, 32, seed=seed, device=device, td_steps=td_steps, gamma=0.9, **scalers)
        batches = [sampler.sample(step) for step in range(3)]
        assert all(batch.reward.device == sampler.device == pick_device(device) for batch in batches)
        drawn.append(pytree.tree_leaves(batches))
    assert len(drawn[0]) == len(drawn[1])
    for here, there in zip(*drawn, strict=True):
        if isinstance(here, Tensor):
            torch.testing.assert_close(there.cpu(), here, rtol=1e-6, atol=1e-6)
        else:
            assert here == there
