r"""An estimate as a function of how often each episode counts, so that it can be made again from any resample of episodes.

    θ(c) = Σ_k (Σ_u c_u A_uk) / (Σ_u c_u B_uk)                                                  `Statistic.at`
    ψ_u = Σ_k (A_uk - R_k B_uk) / Σ_v B_vk,    R_k = Σ_v A_vk / Σ_v B_vk                        `Statistic.influences`

A mean has one column k with B = 1, a self-normalised estimate B = weights, one by decision a column for each step. Units u are
episodes; beyond `MOST` of them random groups of episodes, whose sums are as independent as episodes are, so that intervals of a
million episodes cost what those of a thousand do. ψ_u is the derivative of θ in c_u at c = 1 (the delta method).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .logs import Logs
from .resampling import groups

MOST = 1000  # units
_CELLS = 10_000_000  # of units × columns, or resamples × columns: 80 MB
_FEWEST = 50


@dataclass(frozen=True, eq=False)
class Statistic:
    """An estimate; θ of each unit counted once is its value.

    `numerators` A and `denominators` B, which are not negative, are [units, columns]; a column whose denominators sum to 0 adds
    nothing. `values` [E] are there where the estimate is the mean of one value an episode, `ess` where there are weights: Kish's
    effective number of episodes. `setting` is what was chosen by the data, by name.
    """

    numerators: np.ndarray
    denominators: np.ndarray
    values: np.ndarray | None = None
    ess: float | None = None
    setting: tuple[tuple[str, float], ...] = ()

    @property
    def n_units(self) -> int:
        return len(self.numerators)

    @cached_property
    def value(self) -> float:
        return float(self.at(np.ones((1, self.n_units)))[0]) if self.values is None else float(self.values.mean())

    def at(self, counts: np.ndarray) -> np.ndarray:
        """The estimate for each way to count the units, [times, units] to [times]."""
        at_once = max(1, _CELLS // self.numerators.shape[1])
        parts = (counts[k : k + at_once] for k in range(0, len(counts), at_once))
        return np.concatenate([_ratio(part @ self.numerators, part @ self.denominators).sum(1) for part in parts])

    def ratios(self) -> np.ndarray:
        """R, [columns]; the estimate is their sum."""
        return _ratio(self.numerators.sum(0), self.denominators.sum(0))

    def without(self) -> np.ndarray:
        """The estimate without each unit (jackknife), [units]."""
        above, below = self.numerators.sum(0), self.denominators.sum(0)
        return _ratio(above - self.numerators, below - self.denominators, 1e-12 * below).sum(1)  # else 0 but for rounding

    def influences(self) -> np.ndarray:
        """ψ of each column, [units, columns]; each sums to 0."""
        return _ratio(self.numerators - self.ratios() * self.denominators, self.denominators.sum(0))

    def standard_error(self) -> float:
        """√(U / (U - 1) Σ_u ψ_u²); of a mean it is the usual s / √n."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.sqrt(self.n_units / (self.n_units - 1) * np.square(self.influences().sum(1)).sum()))

    def having(self, **more: object) -> Statistic:
        return replace(self, **more)  # pyright: ignore[reportArgumentType]


def mean_of(logs: Logs, values: np.ndarray) -> Statistic:
    return ratio_of(logs, values, np.ones(len(values))).having(values=values)


def ratio_of(logs: Logs, above: np.ndarray, below: np.ndarray) -> Statistic:
    """The sum of one number an episode by that of another, [E] each."""
    unit = _units(logs)
    return Statistic(np.bincount(unit, above)[:, None], np.bincount(unit, below)[:, None])


def by_step(logs: Logs, gains: np.ndarray) -> Statistic:
    """Σ_t Σ_i w_it x_it / Σ_i w_it, of a gain x at each step, [N], with the weights w_t of `logs`.

    All episodes are as long as the longest: one that ended goes on in a state where nothing is gained, with the weight that it had.
    """
    steps, width = logs.steps, int(logs.steps.max())
    unit, over = _units(logs), steps < width
    total = np.where(np.isneginf(logs.log_sums), 0.0, logs.log_sums)  # by which weights are divided, so that none is too large
    weights, cell = np.exp(logs.log_weight - total[logs.step]), unit[logs.episode] * width + logs.step
    shape = int(unit.max()) + 1, width
    numerators, denominators = (np.bincount(cell, x, shape[0] * width).reshape(shape) for x in (weights * gains, weights))
    if over.any():
        ended = np.full(shape, -np.inf)
        np.logaddexp.at(ended, (unit[over], steps[over]), logs.episode_log_weight[over])
        np.logaddexp.accumulate(ended, axis=1, out=ended)
        denominators += np.exp(np.subtract(ended, total, out=ended), out=ended)
    return Statistic(numerators, denominators)


def _units(logs: Logs) -> np.ndarray:
    """The unit of each episode, [E]; the same for every estimate, so that resamples are."""
    return groups(len(logs.steps), max(_FEWEST, min(MOST, _CELLS // int(logs.steps.max()))))


def _ratio(above: np.ndarray, below: np.ndarray, least: np.ndarray | float = 0.0) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below > least)
