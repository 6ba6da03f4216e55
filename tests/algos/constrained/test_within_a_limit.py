"""The example's world, whose short way costs: BCQ breaks the limit there, and BCQ-Lagrangian, which pays for costs, keeps it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.algos.environments.evaluate import evaluate


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[3] / "examples" / "within_a_limit.py"))


class Straight:
    """Walks to the right."""

    def start(self, n: int) -> None: ...

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return state, np.tile([1.0, 0.0], (len(observation), 1))


def test_the_straight_way_costs_what_of_it_lies_in_the_disc(world: dict[str, Any]) -> None:
    played = evaluate(Straight(), world["Walk"](), episodes=5)
    assert played.returns == pytest.approx(np.full(5, 2.4))
    assert played.costs is not None
    assert ((played.costs >= 6) & (played.costs <= 9)).all()  # the chord at |y| ≤ 0.3 is 0.67 to 0.9 long
    data = world["recorded"](6)
    seen = data.columns["observation"][~data.columns["closing"]]
    assert data.cost_returns[[0, 3]].min() > world["LIMIT"] > data.cost_returns[[1, 4]].max()  # straight on, and around
    assert np.abs(seen).max() < 4


@pytest.mark.long
def test_who_pays_for_costs_keeps_the_limit_that_others_break(world: dict[str, Any]) -> None:
    data = world["recorded"](150)
    cost = {label: world["played"](label, data, 1_500, (0, 1), 10)[:, 1] for label in ("BCQ", "BCQLagrangian")}
    assert (cost["BCQ"] > world["LIMIT"]).all()
    assert (cost["BCQLagrangian"] <= world["LIMIT"]).all()
