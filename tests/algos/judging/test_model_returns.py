"""Returns in a model: a chain by hand, where they end, what stays within a member, and the estimate made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from d3ray import Dataset
from d3ray.algos.dynamics.model import Outcomes
from d3ray.algos.judging.estimates import estimate
from d3ray.algos.judging.logs import Logs
from d3ray.algos.judging.models import model_returns
from d3ray.data.errors import ConfigError, DataError


class Chain:
    """Member i moves by the action and by i, and pays where that leads; the MDP ends beyond 5."""

    members = 2

    def __init__(self, deviation: float = 0.0) -> None:
        self.deviation = deviation

    def __call__(self, state: torch.Tensor, action: torch.Tensor) -> Outcomes:
        following = torch.stack([state + action + i for i in range(2)])
        return Outcomes(following, following[..., 0], torch.full((2, len(state), 2), self.deviation), None)

    def ends(self, following: torch.Tensor, end: Any, chance: torch.Tensor) -> torch.Tensor:
        return following[:, 0] > 5


class Forward:
    """Goes on by 1."""

    def start(self, n: int) -> None:
        return None

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return None, np.ones((len(observation), 1), np.float32)


def logs() -> Dataset:
    """Three episodes of 4, 2 and 1 steps, which begin at 0, 3 and 5."""
    seen = np.array([0, 9, 9, 9, 3, 9, 5], np.float32)[:, None]
    end = np.array([0, 0, 0, 1, 0, 1, 1], bool)
    return Dataset.from_arrays(seen, np.zeros((7, 1), np.float32), np.arange(7.0), np.zeros(7, bool), end)


def test_returns_are_those_of_a_chain() -> None:
    found = model_returns(Chain(), Forward(), logs(), 0.5)  # type: ignore[arg-type]
    first = [1 + 2 / 2 + 3 / 4 + 4 / 8, 4 + 5 / 2 + 6 / 4, 6]  # 4 steps, the longest episode's; 3 until beyond 5; 1
    second = [2 + 4 / 2 + 6 / 4, 5 + 7 / 2, 7]
    np.testing.assert_allclose(found, [first, second])
    np.testing.assert_allclose(model_returns(Chain(), Forward(), logs(), 0.5, horizon=1), [[1, 4, 6], [2, 5, 7]])  # type: ignore[arg-type]


def test_draws_are_a_members_own_and_come_from_the_seed() -> None:
    once, again, other = (model_returns(Chain(0.1), Forward(), logs(), 0.9, seed=seed) for seed in (0, 0, 1))  # type: ignore[arg-type]
    assert np.array_equal(once, again)
    assert not np.isclose(once, other).any()
    many = np.array([model_returns(Chain(0.1), Forward(), logs(), 0.9, horizon=1, seed=k) for k in range(400)])  # type: ignore[arg-type]
    np.testing.assert_allclose(many.mean(0), [[1, 4, 6], [2, 5, 7]], atol=0.03)
    np.testing.assert_allclose(many.std(0), 0.1, atol=0.02)


def test_the_estimate_is_their_mean_and_there_only_with_a_model() -> None:
    data = logs()
    plain = estimate(Logs.of(data, None))
    assert "MB" not in plain.rows
    refused = estimate(Logs.of(data, None), ["MB"])["MB"].refused
    assert refused == "There is no model of the dynamics to follow the judged policy in; name one as model."
    found = estimate(Logs.of(data, None, model_value=[1.0, 4.0, 7.0]), interval="student")
    row = found["MB"]
    assert row.value == pytest.approx(4.0)
    assert row.interval == pytest.approx((4 - 4.30265 * 3 / 3**0.5, 4 + 4.30265 * 3 / 3**0.5), rel=1e-4)  # Student's t, 2 degrees
    assert row.caveat is not None
    with pytest.raises(DataError, match=r"model_value has the shape \[7\]; it takes 3 numbers, one an episode\."):
        Logs.of(data, None, model_value=np.zeros(7))


def test_a_policy_that_remembers_is_refused() -> None:
    class Remembers(Forward):
        def start(self, n: int) -> Any:
            return np.zeros(n)

    with pytest.raises(ConfigError, match=r"^A policy that remembers cannot be followed in a model of single steps\.$"):
        model_returns(Chain(), Remembers(), logs(), 0.5)  # type: ignore[arg-type]
