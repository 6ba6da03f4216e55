"""Losses compiled for this machine: the same learning, to rounding, for one seed and for a stack."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from d3ray.algos import testing
from d3ray.algos.base import Algorithm
from d3ray.algos.learning.programs import Programs
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.stack import Stack
from d3ray.algos.testing.errors import live
from d3ray.algos.values.dqn import DQN
from d3ray.data.errors import ConfigError
from d3ray.data.random import fold, normal, root_key, uniform

NOISY = {"hidden_units": [8], "normalization": "batch", "dropout_rate": 0.2}
needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler here")


def learned(algorithm: Algorithm, seeds: tuple[int, ...] = (0,), n_steps: int = 4) -> tuple[dict[str, Tensor], Any]:
    """What training has made of an algorithm, and its learner."""
    fit: Any = (Stack(algorithm, seeds) if len(seeds) > 1 else algorithm).fit(testing.data_for(lambda **_: algorithm), n_steps, 5)
    return live(fit.fit_.state()[0]), fit.fit_.learner


def check_near(compiled: dict[str, Tensor], eager: dict[str, Tensor], most: float) -> None:
    for name, tensor in eager.items():
        torch.testing.assert_close(compiled[name], tensor, rtol=most, atol=most, msg=lambda said, name=name: f"{name}: {said}")


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize(
    ("seeds", "encoder"),
    [
        ((0,), {"hidden_units": [8]}),
        pytest.param((0,), NOISY, marks=pytest.mark.slow),  # what draws takes longer to compile
        pytest.param((3, 4), NOISY, marks=pytest.mark.slow),
    ],
    ids=["alone", "alone and noisy", "stacked and noisy"],
)
def test_compiled_losses_teach_what_eager_ones_teach(seeds: tuple[int, ...], encoder: dict[str, Any]) -> None:
    make = testing.maker(DQN, encoder=encoder, sampler="prioritized", dtype="float64")
    compiled, learner = learned(make(compile_graph=True), seeds)
    eager, plain = learned(make(), seeds)
    assert len(learner._programs._known) == 1  # at one step after another
    assert plain._programs is None
    check_near(compiled, eager, 1e-9)
    assert learner.errors.shape == plain.errors.shape  # by which transitions are drawn
    further, _ = learned(make(compile_graph=True), seeds, 9)
    assert any(not torch.equal(further[name], compiled[name]) for name in further)


@pytest.mark.long
@needs_compiler
def test_a_compiled_run_goes_on_bit_for_bit() -> None:
    testing.check_resumes_bit_for_bit(testing.maker(DQN, compile_graph=True, encoder={"hidden_units": [8]}), n_steps=3)


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_can_be_compiled(name: str) -> None:
    make = testing.maker(algorithm_class(name), dtype="float64")
    for seeds in ((0,), (3, 4)):
        compiled, learner = learned(make(compile_graph=True), seeds)
        assert learner._programs._known
        check_near(compiled, learned(make(), seeds)[0], 1e-7)


@pytest.mark.long
def test_programs_are_known_by_what_they_are_given() -> None:
    made = list[str]()

    def doubled(x: Tensor, more: dict[str, Any]) -> dict[str, Tensor]:
        made.append(str(tuple(x.shape)))
        return {"y": 2 * x if more["twice"] else x + more["z"]}

    programs, x = Programs(), torch.arange(4.0)
    for _ in range(2):
        assert torch.equal(programs("doubled", doubled, x, {"twice": True, "z": x})["y"], 2 * x)
    assert torch.equal(programs("doubled", doubled, x, {"twice": False, "z": x + 1})["y"], x + x + 1)
    assert torch.equal(programs("doubled", doubled, x[:2], {"twice": True, "z": x})["y"], 2 * x[:2])
    assert made == ["(4,)", "(4,)", "(2,)"]


@pytest.mark.long
def test_a_machine_without_a_compiler_is_told_so() -> None:
    from torch._inductor import config  # whose settings are put back by its own patch alone

    said = r"^compile_graph: torch cannot compile critic_loss of critic on this machine, .*"
    with config.patch({"cpp.cxx": ("no-such-compiler",)}), pytest.raises(ConfigError, match=said):
        testing.maker(DQN, compile_graph=True, batch_size=7)().fit(testing.data_for(testing.maker(DQN)), 2)


def test_compile_graph_is_yes_or_no() -> None:
    with pytest.raises(ConfigError, match="DQN: compile_graph is 'yes'; choose True or False"):
        DQN(compile_graph="yes").check_settings()


@pytest.mark.long
@needs_compiler
def test_random_numbers_of_any_count_are_those_of_the_address() -> None:
    """A hash of a loop's counter overflows, which C++ leaves undefined: what is no whole number of vectors came out otherwise."""
    sizes = (17, 48, 100)

    def drawn(key: torch.Tensor) -> list[torch.Tensor]:
        return [draw(fold(key, n), (n,), torch.float64) for n in sizes for draw in (normal, uniform)]

    key = root_key(5)
    for found, wanted in zip(Programs()("draws", drawn, key), drawn(key), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
