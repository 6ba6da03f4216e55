"""Errors over several steps and coverage of models of the dynamics: of one whose answers are known, and of one that was trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3ray import Dataset, ProbabilisticEnsemble
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.judging.models import coverage, step_errors
from d3ray.algos.testing import tiny_dataset

from ..dynamics.test_generated import CHANGE, REWARD, Known


def walk(n: int = 400, length: int = 20, sigma: float = 0.5, *, last: bool = True) -> Dataset:
    """Entries that grow by `CHANGE` and noise at each step, and rewards of `REWARD` and noise."""
    rng = np.random.default_rng(0)
    moves = CHANGE + sigma * rng.normal(size=(n // length, length, 5))
    seen = np.concatenate((np.zeros((n // length, 1, 5)), moves.cumsum(1)), 1).astype(np.float32)
    ends = np.arange(n) % length == length - 1
    return Dataset.from_arrays(
        seen[:, :-1].reshape(n, 5),
        np.zeros((n, 3), np.float32),
        REWARD + sigma * rng.normal(size=n),
        ends & False,
        ends,
        final_observations=seen[:, -1] if last else None,
    )


def test_errors_grow_as_the_noise_adds_up() -> None:
    data = walk(4000)
    errors = step_errors(Known(data, sigma=0.5).model(), data, 9)  # type: ignore[arg-type]
    scale = np.asarray(data.columns["observation"]).std(0)
    by_hand = []
    for k in range(1, 10):
        apart = [(e.observations[t] + k * CHANGE - e.observations[t + k]) / scale for e in data.episodes for t in range(20 - 9 + 1)]
        by_hand.append(np.sqrt(np.square(apart).mean()))
    np.testing.assert_allclose(errors, by_hand, rtol=0.02)  # every second start is looked at
    assert errors[8] == pytest.approx(3 * errors[0], rel=0.1)  # √9


def test_an_outcome_that_was_not_recorded_is_not_looked_at() -> None:
    data = walk(40, last=False)
    assert len(step_errors(Known(data).model(), data, 25)) == 19  # type: ignore[arg-type]
    assert len(step_errors(Known(walk(40)).model(), walk(40), 25)) == 20  # type: ignore[arg-type]


@pytest.mark.parametrize(("sigma", "shares"), [(0.5, (0.5, 0.9)), (0.25, (0.2641, 0.5891)), (1.0, (0.8227, 0.9990))])
def test_coverage_is_the_level_of_a_model_that_knows_its_noise(sigma: float, shares: tuple[float, float]) -> None:
    """By the normal distribution: P(|z| ≤ q σ_model / σ) with q 0.6745 and 1.6449."""
    data = walk(2000)
    found = coverage(Known(data, sigma=sigma).model(), data, (0.5, 0.9))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, shares, atol=0.015)


def test_held_out_episodes_tell_both() -> None:
    data = tiny_dataset(discrete=True)
    train, test = data.split(0.3, seed=0)
    small: Any = {"encoder": {"name": "vector", "hidden_units": [8]}, "n_members": 3, "n_elites": 2, "batch_size": 8}
    made = ProbabilisticEnsemble(**small, device="cpu").fit(train, 20, 20, {"held_out": HeldOut(test)})
    told = {name.partition("/")[2]: values[-1] for name, values in made.eval_results_.items()}
    assert {"error_1", "error_5", "error_10", "coverage_50", "coverage_90", "dynamics_loss"} <= told.keys()
    assert told["error_1"] == pytest.approx(float(step_errors(made.model(), test, 20)[0]), rel=0.2)  # of more starts
    assert 0 < told["coverage_50"] < told["coverage_90"] <= 1
