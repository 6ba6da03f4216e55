r"""Estimates from logs of one step (contextual bandits): what `importance` has, by that field's names, and two forms of its own.

    IPS    IS: 1/n Σ_i w r          SNIPS   WIS: Σ_i w r / Σ_i w          DM, DR, SNDR (WDR) and Switch-DR: as there, with T = 0
    CIPS   IS with min(w, M) in place of w                                                     `clipped_importance_sampling`
    DRos   DR with λ w / (w² + λ) in place of w                          `doubly_robust_with_optimistic_shrinkage`

Papers    IPS: Horvitz, Thompson, 1952. SNIPS: Swaminathan, Joachims, NeurIPS 2015. CIPS: Ionides, J. Comp. Graph. Stat. 2008.
          DR: Dudík, Langford, Li, ICML 2011. DRos: Su, Dimakopoulou, Krishnamurthy, Dudík, ICML 2020.
Choices   M = √n, of Ionides. λ is the square of one of several quantiles of the weights (0: DM, ∞: DR), chosen as τ is.
"""

from __future__ import annotations

import numpy as np

from .importance import kish, least_error, scales
from .logs import Logs
from .statistic import Statistic, mean_of


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
