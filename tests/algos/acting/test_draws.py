"""Random numbers of an exploring policy: those of a block of steps at once are those of each step."""

from __future__ import annotations

import pytest
import torch

from d3ray.algos.ports import Draws, Memory, Noise, drawn
from d3ray.data.random import fold, root_key

PORTS = {"action": Noise((3,)), "choice": Noise((5,), "uniform"), "state": Memory((2,))}
CPU = torch.device("cpu")


@pytest.mark.parametrize("n", [1, 3, 8, 65])
def test_a_block_of_steps_holds_what_each_step_draws(n: int) -> None:
    draws = Draws(PORTS, torch.float32, CPU)
    for seed, step in [(7, 0), (7, 1), (7, 63), (7, 64), (8, 64), (7, 64), (7, 3), (7, 1_000_000)]:
        at = draws.at(seed, step, n)
        alone = drawn(PORTS, fold(fold(root_key(seed), "policy"), step), n, torch.float32, exploring=True)
        assert at.keys() == alone.keys() == {"action", "choice"}
        for name in at:
            assert torch.equal(at[name], alone[name]), (name, seed, step)


def test_fewer_decisions_are_not_taken_for_more() -> None:
    draws = Draws(PORTS, torch.float32, CPU)
    assert [len(draws.at(0, 5, n)["action"]) for n in (4, 2, 4)] == [4, 2, 4]
