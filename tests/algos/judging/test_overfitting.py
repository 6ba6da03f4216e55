"""Where a run should have ended: found where there is evidence, and nothing said where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3ray.algos.judging.overfitting import FEWEST, stop_here

STEPS = [1000 * (k + 1) for k in range(20)]


def curve(values: Any) -> dict[int, float]:
    return dict(zip(STEPS, map(float, values), strict=False))


def peaked(noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """Rises to 100 at evaluation 8 and falls to 40."""
    way = np.concatenate([np.linspace(0, 100, 8), np.linspace(100, 40, 9), np.full(3, 40.0)])
    return way + noise * np.random.default_rng(seed).normal(size=20)


def test_a_fall_of_returns_is_found_with_what_rose_meanwhile() -> None:
    values, errors = np.linspace(0, 300, 20), np.r_[np.linspace(5, 1, 8), np.linspace(1, 9, 12)]
    metrics = {"evaluation/return": curve(peaked()), "train/q_value": curve(values), "holdout/td_error": curve(errors)}
    found = stop_here(metrics, 500)
    assert found is not None
    # windows of three: the mean is highest over evaluations 8, 9, 10 (100, 100, 92.5), of which 9 is in the middle: step 9,000
    assert found.step == 9000
    assert found.evidence.startswith("stop at epoch 18, step 9,000: the return was 97.5 there and is 40 at the end (means of 3")
    assert "; meanwhile holdout/td_error rose from " in found.evidence
    assert " and train/q_value rose from " in found.evidence
    alone = stop_here({"evaluation/return": curve(peaked(4.0)), "train/q_value": curve(-values)})
    assert alone is not None
    assert "epoch" not in alone.evidence
    assert "meanwhile" not in alone.evidence


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"evaluation/return": curve(np.linspace(0, 100, 20))},
        {"evaluation/return": curve([5.0] * 20)},
        {"evaluation/return": curve(peaked()[: FEWEST - 1])},
        {"evaluation/return": curve(peaked(60.0))},  # too erratic to tell
        {"evaluation/return": curve([*np.linspace(0, 100, 18), 90, 80])},  # the last window is not over the top yet
        {"evaluation/return": curve([float("nan")] * 20)},
        {
            "evaluation/return": curve(np.linspace(0, 9, 20)),
            "holdout/td_error": curve(-peaked()),
            "train/td_error": curve([1] * 20),
        },
        {"holdout/td_error": curve(200 - peaked())},  # training's is not known
        {"holdout/td_error": curve(200 - peaked()), "train/td_error": curve(200 - peaked())},  # values grow, and so do both
        {"holdout/td_error": curve(np.linspace(9, 1, 20)), "train/td_error": curve(np.linspace(9, 1, 20))},
    ],
)
def test_nothing_is_said_without_evidence(metrics: Any) -> None:
    assert stop_here(metrics) is None


def test_a_held_out_error_that_rises_alone_is_found_where_there_are_no_returns() -> None:
    metrics = {"holdout/td_error": curve(200 - peaked()), "train/td_error": curve(np.linspace(50, 10, 20))}
    found = stop_here(metrics)
    assert found is not None
    assert found.step == 9000
    assert found.evidence.startswith(
        "stop at step 9,000: the held-out TD error rose from 102.5 to 160 since, while that of training"
    )


def test_of_runs_without_a_fall_hardly_one_is_told_to_stop() -> None:
    """Plateaus with noise: at a level of 1 % some 10 of 1,000; that many draws are above 25 once in 10⁵ times."""
    told = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        rise = 100 * (1 - np.exp(-np.arange(20) / 4)) if seed % 2 else np.zeros(20)
        told += stop_here({"evaluation/return": curve(rise + 10 * rng.normal(size=20))}) is not None
    assert told <= 25
    found = [stop_here({"evaluation/return": curve(peaked(10.0, seed))}) for seed in range(200)]
    assert sum(one is not None for one in found) >= 150  # a fall of 60 with noise of 10 is mostly seen
    assert np.mean([4000 <= one.step <= 13000 for one in found if one is not None]) > 0.95
