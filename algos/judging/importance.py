r"""Estimates of a policy's value from episodes of another: importance sampling, an estimate of values, and both together.

    ρ_t = π(a_t|s_t) / μ(a_t|s_t),    w_t = Π_{t' ≤ t} ρ_t',    G = Σ_t γ^t r_t,    δ_t = r_t + γ V(s_{t+1}) - Q(s_t, a_t)
    means over episodes i of n, and w̄_t = w_t / (1/n Σ_i w_t^i):

    IS      1/n Σ_i w_T G                               trajectory-wise                            `importance_sampling`
    WIS     Σ_i w_T G / Σ_i w_T                         weighted, or self-normalised      `weighted_importance_sampling`
    PDIS    1/n Σ_i Σ_t γ^t w_t r_t                     per decision                                      `per_decision`
    WPDIS   1/n Σ_i Σ_t γ^t w̄_t r_t                     weighted per decision                    `weighted_per_decision`
    DM      1/n Σ_i V(s_0)                              direct method                                    `direct_method`
    DR      1/n Σ_i [ V(s_0) + Σ_t γ^t w_t δ_t ]        doubly robust                                    `doubly_robust`
    WDR     1/n Σ_i [ V(s_0) + Σ_t γ^t w̄_t δ_t ]        weighted doubly robust                  `weighted_doubly_robust`
    Switch-DR   DR with w_t 1[w_t ≤ τ] in place of w_t                                           `switch_doubly_robust`
    MAGIC   Σ_j x_j g_j,  g_j = WDR with its sum over t ≤ j,  j from -1 (DM) to T (WDR),  x ≥ 0,  Σ_j x_j = 1      `magic`
            x minimises xᵀ (Ω + b bᵀ) x: Ω the covariance of the g_j, b_j how far g_j lies outside WDR's 90 % interval
    MB      1/n Σ_i E[G | s_0] where a learnt model of the dynamics goes on from s_0 under π                   `in_a_model`

In logs of one step (contextual bandits, T = 0) IS is known as IPS, WIS as SNIPS and WDR as SNDR; two forms are of that field alone:

    CIPS    IS with min(w, M) in place of w                                            `clipped_importance_sampling`
    DRos    DR with λ w / (w² + λ) in place of w                           `doubly_robust_with_optimistic_shrinkage`

Weights are added up as logarithms and divided by their sum as such, so that none overflows where they are normalised.

Symbols   μ the behaviour, π the judged policy, T an episode's last step; Q and V of π, as an estimate (FQE) has them.
Papers    IS, PDIS: Precup, Sutton, Singh, ICML 2000. WDR, MAGIC, WPDIS (CWPDIS, of Thomas 2015): Thomas, Brunskill, ICML 2016.
          DR: Jiang, Li, ICML 2016; the sum above is theirs without its recursion. Switch: Wang, Agarwal, Dudík, ICML 2017, for
          one step, with w_t in place of w_0 here. IPS: Horvitz, Thompson, 1952. SNIPS: Swaminathan, Joachims, NeurIPS 2015.
          CIPS: Ionides, J. Comp. Graph. Stat. 2008. DR of one step: Dudík, Langford, Li, ICML 2011. DRos: Su, Dimakopoulou,
          Krishnamurthy, Dudík, ICML 2020.
Choices   1. An episode that ended early goes on where nothing is gained and keeps its weight, as in Thomas and Brunskill. To
             normalise over the running ones alone (COBS) counts late rewards of long episodes as if all were long.
          2. τ is that of several quantiles of the weights (0: DM, ∞: DR) with the least estimated variance + bias², the bias being
             the mean of Σ_t γ^t (ŵ_t - w_t) δ_t. Wang et al. bound it from above, by the largest reward: by a bound that holds with
             95 %, of that mean, nothing was ever cut whose variance mattered. For the bias that is accepted `estimates` widens the
             interval by the error of the values that are leant on.
          3. MAGIC's g_j are of 25 lengths spread evenly, Ω and WDR's interval are by the delta method where the paper resamples,
             and its intervals take x as given.
          4. M = √n, of Ionides. λ is the square of one of several quantiles of the weights (0: DM, ∞: DR), chosen as τ is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import nnls
from scipy.special import logsumexp
from scipy.stats import norm

from ...data.errors import DataError
from .logs import Logs
from .statistic import Statistic, by_step, mean_of, ratio_of

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)  # of weights above 0: where they are cut or shrunk
LENGTHS = 25  # of returns that MAGIC mixes
_LARGE = 1e300  # in place of infinity
_WDR_LEVEL = 0.9  # of the interval in which a shorter return counts as unbiased; the paper's


def importance_sampling(logs: Logs) -> Statistic:
    with np.errstate(over="ignore", invalid="ignore"):
        return mean_of(logs, np.exp(logs.episode_log_weight) * logs.returns).having(ess=kish(logs.episode_log_weight))


def weighted_importance_sampling(logs: Logs) -> Statistic:
    log_weights = logs.episode_log_weight
    weights = np.exp(log_weights - max(log_weights.max(), -_LARGE))
    return ratio_of(logs, weights * logs.returns, weights).having(ess=kish(log_weights))


def per_decision(logs: Logs) -> Statistic:
    with np.errstate(over="ignore", invalid="ignore"):
        return _behind(mean_of(logs, logs.total(logs.discount * np.exp(logs.log_weight) * logs.reward)), logs)


def weighted_per_decision(logs: Logs) -> Statistic:
    return _behind(by_step(logs, logs.discount * logs.reward), logs)


def in_a_model(logs: Logs) -> Statistic:
    """MB, of what `models.model_returns` gives."""
    if logs.model_value is None:
        raise DataError("There is no model_value: follow the judged policy in a model of the dynamics.")
    return mean_of(logs, logs.model_value)


def direct_method(logs: Logs) -> Statistic:
    """DM. It varies as first states do; what V owes to chance is `Logs.value_error`."""
    return mean_of(logs, _first_values(logs))


def doubly_robust(logs: Logs) -> Statistic:
    return _behind(corrected(logs, lambda weight: weight), logs)


def weighted_doubly_robust(logs: Logs) -> Statistic:
    start, corrections = direct_method(logs), by_step(logs, logs.discount * logs.surprise)
    numerators = np.hstack([start.numerators, corrections.numerators])
    return _behind(Statistic(numerators, np.hstack([start.denominators, corrections.denominators])), logs)


def switch_doubly_robust(logs: Logs, tau: float | None = None) -> Statistic:
    """Switch-DR; τ above which a weight counts as 0. None: chosen by the data."""
    taus = (0.0, *scales(logs), np.inf) if tau is None else (tau,)
    return least_error(logs, "tau", taus, lambda at, weight: np.where(weight <= at, weight, 0.0))


def magic(logs: Logs, lengths: int = LENGTHS) -> Statistic:
    """MAGIC, of so many lengths of return from none to the whole of the longest episode."""
    wdr = weighted_doubly_robust(logs)
    columns = wdr.numerators.shape[1]  # the first is DM, the others what each step adds to it
    last = np.unique(np.linspace(0, columns - 1, min(lengths, columns)).round().astype(int))
    returns, each = wdr.ratios().cumsum()[last], wdr.influences().cumsum(1)[:, last]
    covariance = wdr.n_units / (wdr.n_units - 1) * each.T @ each
    near = float(norm.ppf((1 + _WDR_LEVEL) / 2)) * wdr.standard_error()
    bias = np.maximum(np.abs(returns - wdr.value) - near, 0.0)
    x = least_on_simplex(covariance + np.outer(bias, bias))
    shares = x[::-1].cumsum()[::-1][np.searchsorted(last, np.arange(columns))]  # of the returns that go so far
    return wdr.having(numerators=wdr.numerators * shares, setting=(("share_of_DM", float(x[0])), ("share_of_WDR", float(x[-1]))))


def clipped_importance_sampling(logs: Logs, most: float | None = None) -> Statistic:
    """CIPS, where no weight counts as more than `most`; None: √n."""
    limit = len(logs.steps) ** 0.5 if most is None else most
    clipped = np.minimum(logs.episode_log_weight, np.log(limit))
    return mean_of(logs, np.exp(clipped) * logs.returns).having(ess=kish(clipped), setting=(("most", float(limit)),))


def doubly_robust_with_optimistic_shrinkage(logs: Logs, lam: float | None = None) -> Statistic:
    """DRos with λ = `lam`, from 0 (DM) to infinity (DR). None: chosen by the data."""

    def shrunk(at: float, weight: np.ndarray) -> np.ndarray:
        return weight / (weight * weight / at + 1) if at > 0 else np.zeros_like(weight)

    choices = (0.0, *(scale * scale for scale in scales(logs)), np.inf) if lam is None else (lam,)
    return least_error(logs, "lambda", choices, shrunk)


# ---- what they are made of


def corrected(logs: Logs, weigh: Callable[[np.ndarray], np.ndarray]) -> Statistic:
    """1/n Σ_i [ V(s_0) + Σ_t γ^t ŵ_t δ_t ], with ŵ of the weights [N]."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = logs.discount * weigh(np.exp(logs.log_weight)) * logs.surprise
        return mean_of(logs, _first_values(logs) + logs.total(steps))


def least_error(logs: Logs, name: str, choices: Sequence[float], weigh: Callable[[float, np.ndarray], np.ndarray]) -> Statistic:
    """Choose the `corrected` with the least estimated variance + bias²; bias is the distance from DR."""
    found, best = [corrected(logs, lambda weight, at=at: weigh(at, weight)) for at in choices], 0
    if len(found) > 1:
        with np.errstate(over="ignore", invalid="ignore"):
            unbiased = corrected(logs, lambda weight: weight).value
            errors = np.array([one.standard_error() ** 2 + (one.value - unbiased) ** 2 for one in found])
        best = int(np.where(np.isfinite(errors), errors, np.inf).argmin())
    return _behind(found[best].having(setting=((name, float(choices[best])),)), logs)


def scales(logs: Logs) -> list[float]:
    """Sizes of weights among which to choose where they are cut or shrunk, in rising order."""
    there = logs.log_weight[np.isfinite(logs.log_weight)]
    with np.errstate(over="ignore"):
        return np.unique(np.exp(np.quantile(there, QUANTILES))).tolist() if len(there) else []


def kish(log_weights: np.ndarray) -> float:
    """(Σ w)² / Σ w²: how many equally weighted episodes vary as much as these [E] (Kish 1965); 0 where all weights are."""
    total = logsumexp(log_weights)
    return 0.0 if np.isneginf(total) else float(np.exp(2 * total - logsumexp(2 * log_weights)))


def _first_values(logs: Logs) -> np.ndarray:
    if logs.value is None:
        raise DataError("There is no estimate of the judged policy's values.")
    return logs.value[logs.first]


def _behind(statistic: Statistic, logs: Logs) -> Statistic:
    """With the effective number of episodes behind weights by step: the harmonic mean over discounted steps, of 1 or more each."""
    share = np.bincount(logs.step, logs.discount)
    return statistic.having(ess=float(share.sum() / (share / np.maximum(logs.ess_by_step, 1.0)).sum()))


def least_on_simplex(matrix: np.ndarray) -> np.ndarray:
    """The x ≥ 0 with Σ x = 1 and the least xᵀ M x, for a positive semidefinite M.

    It is the direction of the x ≥ 0 with the least xᵀ M x + s (Σ x - 1)²: along a direction both terms depend on Σ x alone.
    """
    values, vectors = np.linalg.eigh(matrix)
    scale = max(float(values[-1]), np.finfo(np.float64).tiny)
    root = np.sqrt(np.maximum(values, 0) / scale)[:, None] * vectors.T
    x = nnls(np.vstack([root, np.ones(len(matrix))]), np.append(np.zeros(len(matrix)), 1.0))[0]
    return x / x.sum()
