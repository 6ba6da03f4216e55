"""Whether a run should have ended earlier, and what says so.

An offline run is often trained longer than its policy improves, and its losses do not tell. Three things do, where measured:

- *returns* that were higher before than they are at the end, by more than evaluations differ from one to the next;
- a *held-out TD error* that rises while that of training does not. Both rise together where values merely grow, which is no sign;
- *values* that grow while returns fall, which is overestimation.

Returns decide where there are some: without a fall there is no advice, whatever else rises. Windows of three evaluations are
compared, the best one and the last. The noise σ of one evaluation is that of a smooth curve's, σ² = Σ (yᵢ₊₁ - yᵢ)² / 2(n - 1)
(von Neumann, Distribution of the Ratio of the Mean Square Successive Difference to the Variance, 1941), so a run that is erratic
needs a deeper fall. The best of many windows is a lucky one: the level of the t-test is divided by how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

Curve = Mapping[int, float]
"""A metric by gradient step."""

WINDOW = 3  # evaluations of which means are compared
FEWEST = 8  # evaluations, below which nothing is said
LEVEL = 0.01  # of the whole test
RETURNS = "evaluation/return"
HELD_OUT, TRAINED = ("holdout/td_error", "scorers/td_error"), "train/td_error"
VALUES = ("scorers/initial_state_value_estimation", "scorers/average_value_estimation", "train/q_value")


@dataclass(frozen=True)
class Stop:
    step: int  # gradient steps
    evidence: str  # a sentence


def stop_here(metrics: Mapping[str, Curve], n_steps_per_epoch: int | None = None) -> Stop | None:
    """Give where a run should have ended, with the evidence; None where there is none.

    `metrics` of one seed are `evaluation/return`, or without any `holdout/td_error` and `train/td_error`; values, if there are any.
    `n_steps_per_epoch` lets the sentence name the epoch too.
    """
    if len(_finite(metrics.get(RETURNS, {}))[0]) >= FEWEST:
        fall = _fall(metrics[RETURNS], 1)
        if fall is None:
            return None
        said = f"the return was {fall.best:.4g} there and is {fall.last:.4g} at the end"
        noise = f"means of {WINDOW} evaluations, of which one is ± {fall.noise:.2g}"
        risen = [f"{name} rose from {rise}" for name in (*HELD_OUT, *VALUES) if (rise := _risen(metrics, name, fall))]
        also = f"; meanwhile {' and '.join(risen)}" if risen else ""
        return Stop(fall.step, f"{_place(fall.step, n_steps_per_epoch)}: {said} ({noise}){also}.")
    for name in HELD_OUT:
        rise = _fall(metrics.get(name, {}), -1)
        before, after = _window(metrics, TRAINED, rise)
        if rise is not None and after <= before:  # false where training's was not measured
            said = f"the held-out TD error rose from {rise.best:.4g} to {rise.last:.4g} since"
            also = f"while that of training went from {before:.4g} to {after:.4g}; no return says what that costs"
            return Stop(rise.step, f"{_place(rise.step, n_steps_per_epoch)}: {said}, {also}.")
    return None


@dataclass(frozen=True)
class _Fall:
    step: int
    best: float
    last: float
    noise: float
    steps: tuple[np.ndarray, np.ndarray]  # of the best window and of the last


def _fall(curve: Curve, sign: int) -> _Fall | None:
    """From where a curve got worse by more than its noise; `sign` is -1 where the smaller value is the better one."""
    steps, values = _finite(curve)
    if (n := len(values)) < FEWEST:
        return None
    means = np.convolve(sign * values, np.ones(WINDOW) / WINDOW, mode="valid")
    before = means[: n - 2 * WINDOW + 1]  # windows that the last one does not overlap
    at = int(before.argmax())
    gap, noise = before[at] - means[-1], _noise(values)
    if gap <= 0 or not noise or len(before) * _chance(gap, noise, n) >= LEVEL:
        return None
    windows = steps[at : at + WINDOW], steps[-WINDOW:]
    return _Fall(int(windows[0][WINDOW // 2]), sign * float(before[at]), sign * float(means[-1]), noise, windows)


def _risen(metrics: Mapping[str, Curve], name: str, fall: _Fall) -> str:
    """Say from what to what a metric rose between the two windows, where that is more than its noise; else nothing."""
    values = _finite(metrics.get(name, {}))[1]
    before, after = _window(metrics, name, fall)
    if len(values) < FEWEST or not after > before or _chance(after - before, _noise(values), len(values)) >= LEVEL:
        return ""
    return f"{before:.4g} to {after:.4g}"


def _window(metrics: Mapping[str, Curve], name: str, fall: _Fall | None) -> tuple[float, float]:
    """Means of a metric in the two windows of a fall; NaN where it was not measured in one."""
    if fall is None:
        return np.nan, np.nan
    steps, values = _finite(metrics.get(name, {}))
    best, last = (values[np.isin(steps, window)] for window in fall.steps)
    return (float(best.mean()), float(last.mean())) if len(best) and len(last) else (np.nan, np.nan)


def _noise(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(np.diff(values)).sum() / (2 * (len(values) - 1))))


def _chance(gap: float, noise: float, n: int) -> float:
    """Give the chance that two windows of an unchanging curve of n values are as far apart, the second below the first."""
    freedom = 2 * (n - 1) ** 2 / (3 * n - 4)  # of that estimate of σ²
    return float(stdtr(freedom, -gap / (noise * np.sqrt(2 / WINDOW)))) if noise else 0.0


def _finite(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    points = sorted((step, value) for step, value in curve.items() if np.isfinite(value))
    return np.array([step for step, _ in points], np.int64), np.array([value for _, value in points], np.float64)


def _place(step: int, n_steps_per_epoch: int | None) -> str:
    epoch = "" if n_steps_per_epoch is None else f"epoch {-(-step // n_steps_per_epoch):,}, "
    return f"stop at {epoch}step {step:,}"
