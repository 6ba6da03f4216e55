"""Estimators beside loops that follow the definitions forwards, one sum for each step, at every kind of end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from d3ray.algos.on_policy.estimators import advantages, retrace, returns

GAMMA = 0.9
T, N = 40, 3


class Rollout(NamedTuple):
    reward: torch.Tensor
    value: torch.Tensor
    following: torch.Tensor
    terminated: torch.Tensor
    ends: torch.Tensor

    @property
    def discount(self) -> torch.Tensor:
        return GAMMA * (~self.terminated).double()


@pytest.fixture
def rollout() -> Rollout:
    """Episodes that end by the MDP, that are cut, of one step, and that the rollout cuts."""
    rng = np.random.default_rng(0)
    terminated, cut = rng.random((T, N)) < 0.1, rng.random((T, N)) < 0.1
    ends = terminated | cut
    ends[-1] = True
    terminated[-1] = [True, False, False]
    value = rng.normal(size=(T, N))
    following = np.where(ends, rng.normal(size=(T, N)), np.roll(value, -1, 0))
    assert (terminated & ends).any()
    assert (ends & ~terminated).any()
    assert (ends[:-1] & ends[1:]).any()  # an episode of one step
    return Rollout(*map(torch.from_numpy, (rng.normal(size=(T, N)), value, following, terminated, ends)))


def until_its_end(rollout: Rollout, t: int, i: int) -> list[int]:
    """The steps from t on to the last one of its episode in the rollout."""
    steps = [t]
    while not rollout.ends[steps[-1], i]:
        steps.append(steps[-1] + 1)
    return steps


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_generalised_advantages_are_decayed_sums_of_residuals(rollout: Rollout, lam: float) -> None:
    r, v, after, d = rollout.reward, rollout.value, rollout.following, rollout.discount
    found = advantages(r, v, after, d, rollout.ends, GAMMA * lam)
    for i in range(N):
        for t in range(T):
            residuals = [r[k, i] + d[k, i] * after[k, i] - v[k, i] for k in until_its_end(rollout, t, i)]
            wanted = sum((GAMMA * lam) ** n * residual for n, residual in enumerate(residuals))
            assert found[t, i] == pytest.approx(float(wanted), abs=1e-12)


def test_with_all_of_lambda_they_are_returns_of_n_steps(rollout: Rollout) -> None:
    """G_t = Σ γᵏ r + γⁿ V of what followed the last step, unless the MDP ended there."""
    found = advantages(rollout.reward, rollout.value, rollout.following, rollout.discount, rollout.ends, GAMMA) + rollout.value
    for i in range(N):
        for t in range(T):
            steps = until_its_end(rollout, t, i)
            last = steps[-1]
            wanted = sum(GAMMA**n * rollout.reward[k, i] for n, k in enumerate(steps))
            wanted += GAMMA ** (len(steps) - 1) * rollout.discount[last, i] * rollout.following[last, i]
            assert found[t, i] == pytest.approx(float(wanted), abs=1e-12)


def test_a_mixture_of_returns_of_n_steps_is_td_lambda(rollout: Rollout) -> None:
    """G^λ = (1 - λ) Σ_n λⁿ⁻¹ G⁽ⁿ⁾ with what is left of the weight on the last: Sutton and Barto 2018, equation 12.3."""
    lam, r, d = 0.7, rollout.reward, rollout.discount
    found = advantages(r, rollout.value, rollout.following, d, rollout.ends, GAMMA * lam) + rollout.value
    for i in range(N):
        for t in range(T):
            steps, mixture, collected = until_its_end(rollout, t, i), 0.0, 0.0
            for n, k in enumerate(steps):
                collected += GAMMA**n * float(r[k, i])
                to_here = collected + GAMMA**n * float(d[k, i] * rollout.following[k, i])
                mixture += (lam**n if k == steps[-1] else (1 - lam) * lam**n) * to_here
            assert found[t, i] == pytest.approx(mixture, abs=1e-12)


def test_monte_carlo_returns_are_sums_to_the_end(rollout: Rollout) -> None:
    found = returns(rollout.reward, rollout.ends, GAMMA)
    for i in range(N):
        for t in range(T):
            wanted = sum(GAMMA**n * rollout.reward[k, i] for n, k in enumerate(until_its_end(rollout, t, i)))
            assert found[t, i] == pytest.approx(float(wanted), abs=1e-12)


def test_retrace_is_a_sum_of_weighted_errors(rollout: Rollout) -> None:
    """Q_t = Q(s_t, a_t) + Σ_k γᵏ⁻ᵗ (Π_{t<j≤k} c_j) (r_k + d_k V(s'_k) - Q(s_k, a_k)): Munos et al. 2016, equation 3."""
    rng = np.random.default_rng(1)
    q, ratio = torch.from_numpy(rng.normal(size=(T, N))), torch.from_numpy(rng.uniform(0, 3, (T, N)))
    r, d, after = rollout.reward, rollout.discount, rollout.following
    found = retrace(r, q, after, d, rollout.ends, ratio)
    assert (ratio > 1).any()
    for i in range(N):
        for t in range(T):
            wanted, weight = float(q[t, i]), 1.0
            for n, k in enumerate(until_its_end(rollout, t, i)):
                weight *= 1.0 if n == 0 else min(1.0, float(ratio[k, i]))
                wanted += GAMMA**n * weight * float(r[k, i] + d[k, i] * after[k, i] - q[k, i])
            assert found[t, i] == pytest.approx(wanted, abs=1e-12)
