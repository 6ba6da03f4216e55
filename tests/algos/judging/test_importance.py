"""Estimates beside loops over steps, a case by hand, and what must not overflow."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from d3ray.algos.judging import importance, statistic
from d3ray.algos.judging.estimates import EPISODES
from d3ray.algos.judging.logs import Logs, cumulative

from .slow_estimates import episodes, random_logs, slow, weights

FIXED = {
    **{name: estimator.estimate for name, estimator in EPISODES.items() if name not in ("Switch-DR", "MAGIC")},
    "Switch-DR": partial(importance.switch_doubly_robust, tau=1.5),
    "DRos": partial(importance.doubly_robust_with_optimistic_shrinkage, lam=2.0),
    "CIPS": partial(importance.clipped_importance_sampling, most=1.2),
}


@pytest.mark.parametrize(
    "logs",
    [
        random_logs(0, [3, 1, 5, 2, 8, 1, 4]),
        random_logs(1, [4] * 6, final=True, gamma=1.0),
        random_logs(2, [1] * 9, gamma=0.0),
        random_logs(3, [6, 2, 3, 7, 1], never=0.3, final=True),
    ],
    ids=["ragged", "equal", "one step", "unsupported"],
)
def test_estimates_are_those_of_loops(logs: Logs) -> None:
    expected = slow(logs)
    assert FIXED.keys() == expected.keys()
    for name, function in FIXED.items():
        found = function(logs)
        assert found.value == pytest.approx(expected[name], rel=1e-12, abs=1e-12), name
        assert found.at(np.ones((1, found.n_units)))[0] == pytest.approx(expected[name], rel=1e-12, abs=1e-12), name


def test_two_episodes_by_hand() -> None:
    """Ratios 2, 2 and 1/2, 1; rewards 1, 1 and 4, 0; γ = 1/2. Returns 1.5 and 4; w_T = 4 and 1/2."""
    logs = Logs([1.0, 1, 4, 0], [2, 2], np.log([0.25, 0.25, 0.5, 0.5]), np.log([0.5, 0.5, 0.25, 0.5]), gamma=0.5)  # pyright: ignore[reportArgumentType]
    assert importance.importance_sampling(logs).value == pytest.approx((4 * 1.5 + 0.5 * 4) / 2)
    assert importance.weighted_importance_sampling(logs).value == pytest.approx(8 / 4.5)
    assert importance.per_decision(logs).value == pytest.approx((2 + 0.5 * 4 + 0.5 * 4) / 2)
    assert importance.weighted_per_decision(logs).value == pytest.approx((2 + 0.5 * 4) / 2.5 + 0.5 * 4 / 4.5)
    assert importance.importance_sampling(logs).ess == pytest.approx(4.5**2 / 16.25)
    # By step: (2.5² / 4.25) and (4.5² / 16.25), whose harmonic mean weighs them 1 to 1/2.
    assert importance.per_decision(logs).ess == pytest.approx(1.5 / (4.25 / 2.5**2 + 0.5 * 16.25 / 4.5**2))


def test_estimates_of_resamples_are_those_of_the_episodes_drawn() -> None:
    logs = random_logs(4, [3, 1, 2, 4, 2], final=True)
    counts = np.array([[2, 0, 1, 1, 1], [0, 3, 0, 0, 2], [1, 1, 1, 1, 1]])
    for name, function in FIXED.items():
        found = function(logs)
        for row, at in zip(counts, found.at(counts.astype(float)), strict=True):
            assert at == pytest.approx(slow(drawn(logs, np.repeat(np.arange(5), row)))[name], rel=1e-12), name
    wdr = importance.weighted_doubly_robust(logs)
    each = [slow(drawn(logs, np.delete(np.arange(5), k)))["WDR"] for k in range(5)]
    np.testing.assert_allclose(wdr.without(), each, rtol=1e-12)
    step = 1e-6  # the influence is the slope in an episode's count
    slopes = [(wdr.at(np.ones((1, 5)) + step * np.eye(5)[[k]])[0] - wdr.value) / step for k in range(5)]
    np.testing.assert_allclose(wdr.influences().sum(1), slopes, atol=1e-5)


def drawn(logs: Logs, which: np.ndarray) -> Logs:
    """The episodes with those numbers, in that order. Of the longest all keep their width, since weights of ended ones stay."""
    rows = np.concatenate([np.arange(logs.first[k], logs.first[k] + logs.steps[k]) for k in which])
    columns = {name: getattr(logs, name)[rows] for name in ("reward", "log_prob", "policy_log_prob", "q_value", "value")}
    final = None if logs.final_value is None else logs.final_value[which]
    return Logs(**columns, steps=logs.steps[which], final_value=final, gamma=logs.gamma)


def test_long_episodes_do_not_overflow_and_lose_no_digits() -> None:
    """Two episodes of 20,000 steps, whose weights are e^2000 and e^1999: WIS weighs them e to 1."""
    n = 20_000
    logs = Logs(
        np.ones(2 * n),
        np.array([n, n]),
        np.full(2 * n, -0.6),
        np.r_[np.full(n, -0.5), np.full(n, -0.6 + 1999 / n)],
        gamma=0.9999,
        value=np.zeros(2 * n),
        q_value=np.ones(2 * n),
    )
    first, second = 2.0, 5.0
    logs = Logs(np.r_[np.full(n, first), np.full(n, second)], logs.steps, logs.log_prob, logs.policy_log_prob, gamma=1.0)
    total = n * (first * math.e + second) / (math.e + 1)
    assert importance.weighted_importance_sampling(logs).value == pytest.approx(total, rel=1e-9)
    ratio = [1 / (1 + math.exp(-(0.1 - 1999 / n) * (t + 1))) for t in range(n)]  # the first one's share at step t
    assert importance.weighted_per_decision(logs).value == pytest.approx(
        sum(second + (first - second) * x for x in ratio), rel=1e-9
    )
    assert math.isinf(importance.importance_sampling(logs).value)


def test_sums_stay_in_their_episode() -> None:
    steps = np.array([1, 5, 3, 9, 1, 2])
    values = np.random.default_rng(0).normal(size=steps.sum())
    values[3] = -np.inf
    expected = np.concatenate([np.cumsum(part) for part in np.split(values, np.cumsum(steps)[:-1])])
    np.testing.assert_allclose(cumulative(values, steps), expected, rtol=1e-15)


def test_many_episodes_are_grouped_without_a_change_of_the_estimate() -> None:
    lengths = np.random.default_rng(5).integers(1, 4, 3000).tolist()
    logs = random_logs(5, lengths)
    for name, function in FIXED.items():
        found, ungrouped = function(logs), slow_error(logs, name)
        assert found.n_units == 1000
        if ungrouped is not None:
            assert found.value == pytest.approx(ungrouped[0], rel=1e-10), name
            assert found.standard_error() == pytest.approx(ungrouped[1], rel=0.1), name  # of 1,000 groups: 1 / √2000 = 0.02


def slow_error(logs: Logs, name: str) -> tuple[float, float] | None:
    """Value and standard error of what is a mean over episodes, without groups."""
    values = FIXED[name](logs).values
    return None if values is None else (float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5)


@pytest.mark.parametrize("off", [0.0, 20.0])  # with values that are off by as much, short returns are biased
def test_magic_is_the_mixture_of_least_error_of_returns_of_all_lengths(off: float) -> None:
    """Against the paper's definition in loops, and SciPy's minimum over the simplex."""
    logs = random_logs(6, [4, 3, 4, 2, 4, 4, 1, 3])
    logs = replace(logs, value=logs.value + off, q_value=logs.q_value + off)  # pyright: ignore[reportOptionalOperand]
    n, width, all_of = 8, 4, episodes(logs)
    w = [weights(e, width) for e in all_of]

    def returns(count: np.ndarray) -> np.ndarray:
        """g_j for j = -1 … 3, of episodes counted so often."""
        found = [sum(c * e["v"][0] for c, e in zip(count, all_of, strict=True)) / count.sum()]
        for t in range(width):
            share = sum(count[i] * w[i][t] for i in range(n))
            delta = [
                logs.gamma**t * (e["r"][t] + logs.gamma * e["v_next"][t] - e["q"][t]) if t < len(e["r"]) else 0.0 for e in all_of
            ]
            found.append(found[-1] + sum(count[i] * w[i][t] * delta[i] for i in range(n)) / share)
        return np.array(found)

    g, step = returns(np.ones(n)), 1e-6
    slopes = np.array(
        [(returns(np.ones(n) + step * np.eye(n)[k]) - returns(np.ones(n) - step * np.eye(n)[k])) / (2 * step) for k in range(n)]
    )
    covariance = n / (n - 1) * slopes.T @ slopes
    bias = np.maximum(abs(g - g[-1]) - 1.6448536269514722 * covariance[-1, -1] ** 0.5, 0)
    assert (bias.max() > 0.1) == (off > 0)
    error = covariance + np.outer(bias, bias)
    best = minimize(
        lambda x: 100 * x @ error @ x,
        np.full(5, 0.2),
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    found = importance.magic(logs)
    assert found.value == pytest.approx(float(best.x @ g), rel=1e-4)
    assert dict(found.setting)["share_of_DM"] == pytest.approx(best.x[0], abs=1e-3)
    assert importance.magic(logs, lengths=2).value == pytest.approx(
        dict(importance.magic(logs, lengths=2).setting)["share_of_DM"] * g[0]
        + dict(importance.magic(logs, lengths=2).setting)["share_of_WDR"] * g[-1]
    )


def test_the_minimum_on_the_simplex() -> None:
    rng = np.random.default_rng(7)
    grid = np.array([(a, b, 100 - a - b) for a, b in product(range(101), range(101)) if a + b <= 100]) / 100
    for _ in range(20):
        root = rng.normal(size=(2, 3)) * 10 ** rng.uniform(-6, 6)
        matrix = root.T @ root  # of rank 2
        x = importance.least_on_simplex(matrix)
        assert (x >= 0).all()
        assert x.sum() == pytest.approx(1)
        assert x @ matrix @ x <= np.einsum("ki,ij,kj->k", grid, matrix, grid).min() * (1 + 1e-9) + 1e-12 * matrix.max()
    assert importance.least_on_simplex(np.diag([1.0, 4.0])) == pytest.approx([0.8, 0.2])
    assert importance.least_on_simplex(np.zeros((2, 2))).sum() == pytest.approx(1)


def test_where_weights_are_cut_follows_the_error() -> None:
    """With values that are right DM has no bias and the least variance; with wrong ones the weights are kept."""
    rng, n = np.random.default_rng(8), 4000
    reward = rng.normal(2, 1, n)
    behaviour, judged = rng.uniform(0.2, 0.8, (2, n))
    about = {"steps": np.ones(n, int), "log_prob": np.log(behaviour), "policy_log_prob": np.log(judged)}
    right = Logs(reward, **about, value=np.full(n, 2.0), q_value=np.full(n, 2.0))
    wrong = Logs(reward, **about, value=np.full(n, 7.0), q_value=np.full(n, 7.0))
    assert dict(importance.switch_doubly_robust(right).setting)["tau"] < 0.5
    assert importance.switch_doubly_robust(wrong).value == importance.doubly_robust(wrong).value
    assert (
        importance.doubly_robust_with_optimistic_shrinkage(right).standard_error()
        < importance.doubly_robust(right).standard_error() / 2
    )
    assert math.isinf(dict(importance.doubly_robust_with_optimistic_shrinkage(wrong).setting)["lambda"])


def test_what_is_too_large_at_once_is_resampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importance.weighted_doubly_robust(random_logs(9, [3, 5, 1, 4] * 5))
    counts = np.random.default_rng(0).integers(0, 3, (23, 20)).astype(float)
    whole = found.at(counts)
    monkeypatch.setattr(statistic, "_CELLS", 30)
    np.testing.assert_allclose(found.at(counts), whole, rtol=1e-12)
